"""Pairing without request addresses: letters, last sectors, twins."""

from __future__ import annotations

import numpy as np
import pytest

from harness.capture.fifo import DECODER, FifoKeys, parse_letters
from harness.capture.records import SLOT_DTYPE, Kind
from harness.core.ops import Op
from harness.trace.schema import FLAG_FUA, FLAG_META, FLAG_PREFLUSH, FLAG_READAHEAD, FLAG_SYNC


@pytest.mark.parametrize(
    ("letters", "op", "flags"),
    [
        ("R", Op.READ, 0),
        ("RA", Op.READ, FLAG_READAHEAD),
        ("WS", Op.WRITE, FLAG_SYNC),
        ("WFS", Op.WRITE, FLAG_FUA | FLAG_SYNC),
        ("FWFSM", Op.WRITE, FLAG_PREFLUSH | FLAG_FUA | FLAG_SYNC | FLAG_META),
        ("FF", Op.FLUSH, FLAG_PREFLUSH),
        ("F", Op.FLUSH, 0),
        ("D", Op.DISCARD, 0),
        ("DE", Op.DISCARD, 0),
        ("WZ", Op.WRITE_ZEROES, 0),
        ("N", Op.OTHER, 0),
    ],
)
def test_letters_of_the_kernel(letters: str, op: Op, flags: int) -> None:
    word = np.array([parse_letters(letters)], np.uint32)
    assert DECODER.ops(word).tolist() == [op]
    assert DECODER.flags(word).tolist() == [flags]


def _events(*events: tuple[Kind, str, int, int]) -> np.ndarray:
    out = np.zeros(len(events), SLOT_DTYPE)
    for row, (kind, letters, sector, size) in zip(out, events, strict=True):
        row["key"] = int.from_bytes(letters.encode(), "little")
        row["kind_sector"] = int(kind) << 56 | sector
        row["bytes"] = size
    return out


ISSUE, END = Kind.ISSUE, Kind.COMPLETE


def test_a_completion_takes_the_oldest_twin_and_says_that_it_guessed() -> None:
    keys = FifoKeys()
    out = keys.assign(
        _events(
            (ISSUE, "R", 8, 4096), (ISSUE, "R", 8, 4096), (END, "R", 8, 4096), (END, "R", 8, 4096)
        )
    )["key"].tolist()
    assert out[0] == out[2] and out[1] == out[3] and out[0] != out[1]
    assert keys.ambiguous == 1


def test_the_last_part_finds_its_request_across_batches() -> None:
    keys = FifoKeys()
    issue = int(keys.assign(_events((ISSUE, "R", 0, 8192)))["key"][0])
    parts = keys.assign(_events((END, "R", 0, 4096), (END, "R", 8, 4096)))["key"].tolist()
    assert parts[0] != issue and parts[1] == issue


def test_a_flush_is_found_though_its_two_addresses_differ() -> None:
    keys = FifoKeys()
    out = keys.assign(_events((ISSUE, "FF", 0, 0), (END, "FF", (1 << 56) - 1, 0)))["key"]
    assert out[0] == out[1]


def test_reads_and_writes_of_the_same_sectors_do_not_mix() -> None:
    keys = FifoKeys()
    out = keys.assign(
        _events(
            (ISSUE, "R", 8, 4096), (ISSUE, "WS", 8, 4096), (END, "WS", 8, 4096), (END, "R", 8, 4096)
        )
    )["key"].tolist()
    assert out[0] == out[3] and out[1] == out[2]
    assert keys.ambiguous == 0
