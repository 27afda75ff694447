/* The probe: typed raw tracepoints of the block layer, one record an event.
 *
 * Nothing here depends on kernel headers for struct layouts: the loader reads the offsets from
 * the running kernel's BTF and passes them as macros (layout.py). The kernel knows the types of a
 * tracepoint's arguments, so that fields are plain loads. Addresses of requests and bios are opaque
 * keys that pair an issue with its completion exactly.
 */

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

static __always_inline u32 lost_counter(u32 kind) {
    switch (kind) {
    case ISSUE: case BIO_ISSUE: return LOST_ISSUE;
    case REQUEUE: case NVME_COMMAND: return LOST_OTHER;
    default: return LOST_COMPLETE;
    }
}

/* A record of the ring that lacks only its last fields; 0 if there is no room, which is counted. */
static __always_inline struct record *begin(u32 kind, u64 key, u64 sector, u32 bytes, u32 dev,
                                            u32 cmd_flags, u64 *lap) {
    u64 now = bpf_ktime_get_ns();
    struct record *record = reserve(lap);
    if (!record) {
        count(lost_counter(kind), 1);
        return 0;
    }
    record->ts_ns = now;
    record->key = key;
    record->kind_sector = KIND(kind, sector);
    record->bytes = bytes;
    record->dev = dev;
    record->cmd_flags = cmd_flags;
    return record;
}

static __always_inline void emit_issue(u32 kind, u64 key, u64 sector, u32 bytes, u32 dev,
                                       u32 cmd_flags, struct issuer *owner) {
    u64 lap;
    struct record *record = begin(kind, key, sector, bytes, dev, cmd_flags, &lap);
    if (!record)
        return;
    if (owner) {
        record->pid = owner->pid;
        __builtin_memcpy(record->comm, owner->comm, sizeof(record->comm));
    } else
        record->pid = current_issuer(record->comm);
    commit(record, lap);
}

static __always_inline void emit_end(u32 kind, u64 key, u64 sector, u32 bytes, u32 dev,
                                     u32 cmd_flags, u32 status) {
    u64 lap;
    struct record *record = begin(kind, key, sector, bytes, dev, cmd_flags, &lap);
    if (!record)
        return;
    record->pid = status;
    commit(record, lap);
}

#ifdef WANT_REQUESTS
int on_issue(struct bpf_raw_tracepoint_args *ctx) {
    u64 key = ctx->args[ISSUE_REQUEST];
    struct issuer *owner;
    u32 dev;
    int device = device_of_request(key, &dev);
    if (device < 0)
        return 0;
    u32 cmd_flags = FIELD(u32, key, REQUEST_CMD_FLAGS);
    u32 bytes = FIELD(u32, key, REQUEST_DATA_LEN);
    u64 sector = FIELD(u64, key, REQUEST_SECTOR);
    if (!wanted_operation(cmd_flags) || !wanted_address(device, sector, bytes))
        return 0;
    if (!remember(key, wanted_issuer(FIELD(u64, key, REQUEST_BIO), &owner)))
        return 0;
    emit_issue(ISSUE, key, sector, bytes, dev, cmd_flags, owner);
    return 0;
}

int on_complete(struct bpf_raw_tracepoint_args *ctx) {
    u64 key = ctx->args[COMPLETE_REQUEST];
    u32 dev;
    int device = device_of_request(key, &dev);
    if (device < 0)
        return 0;
    u32 cmd_flags = FIELD(u32, key, REQUEST_CMD_FLAGS);
    u32 bytes = ctx->args[COMPLETE_BYTES];
    u64 sector = FIELD(u64, key, REQUEST_SECTOR);
    int last = bytes >= FIELD(u32, key, REQUEST_DATA_LEN);
    if (!wanted_operation(cmd_flags) || !wanted_address(device, sector, bytes) ||
        !was_accepted(key)) {
        count_rejected(device, class_of(cmd_flags), last, bytes);
        return 0;
    }
    if (last)
        forget(key, FIELD(u64, key, REQUEST_BIO));
    emit_end(last ? COMPLETE : COMPLETE_PART, key, sector, bytes, dev, cmd_flags,
             ctx->args[COMPLETE_STATUS]);
    return 0;
}

