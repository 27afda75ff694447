"""A store by name, modelled or real, serving traffic by name on a device.

What it did can be left in a folder: ``emit.json``, ``objects.parquet``, and of a real store also
what it was asked and how it was set up (see ``real.lmcache_store``).
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from harness.core.errors import UsageError
from harness.core.files import write_json
from harness.core.progress import Progress, quiet
from harness.device.guard import Target
from harness.stores.emit import EmitResult, Pace, emit
from harness.stores.models import load_model
from harness.stores.names import workload_yaml
from harness.stores.real.environment import REAL
from harness.stores.real.lmcache_store import RealRun, run_lmcache
from harness.stores.real.vllm_store import run_vllm
from harness.stores.registry import make_store
from harness.stores.requests.form import RequestSource
from harness.stores.requests.load import open_requests

REAL_LANES = 8
"""Recorded sessions that a real store serves at once, unless told otherwise."""


@dataclass(frozen=True)
class Emission:
    """What to serve from what; see ``emit`` for the rest. ``lanes`` sessions of a recorded trace
    are played at once; ``block_tokens`` is for formats that leave it open."""

    store: str
    requests: str
    model: str
    seed: int = 0
    limit: int | None = None
    seconds: float | None = None
    pace: Pace | None = None
    lanes: int | None = None
    block_tokens: int | None = None

    @property
    def real(self) -> bool:
        """Whether the store is itself, not a model of it."""
        return self.store in REAL

    def check(self) -> None:
        """MachineError if the store is real and not installed, UsageError if nobody knows it."""
        if self.real:
            REAL[self.store].need()
        else:
            workload_yaml("stores", self.store, tuple(REAL))

    def traffic(self) -> RequestSource:
        """The requests; recorded sessions several at once for a real store."""
        lanes = self.lanes or (REAL_LANES if self.real and self.pace is None else None)
        return open_requests(
            self.requests, seed=self.seed, lanes=lanes, block_tokens=self.block_tokens
        )


def run_emission(
    wanted: Emission,
    target: Target,
    *,
    folder: Path | None = None,
    objects: Path | None = None,
    progress: Progress = quiet,
) -> EmitResult:
    """Serve on ``target``; files go to ``folder`` if given, the log of objects to ``objects``.

    Raises what ``emit`` and ``run_lmcache`` raise, and UsageError for unknown names.
    """
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    if wanted.real:
        result = _run_real(wanted, target, folder, objects, progress)
    else:
        result = emit(
            make_store(wanted.store, target.size_bytes, wanted.model), wanted.traffic(), target,
            seed=wanted.seed, limit=wanted.limit, seconds=wanted.seconds, pace=wanted.pace,
            objects=objects or (folder / "objects.parquet" if folder else None),
            progress=progress,
        )  # fmt: skip
    if folder is not None:
        shown = result if objects else replace(result, objects="objects.parquet")
        write_json(folder / "emit.json", shown.as_json())
    return result


def _run_real(
    wanted: Emission, target: Target, folder: Path | None, objects: Path | None,
    progress: Progress,
) -> EmitResult:  # fmt: skip
    if objects is not None and objects.exists():
        raise UsageError(f"{objects} exists already", fix="remove it, or name another file")
    with tempfile.TemporaryDirectory(prefix="real-store.") as scratch:
        run = run_vllm if wanted.store == "vllm" else run_lmcache
        return run(
            RealRun(
                REAL[wanted.store], wanted.traffic(), target.path, target.size_bytes,
                load_model(wanted.model), folder or Path(scratch), seed=wanted.seed,
                limit=wanted.limit, seconds=wanted.seconds, pace=wanted.pace, objects=objects,
            ),
            progress,
        )  # fmt: skip
