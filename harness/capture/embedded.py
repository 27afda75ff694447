"""What is traced when nobody names a device: a modelled KV store on a loop device of our own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.core.progress import Progress, quiet
from harness.device.guard import open_guarded
from harness.device.loop import LoopDevice
from harness.stores.emit import EmitResult, emit
from harness.stores.registry import make_store
from harness.stores.requests.load import open_requests

STORE, MODEL, REQUESTS = "lmcache-raw-block", "llama-3.1-8b", "chat"
DEVICE_BYTES = 512 << 20
DEFAULT_REQUESTS = 6


@contextmanager
def loop_device(directory: Path) -> Iterator[LoopDevice]:
    """A loop device for the store, whose data lies (nameless) in ``directory``."""
    with LoopDevice(DEVICE_BYTES, directory) as device:
        yield device


def run_store(
    device: LoopDevice,
    store_name: str,
    requests_name: str,
    seconds: float | None,
    seed: int,
    progress: Progress = quiet,
) -> EmitResult:
    """Serve traffic from a modelled store, each by a name of ``workloads/`` or a file.

    For ``seconds``, or where that is None for so many requests that the device fills and evicts.
    """
    limit = DEFAULT_REQUESTS if seconds is None else None
    store = make_store(store_name, device.size_bytes, MODEL)
    requests = open_requests(requests_name, seed=seed)
    with open_guarded(device.path, own=True) as target:
        return emit(
            store, requests, target, seed=seed, seconds=seconds, limit=limit, progress=progress
        )
