"""What the probe sends (``ebpf/record.h``, ``ebpf/frames.py``) as numpy sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.core.ops import OP_LETTERS, Op
from harness.trace.schema import (
    FLAG_BACKGROUND,
    FLAG_FUA,
    FLAG_META,
    FLAG_PREFLUSH,
    FLAG_READAHEAD,
    FLAG_SYNC,
)

SLOT_DTYPE = np.dtype(
    [
        ("header", "<u8"),
        ("ts_ns", "<i8"),
        ("key", "<u8"),
        ("kind_sector", "<u8"),
        ("bytes", "<u4"),
        ("dev", "<u4"),
        ("cmd_flags", "<u4"),
        ("pid", "<u4"),
        ("comm", "<u8", 2),
    ]
)
"""``struct record``, 64 bytes; its lap has done its service: ``header`` is free for notes."""

SECTOR_MASK = np.uint64((1 << 56) - 1)
KIND_SHIFT = np.uint64(56)


def chosen(slots: npt.NDArray[np.void], mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.void]:
    """A copy of the slots that ``mask`` names; indexing with the mask takes sixty times as long."""
    return slots.take(np.flatnonzero(mask))


class Kind(IntEnum):
    """``enum record_kind`` of the probe."""

    ISSUE = 1
    COMPLETE = 2
    COMPLETE_PART = 3
    REQUEUE = 4
    BIO_ISSUE = 5
    BIO_COMPLETE = 6
    NVME_COMMAND = 7


_FLAG_BITS = {
    "sync": FLAG_SYNC,
    "fua": FLAG_FUA,
    "meta": FLAG_META,
    "readahead": FLAG_READAHEAD,
    "background": FLAG_BACKGROUND,
    "preflush": FLAG_PREFLUSH,
}

# blk_status_t -> errno name, block/blk-core.c; the numbers have been stable since Linux 4.13.
_BLK_STATUS_ERRNO = {
    1: 95, 2: 110, 3: 28, 4: 67, 5: 121, 6: 52, 7: 61, 8: 84, 9: 12, 10: 5, 11: 11, 12: 11,
    13: 16, 14: 12, 15: 12, 16: 19, 17: 62, 19: 22,
}  # fmt: skip
_EIO = 5


@dataclass(frozen=True)
class Decoder:
    """Turns one kernel's numbers into the trace's.

    ``op_of`` maps the low byte of ``cmd_flags`` to an ``Op`` code; ``flag_bits`` pairs the
    kernel's flag bit numbers with the trace's flag values.
    """

    op_of: npt.NDArray[np.uint8]
    flag_bits: tuple[tuple[int, int], ...]
    blk_status: bool

    @classmethod
    def from_meaning(cls, meaning: Mapping[str, Any]) -> Decoder:
        """From the "meaning" that the loader sends with HELLO."""
        op_of = np.full(256, Op.OTHER, np.uint8)
        for number, letter in meaning["ops"].items():
            op_of[int(number)] = OP_LETTERS.index(letter)
        bits = tuple((int(meaning["flags"][name]), value) for name, value in _FLAG_BITS.items())
        return cls(op_of, bits, meaning["status"] == "blk")

    def ops(self, cmd_flags: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint8]:
        """``Op`` codes."""
        return self.op_of[cmd_flags & np.uint32(0xFF)]

    def numbers(self, ops: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
        """The kernel's operation numbers: a right inverse of ``ops``."""
        number_of = np.zeros(len(Op), np.uint32)
        for number in range(len(self.op_of) - 1, -1, -1):
            number_of[self.op_of[number]] = number
        return number_of[ops]

    def flags(self, cmd_flags: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint16]:
        """The trace's flag bits."""
        flags = np.zeros(len(cmd_flags), np.uint16)
        for bit, value in self.flag_bits:
            flags |= ((cmd_flags >> np.uint32(bit)) & np.uint32(1)).astype(np.uint16) * np.uint16(
                value
            )
        return flags

    def errors(self, status: npt.NDArray[np.uint32]) -> npt.NDArray[np.int32]:
        """0 or -errno for the statuses of completions."""
        if not self.blk_status:
            return status.view(np.int32)
        if not status.any():
            return np.zeros(len(status), np.int32)
        return np.array(
            [-_BLK_STATUS_ERRNO.get(int(s), _EIO) if s else 0 for s in status], np.int32
        )
