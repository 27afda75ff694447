"""What is traced when nobody names a device: a KV store on a loop device of our own.

A modelled store by default; the real LMCache where it is asked for by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from harness.core.errors import MeasurementError
from harness.core.progress import Progress, quiet
from harness.device.guard import open_guarded
from harness.device.loop import LoopDevice
from harness.stores.emission import Emission, run_emission
from harness.stores.emit import EmitResult

STORE, MODEL, REQUESTS = "lmcache-raw-block", "llama-3.1-8b", "chat"
DEVICE_BYTES = 512 << 20
DEFAULT_REQUESTS = 6

REAL_MODEL = "llama-3.1-8b-tp8"
REAL_DEVICE_BYTES = 2 << 30
REAL_SECONDS = {"vllm": 180.0}
"""Of a real store that takes longer than the minute of the others to fill anything."""


def embedded(store: str | None, requests: str | None, seconds: float | None, seed: int) -> Emission:
    """The store and traffic to trace, each by a name of ``workloads/`` or a file.

    For ``seconds``, or where that is None for so many requests that the device fills and evicts; a
    real store for a minute. MachineError if a real store is not installed.
    """
    wanted = Emission(store or STORE, requests or REQUESTS, MODEL, seed, seconds=seconds)
    if wanted.real:
        default_s = REAL_SECONDS.get(wanted.store, 60.0)
        wanted = replace(wanted, model=REAL_MODEL, seconds=seconds or default_s)
    elif seconds is None:
        wanted = replace(wanted, limit=DEFAULT_REQUESTS)
    wanted.check()
    return wanted


@contextmanager
def loop_device(wanted: Emission, directory: Path) -> Iterator[LoopDevice]:
    """A loop device for the store, whose data lies (nameless) in ``directory``."""
    size = REAL_DEVICE_BYTES if wanted.real else DEVICE_BYTES
    with LoopDevice(size, directory) as device:
        yield device


def run_store(
    wanted: Emission, device: LoopDevice, folder: Path | None, progress: Progress = quiet
) -> EmitResult:
    """Serve the traffic; a real store's log and set-up go to ``folder``.

    MeasurementError if anything read back is not what was written.
    """
    with open_guarded(device.path, own=True) as target:
        result = run_emission(wanted, target, folder=folder, progress=progress)
    if not result.verified:
        raise MeasurementError(
            f"{result.store}: {result.issued.wrong_sectors} sectors were read back wrong"
        )
    return result
