"""A run of fio in the form of a replay's result."""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.core.ops import SECTOR_BYTES, Op
from harness.device.guard import Target
from harness.replay.fidelity import Evidence, judge, thresholds
from harness.replay.fio import FioRun, lags_ms
from harness.replay.options import ReplayOptions
from harness.replay.plan import each_pass
from harness.replay.result import block_layer
from harness.replay.survey import Survey
from harness.trace.parquet import Trace

_SIDES = {"R": "read", "W": "write", "D": "trim", "F": "sync"}
_QUANTILES = {"p50": 50, "p90": 90, "p99": 99, "p999": 99.9}


def assemble_fio(
    run: FioRun, trace: Trace, target: Target, found: Survey, options: ReplayOptions
) -> dict[str, Any]:
    """Everything that a replay's ``--json`` holds, as far as fio tells it; the rest is null."""
    lag_ns = None
    if run.issue_ms is not None:
        lag_ns = lags_ms(run, each_pass(trace, found, options)) * 1_000_000
    evidence = _evidence(run, found, options, lag_ns)
    verdict, reasons = judge(evidence)
    moved = run.moved
    asked = {"R": int(found.requests[0]), "W": int(found.requests[1])}
    return {
        "fidelity": {
            "verdict": verdict,
            "reasons": reasons,
            "order_kept": run.order_kept,
            "duration_s": evidence.duration_ns / 1e9,
            "recorded_duration_s": found.length_ns(options.repeat) / options.speed / 1e9,
            "end_drift_ns": evidence.end_drift,
            "lag_ns": _summary(lag_ns),
            **thresholds(evidence),
            "requests": {"asked": evidence.requests_asked, "done": evidence.requests_done},
            "bytes": {"asked": evidence.bytes_asked, "done": evidence.bytes_done},
        },
        "requests": evidence.requests_done,
        "bytes": evidence.bytes_done,
        "errors": evidence.errors,
        "errors_by_kind": {},
        "operations": _operations(run),
        "trace": str(trace.path),
        "device": target.info.as_dict(),
        "options": options.as_dict(),
        "passes": options.repeat,
        "block_layer": block_layer(moved, asked, {}) if moved else None,
        "verification": None,
        "engine": {
            "name": f"fio/{run.engine}",
            "version": run.version,
            "queues": 1,
            "depth": run.depth,
        },
        "interrupted": run.interrupted,
        "stopped_by": run.problem,
        "notes": _notes(run, found, lag_ns is not None),
    }


def _evidence(
    run: FioRun, found: Survey, options: ReplayOptions, lag_ns: np.ndarray | None
) -> Evidence:
    job = run.job or {}
    seen = run.moved
    sectors = seen.read_sectors + seen.write_sectors if seen else 0
    left_out = int(found.requests[Op.WRITE_ZEROES])
    sides = [job.get(side, {}) for side in _SIDES.values()]
    seconds = max((side.get("runtime", 0) for side in sides), default=0) / 1e3 or run.seconds
    timed = options.mode == "timed"
    return Evidence(
        order_matters=run.order_kept is not None,
        order_kept=run.order_kept if run.order_kept is not None else 1.0,
        requests_asked=(found.replayed - left_out) * options.repeat,
        requests_done=sum(side.get("total_ios", 0) for side in sides),
        bytes_asked=int(found.bytes[:2].sum()) * options.repeat,
        bytes_done=sectors * SECTOR_BYTES,
        bytes_seen=None,
        errors=sum(side.get("short_ios", 0) + side.get("drop_ios", 0) for side in sides)
        + bool(job.get("error")),
        wrong_sectors=0,
        duration_ns=int(seconds * 1e9),
        lag_p99=int(np.percentile(lag_ns, 99)) if lag_ns is not None else None,
        end_drift=_drift(found, options, lag_ns, seconds) if timed else None,
        problems=(run.problem,) if run.problem else (),
    )


def _drift(found: Survey, options: ReplayOptions, lag_ns: np.ndarray | None, seconds: float) -> int:
    if lag_ns is not None and len(lag_ns):
        return int(lag_ns[-1])
    return int(seconds * 1e9 - found.length_ns(options.repeat) / options.speed)


def _summary(lag_ns: np.ndarray | None) -> dict[str, int | None]:
    names = ("n", "mean", *_QUANTILES, "max")
    if lag_ns is None or not len(lag_ns):
        return dict.fromkeys(names)
    late = np.maximum(lag_ns, 0)
    values = [len(late), int(late.mean())]
    values += [int(np.percentile(late, q)) for q in _QUANTILES.values()]
    return dict(zip(names, [*values, int(late.max())], strict=True))


def _operations(run: FioRun) -> dict[str, dict[str, int]]:
    job = run.job or {}
    return {
        letter: {"requests": job[side]["total_ios"]}
        for letter, side in _SIDES.items()
        if job.get(side, {}).get("total_ios")
    }


def _notes(run: FioRun, found: Survey, has_lags: bool) -> list[str]:
    notes = ["requests are what fio counted, bytes what the block layer saw"]
    if has_lags:
        notes.append("issue times come from fio's log, in whole milliseconds")
    if found.requests[Op.WRITE_ZEROES]:
        notes.append("fio's logs hold no write-zeroes: left out")
    if run.engine == "libaio":
        notes.append("libaio: this fio hangs when io_uring replays a timed log")
    return notes