int on_requeue(struct bpf_raw_tracepoint_args *ctx) {
    u64 key = ctx->args[REQUEUE_REQUEST];
    u32 dev;
    int device = device_of_request(key, &dev);
    if (device < 0)
        return 0;
    count_device(device, REQUEUES, 1);
    emit_end(REQUEUE, key, FIELD(u64, key, REQUEST_SECTOR), 0, dev,
             FIELD(u32, key, REQUEST_CMD_FLAGS), 0);
    return 0;
}

int on_request_merge(struct bpf_raw_tracepoint_args *ctx) {
    u32 dev;
    int device = device_of_request(ctx->args[MERGE_REQUEST], &dev);
    if (device >= 0)
        count_device(device, REQUEST_MERGES, 1);
    return 0;
}
#endif

int on_bio_merge(struct bpf_raw_tracepoint_args *ctx) {
    u32 dev;
    int device = device_of_bio(ctx->args[BIO_MERGE_BIO], &dev);
    if (device >= 0)
        count_device(device, BIO_MERGES, 1);
    return 0;
}

int on_split(struct bpf_raw_tracepoint_args *ctx) {
    u32 dev;
    int device = device_of_bio(ctx->args[SPLIT_BIO], &dev);
    if (device < 0)
        return 0;
    count_device(device, SPLITS, 1);
#ifdef FILTER_ISSUER
    note_bio(ctx->args[SPLIT_BIO]);
#endif
    return 0;
}

#ifdef BIO_BASED
#define BIO_WANTED(key, owner) remember(key, wanted_issuer(key, owner))
#else /* such bios end inside their requests, where nothing would forget them again */
#define BIO_WANTED(key, owner) wanted_issuer(key, owner)
#endif

#if defined(WANT_BIOS) || defined(FILTER_ISSUER)
int on_bio_queue(struct bpf_raw_tracepoint_args *ctx) {
    u64 key = ctx->args[BIO_QUEUE_BIO];
    u32 dev;
    int device = device_of_bio(key, &dev);
    if (device < 0)
        return 0;
#ifdef FILTER_ISSUER
    note_bio(key);
#endif
#ifdef WANT_BIOS
    struct issuer *owner;
    u32 cmd_flags = FIELD(u32, key, BIO_OPF), bytes = FIELD(u32, key, BIO_SIZE);
    u64 sector = FIELD(u64, key, BIO_SECTOR);
    if (wanted_operation(cmd_flags) && wanted_address(device, sector, bytes) &&
        BIO_WANTED(key, &owner))
        emit_issue(BIO_ISSUE, key, sector, bytes, dev, cmd_flags, owner);
#endif
    return 0;
}
#endif

#ifdef BIO_BASED
int on_bio_complete(struct bpf_raw_tracepoint_args *ctx) {
    u64 key = ctx->args[BIO_COMPLETE_BIO];
    u32 dev;
    int device = device_of_bio(key, &dev);
    if (device < 0)
        return 0;
    /* A completed bio has moved past its sectors, so only the key can pair it. */
    u32 cmd_flags = FIELD(u32, key, BIO_OPF);
    if (wanted_operation(cmd_flags) && was_accepted(key))
        emit_end(BIO_COMPLETE, key, 0, 0, dev, cmd_flags, FIELD(u8, key, BIO_STATUS));
    forget(key, key);
    return 0;
}
#endif

#ifdef WANT_NVME
/* struct nvme_command is the specification's 64-byte submission queue entry. It is traced before
 * the issue of its request. Only what the block layer cannot tell is worth a record: passthrough
 * commands, and directives (placement). The tracepoint may be a module's, whose types the verifier
 * does not know here. */
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
    u64 key = ctx->args[0];
    u32 dev, operation = PEEK(u32, key, REQUEST_CMD_FLAGS) & 0xff;
    struct nvme_sqe sqe = {};
    bpf_probe_read_kernel(&sqe, sizeof(sqe), (void *)ctx->args[1]);
    u32 directive = (sqe.control >> 4) & 0xf;
    if (operation != OP_DRV_IN && operation != OP_DRV_OUT && !directive)
        return 0;
    void *disk = DISK_OF_REQUEST(PEEK, key);
    if (DEVICE_OF_DISK(PEEK, disk, &dev) < 0)
        return 0;
    /* blocks are counted from 0, and cmd_flags holds the opcode */
    emit_end(NVME_COMMAND, key, sqe.slba, sqe.nlb, dev, sqe.opcode,
             directive << 16 | sqe.dsmgmt >> 16);
    return 0;
}
#endif
