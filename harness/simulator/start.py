"""The state in which a run starts: both tiers empty."""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.simulator.corpus_form import Corpus
from harness.simulator.hooks import World
from harness.simulator.point import Point
from harness.simulator.policies import Policy
from harness.simulator.prepare import Prepared
from harness.simulator.sizes import ObjectSizes
from harness.simulator.state import COPY, MOVE_UP, STAY, State, empty_arrays, most_ticks, tick_type

_ON_HIT = {"stay": STAY, "copy": COPY, "move": MOVE_UP}


def world(corpus: Corpus, ready: Prepared, point: Point, sizes: ObjectSizes) -> World:
    """What a policy may know when it makes its arrays."""
    return World(
        requests=corpus.requests,
        nodes=corpus.nodes,
        states=len(ready.made_at),
        sessions=int(corpus.session.max(initial=0)) + 1,
        sizes=sizes,
        dram_bytes=point.dram_bytes,
        ssd_bytes=point.ssd_bytes,
        block_tokens=corpus.block_tokens,
        seed=point.seed or 0,
        seconds=float(corpus.time_s[-1] - corpus.time_s[0]),
        paths=ready.paths,
        state_of=ready.state_of,
        wanted=ready.wanted,
        asks=ready.asks,
    )


def new_state(
    corpus: Corpus, ready: Prepared, point: Point, sizes: ObjectSizes, policy: Policy,
    log_rows: int,
) -> State:  # fmt: skip
    """Empty tiers, a new policy, and room for ``log_rows`` rows of the SSD log."""
    nodes, objects = corpus.nodes, corpus.nodes + len(ready.made_at)
    paths, i4, i8 = ready.paths, np.int32, np.int64
    longest = int(np.diff(paths.path_of).max(initial=0)) and int(corpus.depth.max(initial=0)) + 1
    settings = [
        nodes, point.dram_bytes, point.ssd_bytes, sizes.chunk_bytes, sizes.state_bytes,
        point.structure == "leaf", _ON_HIT[point.on_ssd_hit], point.last_token,
        corpus.block_tokens, sizes.state_bytes > 0, policy.rebuild, policy.ahead, policy.any_node,
        policy.evict_any_tier, log_rows,
    ]  # fmt: skip
    columns: dict[str, Any] = {
        name: getattr(corpus, name).astype(i4)
        for name in ("session", "turn", "input_tokens", "output_tokens")
    }
    states = len(ready.checkpoints.made) + corpus.requests  # each uses one at most
    ticks = most_ticks(int(paths.path_length.sum(dtype=i8)), states, corpus.requests)
    queues = policy.rebuild.bit_length() if policy.ahead else 0
    return State(
        **columns,
        **empty_arrays(objects, longest, corpus.requests, policy.ahead > 0),
        path_of=paths.path_of,
        path_first=paths.path_first,
        path_length=paths.path_length,
        chunks=paths.chunks,
        parent=corpus.parent,
        depth=corpus.depth,
        first_child=paths.first_child,
        next_child=paths.next_child,
        tag=corpus.tag,
        time_s=corpus.time_s,
        made_of=ready.checkpoints.made_of,
        made=ready.checkpoints.made,
        made_at=ready.made_at,
        state_of=ready.state_of,
        made_before=ready.made_before,
        wanted=ready.wanted,
        last_asked=ready.last_asked,
        next_asked=ready.next_asked,
        next_asked_state=ready.next_asked_state,
        asks=ready.asks,
        joined=np.zeros((queues, objects), tick_type(ticks)),
        flag=np.zeros(objects, np.uint8),
        stamp=np.full(objects, -1, i4),
        kids_dram=np.zeros(nodes, i4),
        kids_ssd=np.zeros(nodes, i4),
        kids=np.zeros(nodes, i4),
        cfg=np.array(settings, i8),
        log=np.empty((log_rows, 4), i8),
        p=policy.create(world(corpus, ready, point, sizes)),
    )
