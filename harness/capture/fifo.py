"""Keys for events of a kernel without BTF, whose records carry no request address.

A completion goes to the oldest open issue of the same device that ends at the same sector (so
the last part of a request that completes in parts finds it, the earlier ones do not). Requests
in flight that end at the same sector cannot be told apart; they are counted as ambiguous.
"""

from __future__ import annotations

from collections import deque

import numpy as np
import numpy.typing as npt

from harness.capture.records import KIND_SHIFT, SECTOR_MASK, Decoder, Kind
from harness.core.ops import Op
from harness.trace.schema import (
    FLAG_FUA,
    FLAG_META,
    FLAG_PREFLUSH,
    FLAG_READAHEAD,
    FLAG_SYNC,
)

_FLAG_SHIFT = 8
_FLAGS = {"F": FLAG_FUA, "A": FLAG_READAHEAD, "S": FLAG_SYNC, "M": FLAG_META}

# cmd_flags as this module writes it: an Op code, and the trace's flags above it.
DECODER = Decoder(
    np.concatenate([np.arange(6), np.full(250, Op.OTHER)]).astype(np.uint8),
    tuple((_FLAG_SHIFT + bit, 1 << bit) for bit in range(6)),
    blk_status=False,
)


def parse_letters(letters: str) -> int:
    """The kernel's "FWFSM" (blk_fill_rwbs) as this module's ``cmd_flags``.

    An F before another operation is a preflush, after it FUA; DE is secure erase, WZ
    write-zeroes, which older kernels call N like every other operation.
    """
    flags = 0
    if letters[:1] == "F" and letters[1:2] in tuple("RWDFNZ"):
        flags, letters = FLAG_PREFLUSH, letters[1:]
    op = {"R": Op.READ, "W": Op.WRITE, "D": Op.DISCARD, "F": Op.FLUSH}.get(letters[:1], Op.OTHER)
    rest = letters[1:]
    if op == Op.WRITE and rest[:1] == "Z":
        op, rest = Op.WRITE_ZEROES, rest[1:]
    if op == Op.DISCARD and rest[:1] == "E":
        rest = rest[1:]
    for letter in rest:
        flags |= _FLAGS.get(letter, 0)
    return int(op) | flags << _FLAG_SHIFT


class FifoKeys:
    """Gives each event the key that a request address would have been."""

    def __init__(self) -> None:
        self._open: dict[tuple[int, int, int], deque[int]] = {}
        self._meanings: dict[int, int] = {}
        self._next = 8
        self.ambiguous = 0
        """Completions that more than one open request could have claimed."""

    def assign(self, slots: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
        """A copy of ``slots`` (SLOT_DTYPE) with ``key`` and ``cmd_flags`` filled in."""
        slots = slots.copy()
        letters = slots["key"].tolist()
        meanings = [self._meaning(word) for word in letters]
        sectors = (slots["kind_sector"] & SECTOR_MASK).tolist()
        issues = ((slots["kind_sector"] >> KIND_SHIFT) == Kind.ISSUE).tolist()
        events = zip(
            issues, slots["dev"].tolist(), meanings, sectors, slots["bytes"].tolist(), strict=True
        )
        slots["key"] = [self._key(*event) for event in events]
        slots["cmd_flags"] = meanings
        return slots

    def _meaning(self, word: int) -> int:
        known = self._meanings.get(word)
        if known is None:
            text = word.to_bytes(8, "little").partition(b"\0")[0].decode("ascii", "replace")
            known = self._meanings[word] = parse_letters(text)
        return known

    def _key(self, issue: bool, dev: int, meaning: int, sector: int, size_bytes: int) -> int:
        # A flush has no address: the kernel prints 0 for its issue and -1 for its completion.
        end = sector + (size_bytes >> 9) if size_bytes else 0
        twins = self._open.setdefault((dev, meaning & 0xFF, end), deque())
        if not issue and twins:
            self.ambiguous += len(twins) > 1
            key = twins.popleft()
        else:
            # Pairing drops the low three bits of an address.
            self._next += 8
            key = self._next
            if issue:
                twins.append(key)
        if not twins:
            del self._open[dev, meaning & 0xFF, end]
        return key
