"""Mooncake's store: LRU with leases in DRAM, and buckets on the SSD that leave as a whole.

As its source (Apache-2.0) has it: what was touched in the last ``lease_s`` does not leave DRAM; a
tenth below full, a twentieth is given up. Objects are written when they are put, or with
``offload=evict`` when they leave; ``evict`` says which bucket goes for room: the first filled, the
one not read for longest, or none, so that a full SSD takes nothing more. A bucket that the request
reads or fills stays. Not here: soft pins, and copies to DRAM at a second hit (``on_ssd_hit``).
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import Field, PositiveInt

from harness.simulator.hooks import DROP, SSD, Parameters, World, in_dram, on_ssd, peek, size_of
from harness.simulator.lists import Lists, add, empty_lists, remove, renew
from harness.simulator.state import CAP_DRAM, NOW, USED_DRAM
from harness.simulator.tiers import evict, make_room

STRUCTURES = ("free",)

_LEASE_S, _HIGH, _STEP = range(3)
_BYTES, _KEYS, _FIFO, _NONE, _AT_PUT, _OPEN, _FREE = range(7)


class Settings(Parameters):
    """The store's defaults; its header has ``evict=none``."""

    lease_s: float = Field(10.0, ge=0)
    high: float = Field(0.9, gt=0, le=1)
    step: float = Field(0.05, gt=0, le=1)
    bucket_bytes: PositiveInt = 256 << 20
    bucket_keys: PositiveInt = 500
    evict: Literal["fifo", "lru", "none"] = "fifo"
    offload: Literal["put", "evict"] = "put"


class Own(NamedTuple):
    """Buckets in an order, and what they hold.

    ``bucket`` int32[objects] (-1), ``after``, ``before`` int32[objects] (neighbours in a bucket);
    ``first``, ``keys`` int32[buckets], ``held`` int64[buckets] (bytes), ``busy`` int64[buckets]
    (last request that read or filled it); ``line``, buckets as ``Lists``; ``free`` int32[buckets],
    numbers not in use; ``shares`` float64[3], ``numbers`` int64[7].
    """

    bucket: np.ndarray
    after: np.ndarray
    before: np.ndarray
    first: np.ndarray
    keys: np.ndarray
    held: np.ndarray
    busy: np.ndarray
    line: Lists
    free: np.ndarray
    shares: np.ndarray
    numbers: np.ndarray


def create(world: World, settings: Settings) -> Own:
    """No bucket yet."""
    objects = world.objects
    numbers = [
        settings.bucket_bytes, settings.bucket_keys, settings.evict == "fifo",
        settings.evict == "none", settings.offload == "put", -1, objects,
    ]  # fmt: skip
    return Own(
        bucket=np.full(objects, -1, np.int32),
        after=np.full(objects, -1, np.int32),
        before=np.full(objects, -1, np.int32),
        first=np.full(objects, -1, np.int32),
        keys=np.zeros(objects, np.int32),
        held=np.zeros(objects, np.int64),
        busy=np.full(objects, -1, np.int64),
        line=empty_lists(objects, 1),
        free=np.arange(objects, dtype=np.int32),
        shares=np.array([settings.lease_s, settings.high, settings.step]),
        numbers=np.array(numbers, np.int64),
    )


def used(s: Any, first: int, count: int) -> None:
    """Buckets that are read."""
    for o in range(first, first + count):
        if on_ssd(s, o) and not in_dram(s, o):
            b = s.p.bucket[o]
            s.p.busy[b] = s.reg[NOW]
            if s.p.numbers[_FIFO] == 0:
                renew(s.p.line, 0, 0, b, 0)


def write_now(s: Any, o: int) -> bool:
    """With the put."""
    return s.p.numbers[_AT_PUT] != 0


def demote(s: Any, o: int) -> bool:
    """When it leaves; a put for which DRAM has no room fails."""
    return s.p.numbers[_AT_PUT] == 0 and in_dram(s, o)


def choose(s: Any) -> tuple[int, bool]:
    """The oldest, if its lease is over."""
    o = peek(s, DROP)
    if o < 0 or s.time_s[s.reg[NOW]] - s.time_s[s.stamp[o]] < s.p.shares[_LEASE_S]:
        return -1, False
    return o, demote(s, o)


def entered(s: Any, o: int, tier: int) -> None:
    """On the SSD, into the open bucket."""
    if tier != SSD:
        return
    b = open_bucket(s, size_of(s, o))
    first = s.p.first[b]
    s.p.bucket[o] = b
    s.p.before[o] = -1
    s.p.after[o] = first
    if first >= 0:
        s.p.before[first] = o
    s.p.first[b] = o
    s.p.keys[b] += 1
    s.p.held[b] += size_of(s, o)
    s.p.busy[b] = s.reg[NOW]


def open_bucket(s: Any, size: int) -> int:
    """The bucket that is being filled, or a new one if it is full."""
    numbers = s.p.numbers
    b = numbers[_OPEN]
    if b >= 0:
        room = s.p.held[b] + size <= numbers[_BYTES] and s.p.keys[b] < numbers[_KEYS]
        if room:
            return b
    numbers[_FREE] -= 1
    b = s.p.free[numbers[_FREE]]
    numbers[_OPEN] = b
    add(s.p.line, 0, 0, b, 0)
    return b


def left(s: Any, o: int, tier: int) -> None:
    """Off the SSD, out of its bucket; an empty bucket is no more."""
    if tier != SSD:
        return
    b, before, after = s.p.bucket[o], s.p.before[o], s.p.after[o]
    if before >= 0:
        s.p.after[before] = after
    else:
        s.p.first[b] = after
    if after >= 0:
        s.p.before[after] = before
    s.p.bucket[o] = -1
    s.p.keys[b] -= 1
    s.p.held[b] -= size_of(s, o)
    if s.p.keys[b] == 0:
        remove(s.p.line, 0, b, 0)
        s.p.free[s.p.numbers[_FREE]] = b
        s.p.numbers[_FREE] += 1
        if s.p.numbers[_OPEN] == b:
            s.p.numbers[_OPEN] = -1


def victim_ssd(s: Any) -> int:
    """The last of a bucket whose others it evicts."""
    if s.p.numbers[_NONE] != 0:
        return -1
    b = s.p.line.oldest[0, 0]
    while b >= 0 and s.p.busy[b] == s.reg[NOW]:
        b = s.p.line.newer[0, b]
    if b < 0:
        return -1
    while s.p.keys[b] > 1:
        evict(s, s.p.first[b])
    return s.p.first[b]


def finish(s: Any, r: int) -> None:
    """Above the high watermark DRAM gives up a share."""
    capacity = s.cfg[CAP_DRAM]
    if s.reg[USED_DRAM] > s.p.shares[_HIGH] * capacity:
        down_to = s.reg[USED_DRAM] - int(s.p.shares[_STEP] * capacity)
        make_room(s, capacity - down_to)
