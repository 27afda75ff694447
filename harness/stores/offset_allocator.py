"""The offset allocator of Mooncake's second disk backend: 256 bins of sizes, best-fit by bin.

A free range of s units waits in the bin of s rounded down to a number of 3 significant bits after
the first; a request looks in the bin of its size rounded up and above (at most 12.5 % more), takes
the first range there and gives back what is left over. Freed ranges join their free neighbours.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from harness.stores.jit import kernel

_BINS = 512
_NONE = -1
_NODES_USED, _FREE_NODES, _FREE_UNITS = 0, 1, 2


class Allocator(NamedTuple):
    """Nodes: offset, size, neighbours in the file, neighbours in the bin, used. Units are pages."""

    offset: NDArray[np.int64]
    size: NDArray[np.int64]
    before: NDArray[np.int32]
    after: NDArray[np.int32]
    bin_before: NDArray[np.int32]
    bin_after: NDArray[np.int32]
    used: NDArray[np.bool_]
    bins: NDArray[np.int32]
    spare: NDArray[np.int32]
    ints: NDArray[np.int64]


def new_allocator(units: int, allocations: int) -> Allocator:
    """One free range of ``units``; room for so many ``allocations`` at once."""
    nodes = 2 * allocations + 2
    i4, i8 = np.int32, np.int64
    allocator = Allocator(
        np.zeros(nodes, i8), np.zeros(nodes, i8), np.full(nodes, _NONE, i4),
        np.full(nodes, _NONE, i4), np.full(nodes, _NONE, i4), np.full(nodes, _NONE, i4),
        np.zeros(nodes, np.bool_), np.full(_BINS, _NONE, i4),
        np.arange(nodes - 1, -1, -1, dtype=i4), np.array([0, nodes, units], i8),
    )  # fmt: skip
    _insert(allocator, 0, units)
    return allocator


@kernel
def size_bin(size: int, up: bool) -> int:
    """The bin of a size: exponent and 3 bits of mantissa, rounded ``up`` or down."""
    if size < 8:
        return size
    exponent = 0
    while (size >> exponent) >= 16:
        exponent += 1
    mantissa = size >> exponent
    if up and (mantissa << exponent) != size:
        mantissa += 1
    return (exponent << 3) + mantissa


@kernel
def _insert(a: Allocator, offset: int, size: int) -> int:
    """A new free node, first in its bin."""
    a.ints[_FREE_NODES] -= 1
    node = a.spare[a.ints[_FREE_NODES]]
    a.offset[node], a.size[node], a.used[node] = offset, size, False
    which = size_bin(size, False)
    head = a.bins[which]
    a.bin_before[node], a.bin_after[node] = _NONE, head
    if head != _NONE:
        a.bin_before[head] = node
    a.bins[which] = node
    a.before[node], a.after[node] = _NONE, _NONE
    return node


@kernel
def _leave_bin(a: Allocator, node: int) -> None:
    before, after = a.bin_before[node], a.bin_after[node]
    if before != _NONE:
        a.bin_after[before] = after
    else:
        a.bins[size_bin(a.size[node], False)] = after
    if after != _NONE:
        a.bin_before[after] = before


@kernel
def allocate(a: Allocator, size: int) -> int:
    """The node of a range of ``size`` units, or -1 where no bin has one."""
    which = size_bin(size, True)
    while which < _BINS and a.bins[which] == _NONE:
        which += 1
    if which == _BINS:
        return _NONE
    node = a.bins[which]
    _leave_bin(a, node)
    left = a.size[node] - size
    a.used[node], a.size[node] = True, size
    if left > 0:
        rest = _insert(a, a.offset[node] + size, left)
        a.before[rest], a.after[rest] = node, a.after[node]
        if a.after[node] != _NONE:
            a.before[a.after[node]] = rest
        a.after[node] = rest
    a.ints[_FREE_UNITS] -= size
    return node


@kernel
def release(a: Allocator, node: int) -> None:
    """Free a node and join it with its free neighbours."""
    offset, size = a.offset[node], a.size[node]
    before, after = a.before[node], a.after[node]
    a.ints[_FREE_UNITS] += size
    if before != _NONE and not a.used[before]:
        offset, size = a.offset[before], size + a.size[before]
        _leave_bin(a, before)
        a.spare[a.ints[_FREE_NODES]] = before
        a.ints[_FREE_NODES] += 1
        before = a.before[before]
    if after != _NONE and not a.used[after]:
        size += a.size[after]
        _leave_bin(a, after)
        a.spare[a.ints[_FREE_NODES]] = after
        a.ints[_FREE_NODES] += 1
        after = a.after[after]
    a.spare[a.ints[_FREE_NODES]] = node
    a.ints[_FREE_NODES] += 1
    joined = _insert(a, offset, size)
    a.before[joined], a.after[joined] = before, after
    if before != _NONE:
        a.after[before] = joined
    if after != _NONE:
        a.before[after] = joined
