"""Hand-made SSD logs, their clock, and small drives and layouts, for the tests of this part."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.core.config import validate
from harness.core.profiles import DeviceProfile
from harness.simulator.requestlog import SSD_DTYPE, SsdAction, SsdLog
from harness.simulator.sizes import ObjectSizes
from harness.stores.registry import StoreSpec, load_store_spec

MIB = 1 << 20
WRITE, EVICT, READ = (int(action) for action in SsdAction)
FULL, STATE = 0, 1
BLOCK = 64


@dataclass(frozen=True)
class Clock:
    """What ``wear_of`` needs of a corpus: ``per`` nodes a request, 20 s apart."""

    name: str
    time_s: NDArray[np.float64]
    session: NDArray[np.uint32]
    turn: NDArray[np.uint32]
    first_request: NDArray[np.uint32]


def clock(requests: int, per: int, turns: int = 1) -> Clock:
    """``turns`` requests a session, one after the other."""
    return Clock(
        "hand-made",
        np.arange(requests, dtype=np.float64) * 20.0,
        (np.arange(requests) // turns).astype(np.uint32),
        (np.arange(requests) % turns).astype(np.uint32),
        np.repeat(np.arange(requests), per).astype(np.uint32),
    )


def rows(entries: Iterable[tuple[int, int, int, int, int]]) -> SsdLog:
    """A log of (request, action, class, node, count)."""
    return np.array([(*entry, 0, 0) for entry in entries], SSD_DTYPE)


def churn(requests: int, per: int, held: int, order: str, seed: int = 1) -> SsdLog:
    """Each request writes ``per`` chunks; before, others go until ``held`` are left room for.

    ``order``: fifo (the chunk written first), random (any), session (all of the oldest request).
    """
    rng = np.random.default_rng(seed)
    live: deque[int] = deque()
    entries = []
    for r in range(requests):
        while len(live) + per > held:
            if order == "random":
                live.rotate(-int(rng.integers(len(live))))
            for _ in range(per if order == "session" else 1):
                entries.append((r, EVICT, FULL, live.popleft(), 1))
        entries.append((r, WRITE, FULL, r * per, per))
        live.extend(range(r * per, (r + 1) * per))
    return rows(entries)


def small_drive(namespace: int = 64 * MIB, **keys: Any) -> DeviceProfile:
    """A tenth spare, lines of 1 MiB, 100 drive writes of rated life."""
    base = {
        "name": "small", "nchs": 4, "luns_per_ch": 4, "pgs_per_blk": 16,
        "blks_per_pl": 71 * namespace // (64 * MIB), "capacity_bytes": namespace, "dwpd": 0.2,
        "warranty_years": 100 / 365 / 0.2, "policy": "drive", "drive": {"line_bytes": MIB},
    }  # fmt: skip
    return validate({**base, **keys}, DeviceProfile, "small")


def small_layout(name: str) -> StoreSpec:
    """A store of ``workloads/stores`` with units small enough for a small device."""
    spec = load_store_spec(name)
    changes: dict[str, dict[str, Any]] = {
        "lmcache-raw-block": {"meta_total_bytes": MIB},
        "mooncake-bucket": {"bucket_bytes": 4 * MIB, "heartbeat_s": 10.0},
        "session-contiguous": {"extent_tokens": 16 * BLOCK},
    }
    return spec.model_copy(update=changes.get(spec.layout, {}))


SIZES = ObjectSizes(chunk_bytes=256 << 10, state_bytes=0, block_tokens=BLOCK)
HYBRID = ObjectSizes(chunk_bytes=100_000, state_bytes=1_000_001, block_tokens=BLOCK)
