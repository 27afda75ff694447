/* The probe: raw tracepoints of the block layer, one record an event.
 *
 * Nothing here depends on kernel headers for struct layouts: the loader reads the offsets from
 * the running kernel's BTF and passes them as macros (layout.py). Addresses of requests and bios
 * are opaque keys that pair an issue with its completion exactly.
 */

#define FIELD(type, pointer, offset)                                                   \
    ({                                                                                 \
        type value_ = 0;                                                               \
        bpf_probe_read_kernel(&value_, sizeof(value_), (char *)(pointer) + (offset)); \
        value_;                                                                        \
    })

#define SUBMIT_QUIETLY 1 /* BPF_RB_NO_WAKEUP: the reader polls */

/* The few fields of struct request that matter lie side by side: one read fetches them all. */
struct request_view {
    u64 words[REQUEST_WORDS];
};
#define IN_VIEW(type, view, offset) (*(type *)((char *)(view).words + (offset)))

static __always_inline void read_request(struct request_view *view, void *request) {
    bpf_probe_read_kernel(view, sizeof(*view), (char *)request + REQUEST_BASE);
}

/* Index of the traced device that owns this disk, or -1; *dev is the number users know it by. */
static __always_inline int traced_device(void *disk, u32 *dev) {
    struct {
        u32 major, first_minor;
    } number = {};
    if (!disk)
        return -1;
    bpf_probe_read_kernel(&number, sizeof(number), (char *)disk + GENDISK_MAJOR);
    *dev = number.major << 20 | number.first_minor;
    MATCH_DEVICE_NUMBER(*dev);
#ifdef MATCH_DISK_NAME
    u64 name[2] = {};
    bpf_probe_read_kernel(name, sizeof(name), (char *)disk + GENDISK_NAME);
    MATCH_DISK_NAME(name, *dev);
#endif
    return -1;
}

/* From a queue to its device are two reads, so each CPU remembers some queues, for a while: the
 * memory of a queue may become another's when a device goes. A lookup that an interrupt tears
 * apart finds words that do not belong together, which the sum shows.
 */
#define REMEMBER_NS (1 << 26)
struct known_queue {
    u64 sum, until_device; /* until_ns with the index of the device in its low byte */
};
BPF_PERCPU_ARRAY(known_queues, struct known_queue, 16);

static __always_inline int device_of_request(struct request_view *view, u64 now, u32 *dev) {
    u64 queue = IN_VIEW(u64, *view, REQUEST_Q);
    u32 slot = (queue >> 10) & 15;
    struct known_queue *known = known_queues.lookup(&slot);
    if (!known)
        return -1;
    u64 until_device = known->until_device;
    if ((known->sum ^ until_device) == queue && until_device > now) {
        *dev = DEVICE_NUMBER(until_device & 0xff);
        return until_device & 0xff;
    }
#ifdef REQUEST_DISK
    void *disk = IN_VIEW(void *, *view, REQUEST_DISK);
#else
    void *disk = FIELD(void *, queue, QUEUE_DISK);
#endif
    int device = traced_device(disk, dev);
    if (device >= 0) {
        until_device = ((now + REMEMBER_NS) & ~0xffULL) | device;
        known->sum = queue ^ until_device;
        known->until_device = until_device;
    }
    return device;
}

static __always_inline void *bio_disk(void *bio) {
    void *part = FIELD(void *, bio, BIO_BDEV);
    return part ? FIELD(void *, part, BDEV_DISK) : 0;
}

static __always_inline u32 class_of(u32 cmd_flags) {
    switch (cmd_flags & 0xff) {
    case OP_READ: return CLASS_READ;
    case OP_WRITE: return CLASS_WRITE;
    case OP_DISCARD: return CLASS_DISCARD;
    case OP_SECURE_ERASE: return CLASS_DISCARD;
    case OP_FLUSH: return CLASS_FLUSH;
    case OP_WRITE_ZEROES: return CLASS_ZEROES;
    default: return CLASS_OTHER;
    }
}

static __always_inline int wanted_operation(u32 cmd_flags) {
    return (CLASS_MASK >> class_of(cmd_flags)) & 1;
}

