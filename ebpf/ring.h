/* The ring: an array that user space maps, and one counter that hands out its places.
 *
 * A BPF ring buffer takes a lock around each reservation. Here a writer adds one to `reserved`, so
 * that places follow the order of causes across CPUs, fills the record and writes its lap last. The
 * reader takes what has the lap of its place, up to the first that has not, and moves `consumed`.
 * x86-64 keeps the order of the stores.
 */

#define MMAPABLE 1024 /* BPF_F_MMAPABLE */

struct positions {
    u64 reserved, consumed; /* records since the start */
};
BPF_F_TABLE("array", u32, struct record, ring, RING_RECORDS, MMAPABLE);
BPF_F_TABLE("array", u32, struct positions, positions, 1, MMAPABLE);

/* A place in the ring, and the lap to commit it with; 0 if the ring is full. Between the check and
 * the reservation, programs on other CPUs or in interrupts may come first: RING_MARGIN of them. */
static __always_inline struct record *reserve(u64 *lap) {
    u32 only = 0, place;
    struct positions *at = positions.lookup(&only);
    if (!at || at->reserved - at->consumed >= RING_RECORDS - RING_MARGIN)
        return 0;
    u64 number = __sync_fetch_and_add(&at->reserved, 1);
    place = number % RING_RECORDS;
    *lap = number / RING_RECORDS + 1;
    return ring.lookup(&place);
}

static __always_inline void commit(struct record *record, u64 lap) {
    asm volatile("" ::: "memory");
    *(u64 volatile *)&record->lap = lap;
}
