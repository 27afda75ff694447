/* Fields of the kernel's structures, and the device that a request or bio belongs to.
 *
 * Offsets are those of the running kernel's BTF, passed as macros (layout.py).
 */

/* Of a pointer whose type the verifier knows: a plain load, which gives 0 for a bad address. */
#define FIELD(type, pointer, offset) (*(type volatile *)((char *)(pointer) + (offset)))

/* Of any other pointer. */
#define PEEK(type, pointer, offset)                                                    \
    ({                                                                                 \
        type value_ = 0;                                                               \
        bpf_probe_read_kernel(&value_, sizeof(value_), (char *)(pointer) + (offset)); \
        value_;                                                                        \
    })

/* Index of the traced device that owns a disk, or -1; *dev is the number users know it by. */
static __always_inline int traced_device(void *disk, u32 major, u32 first_minor, u32 *dev) {
    *dev = major << 20 | first_minor;
    MATCH_DEVICE_NUMBER(*dev);
#ifdef MATCH_DISK_NAME
    u64 name[2] = {};
    bpf_probe_read_kernel(name, sizeof(name), (char *)disk + GENDISK_NAME);
    MATCH_DISK_NAME(name, *dev);
#endif
    return -1;
}

/* The two macros read by FIELD or PEEK, as the pointer allows. */
#define DEVICE_OF_DISK(read, disk, dev)                                                \
    traced_device(disk, read(u32, disk, GENDISK_MAJOR), read(u32, disk, GENDISK_FIRST_MINOR), dev)
#ifdef REQUEST_DISK /* before Linux 5.17 */
#define DISK_OF_REQUEST(read, request) read(void *, request, REQUEST_DISK)
#else
#define DISK_OF_REQUEST(read, request)                                                 \
    read(void *, read(void *, request, REQUEST_Q), QUEUE_DISK)
#endif

static __always_inline int device_of_request(u64 request, u32 *dev) {
    void *disk = DISK_OF_REQUEST(FIELD, request);
    return DEVICE_OF_DISK(FIELD, disk, dev);
}

static __always_inline int device_of_bio(u64 bio, u32 *dev) {
    void *disk = FIELD(void *, FIELD(void *, bio, BIO_BDEV), BDEV_DISK);
    return DEVICE_OF_DISK(FIELD, disk, dev);
}