/* Whether a filter on operation or sectors lets this through; needs no memory of the issue. */
static __always_inline int wanted_address(int device, u64 sector, u32 bytes) {
    MATCH_SECTORS(device, sector, bytes);
    return 1;
}

struct issuer {
    u32 pid;
    char comm[16];
};

static __always_inline void current_issuer(struct issuer *who) {
    who->pid = bpf_get_current_pid_tgid() >> 32;
    /* bpf_get_current_comm() takes three times as long */
    bpf_probe_read_kernel(who->comm, sizeof(who->comm),
                          (char *)bpf_get_current_task() + TASK_COMM);
}

#ifdef FILTER_ISSUER
/* A request is issued by whoever happens to run the queue; its first bio was submitted by the
 * process that wants it. So remember which bios come from the wanted processes. */
BPF_TABLE("lru_hash", u64, struct issuer, owned_bios, 65536);
BPF_HASH(accepted, u64, u8, 65536);

#ifdef FILTER_PID
BPF_HASH(pids, u32, u8, 65536);

int on_fork(struct bpf_raw_tracepoint_args *ctx) {
    u32 parent = FIELD(u32, ctx->args[0], TASK_TGID), child = FIELD(u32, ctx->args[1], TASK_TGID);
    u8 yes = 1;
    if (parent != child && pids.lookup(&parent))
        pids.update(&child, &yes);
    return 0;
}

/* A process lives as long as any of its threads, of which the first may be gone. */
int on_exit(struct bpf_raw_tracepoint_args *ctx) {
    u32 tgid = FIELD(u32, ctx->args[0], TASK_TGID);
    void *shared = FIELD(void *, ctx->args[0], TASK_SIGNAL);
    if (FIELD(u32, shared, SIGNAL_LIVE) == 0)
        pids.delete(&tgid);
    return 0;
}
#endif

static __always_inline int current_is_wanted(void) {
#ifdef FILTER_PID
    u32 tgid = bpf_get_current_pid_tgid() >> 32;
    if (!pids.lookup(&tgid))
        return 0;
#endif
#ifdef FILTER_CGROUP
    if (bpf_get_current_ancestor_cgroup_id(CGROUP_LEVEL) != CGROUP_ID)
        return 0;
#endif
    return 1;
}

static __always_inline void note_bio(u64 bio) {
    if (current_is_wanted()) {
        struct issuer who;
        current_issuer(&who);
        owned_bios.update(&bio, &who);
    } else {
        owned_bios.delete(&bio); /* the address may have been another's before */
    }
}
#endif

/* Fill in who issued; 0 if the issuer is not wanted. */
static __always_inline int wanted_issuer(u64 bio, struct issuer *who) {
#ifdef FILTER_ISSUER
    struct issuer *owner = owned_bios.lookup(&bio);
    if (owner) {
        *who = *owner;
        return 1;
    }
    if (!current_is_wanted())
        return 0;
#endif
    current_issuer(who);
    return 1;
}

/* Remember for the completion, which comes from elsewhere, whether the issue was wanted. */
static __always_inline int remember(u64 key, int wanted) {
#ifdef FILTER_ISSUER
    u8 yes = 1;
    if (wanted)
        accepted.update(&key, &yes);
    else
        accepted.delete(&key);
#endif
    return wanted;
}

static __always_inline int was_accepted(u64 key) {
#ifdef FILTER_ISSUER
    return accepted.lookup(&key) != 0;
#else
    return 1;
#endif
}

static __always_inline void forget(u64 key, u64 bio) {
#ifdef FILTER_ISSUER
    accepted.delete(&key);
    owned_bios.delete(&bio);
#endif
}

static __always_inline void emit_issue(u32 kind, u64 now, u64 key, u64 sector, u32 bytes, u32 dev,
                                       u32 cmd_flags, struct issuer *who) {
    struct record *record = ring.ringbuf_reserve(sizeof(struct record));
    if (!record) {
        count(LOST_ISSUE, 1);
        return;
    }
    record->ts_ns = now;
    record->key = key;
    record->kind_sector = KIND(kind, sector);
    record->bytes = bytes;
    record->dev = dev;
    record->cmd_flags = cmd_flags;
    record->pid = who->pid;
    __builtin_memcpy(record->comm, who->comm, sizeof(record->comm));
    ring.ringbuf_submit(record, SUBMIT_QUIETLY);
}

