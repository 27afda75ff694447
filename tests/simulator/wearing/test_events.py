"""A log as objects that come and go: order, keys, passes, and what cannot be in a log."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from harness.core.errors import UsageError
from harness.simulator.requestlog import SsdLog
from harness.simulator.sizes import ObjectSizes
from harness.simulator.wearing.events import FREE, PUT, USE, LogReader, class_of
from tests.simulator.wearing.logs import (
    EVICT,
    FULL,
    READ,
    STATE,
    WRITE,
    churn,
    clock,
    rows,
)

TEN = ObjectSizes(chunk_bytes=10, state_bytes=25, block_tokens=64)
LOG = rows([
    (0, WRITE, FULL, 0, 3),
    (0, WRITE, STATE, 2, 1),
    (1, READ, FULL, 0, 2),
    (1, EVICT, FULL, 1, 2),
    (1, WRITE, FULL, 3, 1),
])  # fmt: skip


def reader(log: SsdLog = LOG, requests: int = 2, per: int = 3, **more: Any) -> LogReader:
    made = clock(requests, per)
    nodes = made.first_request
    return LogReader(log, made.time_s, made.session[nodes], made.turn[nodes], TEN, **more)


def one_pass(of: LogReader) -> list[tuple[Any, ...]]:
    """(action, class, node, session, time) of every event of the next pass."""
    found = []
    for events in of.one_pass():
        for event in events:
            node = (int(event["key"]) - 1) & 0xFFFFFFFF
            found.append(
                (event["action"], event["object_class"], node, event["session"], event["time_s"])
            )
    return [tuple(x.item() for x in row[:2]) + row[2:3] + (row[3].item(), row[4].item())
            for row in found]  # fmt: skip


def test_writes_and_reads_go_from_the_root_and_evictions_from_the_leaf() -> None:
    assert one_pass(reader()) == [
        (PUT, FULL, 0, 0, 0.0), (PUT, FULL, 1, 0, 0.0), (PUT, FULL, 2, 0, 0.0),
        (PUT, STATE, 2, 0, 0.0),
        (USE, FULL, 0, 0, 20.0), (USE, FULL, 1, 0, 20.0),
        (FREE, FULL, 2, 0, 20.0), (FREE, FULL, 1, 0, 20.0),
        (PUT, FULL, 3, 1, 20.0),
    ]  # fmt: skip


def test_uses_can_be_left_out_and_then_change_nothing_else() -> None:
    with_uses = [row for row in one_pass(reader()) if row[0] != USE]
    assert one_pass(reader(uses=False)) == with_uses


def test_bytes_are_those_of_the_log() -> None:
    made = reader()
    assert made.written.tolist() == [4, 1]
    assert made.peak_bytes == made.tier_bytes == 3 * 10 + 25
    one_pass(made)
    assert made.live_bytes == 2 * 10 + 25


def test_a_second_pass_has_fresh_keys_sessions_and_times_and_clears_what_is_in_its_way() -> None:
    made = reader()
    first = np.concatenate([events.copy() for events in made.one_pass()])
    left = made.residents()
    # Node 0 was read last of these, the state of node 2 was written before, node 3 after it.
    assert [(int(k) - 1) & 0xFFFFFFFF for k in left] == [2, 0, 3]
    assert class_of(left).tolist() == [STATE, FULL, FULL]
    again = np.concatenate([events.copy() for events in made.one_pass()])
    freed = again[np.isin(again["key"], left)]
    assert freed["action"].tolist() == [FREE] * len(freed)
    # 45 bytes were left, 55 fit: one chunk of 10 goes in, then the state goes, then all fit.
    assert again["action"].tolist()[:4] == [PUT, FREE, PUT, PUT]
    assert freed["key"].tolist() == left[: len(freed)].tolist()
    fresh = again[~np.isin(again["key"], left)]
    assert not np.isin(fresh["key"], first["key"]).any()
    assert fresh["action"].tolist() == first["action"].tolist()
    assert (fresh["session"] == first["session"] + 2).all()
    # Two requests 20 s apart: a pass spans them and one mean gap.
    assert (fresh["time_s"] == first["time_s"] + 40.0).all()
    assert (fresh["request"] == first["request"] + 2).all()


def test_many_passes_never_hold_more_than_the_tier() -> None:
    log = churn(50, 4, 37, "random")
    made = reader(log, 50, 4, tier_bytes=400)
    for number in range(5):
        for events in made.one_pass():
            assert len(np.unique(events["key"][events["action"] == PUT])) == np.count_nonzero(
                events["action"] == PUT
            )
            assert made.live_bytes <= 400
        assert made.passes == number + 1
        assert len(made.residents()) * 10 == made.live_bytes


def test_passes_longer_than_a_batch_lose_nothing_between_batches() -> None:
    log = churn(30_000, 4, 1000, "fifo")
    made = reader(log, 30_000, 4)
    batches = [len(events) for events in made.one_pass()]
    assert len(batches) > 1
    assert sum(batches) == int(log["count"].sum())
    assert made.live_bytes == 1000 * 10


@pytest.mark.parametrize(
    ("log", "message"),
    [
        ([(0, WRITE, FULL, 0, 2), (0, WRITE, FULL, 1, 1)], "on the SSD already"),
        ([(0, WRITE, FULL, 0, 1), (0, EVICT, FULL, 1, 1)], "not on the SSD"),
        ([(0, READ, STATE, 0, 1)], "not on the SSD"),
        ([(0, WRITE, 2, 0, 1)], "class 2"),
        ([(0, 7, FULL, 0, 1)], "no write, eviction or read"),
        ([(2, WRITE, FULL, 0, 1)], "request 2 of 2"),
        ([(0, WRITE, FULL, 5, 2)], "node 6 of 6"),
    ],
)
def test_what_cannot_be_in_a_log_is_refused(log: list[Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        one_pass(reader(rows(log)))


def test_a_tier_smaller_than_what_the_log_keeps_is_refused() -> None:
    with pytest.raises(UsageError, match="keeps 55 bytes"):
        reader(tier_bytes=54)
