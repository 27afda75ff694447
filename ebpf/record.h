/* What goes through the ring: 64 bytes a record, so that none straddles the end of a ring and
 * user space may view it as a strided array. */

enum record_kind {
    ISSUE = 1,
    COMPLETE = 2,
    COMPLETE_PART = 3, /* some bytes of a request that goes on */
    REQUEUE = 4,       /* the driver gave it back; it will be issued again */
    BIO_ISSUE = 5,
    BIO_COMPLETE = 6,
    NVME_COMMAND = 7, /* what the following issue of the same key tells the controller */
};

struct record {
    u64 lap;         /* of the ring, from 1: written last, so the record is whole (ring.h) */
    u64 ts_ns;       /* CLOCK_MONOTONIC */
    u64 key;         /* address of the request or bio, opaque; without BTF the rwbs letters */
    u64 kind_sector; /* record_kind in the top byte, 512-byte sector below */
    u32 bytes;
    u32 dev;       /* major << 20 | minor of the whole device */
    u32 cmd_flags; /* the kernel's own numbers; the loader sends their meaning along */
    u32 pid;       /* of an issue: process; of a completion: blk_status_t or -errno */
    u64 comm[2];   /* of an issue only: the process's name */
};

#define SECTOR_MASK ((1ULL << 56) - 1)
#define KIND(kind, sector) (((u64)(kind) << 56) | ((u64)(sector) & SECTOR_MASK))

/* Per-CPU counters. First those of the whole probe, then DEVICE_COUNTERS for each device. */
enum counter {
    LOST_ISSUE, /* the CPU's ring was full */
    LOST_COMPLETE,
    LOST_OTHER,
    PROBE_COUNTERS,
};
enum device_counter {
    REQUEUES,
    REQUEST_MERGES,
    BIO_MERGES,
    SPLITS,
    REJECTED, /* completions that a filter left out: REJECTED + 2 * class is their number, */
    DEVICE_COUNTERS = REJECTED + 12, /* the slot after it their sectors */
};
/* Classes of operation as /sys/block/DEV/stat tells them apart. */
enum op_class { CLASS_READ, CLASS_WRITE, CLASS_DISCARD, CLASS_FLUSH, CLASS_ZEROES, CLASS_OTHER };

BPF_PERCPU_ARRAY(counters, u64, PROBE_COUNTERS + N_DEVICES * DEVICE_COUNTERS);

static __always_inline void count(u32 slot, u64 amount) {
    u64 *value = counters.lookup(&slot);
    if (value)
        __sync_fetch_and_add(value, amount); /* a nested event may interrupt us here */
}

static __always_inline void count_device(int device, u32 counter, u64 amount) {
    count(PROBE_COUNTERS + device * DEVICE_COUNTERS + counter, amount);
}

static __always_inline void count_rejected(int device, u32 class, u32 requests, u32 bytes) {
    count_device(device, REJECTED + 2 * class, requests);
    count_device(device, REJECTED + 2 * class + 1, bytes >> 9);
}
