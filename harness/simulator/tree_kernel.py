"""Loops over the tree and its paths that no policy changes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from harness.simulator.jit import kernel

Ints = NDArray[np.int32]
Offsets = NDArray[np.int64]


@kernel
def link_children(parent: Ints, first_child: Ints, next_child: Ints) -> None:
    """Chain the children of each node, in order of their numbers; all entries come in as -1."""
    for node in range(len(parent) - 1, -1, -1):
        above = parent[node]
        if above >= 0:
            next_child[node] = first_child[above]
            first_child[above] = node


@kernel
def all_asks(
    path_of: Offsets, path_segment: Ints, last: Ints, nearest: Ints, following: Ints
) -> None:
    """Last request that asks for each segment, and the next one after each ask, -1 for none.

    ``last`` and ``nearest`` come in as -1; ``nearest`` is left as the first request.
    """
    for r in range(len(path_of) - 2, -1, -1):
        for at in range(path_of[r], path_of[r + 1]):
            segment = path_segment[at]
            following[at] = nearest[segment]
            nearest[segment] = r
            if last[segment] < 0:
                last[segment] = r


@kernel
def states_wanted(
    path_of: Offsets, path_first: Ints, path_length: Ints, chunks: Ints, first_made: Ints,
    wanted: Ints,
) -> None:  # fmt: skip
    """Deepest node of each prompt at which an earlier request made a state; -1 if none.

    ``first_made``: first request that makes the state of a node, a large number if none does.
    """
    for r in range(len(path_of) - 1):
        wanted[r] = -1
        place = chunks[r]
        total = 0
        for run in range(path_of[r], path_of[r + 1]):
            total += path_length[run]
        for run in range(path_of[r + 1] - 1, path_of[r] - 1, -1):
            total -= path_length[run]
            first = path_first[run]
            for at in range(min(path_length[run], place - total) - 1, -1, -1):
                if first_made[first + at] < r:
                    wanted[r] = first + at
                    break
            if wanted[r] >= 0:
                break


@kernel
def nearest_above(parent: Ints, marked: NDArray[np.uint8], nearest: Ints) -> None:
    """The nearest marked node above each one, -1 if none; parents have smaller numbers."""
    for node in range(len(parent)):
        above = parent[node]
        if above < 0:
            nearest[node] = -1
        elif marked[above] != 0:
            nearest[node] = above
        else:
            nearest[node] = nearest[above]


@kernel
def earlier_ends(
    end: Ints, nearest_end: Ints, first_end: Ints, count: Offsets, nodes: Ints, fill: bool
) -> None:
    """Ends of earlier requests on each request's path, and its own end, root side first.

    Counts them into ``count[r + 1]``, or, with ``fill``, writes them where ``count`` says.
    """
    for r in range(len(end)):
        found = 0
        node = end[r]
        while node >= 0:
            if node == end[r] or first_end[node] < r:
                if fill:
                    nodes[count[r + 1] - 1 - found] = node
                found += 1
            node = nearest_end[node]
        if not fill:
            count[r + 1] = found


@kernel
def every_so_many(
    path_of: Offsets, path_first: Ints, path_length: Ints, chunks: Ints, step: int, count: Offsets,
    nodes: Ints, fill: bool,
) -> None:  # fmt: skip
    """Nodes at multiples of ``step`` chunks of each prompt, as ``earlier_ends`` gives its own."""
    for r in range(len(chunks)):
        if not fill:
            count[r + 1] = chunks[r] // step
            continue
        place, at = 0, count[r]
        for run in range(path_of[r], path_of[r + 1]):
            length = path_length[run]
            wanted = (place // step + 1) * step
            while wanted <= min(place + length, np.int64(chunks[r])):
                nodes[at] = path_first[run] + wanted - 1 - place
                at += 1
                wanted += step
            place += length


@kernel
def divergences(
    path_of: Offsets, path_first: Ints, path_length: Ints, first_request: Ints, shared: Ints
) -> None:
    """Last node of each path that an earlier request has, if the path goes on; else -1."""
    for r in range(len(path_of) - 1):
        shared[r] = -1
        before = -1
        for run in range(path_of[r], path_of[r + 1]):
            first = path_first[run]
            if first_request[first] >= r:
                shared[r] = before
                break
            before = first + path_length[run] - 1


@kernel
def continuations(
    path_of: Offsets, path_first: Ints, path_length: Ints, chunks: Ints, follower: Offsets,
    wanted: Offsets, lengths: Offsets,
) -> None:  # fmt: skip
    """How many nodes of its follower's path continue each path, up to ``wanted`` in all.

    ``follower``: next request of the session, -1 if none. 0 where its path is no continuation.
    """
    for r in range(len(path_of) - 1):
        lengths[r] = 0
        f = follower[r]
        if f < 0 or chunks[f] <= chunks[r] or wanted[r] <= chunks[r]:
            continue
        mine, its = path_of[r], path_of[f]
        same = True
        at_mine = at_its = 0
        while mine < path_of[r + 1]:
            if path_first[mine] + at_mine != path_first[its] + at_its:
                same = False
                break
            step = min(path_length[mine] - at_mine, path_length[its] - at_its)
            at_mine += step
            at_its += step
            if at_mine == path_length[mine]:
                mine += 1
                at_mine = 0
            if at_its == path_length[its]:
                its += 1
                at_its = 0
        if same:
            lengths[r] = min(wanted[r], np.int64(chunks[f])) - chunks[r]


@kernel
def depth_first(parent: Ints, place: Ints, span: Ints, taken: Ints) -> None:
    """Place of each node in depth-first order, and how many there are from it on downwards.

    ``taken`` is room for as many numbers as there are nodes. Children follow in order of their
    numbers, roots too.
    """
    span[:] = 1
    for node in range(len(parent) - 1, -1, -1):
        if parent[node] >= 0:
            span[parent[node]] += span[node]
    roots = 0
    taken[:] = 0
    for node in range(len(parent)):
        above = parent[node]
        if above < 0:
            place[node] = roots
            roots += span[node]
        else:
            place[node] = place[above] + 1 + taken[above]
            taken[above] += span[node]
