"""Compile the loops of the whole path once, so that no measurement waits for a compiler.

``python -m harness.run.warm`` is part of the installation, and ``harness run`` begins with it; the
machine code is kept in the user's cache and made anew when the loops change.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from harness.core.ops import Op
from harness.core.profiles import DeviceProfile
from harness.device.guard import open_guarded
from harness.device.loop import LoopDevice
from harness.ftl.model import Ftl
from harness.replay.run import replay
from harness.stores.base import op_stream
from harness.stores.emit import emit
from harness.stores.registry import make_store
from harness.stores.requests.load import open_requests
from harness.trace.parquet import TraceWriter
from harness.trace.schema import TraceMeta

_MODEL = "llama-3.1-8b-tp8"
_DEVICE_BYTES = 512 << 20
_GEOMETRY = {"nchs": 2, "luns_per_ch": 2, "blks_per_pl": 64, "pgs_per_blk": 16, "devsz_mb": 12}


def stores() -> None:
    """Both layouts, as op streams."""
    for store in ("lmcache-raw-block", "session-contiguous"):
        made = make_store(store, _DEVICE_BYTES, _MODEL)
        for _ in op_stream(made, open_requests("chat", seed=0), limit=50):
            pass


def ftl() -> None:
    """Both policies, written until they collect."""
    offset = np.tile(np.arange(96, dtype=np.uint64) << 17, 3)
    length = np.full_like(offset, 1 << 17)
    op = np.full(len(offset), Op.WRITE, np.uint8)
    for policy in ("femu-late", "drive"):
        profile = DeviceProfile.model_validate(
            {**_GEOMETRY, "policy": policy, "drive": {"line_bytes": 1 << 18}}
        )
        Ftl(profile).apply(offset, length, op)


def device() -> None:
    """Real I/O on a small loop device: a store, and both kinds of replay."""
    with tempfile.TemporaryDirectory(prefix="harness-warm-") as folder:
        trace = Path(folder) / "trace.parquet"
        _write_trace(trace)
        with (
            LoopDevice(_DEVICE_BYTES, folder) as loop,
            open_guarded(loop.path, own=True) as target,
        ):
            made = make_store("lmcache-raw-block", _DEVICE_BYTES, _MODEL)
            emit(made, open_requests("chat", seed=0), target, seed=0, limit=2)
            for mode in ("timed", "flat-out"):
                replay(trace, target, mode=mode)


def _write_trace(path: Path) -> None:
    rows = 8
    with TraceWriter(path, TraceMeta(source="warm"), durable=False) as writer:
        writer.write(
            {
                "ts_ns": np.arange(rows) * 100_000,
                "op": np.tile([Op.WRITE, Op.READ], rows // 2).astype(np.int8),
                "lba": np.repeat(np.arange(rows // 2) * 64, 2).astype(np.uint64),
                "bytes": np.full(rows, 32768, np.uint64),
                "dev": np.zeros(rows, np.uint32),
            }
        )


def compile_loops() -> None:
    """Compile everything that this user may: without root no device can be made."""
    parts: list[Callable[[], None]] = [stores, ftl]
    if os.geteuid() == 0:
        parts.append(device)
    for part in parts:
        part()


if __name__ == "__main__":
    compile_loops()
