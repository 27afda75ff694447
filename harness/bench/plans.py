"""From what a session needs to the commands that fetch it: sort, join, read through gaps, cut.

The rules are those of the FlatCake design (FC-CIO): ranges sorted by offset, neighbours joined,
gaps below 64 KiB read along.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.bench.grid import Access
from harness.core.errors import UsageError
from harness.core.ops import PAGE_BYTES
from harness.stores.models import Gqa, ModelKv
from harness.stores.ops import ALL_LAYERS, ObjectClass, OpArray

U64 = NDArray[np.uint64]

KEYS_THEN_VALUES = frozenset({"lmcache-raw-block", "lmcache-local-disk"})
"""Layouts whose chunk holds K of all layers and then V of all layers; others keep them by layer."""


TOKEN_MAJOR = frozenset({"sglang-file"})
"""Layouts whose chunk goes token by token with all layers inside: nothing less than the chunk
brings any layer, so the first layer waits for it and the others have it then."""


@dataclass(frozen=True)
class Ranges:
    """Byte ranges of a session: offset, length (uint64[n]) and layer (int64[n])."""

    offset: U64
    length: U64
    layer: NDArray[np.int64]

    @property
    def wanted_bytes(self) -> int:
        """Bytes of all ranges."""
        return int(self.length.sum())


@dataclass(frozen=True)
class Plan:
    """Commands in the order of issue; ``layer`` is non-decreasing for layered access.

    ``wanted_bytes`` is what was asked for, the commands' sum what is read.
    """

    offset: U64
    length: U64
    layer: NDArray[np.int64]
    wanted_bytes: int

    @property
    def read_bytes(self) -> int:
        """Bytes of all commands."""
        return int(self.length.sum())

    @property
    def amplification(self) -> float:
        """Bytes read over bytes wanted."""
        return self.read_bytes / self.wanted_bytes

    @property
    def layers(self) -> int:
        """Layers that are waited for separately."""
        return int(self.layer[-1]) + 1

    def __len__(self) -> int:
        return len(self.offset)


def by_layer(
    ops: OpArray, store: str, model: ModelKv, chunk_tokens: int,
    heads: NDArray[np.int64] | None = None,
) -> Ranges:  # fmt: skip
    """The ranges of each layer in a session's reads.

    Ops that name their layer stay as they are. A whole chunk is cut by the order of its layout;
    fixed states come after the last layer. ``heads`` (one an op): bytes before the value in its
    first page, for stores that do not align values; the store reads whole pages around them.
    UsageError for a chunk that is not the model's.
    """
    layers = len(model.layer_bytes)
    named = ops["layer"] != ALL_LAYERS
    state = ~named & (ops["object_class"] == ObjectClass.FIXED_STATE)
    parts = [
        Ranges(ops["offset"][named], ops["length"][named], ops["layer"][named].astype(np.int64)),
        Ranges(ops["offset"][state], ops["length"][state], np.full(state.sum(), layers)),
    ]
    chunks = ops[~named & ~state]
    if len(chunks) and store in TOKEN_MAJOR:
        first = np.zeros(len(chunks), np.int64)
        parts.append(Ranges(chunks["offset"], chunks["length"], first))
    elif len(chunks):
        before = np.zeros(len(ops), np.int64) if heads is None else heads
        within = _inside_chunk(store, model, chunk_tokens)
        parts += _cut_chunks(chunks, within, before[~named & ~state], store)
    return Ranges(
        np.concatenate([part.offset for part in parts]),
        np.concatenate([part.length for part in parts]),
        np.concatenate([part.layer for part in parts]).astype(np.int64),
    )


def make_plan(ranges: Ranges, access: Access, *, gap_bytes: int, read_bytes: int) -> Plan:
    """The commands for ``ranges``: page-aligned, joined, none longer than ``read_bytes``."""
    if access == "whole":
        offset, length = _cut(*_join(ranges.offset, ranges.length, gap_bytes), read_bytes)
        return Plan(offset, length, np.zeros(len(offset), np.int64), ranges.wanted_bytes)
    offsets: list[U64] = []
    lengths: list[U64] = []
    layers: list[NDArray[np.int64]] = []
    for layer in np.unique(ranges.layer):
        mine = ranges.layer == layer
        offset, length = _cut(
            *_join(ranges.offset[mine], ranges.length[mine], gap_bytes), read_bytes
        )
        offsets.append(offset)
        lengths.append(length)
        layers.append(np.full(len(offset), len(layers)))
    return Plan(
        np.concatenate(offsets), np.concatenate(lengths), np.concatenate(layers),
        ranges.wanted_bytes,
    )  # fmt: skip


def interleave(plans: list[Plan]) -> Plan:
    """One plan for several sessions: command by command in turn, layer after layer of them all."""
    rank = np.concatenate([np.arange(len(plan)) for plan in plans])
    layer = np.concatenate([plan.layer for plan in plans])
    order = np.lexsort((rank, layer))
    return Plan(
        np.concatenate([plan.offset for plan in plans])[order],
        np.concatenate([plan.length for plan in plans])[order],
        layer[order],
        sum(plan.wanted_bytes for plan in plans),
    )


def _cut_chunks(
    chunks: OpArray, within: Ranges, heads: NDArray[np.int64], store: str
) -> list[Ranges]:
    """The ranges ``within`` every chunk; a chunk may lie in several pieces (equal keys in turn)."""
    fresh = np.concatenate(([True], chunks["key"][1:] != chunks["key"][:-1]))
    first = np.flatnonzero(fresh)
    held = np.add.reduceat(chunks["length"], first).astype(np.int64) - heads[first]
    if int((within.offset + within.length).max()) > int(held.min()):
        raise UsageError(f"{store}: reads of less than a chunk cannot be cut by layer")
    count = np.diff(np.append(first, len(chunks)))
    alone = first[count == 1]
    start = chunks["offset"][alone] + heads[alone].astype(np.uint64)
    parts = [
        Ranges(
            (start[:, None] + within.offset[None, :]).ravel(),
            np.tile(within.length, len(alone)),
            np.tile(within.layer, len(alone)),
        )
    ]
    for at, pieces in zip(first[count > 1], count[count > 1], strict=True):
        parts.append(_across(chunks[at : at + pieces], within, int(heads[at])))
    return parts


def _across(pieces: OpArray, within: Ranges, head: int) -> Ranges:
    """``within`` one chunk that lies in several pieces: each range falls into those it meets."""
    ends = np.cumsum(pieces["length"]).astype(np.int64)
    starts = ends - pieces["length"].astype(np.int64)
    low = within.offset.astype(np.int64) + head
    high = low + within.length.astype(np.int64)
    from_, to = np.maximum(low[:, None], starts), np.minimum(high[:, None], ends)
    which, piece = np.nonzero(to > from_)
    begin = from_[which, piece]
    return Ranges(
        pieces["offset"][piece] + (begin - starts[piece]).astype(np.uint64),
        (to[which, piece] - begin).astype(np.uint64),
        within.layer[which],
    )


def _inside_chunk(store: str, model: ModelKv, chunk_tokens: int) -> Ranges:
    """Ranges of the layers inside one chunk, relative to its start."""
    sizes = np.array([int(-(-b * chunk_tokens // 1)) for b in model.layer_bytes], np.uint64)
    layers = np.arange(len(sizes), dtype=np.int64)
    split = store in KEYS_THEN_VALUES and all(
        isinstance(group, Gqa) for group in model.layers if group.growing
    )
    if split:
        sizes = np.concatenate((sizes, sizes)) // np.uint64(2)
        layers = np.concatenate((layers, layers))
    starts = np.concatenate((np.zeros(1, np.uint64), np.cumsum(sizes)[:-1]))
    return Ranges(starts, sizes, layers)


def _join(offset: U64, length: U64, gap_bytes: int) -> tuple[U64, U64]:
    """Sort, align to pages outwards, join neighbours and read through smaller gaps."""
    page = np.uint64(PAGE_BYTES)
    order = np.argsort(offset, kind="stable")
    low = offset[order] // page * page
    high = -(-(offset[order] + length[order]).astype(np.int64) // PAGE_BYTES) * PAGE_BYTES
    reach = np.maximum.accumulate(high)
    gap = low[1:].astype(np.int64) - reach[:-1]
    # Neighbours (gap 0 or an overlap from aligning) always join.
    fresh = np.concatenate(([True], (gap > 0) & (gap >= gap_bytes)))
    first = np.flatnonzero(fresh)
    last = np.concatenate((first[1:] - 1, [len(low) - 1]))
    start = low[first]
    return start, (reach[last] - start.astype(np.int64)).astype(np.uint64)


def _cut(offset: U64, length: U64, read_bytes: int) -> tuple[U64, U64]:
    """Cut ranges into commands of at most ``read_bytes``."""
    step = np.uint64(read_bytes)
    pieces = -(-length.astype(np.int64) // read_bytes)
    owner = np.repeat(np.arange(len(offset)), pieces)
    number = np.arange(len(owner)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    start = number.astype(np.uint64) * step
    return offset[owner] + start, np.minimum(step, length[owner] - start)
