"""The stores by name: a layout's module, its configuration, and the YAML files that set it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, RootModel

from harness.core.config import load_yaml
from harness.stores.base import Store
from harness.stores.file_stores import FileLayout, FileStore
from harness.stores.lmcache_raw_block import LmcacheRawBlock, RawBlockStore
from harness.stores.models import ModelKv, load_model
from harness.stores.mooncake_stores import (
    BucketStore,
    MooncakeBucket,
    MooncakeOffset,
    OffsetStore,
)
from harness.stores.names import workload_yaml
from harness.stores.pool_stores import Kvbm, PoolStore, VllmDisk
from harness.stores.session_contiguous import SessionContiguous, SessionContiguousStore

StoreSpec = (
    LmcacheRawBlock
    | SessionContiguous
    | FileLayout
    | MooncakeBucket
    | MooncakeOffset
    | Kvbm
    | VllmDisk
)


class _AnySpec(RootModel[Annotated[StoreSpec, Field(discriminator="layout")]]):
    pass


def load_store_spec(name_or_path: str) -> StoreSpec:
    """A store of ``workloads/stores`` or a YAML file like those; UsageError names near ones."""
    return load_yaml(workload_yaml("stores", name_or_path), _AnySpec).root


def make_store(spec: str | StoreSpec, capacity_bytes: int, model: str | ModelKv) -> Store:
    """An empty store of ``capacity_bytes`` for one model, each by name or loaded.

    UsageError for an unknown name, or a device or slot in which the model's chunk does not fit.
    """
    loaded = load_store_spec(spec) if isinstance(spec, str) else spec
    kv = load_model(model) if isinstance(model, str) else model
    if isinstance(loaded, LmcacheRawBlock):
        return RawBlockStore(loaded, capacity_bytes, kv)
    if isinstance(loaded, SessionContiguous):
        return SessionContiguousStore(loaded, capacity_bytes, kv)
    if isinstance(loaded, FileLayout):
        return FileStore(loaded, capacity_bytes, kv)
    if isinstance(loaded, MooncakeBucket):
        return BucketStore(loaded, capacity_bytes, kv)
    if isinstance(loaded, MooncakeOffset):
        return OffsetStore(loaded, capacity_bytes, kv)
    return PoolStore(loaded, capacity_bytes, kv)