static __always_inline void emit_end(u32 kind, u64 now, u64 key, u64 sector, u32 bytes, u32 dev,
                                     u32 cmd_flags, u32 status) {
    struct record *record = ring.ringbuf_reserve(sizeof(struct record));
    if (!record) {
        count(kind == REQUEUE ? LOST_OTHER : LOST_COMPLETE, 1);
        return;
    }
    record->ts_ns = now;
    record->key = key;
    record->kind_sector = KIND(kind, sector);
    record->bytes = bytes;
    record->dev = dev;
    record->cmd_flags = cmd_flags;
    record->pid = status;
    ring.ringbuf_submit(record, SUBMIT_QUIETLY);
}

#ifdef WANT_REQUESTS
int on_issue(struct bpf_raw_tracepoint_args *ctx) {
    u64 now = bpf_ktime_get_ns(), key = ctx->args[ISSUE_REQUEST];
    struct request_view view;
    struct issuer who;
    u32 dev;
    read_request(&view, (void *)key);
    int device = device_of_request(&view, now, &dev);
    if (device < 0)
        return 0;
    u32 cmd_flags = IN_VIEW(u32, view, REQUEST_CMD_FLAGS);
    u32 bytes = IN_VIEW(u32, view, REQUEST_DATA_LEN);
    u64 sector = IN_VIEW(u64, view, REQUEST_SECTOR);
    if (!wanted_operation(cmd_flags) || !wanted_address(device, sector, bytes))
        return 0;
    if (!remember(key, wanted_issuer(IN_VIEW(u64, view, REQUEST_BIO), &who)))
        return 0;
    emit_issue(ISSUE, now, key, sector, bytes, dev, cmd_flags, &who);
    return 0;
}

int on_complete(struct bpf_raw_tracepoint_args *ctx) {
    u64 now = bpf_ktime_get_ns(), key = ctx->args[COMPLETE_REQUEST];
    struct request_view view;
    u32 dev;
    read_request(&view, (void *)key);
    int device = device_of_request(&view, now, &dev);
    if (device < 0)
        return 0;
    u32 cmd_flags = IN_VIEW(u32, view, REQUEST_CMD_FLAGS);
    u32 bytes = ctx->args[COMPLETE_BYTES];
    u64 sector = IN_VIEW(u64, view, REQUEST_SECTOR);
    int last = bytes >= IN_VIEW(u32, view, REQUEST_DATA_LEN);
    if (!wanted_operation(cmd_flags) || !wanted_address(device, sector, bytes) ||
        !was_accepted(key)) {
        count_rejected(device, class_of(cmd_flags), last, bytes);
        return 0;
    }
    if (last)
        forget(key, IN_VIEW(u64, view, REQUEST_BIO));
    emit_end(last ? COMPLETE : COMPLETE_PART, now, key, sector, bytes, dev, cmd_flags,
             ctx->args[COMPLETE_STATUS]);
    return 0;
}

int on_requeue(struct bpf_raw_tracepoint_args *ctx) {
    u64 now = bpf_ktime_get_ns(), key = ctx->args[REQUEUE_REQUEST];
    struct request_view view;
    u32 dev;
    read_request(&view, (void *)key);
    int device = device_of_request(&view, now, &dev);
    if (device < 0)
        return 0;
    count_device(device, REQUEUES, 1);
    emit_end(REQUEUE, now, key, IN_VIEW(u64, view, REQUEST_SECTOR), 0, dev,
             IN_VIEW(u32, view, REQUEST_CMD_FLAGS), 0);
    return 0;
}

int on_request_merge(struct bpf_raw_tracepoint_args *ctx) {
    u64 now = bpf_ktime_get_ns();
    struct request_view view;
    u32 dev;
    read_request(&view, (void *)ctx->args[MERGE_REQUEST]);
    int device = device_of_request(&view, now, &dev);
    if (device >= 0)
        count_device(device, REQUEST_MERGES, 1);
    return 0;
}
#endif

int on_bio_merge(struct bpf_raw_tracepoint_args *ctx) {
    u32 dev;
    int device = traced_device(bio_disk((void *)ctx->args[BIO_MERGE_BIO]), &dev);
    if (device >= 0)
        count_device(device, BIO_MERGES, 1);
    return 0;
}

