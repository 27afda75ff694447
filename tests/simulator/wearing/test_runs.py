"""Logs of the real engine are consistent, and nothing of a run's counts is lost on the way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from harness.simulator.corpus import Corpus, repeated
from harness.simulator.wearing.events import PUT, USE, LogReader
from harness.simulator.wearing.wear import How, wear_of
from tests.simulator.cases import corpus_of, run
from tests.simulator.wearing.logs import FULL, STATE, small_drive, small_layout

CHUNK, STATE_BYTES = 64 << 10, 200_000


def chats(requests: int, seed: int) -> Corpus:
    """Sessions of growing prompts behind one of two shared beginnings, taken up at random."""
    rng = np.random.default_rng(seed)
    paths: dict[int, list[int]] = {}
    asked, sessions = [], []
    for r in range(requests):
        session = int(rng.integers(12)) + 12 * (r // 60)
        path = paths.setdefault(session, [session % 2, 2])
        path.extend(1000 * session + len(path) + k for k in range(int(rng.integers(1, 4))))
        asked.append(list(path))
        sessions.append(session)
    return corpus_of(asked, sessions, [30.0 * r for r in range(requests)])


CHATS = chats(150, 5)
TIERS: dict[str, Any] = {
    "chunk_bytes": CHUNK, "state_bytes": STATE_BYTES, "dram_bytes": 20 * CHUNK,
    "ssd_bytes": 80 * CHUNK,
}  # fmt: skip


@pytest.mark.parametrize(
    ("policy", "options"),
    [
        ("lru", {}),
        ("lru", {"on_ssd_hit": "copy"}),
        ("lru", {"on_ssd_hit": "move"}),
        ("lru", {"structure": "free"}),
        ("write-through", {}),
        ("gandalf", {}),
    ],
)
def test_what_the_engine_wrote_and_kept_is_what_the_layout_is_given(
    policy: str, options: dict[str, Any]
) -> None:
    found = run(CHATS, policy=policy, **TIERS, **options)
    assert found.ssd is not None
    nodes = CHATS.first_request
    reader = LogReader(
        found.ssd, CHATS.time_s, CHATS.session[nodes], CHATS.turn[nodes], found.sizes,
        TIERS["ssd_bytes"],
    )  # fmt: skip
    events = np.concatenate([e.copy() for e in reader.one_pass()])
    for cls, traffic in ((FULL, found.outcome.full), (STATE, found.outcome.state)):
        mine = events[events["object_class"] == cls]
        assert np.count_nonzero(mine["action"] == PUT) == traffic.written
        assert np.count_nonzero(mine["action"] == USE) == traffic.hits_ssd
    resident = found.outcome.full.resident_ssd * CHUNK
    resident += found.outcome.state.resident_ssd * STATE_BYTES
    assert reader.live_bytes == resident
    assert found.outcome.full.written > 20


def test_a_warm_run_is_worn_as_it_was_played() -> None:
    found = run(CHATS, replays=2, **TIERS)
    assert found.ssd is not None
    played = repeated(CHATS, 2)
    drive = small_drive(dwpd=1e-6)  # a rated life that one pass exceeds
    worn = wear_of(
        found.ssd, played, found.sizes, small_layout("lmcache-raw-block"), drive,
        How(tier_bytes=TIERS["ssd_bytes"]),
    )  # fmt: skip
    assert worn.object_bytes.full == found.outcome.full.written_bytes
    assert worn.object_bytes.state == found.outcome.state.written_bytes
    assert worn.duration_s == pytest.approx(2 * float(CHATS.time_s[-1]), rel=0.02)
    assert worn.utilisation == TIERS["ssd_bytes"] / drive.namespace_bytes
    assert worn.trace == CHATS.name
