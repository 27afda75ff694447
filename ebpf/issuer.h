/* Who issued a request, and whether a filter on processes or cgroups wants it. */

struct issuer {
    u64 comm[2];
    u64 pid; /* wider than needed, so that no byte is left unset */
};

/* The id of the current process, whose name it writes to comm. Helpers and loads of single bytes
 * take longer. */
static __always_inline u32 current_issuer(u64 *comm) {
    void *task = bpf_get_current_task_btf();
    comm[0] = FIELD(u64, task, TASK_COMM);
    comm[1] = FIELD(u64, task, TASK_COMM + 8);
    return FIELD(u32, task, TASK_TGID);
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
        who.pid = current_issuer(who.comm);
        owned_bios.update(&bio, &who);
    } else {
        owned_bios.delete(&bio); /* the address may have been another's before */
    }
}
#endif

/* Whether the current process, or *owner where that is not 0, issues and is wanted. */
static __always_inline int wanted_issuer(u64 bio, struct issuer **owner) {
    *owner = 0;
#ifdef FILTER_ISSUER
    *owner = owned_bios.lookup(&bio);
    return *owner || current_is_wanted();
#else
    return 1;
#endif
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