int on_split(struct bpf_raw_tracepoint_args *ctx) {
    u32 dev;
    int device = traced_device(bio_disk((void *)ctx->args[SPLIT_BIO]), &dev);
    if (device < 0)
        return 0;
    count_device(device, SPLITS, 1);
#ifdef FILTER_ISSUER
    note_bio(ctx->args[SPLIT_BIO]);
#endif
    return 0;
}

#ifdef BIO_BASED
#define BIO_WANTED(key, who) remember(key, wanted_issuer(key, who))
#else /* such bios end inside their requests, where nothing would forget them again */
#define BIO_WANTED(key, who) wanted_issuer(key, who)
#endif

#if defined(WANT_BIOS) || defined(FILTER_ISSUER)
int on_bio_queue(struct bpf_raw_tracepoint_args *ctx) {
    u64 now = bpf_ktime_get_ns(), key = ctx->args[BIO_QUEUE_BIO];
    u32 dev;
    int device = traced_device(bio_disk((void *)key), &dev);
    if (device < 0)
        return 0;
#ifdef FILTER_ISSUER
    note_bio(key);
#endif
#ifdef WANT_BIOS
    struct issuer who;
    u32 cmd_flags = FIELD(u32, key, BIO_OPF), bytes = FIELD(u32, key, BIO_SIZE);
    u64 sector = FIELD(u64, key, BIO_SECTOR);
    if (wanted_operation(cmd_flags) && wanted_address(device, sector, bytes) &&
        BIO_WANTED(key, &who))
        emit_issue(BIO_ISSUE, now, key, sector, bytes, dev, cmd_flags, &who);
#endif
    return 0;
}
#endif

#ifdef BIO_BASED
int on_bio_complete(struct bpf_raw_tracepoint_args *ctx) {
    u64 now = bpf_ktime_get_ns(), key = ctx->args[BIO_COMPLETE_BIO];
    u32 dev;
    int device = traced_device(bio_disk((void *)key), &dev);
    if (device < 0)
        return 0;
    /* A completed bio has moved past its sectors, so only the key can pair it. */
    u32 cmd_flags = FIELD(u32, key, BIO_OPF);
    if (wanted_operation(cmd_flags) && was_accepted(key))
        emit_end(BIO_COMPLETE, now, key, 0, 0, dev, cmd_flags, FIELD(u8, key, BIO_STATUS));
    forget(key, key);
    return 0;
}
#endif

#ifdef WANT_NVME
/* struct nvme_command is the specification's 64-byte submission queue entry. It is traced before
 * the issue of its request. Only what the block layer cannot tell is worth a record: passthrough
 * commands, and directives (placement). */
struct nvme_sqe {
    u8 opcode, flags;
    u16 command_id;
    u32 nsid;
    u64 unused[4];
    u64 slba;
    u16 nlb, control;
    u32 dsmgmt;
    u64 rest;
};

int on_nvme_setup(struct bpf_raw_tracepoint_args *ctx) {
    u64 now = bpf_ktime_get_ns(), key = ctx->args[0];
    struct request_view view;
    struct nvme_sqe sqe = {};
    u32 dev;
    read_request(&view, (void *)key);
    int device = device_of_request(&view, now, &dev);
    if (device < 0)
        return 0;
    bpf_probe_read_kernel(&sqe, sizeof(sqe), (void *)ctx->args[1]);
    u32 operation = IN_VIEW(u32, view, REQUEST_CMD_FLAGS) & 0xff;
    u32 directive = (sqe.control >> 4) & 0xf;
    if (operation != OP_DRV_IN && operation != OP_DRV_OUT && !directive)
        return 0;
    struct record *record = ring.ringbuf_reserve(sizeof(struct record));
    if (!record) {
        count(LOST_OTHER, 1);
        return 0;
    }
    record->ts_ns = now;
    record->key = key;
    record->kind_sector = KIND(NVME_COMMAND, sqe.slba);
    record->bytes = sqe.nlb; /* in logical blocks, counted from 0 */
    record->dev = dev;
    record->cmd_flags = sqe.opcode;
    record->pid = directive << 16 | sqe.dsmgmt >> 16;
    ring.ringbuf_submit(record, SUBMIT_QUIETLY);
    return 0;
}
#endif
