"""The block operations and their codes, shared by traces, stores, FTL and replay."""

from __future__ import annotations

from enum import IntEnum


class Op(IntEnum):
    """A block operation. The value indexes ``OP_LETTERS`` and is stored in uint8 arrays."""

    READ = 0
    WRITE = 1
    DISCARD = 2
    FLUSH = 3
    WRITE_ZEROES = 4
    OTHER = 5
    SNAP = 6
    """Not an operation: "record the counters here" in an op list."""


OP_LETTERS = "RWDFZN"
"""Letter of each operation in traces, indexed by ``Op``; SNAP never reaches a trace."""

SECTOR_BYTES = 512
"""The block layer's sector, whatever the device's logical block."""

PAGE_BYTES = 4096
"""The page in which traces count ``pages`` and direct I/O is aligned."""
