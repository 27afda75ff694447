"""Are reads what was written? Compiled checks against a map of which write each unit holds.

The map has a word a unit of the device (a page, or a sector where the trace is not aligned to
pages), in memory that is only there where it was touched. A word is 0 where nothing is known,
else the number of the last write issued there plus one, with two flags: DISCARDED by that
command, so that nothing is known, or MIXED, when another write there was in flight at the same
time and either may have come last.
"""

from __future__ import annotations

import mmap

import numpy as np

from harness.core.ops import SECTOR_BYTES
from harness.device.buffers import block_sequence
from harness.replay.jit import inner, kernel
from harness.replay.lane import Lane
from harness.replay.window import I64, U64, Meter, Window

DISCARDED = np.uint64(1 << 62)
MIXED = np.uint64(1 << 63)
_NUMBER = np.uint64((1 << 62) - 1)
_NOTHING = np.uint64(0)


def make_truth(size_bytes: int, unit_bytes: int) -> U64:
    """A map of unknown units; untouched parts of it take no memory."""
    units = -(-size_bytes // unit_bytes)
    memory = mmap.mmap(-1, 8 * units, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return np.frombuffer(memory, np.uint64)


@inner
def _is_done_by(window: Window, command: int, when: int) -> bool:
    """Whether ``command`` was complete at time ``when``; one no longer in the window was."""
    row = command & (len(window.number) - 1)
    if window.number[row] != command:
        return True
    return 0 < window.done[row] <= when


@inner
def note_issue(lane: Lane, window: Window, command: int, row: int, discards: bool) -> None:
    """Before a write or discard is submitted: its units are its from now on."""
    first = window.offset[row] // lane.unit_bytes
    end = (window.offset[row] + window.length[row] + lane.unit_bytes - 1) // lane.unit_bytes
    mine = np.uint64(command + 1)
    if discards:
        mine |= DISCARDED
    for unit in range(first, end):
        before = lane.truth[unit]
        word = mine
        earlier = int(np.int64(before & _NUMBER)) - 1
        if earlier == command:
            continue  # submitted once more, because the kernel had no room
        if before != _NOTHING:
            recent = before & MIXED and command - earlier < 4 * lane.depth * lane.stride
            if recent or not _is_done_by(window, earlier, window.submitted[row]):
                word |= MIXED
        lane.truth[unit] = word


@inner
def note_failure(lane: Lane, window: Window, command: int, row: int) -> None:
    """A write failed: what its units hold is unknown."""
    first = window.offset[row] // lane.unit_bytes
    end = (window.offset[row] + window.length[row] + lane.unit_bytes - 1) // lane.unit_bytes
    for unit in range(first, end):
        if np.int64(lane.truth[unit] & _NUMBER) == command + 1:
            lane.truth[unit] |= DISCARDED


@inner
def check_read(lane: Lane, window: Window, meter: I64, row: int, slot: int) -> None:
    """Compare what a completed read brought, unit by unit, with what was written there."""
    unit_words = lane.unit_bytes // 8
    start = slot * (lane.read_slot // 8)
    first = window.offset[row] // lane.unit_bytes
    wrong = 0
    for i in range(window.length[row] // lane.unit_bytes):
        word = lane.truth[first + i]
        if word == _NOTHING or word & DISCARDED:
            meter[Meter.UNKNOWN] += 1
            continue
        writer = int(np.int64(word & _NUMBER)) - 1
        settled = _is_done_by(window, writer, window.submitted[row]) and not word & MIXED
        bad = _wrong_sectors(lane, lane.reads, start + i * unit_words, first + i, word & _NUMBER)
        if settled:
            meter[Meter.CHECKED] += 1
            wrong += bad
        else:
            # Old and new content are both right while the write is under way.
            meter[Meter.RACING] += 1
    window.wrong[row] = wrong
    meter[Meter.WRONG] += wrong


@inner
def _wrong_sectors(lane: Lane, words: U64, at: int, unit: int, expected: np.uint64) -> int:
    """0, or all sectors of the unit when it is not whole or not of write ``expected``."""
    sectors = lane.unit_bytes // SECTOR_BYTES
    found = block_sequence(words, at, unit * sectors, lane.tag, lane.payload, lane.unit_bytes)
    return 0 if found == expected else sectors


@kernel
def scan_units(lane: Lane, words: U64, first_unit: int, units: int, counts: I64) -> None:
    """Check ``units`` units read in sequence; adds to counts: checked units, wrong sectors.

    A MIXED unit may hold any write of ours; unknown units are left out.
    """
    unit_words = lane.unit_bytes // 8
    for i in range(units):
        word = lane.truth[first_unit + i]
        if word == _NOTHING or word & DISCARDED:
            continue
        counts[0] += 1
        if word & MIXED:
            counts[1] += _not_ours(lane, words, i * unit_words, first_unit + i)
        else:
            counts[1] += _wrong_sectors(lane, words, i * unit_words, first_unit + i, word & _NUMBER)


@inner
def _not_ours(lane: Lane, words: U64, at: int, unit: int) -> int:
    """0, or all sectors of the unit when it is not whole."""
    sectors = lane.unit_bytes // SECTOR_BYTES
    found = block_sequence(words, at, unit * sectors, lane.tag, lane.payload, lane.unit_bytes)
    return sectors if found == _NOTHING else 0
