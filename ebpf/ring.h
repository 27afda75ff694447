/* The rings: RINGS equal parts of an array that user space maps, each with a counter that hands out
 * its places. A CPU has one of its own, or shares it with those whose number leaves the same rest.
 *
 * A BPF ring buffer takes a lock around each reservation, and one counter for all CPUs has them wait
 * for each other's cache. Here a writer adds one to `reserved` of its CPU's ring, fills the record
 * and writes its lap last. The reader takes what has the lap of its place, up to the first that has
 * not, and moves `consumed`. x86-64 keeps the order of the stores.
 *
 * No ring knows of the others, so the reader merges them by time: a cause's record is whole before
 * the program of its effect starts and reads the clock.
 */

#define MMAPABLE 1024 /* BPF_F_MMAPABLE */
#define PLACES (RING_RECORDS / RINGS)

/* What CPUs write and what the reader writes are a cache line apart. Rings are two apart, which
 * some processors fetch together. */
struct positions {
    u64 reserved; /* records since the start */
    u64 unused[7];
    u64 consumed;
    u64 unused_too[7];
};
BPF_F_TABLE("array", u32, struct record, ring, RING_RECORDS, MMAPABLE);
BPF_F_TABLE("array", u32, struct positions, positions, RINGS, MMAPABLE);

/* A place in the CPU's ring, and the lap to commit it with; 0 if the ring is full. Between the check
 * and the reservation, programs in interrupts or on CPUs of the same ring may come first: RING_MARGIN
 * of them. */
static __always_inline struct record *reserve(u64 *lap) {
    u32 mine = bpf_get_smp_processor_id() % RINGS, place;
    struct positions *at = positions.lookup(&mine);
    if (!at || at->reserved - at->consumed >= PLACES - RING_MARGIN)
        return 0;
    u64 number = __sync_fetch_and_add(&at->reserved, 1);
    place = mine * PLACES + number % PLACES;
    *lap = number / PLACES + 1;
    return ring.lookup(&place);
}

static __always_inline void commit(struct record *record, u64 lap) {
    asm volatile("" ::: "memory");
    *(u64 volatile *)&record->lap = lap;
}
