"""Simulating one point: the policy found, the arrays made, the trace played, the counts summed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from harness.core.errors import UsageError
from harness.simulator.bind import Serve, bind, bind_segments
from harness.simulator.corpus import Corpus, repeated
from harness.simulator.outcome import Outcome, Traffic
from harness.simulator.point import Point, trace_id
from harness.simulator.policies import Policy, find_policy, lru
from harness.simulator.prepare import prepare
from harness.simulator.requestlog import REQUEST_DTYPE, SSD_DTYPE, RequestLog, SsdLog
from harness.simulator.segment_state import SegmentState, new_segments
from harness.simulator.sizes import ObjectSizes, object_sizes
from harness.simulator.start import new_state
from harness.simulator.state import (
    BYPASSED,
    COUNTER_NAMES,
    LOG_ROWS,
    ROW_FIELDS,
    ROW_HIT,
    ROW_STRANDED,
    State,
)
from harness.simulator.tuning import Tuned, tuner_of

Engine = Literal["auto", "block", "segment"]

PIECES = 100
_FIRST_LOG = 1 << 20


@dataclass(frozen=True)
class Run:
    """What came out of a point.

    Attributes
    ----------
    outcome
        After the warm-up, all passes together.
    passes
        One outcome for each pass over the trace (``replays``), warm-up included.
    snapshots : int64[about 100, COUNTERS, 2]
        Counters so far, each 1 % of the requests; ``snapshot_requests`` says after how many.
    requests
        One row a request, all passes.
    ssd
        All that the SSD did; None unless wanted.
    tuned
        What a policy that tunes itself was set to; None where none was.
    """

    point: Point
    sizes: ObjectSizes
    label: str
    outcome: Outcome
    passes: tuple[Outcome, ...]
    snapshots: NDArray[np.int64]
    snapshot_requests: NDArray[np.int64]
    requests: RequestLog
    ssd: SsdLog | None
    tuned: Tuned | None


def simulate(
    corpus: Corpus,
    point: Point,
    *,
    log: bool = False,
    compiled: bool = True,
    engine: Engine = "auto",
    progress: Callable[[int, int], None] | None = None,
) -> Run:
    """Play the corpus of a point under its policy.

    Parameters
    ----------
    log
        Keep the SSD log.
    compiled
        Without, everything is interpreted, for small cases: nothing has to be compiled.
    engine
        ``segment`` plays LRU under the leaf rule by whole runs of nodes, with the same counts and
        no SSD log (``benchmarks/simulator.py`` prints both times); ``auto`` takes it where it can.
        UsageError where it was asked for and cannot.
    progress
        Told how many of how many requests were served.

    Raises
    ------
    UsageError
        A policy, parameter, model, checkpoint or size that does not fit; a corpus that is not the
        point's.
    """
    _check_trace(corpus, point)
    sizes = sizes_of(point)
    sizes.check(point.dram_bytes, point.ssd_bytes)
    policy = find_policy(point.policy, point.parameters)
    policy.check(point.structure)
    played = _passes(corpus, point.replays)
    ready = prepare(played, point.checkpoint, bool(sizes.state_bytes), policy.needs_future)
    cuts = _cuts(played.requests, point)
    can = by_segments(point, policy, log)
    if engine == "segment" and not can:
        raise UsageError(
            "the segment engine plays lru, under structure leaf and on_ssd_hit stay, without a log",
            fix="use engine auto or block",
        )
    if can and engine != "block":
        segments = new_segments(played, ready, point, sizes)
        snapshots = _play(segments, bind_segments(compiled)(segments), cuts, progress)
        if not segments.reg[BYPASSED]:
            return _summed(played, point, sizes, policy, segments, snapshots)
    rows = _FIRST_LOG if log else 0
    while True:
        state = new_state(played, ready, point, sizes, policy, rows)
        tuner = tuner_of(policy, state, bind(policy.module, compiled))
        snapshots = _play(state, tuner, cuts, progress)
        wanted = int(state.reg[LOG_ROWS])
        if wanted <= rows or not log:
            break
        rows = wanted
    run = _summed(played, point, sizes, policy, state, snapshots)
    return replace(run, tuned=tuner.tuned, ssd=ssd_log(played, state) if log else None)


def by_segments(point: Point, policy: Policy, log: bool) -> bool:
    """Whether the segment engine can play a point."""
    plain = policy.module.__name__ == lru.__name__ and not point.last_token and not log
    chains = point.structure == "leaf" and point.on_ssd_hit == "stay"
    return plain and chains and not point.checkpoint.startswith("every")


def sizes_of(point: Point) -> ObjectSizes:
    """The sizes that a point names, or those of its model."""
    if point.chunk_bytes is not None and point.state_bytes is not None:
        return ObjectSizes(point.chunk_bytes, point.state_bytes, point.block_tokens)
    return object_sizes(point.model, point.block_tokens)


def _check_trace(corpus: Corpus, point: Point) -> None:
    if point.trace != trace_id(corpus.name, corpus.content_hash):
        raise UsageError(
            f"the point is of trace {point.trace}, not of "
            f"{trace_id(corpus.name, corpus.content_hash)}"
        )
    if point.block_tokens != corpus.block_tokens:
        raise UsageError(
            f"the trace has blocks of {corpus.block_tokens} tokens, the point {point.block_tokens}"
        )


@lru_cache(maxsize=1)
def _passes(corpus: Corpus, times: int) -> Corpus:
    return repeated(corpus, times)


def _cuts(requests: int, point: Point) -> NDArray[np.int64]:
    """Requests after which counters are kept: each 1 %, the warm-up's end, each pass's end."""
    marks = {requests * k // PIECES for k in range(1, PIECES + 1)}
    marks |= {_warm(requests, point)}
    marks |= {requests * k // point.replays for k in range(1, point.replays + 1)}
    return np.array(sorted(marks | {0}), np.int64)


def _warm(requests: int, point: Point) -> int:
    return int(requests * point.warmup)


def _play(
    state: State | SegmentState, serve: Serve, cuts: NDArray[np.int64],
    progress: Callable[[int, int], None] | None,
) -> dict[int, NDArray[np.int64]]:  # fmt: skip
    snapshots = {0: state.total.copy()}
    for first, last in pairwise(cuts.tolist()):
        serve(first, last)
        snapshots[last] = state.total.copy()
        if progress:
            progress(last, int(cuts[-1]))
    return snapshots


def _summed(
    corpus: Corpus, point: Point, sizes: ObjectSizes, policy: Policy, state: State | SegmentState,
    snapshots: dict[int, NDArray[np.int64]],
) -> Run:  # fmt: skip
    total, passes = corpus.requests, point.replays
    edges = [total * k // passes for k in range(passes + 1)]

    def part(first: int, last: int) -> Outcome:
        return outcome(corpus, state, sizes, snapshots[last] - snapshots[first], first, last)

    kept = sorted(snapshots)[1:]
    return Run(
        point=point,
        sizes=sizes,
        label=policy.label,
        outcome=part(_warm(total, point), total),
        passes=tuple(part(a, b) for a, b in pairwise(edges)),
        snapshots=np.array([snapshots[at] for at in kept]),
        snapshot_requests=np.array(kept, np.int64),
        requests=request_log(corpus, state),
        ssd=None,
        tuned=None,
    )


def outcome(
    corpus: Corpus, state: State | SegmentState, sizes: ObjectSizes, counts: NDArray[np.int64],
    first: int, last: int,
) -> Outcome:  # fmt: skip
    """The outcome of requests ``first`` to ``last`` - 1, which counted ``counts``."""
    rows = slice(first, last)
    hits = state.row[rows, ROW_HIT].astype(np.int64)
    chunks = state.chunks[rows].astype(np.int64)
    some = chunks > 0
    resident = state.resident()
    traffic = []
    for kind, size in enumerate(sizes.by_class):
        values: dict[str, Any] = dict(zip(COUNTER_NAMES, counts[:, kind].tolist(), strict=True))
        values |= {name: both[kind] for name, both in resident.items()}
        traffic.append(Traffic(size_bytes=size, **values))
    times = corpus.time_s[rows]
    return Outcome(
        requests=last - first,
        requests_with_chunks=int(some.sum()),
        zero_requests=int((hits == 0).sum()),
        request_misses=float((1 - hits[some] / chunks[some]).sum()),
        references=int(chunks.sum()),
        hits=int(hits.sum()),
        stranded=int(state.row[rows, ROW_STRANDED].sum()),
        input_tokens=int(corpus.input_tokens[rows].sum(dtype=np.int64)),
        block_tokens=sizes.block_tokens,
        full=traffic[0],
        state=traffic[1],
        seconds=float(times[-1] - times[0]) if len(times) else 0.0,
    )


def request_log(corpus: Corpus, state: State | SegmentState) -> RequestLog:
    """The rows of a state as ``REQUEST_DTYPE``."""
    log = np.empty(corpus.requests, REQUEST_DTYPE)
    for name in ("time_s", "session", "turn", "input_tokens", "output_tokens"):
        log[name] = getattr(corpus, name)
    log["chunks"] = state.chunks
    for column, name in enumerate(ROW_FIELDS):
        log[name] = state.row[:, column]
    return log


def ssd_log(corpus: Corpus, state: State) -> SsdLog:
    """The log of a state as ``SSD_DTYPE``."""
    rows = state.log[: int(state.reg[LOG_ROWS])]
    log = np.empty(len(rows), SSD_DTYPE)
    log["request"], log["node"], log["count"] = rows[:, 0], rows[:, 2], rows[:, 3]
    log["action"], log["object_class"] = rows[:, 1] >> 8, rows[:, 1] & 255
    log["session"] = corpus.session[rows[:, 0]]
    log["turn"] = corpus.turn[rows[:, 0]]
    return log
