"""Playing recorded sessions in a closed loop: N live at once, the next starts when one ends.

Within a session the recorded gaps hold, none longer than a cap; a fresh session starts where its
lane's last one ended.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from harness.stores.requests.builder import Row

GAP_CAP_S = 300.0


@dataclass(frozen=True)
class RecordedSession:
    """Rows in time order, whose times count from the session's start."""

    rows: list[Row]


def interleave(
    sessions: Iterable[RecordedSession], lanes: int, gap_cap_s: float = GAP_CAP_S
) -> Iterator[Row]:
    """The rows of all sessions in the order in which ``lanes`` lanes play them."""
    waiting = iter(sessions)
    heap: list[tuple[float, int, int, RecordedSession]] = []

    def begin(lane: int, now: float) -> None:
        for session in waiting:
            if session.rows:
                heapq.heappush(heap, (now, lane, 0, session))
                return

    for lane in range(lanes):
        begin(lane, 0.0)
    while heap:
        now, lane, at, session = heapq.heappop(heap)
        row = session.rows[at]
        yield row._replace(time_s=now)
        if at + 1 < len(session.rows):
            gap = min(session.rows[at + 1].time_s - row.time_s, gap_cap_s)
            heapq.heappush(heap, (now + gap, lane, at + 1, session))
        else:
            begin(lane, now)
