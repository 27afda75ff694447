/* The rings: RINGS equal parts of an array that user space maps, each with a counter that hands out
 * its places. CPUs whose numbers leave the same rest share a ring; where they are few, each has one.
 *
 * A BPF ring buffer takes a lock around each reservation. Here a writer adds one to its ring's
 * `reserved`, fills the record and writes its lap last. The reader takes what has the lap of its
 * place, up to the first that has not, and moves `consumed`. x86-64 keeps the order of the stores.
 *
 * No ring knows of the others, so the reader merges them by time. That keeps causes before effects:
 * the program that records a cause has ended before the one for its effect reads the clock.
 */

#define MMAPABLE 1024 /* BPF_F_MMAPABLE */
#define PLACES (RING_RECORDS / RINGS)

/* CPUs and the reader write to cache lines of their own. Rings are two lines apart, since some
 * processors fetch pairs of them. */
struct positions {
    u64 reserved; /* records since the start */
    u64 unused[7];
    u64 consumed;
    u64 unused_too[7];
};
BPF_F_TABLE("array", u32, struct record, ring, RING_RECORDS, MMAPABLE);
BPF_F_TABLE("array", u32, struct positions, positions, RINGS, MMAPABLE);

/* A place in this CPU's ring, and the lap to commit it with; 0 if the ring is full. Between the
 * check and the reservation, programs in interrupts or on other CPUs of the ring may come first:
 * RING_MARGIN of them. */
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
