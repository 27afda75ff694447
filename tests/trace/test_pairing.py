"""Issues meet their completions: against a plain model, and at the limits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.trace.formats.base import COMPLETION, ISSUE, rows
from harness.trace.pairing import PairingCounts, pair_events

Event = tuple[int, int, int]
"""(event, lba, error); the position is the time."""

events = st.lists(
    st.tuples(st.sampled_from([ISSUE, COMPLETION]), st.integers(0, 4), st.integers(-5, 0)),
    max_size=60,
)


def batch(chunk: list[Event], first_ns: int) -> pa.RecordBatch:
    count = len(chunk)
    kinds, lbas, errors = (np.array(column) for column in zip(*chunk, strict=True))
    return rows(
        ts_ns=np.arange(first_ns, first_ns + count),
        op=lbas % 2,
        lba=lbas.astype(np.uint64),
        bytes=np.full(count, 512, np.uint64),
        error=errors * (kinds == COMPLETION),
        event=kinds.astype(np.uint8),
    )


def batches(found: list[Event], size: int) -> Iterator[pa.RecordBatch]:
    for first in range(0, len(found), size):
        yield batch(found[first : first + size], first)


def model(found: list[Event]) -> tuple[list[tuple[int, int, int | None, int]], PairingCounts]:
    """(time, lba, latency, error) a request, by a stack for each address."""
    requests: list[list[int | None]] = []
    stacks: dict[int, list[list[int]]] = {}
    counts = PairingCounts()
    for now, (event, lba, error) in enumerate(found):
        stack = stacks.setdefault(lba, [])
        if event == ISSUE:
            if stack:
                stack[-1][1] = 1
            stack.append([len(requests), 0])
            requests.append([now, lba, None, 0])
        elif stack:
            number, covered = stack.pop()
            issued = requests[number][0]
            assert issued is not None
            requests[number][2:] = [now - issued, error]
            counts.ambiguous += covered
        else:
            counts.orphans += 1
    counts.issues = len(requests)
    counts.unfinished = sum(request[2] is None for request in requests)
    return [tuple(request) for request in requests], counts  # type: ignore[misc]


def paired(
    found: list[Event], size: int, held_rows: int = 1 << 20
) -> tuple[list[tuple[int, int, int | None, int]], PairingCounts]:
    counts = PairingCounts()
    got = [
        (row["ts_ns"], row["lba"], row["latency_ns"], row["error"])
        for part in pair_events(batches(found, size), counts, held_rows)
        for row in part.to_pylist()
    ]
    return got, counts


@given(found=events, size=st.integers(1, 20))
@settings(max_examples=40, deadline=None)
def test_pairs_equal_the_plain_model(found: list[Event], size: int) -> None:
    assert paired(found, size) == model(found)


@given(found=events, size=st.integers(1, 8), held_rows=st.integers(0, 20))
@settings(max_examples=40, deadline=None)
def test_a_short_memory_only_loses_latencies(found: list[Event], size: int, held_rows: int) -> None:
    expected, _ = model(found)
    got, counts = paired(found, size, held_rows)
    assert [row[:2] for row in got] == [row[:2] for row in expected]
    for mine, right in zip(got, expected, strict=True):
        assert mine[2] in (right[2], None)
    assert counts.issues == len(expected)
    assert counts.unfinished == sum(row[2] is None for row in got)


def test_a_lost_completion_spoils_no_later_latency() -> None:
    # The same slot is written three times; the completion of the first is missing.
    found = [(ISSUE, 2, 0), (ISSUE, 2, 0), (COMPLETION, 2, 0), (ISSUE, 2, 0), (COMPLETION, 2, 0)]
    got, counts = paired(found, 2)
    assert [row[2] for row in got] == [None, 1, 1]
    assert (counts.unfinished, counts.orphans, counts.ambiguous) == (1, 0, 0)


def test_many_in_flight_and_many_addresses() -> None:
    rng = np.random.default_rng(5)
    lbas = rng.integers(0, 2**40, 50_000).tolist()
    found = [(ISSUE, lba, 0) for lba in lbas] + [(COMPLETION, lba, -1) for lba in lbas]
    got, counts = paired(found, 7000)
    assert [row[2] for row in got] == [50_000] * 50_000
    assert {row[3] for row in got} == {-1}
    assert (counts.unfinished, counts.orphans) == (0, 0)


def test_an_early_open_issue_does_not_hold_back_for_ever() -> None:
    found = [(ISSUE, 0, 0)]
    for lba in range(1, 200):
        found += [(ISSUE, lba, 0), (COMPLETION, lba, 0)]
    counts = PairingCounts()
    sizes = []
    stream = pair_events(batches(found, 10), counts, held_rows=50)
    for part in stream:
        sizes.append(part.num_rows)
        if len(sizes) == 1:
            assert counts.issues <= 70
    assert sum(sizes) == 200
    assert counts.unfinished == 1
