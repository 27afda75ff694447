"""Running the real LMCache on a block device and reporting it as ``emit`` reports a modelled store.

Left in a folder: ``objects.parquet`` (the log of its calls, for ``trace annotate``),
``requests.jsonl`` (what it was asked, scaled, at the times at which it was), ``store.yaml`` (the
model of the store as it was set up, with the speeds that the run had) and ``lmcache.log``. Model
and real thing compare on the same requests and the same clock.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from harness.core.errors import UsageError
from harness.core.files import whole_file
from harness.core.ops import Op
from harness.core.progress import Progress, quiet
from harness.stores.emit import EmitResult, Pace
from harness.stores.issuer import Issued
from harness.stores.lmcache_raw_block import LmcacheRawBlock, RawBlockStore
from harness.stores.models import ModelKv
from harness.stores.object_log import write_log
from harness.stores.ops import ObjectClass, OpArray
from harness.stores.real.environment import RealStore
from harness.stores.real.program import covered_s, deepest, read_calls, result_of
from harness.stores.real.workload import ScaledRequests, scale_factor, write_scaled
from harness.stores.registry import load_store_spec
from harness.stores.requests.form import RequestSource
from harness.stores.tally import Tally

DRIVER = Path(__file__).with_name("lmcache_driver.py")
THINK_S = 0.05
"""Pause after each request, as in the driver behind the captures of the reference page."""

_DESCRIBED_DEVICE = 8 << 30
_MIB = 1 << 20
_MOST_A_SECOND = 20
"""Requests, which a pause of 50 ms each allows."""


@dataclass(frozen=True)
class RealRun:
    """What to do: a store on a device of ``capacity_bytes`` for a model; files go to ``folder``.

    ``limit`` requests at most, none begun after ``seconds``. The log of objects goes to ``objects``
    if it is not to be in the folder.
    """

    store: RealStore
    requests: RequestSource
    device: str
    capacity_bytes: int
    model: ModelKv
    folder: Path
    seed: int = 0
    limit: int | None = None
    seconds: float | None = None
    pace: Pace | None = None
    objects: Path | None = None

    @property
    def most(self) -> int | None:
        """Requests that there can be time for; None for all."""
        most = None if self.seconds is None else int(self.seconds * _MOST_A_SECOND) + 1
        return most if self.limit is None else min(self.limit, most or self.limit)

    @property
    def log(self) -> Path:
        """Where the log of objects goes."""
        return self.objects or self.folder / "objects.parquet"


def run_lmcache(run: RealRun, progress: Progress = quiet) -> EmitResult:
    """Serve requests from the real LMCache, every payload checked.

    Raises
    ------
    MachineError
        It is not installed.
    UsageError
        A model with fixed states, a device too small, a trace that never ends without a limit.
    MeasurementError
        It ended with an error; the message has its last words.
    """
    run.store.need()
    if run.requests.endless and run.limit is None and run.seconds is None:
        raise UsageError(f"{run.requests.name} never ends: say how many requests or seconds")
    spec = spec_for(run.store, run.capacity_bytes)
    chunk_bytes = _chunk_bytes(run.model, spec)
    slots = RawBlockStore(spec, run.capacity_bytes, run.model).slots
    factor = scale_factor(run.requests, spec.chunk_tokens, slots)
    run.folder.mkdir(parents=True, exist_ok=True)
    served, plan = run.folder / "requests.jsonl", run.folder / "requests-planned.jsonl"
    try:
        scaled = write_scaled(
            run.requests, plan, chunk_tokens=spec.chunk_tokens, factor=factor, limit=run.most
        )
        job = {
            "arguments": arguments(spec, run.device, chunk_bytes),
            "chunk_shape": [2, 1, spec.chunk_tokens, chunk_bytes // (4 * spec.chunk_tokens)],
            "seed": run.seed,
            "seconds": run.seconds,
            "think_s": 0.0 if run.pace else THINK_S,
            "speed": run.pace.speed if run.pace else None,
            "requests": str(plan),
            "served": str(served),
            "log": str(run.folder / "calls.npz"),
        }
        done = _drive(run, job, scaled, progress)
    finally:
        plan.unlink(missing_ok=True)
    return result(run, spec, scaled, done)


def spec_for(store: RealStore, capacity_bytes: int) -> LmcacheRawBlock:
    """The model that sets the store up: memory and checkpoints scaled like the device."""
    spec = load_store_spec(store.model_of_it)
    if not isinstance(spec, LmcacheRawBlock) or spec.memory is None:
        raise UsageError(f"{store.model_of_it} does not say how {store.name} is set up")
    share = min(1.0, capacity_bytes / _DESCRIBED_DEVICE)

    def scaled(size: int) -> int:
        return max(4, round(size * share / _MIB / 4) * 4) * _MIB

    memory = spec.memory.model_copy(update={"size_bytes": scaled(spec.memory.size_bytes)})
    meta = scaled(spec.meta_total_bytes)
    return spec.model_copy(update={"memory": memory, "meta_total_bytes": meta})


def arguments(spec: LmcacheRawBlock, device: str, chunk_bytes: int) -> list[str]:
    """LMCache's own command-line arguments for ``spec``."""
    assert spec.memory is not None
    adapter: dict[str, Any] = {
        "type": "raw_block",
        "device_path": device,
        "slot_bytes": spec.header_bytes + chunk_bytes,
        "meta_total_bytes": spec.meta_total_bytes,
        "meta_checkpoint_interval_sec": spec.meta_checkpoint_interval_s,
        "meta_idle_quiet_ms": int(spec.meta_idle_quiet_s * 1e3),
        "load_checkpoint_on_init": False,
        "io_engine": spec.engine,
        "num_store_workers": spec.num_store_workers,
        "num_load_workers": spec.num_load_workers,
    }
    if spec.eviction:
        adapter["eviction"] = {
            "eviction_policy": "LRU",
            "trigger_watermark": spec.eviction.watermark,
            "eviction_ratio": spec.eviction.ratio,
        }
    return [
        "--l1-size-gb", repr(spec.memory.size_bytes / (1 << 30)), "--no-l1-use-lazy",
        "--eviction-policy", "LRU",
        "--eviction-trigger-watermark", repr(spec.memory.watermark),
        "--eviction-ratio", repr(spec.memory.ratio), "--l2-adapter", json.dumps(adapter),
    ]  # fmt: skip


