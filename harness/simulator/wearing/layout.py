"""A store's layout driven from outside: objects that a policy places and frees, as the store's ops.

The allocator, headers, padding, files, buckets and extents are the store's own; what it would
evict by itself is left to the policy, until no place is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.core.errors import UsageError
from harness.core.ops import PAGE_BYTES
from harness.core.units import format_size
from harness.simulator.sizes import ObjectSizes
from harness.simulator.wearing import buckets, places, records, sessions, slots
from harness.simulator.wearing.events import class_of
from harness.simulator.wearing.state import Cut, count_held, cut
from harness.stores.bucket_kernel import B
from harness.stores.compiled import CompiledStore, pages
from harness.stores.file_kernel import F
from harness.stores.file_stores import FileStore
from harness.stores.lmcache_raw_block import RawBlockStore
from harness.stores.models import Compressed, ModelKv, Window
from harness.stores.mooncake_stores import BucketStore, OffsetStore
from harness.stores.offset_kernel import O
from harness.stores.ops import OpArray, empty_ops
from harness.stores.pool_kernel import P
from harness.stores.pool_stores import PoolStore
from harness.stores.registry import StoreSpec, load_store_spec, make_store
from harness.stores.session_contiguous import SessionContiguousStore
from harness.stores.session_state import S
from harness.stores.slot_state import N

_OPS = 1 << 15
_MOST_OPS = 1 << 26

Drive = Callable[[OpArray, NDArray[np.void], int], tuple[int, int]]


@dataclass
class _Driven:
    """How one family is driven: its kernel, what it cuts, what it occupies."""

    drive: Drive
    cut: Cut
    held_bytes: Callable[[], int]
    rules: str
    unit_bytes: int | None
    ops: int = _OPS
    waiting_bytes: Callable[[], int] = int


class Layout:
    """An empty store of ``capacity_bytes`` whose objects come and go as a policy says.

    Parameters
    ----------
    spec
        A store of ``workloads/stores``, a YAML file like those, or a loaded one.
    unit_tokens
        Tokens that the store keeps in one slot, place or block; None is the block of the trace.
        Larger objects are cut, smaller ones leave the rest of their place unused.
    model
        Only session-contiguous needs it, for its layers; without it a chunk is one layer.

    Raises
    ------
    UsageError
        An unknown store, or a device in which no object fits.
    """

    def __init__(
        self, spec: str | StoreSpec, capacity_bytes: int, sizes: ObjectSizes, *,
        model: ModelKv | None = None, unit_tokens: int | None = None,
    ) -> None:  # fmt: skip
        self.name = spec if isinstance(spec, str) else spec.layout
        loaded = load_store_spec(spec) if isinstance(spec, str) else spec
        self.unit_tokens = unit_tokens or sizes.block_tokens
        self.spec = loaded.model_copy(update={"chunk_tokens": self.unit_tokens})
        self.sizes, self.capacity_bytes = sizes, capacity_bytes
        kv = model or plain_model(sizes)
        _same_sizes(kv, sizes)
        store = make_store(self.spec, capacity_bytes, kv)
        self.streams = store.streams
        self._store = store
        self._driven = _driven(store, sizes, self.unit_tokens != sizes.block_tokens)
        self._ops = empty_ops(self._driven.ops)

    @property
    def rules(self) -> str:
        """How the layout places and reclaims what a policy decides, in a sentence."""
        return self._driven.rules

    @property
    def unit_bytes(self) -> int | None:
        """Bytes of a slot, place or extent; None where ranges are as large as their objects."""
        return self._driven.unit_bytes

    @property
    def held_bytes(self) -> int:
        """Bytes of the device that hold something or are kept from others' use, now."""
        return self._driven.held_bytes()

    @property
    def waiting_bytes(self) -> int:
        """Bytes of objects that wait in memory to be written, now."""
        return self._driven.waiting_bytes()

    @property
    def lost(self) -> NDArray[np.int64]:
        """int64[``Lost``, class]: objects so far."""
        return self._driven.cut.lost.copy()

    def missing(self, keys: NDArray[np.uint64]) -> NDArray[np.int64]:
        """int64[2]: which of the policy's resident objects the store has not, by class."""
        _, state = _arrays(self._store)
        classes = class_of(keys)
        held = count_held(state.keys, state.values, self._driven.cut, classes, keys)
        return np.bincount(classes, minlength=2).astype(np.int64) - held

    def ops(self, events: NDArray[np.void]) -> Iterator[OpArray]:
        """The store's writes for a batch of events, as views that the next array overwrites.

        UsageError for a device that cannot take what comes between two of the store's own steps.
        """
        at = 0
        while at < len(events):
            count, after = self._driven.drive(self._ops, events, at)
            if after == at and count == 0:
                if len(self._ops) >= _MOST_OPS:
                    raise UsageError(f"{self.name}: too much waits to be written at once")
                self._ops = empty_ops(4 * len(self._ops))
            at = after
            if count:
                yield self._ops[:count]


def plain_model(sizes: ObjectSizes) -> ModelKv:
    """A model of one layer whose blocks and states have these sizes."""
    layers: list[Any] = [
        Compressed(
            kind="compressed", layers=1, entry_bytes=sizes.chunk_bytes, ratio=sizes.block_tokens
        )
    ]
    if sizes.state_bytes:
        layers.append(Window(kind="window", layers=1, window=1, entry_bytes=sizes.state_bytes))
    return ModelKv(name="plain", source="object sizes", layers=tuple(layers))


def _same_sizes(model: ModelKv, sizes: ObjectSizes) -> None:
    found = (model.chunk_bytes(sizes.block_tokens), model.state_bytes)
    if found != sizes.by_class:
        raise UsageError(
            f"{model.name} has blocks of {found[0]} B and states of {found[1]} B, the run had "
            f"{sizes.chunk_bytes} B and {sizes.state_bytes} B"
        )


