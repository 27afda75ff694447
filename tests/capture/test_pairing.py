"""Pairing against a naive model, and the cases that random streams rarely make."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.capture.comm import CommTable
from harness.capture.pairing import Pairer
from harness.capture.records import SLOT_DTYPE, Kind
from harness.capture.rows import Rows

_BASE = 0xFFFF888100000000
ALL_FIXED = np.ones(256, bool)


def slots(*events: tuple[Kind, int, int, int], bytes_: int = 4096) -> np.ndarray:
    """Events (kind, ts_ns, request number, sector) as the probe would send them."""
    out = np.zeros(len(events), SLOT_DTYPE)
    for row, (kind, ts_ns, request, sector) in zip(out, events, strict=True):
        row["ts_ns"], row["key"] = ts_ns, _BASE + 64 * request
        row["kind_sector"] = int(kind) << 56 | sector
        row["bytes"] = bytes_
    return out


def pairer() -> Pairer:
    return Pairer(Kind.ISSUE, Kind.COMPLETE, CommTable(), ALL_FIXED)


def rows_of(pairing: Pairer) -> list[tuple[int, int, int]]:
    """(ts, sector, latency) of all rows."""
    rows = pairing.take(everything=True)
    assert rows is not None
    return list(
        zip(*(rows[name].tolist() for name in ("ts_ns", "sector", "latency_ns")), strict=True)
    )


ISSUE, END, BACK = Kind.ISSUE, Kind.COMPLETE, Kind.REQUEUE


Row = list[int]


def stream_of(rng: random.Random, depth: int, step_ns: int) -> tuple[list[tuple], list[Row]]:
    """Events of requests at random, and their rows: time, sector, latency, depth at issue."""
    free, events = list(range(depth)), []
    busy: dict[int, int] = {}
    expected: list[Row] = []
    for step in range(200):
        ts_ns = step_ns * step
        if free and (not busy or rng.random() < 0.5):
            request = free.pop(rng.randrange(len(free)))
            busy[request] = len(expected)
            expected.append([ts_ns, step * 8, -1, len(busy)])
            events.append((ISSUE, ts_ns, request, step * 8))
        else:
            request = rng.choice(list(busy))
            row = expected[busy.pop(request)]
            row[2] = ts_ns - row[0]
            free.append(request)
            events.append((END, ts_ns, request, row[1]))
    return events, expected


def lists_of(rows: Rows | None) -> list[Row]:
    if rows is None:
        return []
    columns = [rows[name].tolist() for name in ("ts_ns", "sector", "latency_ns", "queue_depth")]
    return [list(row) for row in zip(*columns, strict=True)]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 12), st.integers(1, 50))
def test_any_stream_in_any_batches_pairs_as_the_naive_model(
    seed: int, depth: int, batch: int
) -> None:
    events, expected = stream_of(random.Random(seed), depth, 1000)
    pairing = pairer()
    for first in range(0, len(events), batch):
        pairing.add(slots(*events[first : first + batch]))
    assert lists_of(pairing.take(everything=True)) == expected
    assert pairing.counts.unpaired_completions == pairing.counts.reissued == 0


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 12), st.integers(1, 50))
def test_what_leaves_before_its_end_is_amended_to_the_same_rows(
    seed: int, depth: int, batch: int
) -> None:
    """Hardly a row may wait, so nearly all leave early; no latency and no depth is lost by that."""
    events, expected = stream_of(random.Random(seed), depth, 20_000_000)
    pairing = pairer()
    got: list[Row] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("harness.capture.pairing.MAX_WAITING", 3)
        for first in range(0, len(events), batch):
            pairing.add(slots(*events[first : first + batch]))
            got += lists_of(pairing.take())
    unfinished = len(pairing.open_rows()["ts_ns"])
    got += lists_of(pairing.take(everything=True))
    for row, latency_ns, _ in pairing.amendments:
        assert got[row][2] == -1
        got[row][2] = latency_ns
    assert got == expected
    assert unfinished == sum(row[2] == -1 for row in expected)
    assert pairing.counts.unpaired_completions == pairing.counts.reissued == 0


def test_rows_leave_in_order_of_time_and_only_when_finished() -> None:
    pairing = pairer()
    pairing.add(
        slots((ISSUE, 0, 1, 8), (ISSUE, 5, 2, 16), (END, 10, 2, 16), (ISSUE, 500_000_000, 3, 24))
    )
    assert pairing.take() is None  # the first is still open
    pairing.add(slots((END, 600_000_000, 1, 8)))
    rows = pairing.take()
    assert rows is not None
    assert rows["ts_ns"].tolist() == [0, 5]
    assert rows_of(pairing) == [(500_000_000, 24, -1)]


def test_stragglers_are_sorted_in() -> None:
    pairing = pairer()
    pairing.add(slots((ISSUE, 100, 1, 8), (ISSUE, 90, 2, 16), (END, 200, 1, 8), (END, 210, 2, 16)))
    assert [ts for ts, _, _ in rows_of(pairing)] == [90, 100]


def test_a_lost_completion_leaves_its_latency_empty() -> None:
    pairing = pairer()
    pairing.add(slots((ISSUE, 0, 1, 8), (ISSUE, 50, 1, 80), (END, 70, 1, 80)))
    assert rows_of(pairing) == [(0, 8, -1), (50, 80, 20)]
    assert pairing.counts.reissued == 1
    assert pairing.presumed[0]["sector"].tolist() == [8]


def test_a_completion_elsewhere_is_not_taken_for_the_lost_one() -> None:
    # The completion of the first and the issue of the second request are lost.
    pairing = pairer()
    pairing.add(slots((ISSUE, 0, 1, 8), (END, 70, 1, 80)))
    assert rows_of(pairing) == [(0, 8, -1)]
    assert pairing.counts.unpaired_completions == pairing.counts.reissued == 1


def test_a_carrier_of_a_flush_is_an_empty_completion() -> None:
    pairing = pairer()
    carrier = slots((END, 30, 1, 0), bytes_=0)
    pairing.add(np.concatenate([slots((ISSUE, 0, 1, 8), (END, 20, 1, 8)), carrier]))
    assert rows_of(pairing) == [(0, 8, 20)]
    assert (pairing.counts.empty_completions, pairing.counts.unpaired_completions) == (1, 0)


def test_a_requeued_request_is_one_row_at_its_last_issue() -> None:
    pairing = pairer()
    pairing.add(slots((ISSUE, 0, 1, 8), (BACK, 10, 1, 8), (ISSUE, 20, 1, 8), (END, 25, 1, 8)))
    assert rows_of(pairing) == [(20, 8, 5)]
    assert pairing.counts.requeued == 1


def test_depth_counts_each_device_by_itself() -> None:
    pairing = pairer()
    events = slots(
        (ISSUE, 0, 1, 8), (ISSUE, 1, 2, 8), (ISSUE, 2, 3, 8), (END, 3, 1, 8), (ISSUE, 4, 4, 8)
    )
    events["dev"] = [1, 2, 1, 1, 1]
    pairing.add(events)
    rows = pairing.take(everything=True)
    assert rows is not None
    assert rows["queue_depth"].tolist() == [1, 1, 2, 2]


def stuck(monkeypatch: pytest.MonkeyPatch) -> Pairer:
    """A pairer whose first row left with a thousand others behind it, before its end."""
    monkeypatch.setattr("harness.capture.pairing.MAX_WAITING", 100)
    pairing = pairer()
    pairing.add(slots((ISSUE, 0, 999, 8)))
    left = 0
    for batch in range(20):
        events = []
        for n in range(50):
            at = (batch * 50 + n + 1) * 10_000_000
            events += [(ISSUE, at, n, 8), (END, at + 5, n, 8)]
        pairing.add(slots(*events))
        rows = pairing.take()
        left += 0 if rows is None else len(rows["ts_ns"])
    assert left > 800
    assert pairing.counts.overtaken == 1
    return pairing


def test_one_stuck_request_holds_nothing_back_and_keeps_its_latency(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pairing = stuck(monkeypatch)
    assert pairing.open_rows()["ts_ns"].tolist() == [0]
    pairing.add(slots((END, 20_000_000_000, 999, 8)))
    assert pairing.amendments == [(0, 20_000_000_000, 0)]
    assert pairing.counts.amended == 1
    assert len(pairing.open_rows()["ts_ns"]) == pairing.counts.unpaired_completions == 0


def test_a_stuck_request_whose_end_was_lost_stays_without_latency(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pairing = stuck(monkeypatch)
    pairing.add(slots((ISSUE, 20_000_000_000, 999, 16), (END, 20_000_000_007, 999, 16)))
    assert pairing.amendments == []
    assert pairing.counts.reissued == 1
    assert pairing.presumed[0]["sector"].tolist() == [8]
    assert rows_of(pairing)[-1] == (20_000_000_000, 16, 7)


def test_memory_of_stuck_requests_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.capture.late.MAX_LATE", 10)
    monkeypatch.setattr("harness.capture.pairing.MAX_WAITING", 20)
    pairing = pairer()
    for batch in range(10):
        pairing.add(
            slots(*((ISSUE, (batch * 10 + n) * 10**8, 10 * batch + n, 8) for n in range(10)))
        )
        pairing.take()
    counts = pairing.counts
    assert counts.overtaken > 30
    assert counts.forgotten == counts.overtaken - 10


def test_events_without_completions_of_their_own_pass_at_once() -> None:
    pairing = Pairer(Kind.BIO_ISSUE, None, CommTable(), None)
    pairing.add(
        slots((Kind.BIO_ISSUE, 0, 1, 8), (ISSUE, 1, 2, 8), (Kind.BIO_ISSUE, 200_000_000, 1, 9))
    )
    rows = pairing.take()
    assert rows is not None and rows["ts_ns"].tolist() == [0]


def test_names_of_commands_become_codes() -> None:
    table = CommTable()
    words = np.array(
        [[int.from_bytes(b"fio\0\0\0\0\0", "little"), 0],
         [int.from_bytes(b"longname", "little"), int.from_bytes(b"r-than-8", "little")],
         [int.from_bytes(b"fio\0\0\0\0\0", "little"), 0]],
        np.uint64,
    )  # fmt: skip
    assert table.codes(words).tolist() == [0, 1, 0]
    assert table.names == ["fio", "longnamer-than-8"]
