"""Turn the running kernel's BTF and the wanted filters into macros for the probe."""

from __future__ import annotations

from btf import Btf, BtfError

_CLASSES = {"R": 0, "W": 1, "D": 2, "F": 3, "Z": 4, "N": 5}
_OPERATIONS = ("READ", "WRITE", "FLUSH", "DISCARD", "SECURE_ERASE", "WRITE_ZEROES", "DRV_IN",
               "DRV_OUT")  # fmt: skip
_FLAGS = {"SYNC": "sync", "META": "meta", "FUA": "fua", "PREFLUSH": "preflush",
          "RAHEAD": "readahead", "BACKGROUND": "background"}  # fmt: skip


def kernel_macros(btf: Btf) -> dict[str, int]:
    """Offsets, operation numbers and tracepoint arguments; BtfError if something is unknown."""
    macros = _request_macros(btf)
    macros.update(
        GENDISK_MAJOR=btf.offset("gendisk", "major"),
        GENDISK_FIRST_MINOR=btf.offset("gendisk", "first_minor"),
        GENDISK_NAME=btf.offset("gendisk", "disk_name"),
        BIO_BDEV=btf.offset("bio", "bi_bdev"),
        BIO_OPF=btf.offset("bio", "bi_opf"),
        BIO_SECTOR=btf.offset("bio", "bi_iter.bi_sector"),
        BIO_SIZE=btf.offset("bio", "bi_iter.bi_size"),
        BIO_STATUS=btf.offset("bio", "bi_status"),
        BDEV_DISK=btf.offset("block_device", "bd_disk"),
        TASK_TGID=btf.offset("task_struct", "tgid"),
        TASK_SIGNAL=btf.offset("task_struct", "signal"),
        SIGNAL_LIVE=btf.offset("signal_struct", "live"),
        TASK_COMM=btf.offset("task_struct", "comm"),
    )
    operations = operation_numbers(btf)
    macros.update({f"OP_{name}": operations[name] for name in _OPERATIONS})
    macros.update(_argument_macros(btf))
    return macros


def _request_macros(btf: Btf) -> dict[str, int]:
    fields = {
        "CMD_FLAGS": "cmd_flags", "DATA_LEN": "__data_len", "SECTOR": "__sector", "BIO": "bio",
        "Q": "q",
    }  # fmt: skip
    macros = {f"REQUEST_{name}": btf.offset("request", field) for name, field in fields.items()}
    if btf.has("request", "rq_disk"):  # before Linux 5.17
        macros["REQUEST_DISK"] = btf.offset("request", "rq_disk")
    else:
        macros["QUEUE_DISK"] = btf.offset("request_queue", "disk")
    return macros


def _argument_macros(btf: Btf) -> dict[str, int]:
    def index(tracepoint: str, type_name: str) -> int:
        arguments = btf.tracepoint_args(tracepoint)
        if type_name not in arguments:
            raise BtfError(f"{tracepoint} has no argument of type {type_name}")
        return arguments.index(type_name)

    request = index("block_rq_complete", "request*")
    return {
        "ISSUE_REQUEST": index("block_rq_issue", "request*"),
        "REQUEUE_REQUEST": index("block_rq_requeue", "request*"),
        "MERGE_REQUEST": index("block_rq_merge", "request*"),
        "COMPLETE_REQUEST": request,
        "COMPLETE_STATUS": request + 1,
        "COMPLETE_BYTES": request + 2,
        "BIO_MERGE_BIO": index("block_bio_backmerge", "bio*"),
        "SPLIT_BIO": index("block_split", "bio*"),
        "BIO_QUEUE_BIO": index("block_bio_queue", "bio*"),
        "BIO_COMPLETE_BIO": index("block_bio_complete", "bio*"),
    }


def operation_numbers(btf: Btf) -> dict[str, int]:
    """{"READ": 0, ...} of this kernel (``enum req_op``, before Linux 6.0 ``req_opf``)."""
    try:
        values = btf.enum("req_op")
    except BtfError:
        values = btf.enum("req_opf")
    return {name.removeprefix("REQ_OP_"): value for name, value in values.items()}


def meaning(btf: Btf) -> dict[str, object]:
    """What the reader needs to decode ``cmd_flags`` and statuses of this kernel."""
    bits = btf.enum("req_flag_bits")
    names = {
        name.removeprefix("REQ_OP_"): letter
        for name, letter in {
            "READ": "R", "WRITE": "W", "DISCARD": "D", "SECURE_ERASE": "D", "FLUSH": "F",
            "WRITE_ZEROES": "Z",
        }.items()
    }  # fmt: skip
    operations = operation_numbers(btf)
    return {
        "ops": {str(operations[name]): letter for name, letter in names.items()},
        "flags": {name: bits[f"__REQ_{kernel}"] for kernel, name in _FLAGS.items()},
        "status": "blk" if btf.tracepoint_args("block_rq_complete")[-2] == "blk_status_t"
        else "errno",
    }  # fmt: skip


def class_mask(letters: str) -> int:
    """Bit mask of operation classes for letters of "RWDFZN"; all of them for an empty string."""
    return sum(1 << _CLASSES[letter] for letter in set(letters or "RWDFZN"))