def _arrays(store: Any) -> tuple[Any, Any]:
    assert isinstance(store, CompiledStore)  # every store of the registry is one
    return store.arrays


def _driven(store: Any, sizes: ObjectSizes, other_unit: bool) -> _Driven:
    if isinstance(store, RawBlockStore):
        return _slots(store, sizes)
    if isinstance(store, PoolStore):
        return _places(store, sizes)
    if other_unit:
        raise UsageError(
            f"{store.name} keeps objects of any size: another unit than the trace's block is for "
            "slots and places"
        )
    if isinstance(store, OffsetStore):
        return _records(store, sizes)
    if isinstance(store, FileStore):
        return _files(store, sizes)
    if isinstance(store, BucketStore):
        return _buckets(store, sizes)
    assert isinstance(store, SessionContiguousStore)
    return _sessions(store, sizes)


def _slots(store: RawBlockStore, sizes: ObjectSizes) -> _Driven:
    params, state = store.arrays
    params = params._replace(watermark=np.inf, memory_chunks=0)
    pieces = cut(sizes, params.slot_bytes - params.header_bytes)
    return _Driven(
        lambda ops, events, at: slots.drive_slots(params, state, pieces, ops, events, at),
        pieces,
        lambda: int(state.ints[N.USED]) * params.slot_bytes,
        "slots, the one freed last reused first, no discard; no slot left: the least recently "
        "used goes",
        params.slot_bytes,
    )


def _places(store: PoolStore, sizes: ObjectSizes) -> _Driven:
    params, state = store.arrays
    params = params._replace(sights=1)
    pieces = cut(sizes, params.place_bytes)
    ring = np.zeros(params.places + places.RING_WORDS, np.int32)

    def held() -> int:
        return (int(state.ints[P.USED]) - int(ring[1])) * params.place_bytes

    return _Driven(
        lambda ops, events, at: places.drive_places(params, state, pieces, ring, ops, events, at),
        pieces,
        held,
        "fixed places, untouched ones first, then the one freed first, no discard; no place left: "
        "the least recently used goes",
        params.place_bytes,
    )


def _records(store: OffsetStore, sizes: ObjectSizes) -> _Driven:
    params, state = store.arrays
    params = params._replace(high=params.total_pages, low=params.total_pages)
    pieces = cut(sizes, _whole(sizes))
    return _Driven(
        lambda ops, events, at: records.drive_records(params, state, pieces, ops, events, at),
        pieces,
        lambda: int(state.ints[O.USED_PAGES]) * PAGE_BYTES,
        "ranges of one file by binned best fit, no discard; no range left: the oldest record goes",
        None,
    )


def _files(store: FileStore, sizes: ObjectSizes) -> _Driven:
    params, state = store.arrays
    space = int(state.space.ints[2])
    params = params._replace(cap_pages=space, burst=0.0)
    pieces = cut(sizes, _whole(sizes))
    last = "the least recently used file goes" if params.evicts else "the put fails"
    return _Driven(
        lambda ops, events, at: records.drive_files(params, state, pieces, ops, events, at),
        pieces,
        lambda: int(state.ints[F.USED_PAGES]) * PAGE_BYTES,
        f"a file an object, placed where the file system's last search ended, unlinked without "
        f"discard; no page left: {last}",
        None,
    )


def _buckets(store: BucketStore, sizes: ObjectSizes) -> _Driven:
    params, state = store.arrays
    # The quota stays: a file system filled to its last page leaves only splinters for new files.
    quota = int(store.spec.quota_share * store.capacity_bytes) // PAGE_BYTES
    space = min(int(state.space.ints[2]), quota)
    params = params._replace(high=space, low=space)
    pieces = cut(sizes, _whole(sizes))
    size = np.array(sizes.by_class, np.int64)

    def waiting() -> int:
        classes = state.row_class[state.waiting[: state.ints[B.WAITING]]]
        return int(size[classes].sum())

    first = "read least recently" if params.lru else "made first"
    last = f"the bucket {first} goes whole" if params.evicts else "the put fails"
    return _Driven(
        lambda ops, events, at: buckets.drive_buckets(params, state, pieces, ops, events, at),
        pieces,
        lambda: int(state.ints[B.USED_PAGES]) * PAGE_BYTES,
        f"buckets of {format_size(params.bucket_bytes)} or {params.bucket_keys} objects in files, "
        f"unlinked without discard when their last object goes; quota full: {last}, its "
        "survivors lost",
        params.bucket_bytes,
        waiting_bytes=waiting,
    )


def _sessions(store: SessionContiguousStore, sizes: ObjectSizes) -> _Driven:
    params, state = store.arrays
    params = params._replace(watermark_extents=params.extents)
    pieces = cut(sizes, _whole(sizes))
    room = max(_OPS, 64 * (len(params.layer_bytes) + 2))
    gathered = sessions.new_gathered(params, room)
    return _Driven(
        lambda ops, events, at: sessions.drive_sessions(
            params, state, pieces, gathered, ops, events, at
        ),
        pieces,
        lambda: (params.extents - int(state.ints[S.FREE_EXTENTS])) * params.extent_bytes,
        f"extents of {format_size(params.extent_bytes)} a session, layer by layer, freed with the "
        "session's last object, no discard; no extent left: the session idle longest goes whole, "
        "its survivors lost",
        params.extent_bytes,
        room,
    )


def _whole(sizes: ObjectSizes) -> int:
    """A room that cuts nothing."""
    return pages(max(sizes.chunk_bytes, sizes.state_bytes))