def _chunk_bytes(model: ModelKv, spec: LmcacheRawBlock) -> int:
    if model.state_bytes:
        raise UsageError(
            f"{model.name} keeps states of fixed size, which the driver does not store",
            fix="take a model whose whole cache grows, such as llama-3.1-8b-tp8",
        )
    size = model.chunk_bytes(spec.chunk_tokens)
    if size % 4096:
        raise UsageError(f"a chunk of {size} bytes of {model.name} is no whole number of pages")
    return size


def _drive(
    run: RealRun, job: dict[str, Any], scaled: ScaledRequests, progress: Progress
) -> dict[str, Any]:
    """Run the driver to its end; its counts."""
    path = run.folder / "job.json"
    path.write_text(json.dumps(job), encoding="utf-8")
    words = [str(run.store.python), "-P", str(DRIVER), str(path)]
    try:
        return result_of(
            run.store.name, words, run.folder / "lmcache.log",
            lambda said: tell(progress, said, run, scaled),
        )  # fmt: skip
    finally:
        path.unlink(missing_ok=True)


def tell(progress: Progress, said: dict[str, Any], run: RealRun, scaled: ScaledRequests) -> None:
    """Pass on how far a driver says that it is."""
    if run.seconds is not None:
        progress(said["seconds"], run.seconds, "s")
    else:
        progress(said["served"], scaled.count, "requests")


def result(
    run: RealRun, spec: LmcacheRawBlock, scaled: ScaledRequests, done: dict[str, Any]
) -> EmitResult:
    """What ``emit`` would say, from the counts ``done`` and the calls in ``calls.npz``.

    Leaves the log of objects and ``store.yaml``.
    """
    calls = run.folder / "calls.npz"
    ops, issue, finish = read_calls(calls)
    calls.unlink()
    _write_spec(run.folder, spec.model_copy(update=speeds(spec, ops, issue, finish, done)))
    with whole_file(run.log) as temporary:
        write_log(temporary, ops, issue, finish)
    tally = Tally()
    tally.add(ops)
    page = run.model.chunk_bytes(spec.chunk_tokens) // 512
    issued = Issued(
        len(ops), tally.read_bytes, tally.written_bytes, done["bytes_verified"],
        done["wrong_payloads"] * page, deepest(issue, finish),
    )  # fmt: skip
    report = {
        "real": True,
        "scale_factor": scaled.factor,
        "chunk_bytes": run.model.chunk_bytes(spec.chunk_tokens),
        "memory_bytes": spec.memory.size_bytes if spec.memory else 0,
        **{key: value for key, value in done.items() if key != "bytes_verified"},
        **tally.report(),
    }
    served = done["requests"]
    stopped_by = done["stopped_by"]
    if stopped_by == "requests" and not scaled.whole and served != run.limit:
        stopped_by = "requests planned"
    return EmitResult(
        store=f"{run.store.name}, LMCache {done['lmcache']}",
        requests=run.requests.name,
        device=run.device,
        seed=run.seed,
        served=served,
        new_tokens=round(sum(scaled.new_tokens[:served])),
        duration_s=done["duration_s"],
        issued=issued,
        report=report,
        objects=str(run.log),
        stopped_by=stopped_by,
    )


def speeds(
    spec: LmcacheRawBlock,
    ops: OpArray,
    issue: NDArray[np.int64],
    finish: NDArray[np.int64],
    done: dict[str, Any],
) -> dict[str, float]:
    """``drain_mbps`` and ``load_mbps`` of the calls made and the counts ``done``, as far as known.

    A chunk is stored in the time that a store worker's calls take for it, and loaded and used in
    that which the driver counted, or else in that of the reads alone.
    """
    found: dict[str, float] = {}
    payload = ops["object_class"] == ObjectClass.FULL_ATTENTION
    stores = (ops["op"] == Op.WRITE) & (ops["object_class"] != ObjectClass.METADATA)
    reads = ops["op"] == Op.READ
    if stores.any():
        workers = np.unique(ops["stream"][stores]).tolist()
        busy = [stores & (ops["stream"] == worker) for worker in workers]
        worked_s = sum(covered_s(issue[rows], finish[rows]) for rows in busy)
        stored = int(ops["length"][stores & payload].sum())
        found["drain_mbps"] = stored * spec.num_store_workers / worked_s / 1e6
    if reads.any():
        size = int(ops["length"][reads].max())
        loaded = done["chunks_loaded"] * size if "load_s" in done else ops["length"][reads].sum()
        load_s = done.get("load_s") or covered_s(issue[reads], finish[reads])
        found["load_mbps"] = float(loaded) / load_s / 1e6
    return {name: round(speed, 1) for name, speed in found.items()}


def _write_spec(folder: Path, spec: LmcacheRawBlock) -> None:
    """Leave the model of the store as it was set up."""
    text = yaml.safe_dump(spec.model_dump(mode="json"), sort_keys=False)
    (folder / "store.yaml").write_text(text, encoding="utf-8")
