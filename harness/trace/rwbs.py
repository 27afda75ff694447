"""The kernel's request flag string (``rwbs``: WS, FF, RAM, ...) as operation and flag bits.

Written by the kernel's ``blk_fill_rwbs``: an optional F for pre-flush, the operation's letter,
then F for FUA, A for read-ahead, S for sync, M for metadata. Write-zeroes and passthrough
commands both appear as N, so N is ``OTHER``.
"""

from __future__ import annotations

from functools import cache

from harness.core.ops import Op
from harness.trace.schema import (
    FLAG_FUA,
    FLAG_META,
    FLAG_PREFLUSH,
    FLAG_READAHEAD,
    FLAG_SYNC,
)

_OPS = {"R": Op.READ, "W": Op.WRITE, "D": Op.DISCARD, "F": Op.FLUSH, "N": Op.OTHER, "Z": Op.OTHER}
_FLAGS = {"F": FLAG_FUA, "A": FLAG_READAHEAD, "S": FLAG_SYNC, "M": FLAG_META}
_IGNORED = set("EUBVRTOC")
"""Letters that follow the operation and have no bit: secure erase, atomic, zone verbs."""


@cache
def parse_rwbs(text: str) -> tuple[Op, int]:
    """``"WSM"`` -> (WRITE, SYNC | META); ValueError for a string the kernel never writes."""
    rest, flags = text, 0
    if len(rest) > 1 and rest[0] == "F" and rest[1] in _OPS:
        rest, flags = rest[1:], FLAG_PREFLUSH
    if not rest or rest[0] not in _OPS:
        raise ValueError(f"not a request flag string: {text!r}")
    for letter in rest[1:]:
        if letter not in _FLAGS and letter not in _IGNORED:
            raise ValueError(f"not a request flag string: {text!r}")
        flags |= _FLAGS.get(letter, 0)
    return _OPS[rest[0]], flags


def format_rwbs(op: Op, flags: int) -> str:
    """Inverse of ``parse_rwbs`` for the flags that the kernel prints; write-zeroes become N."""
    letter = {Op.READ: "R", Op.WRITE: "W", Op.DISCARD: "D", Op.FLUSH: "F"}.get(op, "N")
    first = "F" if flags & FLAG_PREFLUSH else ""
    return first + letter + "".join(sign for sign, bit in _FLAGS.items() if flags & bit)
