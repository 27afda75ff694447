/* The probe where the kernel has no BTF: ordinary tracepoints and nothing but their arguments.
 *
 * There is no request to tell twins apart by, so the reader pairs first in, first out; and the
 * kernel skips such programs when one interrupts another on the same CPU. Offsets are those of the
 * tracepoints' own format files (layout.py).
 */

#define ARGUMENT(type, context, offset) (*(type *)((char *)(context) + (offset)))

static __always_inline int traced_device(u32 dev) {
    MATCH_DEVICE_NUMBER(dev);
    return -1;
}

static __always_inline int wanted_address(int device, u64 sector, u32 bytes) {
    MATCH_SECTORS(device, sector, bytes);
    return 1;
}

/* The letters that tell operation and flags, in place of the key that we do not have. */
static __always_inline void copy_letters(struct record *record, void *letters) {
    bpf_probe_read_kernel(&record->key, sizeof(record->key), letters);
}

int on_issue(void *ctx) {
    u64 now = bpf_ktime_get_ns(), sector = ARGUMENT(u64, ctx, ISSUE_SECTOR);
    u32 dev = ARGUMENT(u32, ctx, ISSUE_DEV), bytes = ARGUMENT(u32, ctx, ISSUE_NR_SECTOR) << 9;
    int device = traced_device(dev);
    if (device < 0 || !wanted_address(device, sector, bytes))
        return 0;
    u64 lap;
    struct record *record = reserve(&lap);
    if (!record) {
        count(LOST_ISSUE, 1);
        return 0;
    }
    record->ts_ns = now;
    copy_letters(record, (char *)ctx + ISSUE_RWBS);
    record->kind_sector = KIND(ISSUE, sector);
    record->bytes = bytes;
    record->dev = dev;
    record->cmd_flags = 0;
    record->pid = bpf_get_current_pid_tgid() >> 32;
    bpf_get_current_comm(record->comm, sizeof(record->comm));
    commit(record, lap);
    return 0;
}

int on_complete(void *ctx) {
    u64 now = bpf_ktime_get_ns(), sector = ARGUMENT(u64, ctx, COMPLETE_SECTOR);
    u32 dev = ARGUMENT(u32, ctx, COMPLETE_DEV);
    u32 bytes = ARGUMENT(u32, ctx, COMPLETE_NR_SECTOR) << 9;
    int device = traced_device(dev);
    if (device < 0 || !wanted_address(device, sector, bytes))
        return 0;
    u64 lap;
    struct record *record = reserve(&lap);
    if (!record) {
        count(LOST_COMPLETE, 1);
        return 0;
    }
    record->ts_ns = now;
    copy_letters(record, (char *)ctx + COMPLETE_RWBS);
    record->kind_sector = KIND(COMPLETE, sector);
    record->bytes = bytes;
    record->dev = dev;
    record->cmd_flags = 0;
    record->pid = ARGUMENT(u32, ctx, COMPLETE_ERROR);
    commit(record, lap);
    return 0;
}
