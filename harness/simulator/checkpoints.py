"""Where requests make states: at their prompt's end, at the end of the round, at branches …"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.core.errors import UsageError
from harness.simulator.paths import Paths
from harness.simulator.tree_kernel import (
    divergences,
    earlier_ends,
    every_so_many,
    nearest_above,
)

NAMES = ("end", "round", "branch", "every:M", "all-turns")

_NEVER = np.iinfo(np.int32).max


@dataclass(frozen=True)
class Checkpoints:
    """Request r makes the states of ``made[made_of[r]:made_of[r + 1]]``, root side first.

    made_of int64[R + 1], made int32; ``first_made`` int32[N], first request that makes a node's
    state, a large number if none does.
    """

    made_of: NDArray[np.int64]
    made: NDArray[np.int32]
    first_made: NDArray[np.int32]


def checkpoints(paths: Paths, kind: str) -> Checkpoints:
    """Checkpoints of a kind (see ``NAMES``); UsageError for another one.

    ``end``: the last full block of the prompt; so too for ``round``, whose paths go on to the end
    of the output where the session's next prompt has it. ``branch``: the end, and where the path
    leaves the tree. ``every:M``: each M chunks. ``all-turns``: the ends of all earlier requests on
    the path, which a lost conversation that is computed again passes, and its own.
    """
    every = re.fullmatch(r"every:([1-9][0-9]*)", kind)
    if kind in ("end", "round"):
        made_of, made = _at_most_one(paths.ends())
    elif kind == "branch":
        made_of, made = _with_branches(paths)
    elif kind == "all-turns":
        made_of, made = _all_turns(paths)
    elif every:
        made_of, made = _every(paths, int(every[1]))
    else:
        raise UsageError(f"unknown checkpoint {kind!r}", fix=f"one of: {', '.join(NAMES)}")
    return Checkpoints(made_of, made, first_makers(made_of, made, paths.nodes))


def first_makers(
    made_of: NDArray[np.int64], made: NDArray[np.int32], nodes: int
) -> NDArray[np.int32]:
    """First request that makes the state of each node, int32[N]; a large number for none."""
    first = np.full(nodes, _NEVER, np.int32)
    makers = np.repeat(np.arange(len(made_of) - 1, dtype=np.int32), np.diff(made_of))
    first[made[::-1]] = makers[::-1]
    return first


def _at_most_one(nodes: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    there = nodes >= 0
    return np.concatenate(([0], np.cumsum(there))).astype(np.int64), nodes[there]


def _with_branches(paths: Paths) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    shared = np.empty(paths.requests, np.int32)
    divergences(
        paths.path_of, paths.path_first, paths.path_length,
        paths.first_request.astype(np.int32), shared,
    )  # fmt: skip
    both = np.stack([shared, paths.ends()], axis=1)
    there = both >= 0
    return np.concatenate(([0], np.cumsum(there.sum(axis=1)))).astype(np.int64), both[there]


def _all_turns(paths: Paths) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    end = paths.ends()
    marked = np.zeros(paths.nodes, np.uint8)
    marked[end[end >= 0]] = 1
    nearest = np.empty(paths.nodes, np.int32)
    nearest_above(paths.parent, marked, nearest)
    first_end = first_makers(*_at_most_one(end), paths.nodes)
    count = np.zeros(paths.requests + 1, np.int64)
    none = np.empty(0, np.int32)
    earlier_ends(end, nearest, first_end, count, none, False)
    made_of = np.cumsum(count)
    made = np.empty(made_of[-1], np.int32)
    earlier_ends(end, nearest, first_end, made_of, made, True)
    return made_of, made


def _every(paths: Paths, step: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    count = np.zeros(paths.requests + 1, np.int64)
    arrays = paths.path_of, paths.path_first, paths.path_length, paths.chunks
    every_so_many(*arrays, step, count, np.empty(0, np.int32), False)
    made_of = np.cumsum(count)
    made = np.empty(made_of[-1], np.int32)
    every_so_many(*arrays, step, made_of, made, True)
    return made_of, made
