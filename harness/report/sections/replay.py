"""The replay: was the trace issued in order and on time, and what did the device answer?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.report import replay_plots
from harness.report.model import (
    Better,
    Cell,
    Column,
    Figure,
    KeyNumber,
    Level,
    Section,
    Table,
    Verdict,
)
from harness.report.replay_plots import OPERATIONS, QUANTILES
from harness.report.run import Run, describe_device
from harness.report.values import (
    cell,
    dig,
    duration,
    nanoseconds,
    number,
    percent,
    size,
    strings,
    text,
)

_MODES = {
    "replay-timed": "timed",
    "replay-flat-out": "flat out",
    "replay": "replay",
}
_LEVELS = {"FAITHFUL": Level.GOOD, "LATE": Level.CAUTION, "WRONG": Level.BAD}


def section(run: Run) -> Section:
    """The section of the replays that ``run`` holds."""
    name, title = "replay", "Replay"
    replays = {key: run.results[key] for key in _MODES if key in run.results}
    if not replays:
        return Section(name, title, absent=run.why_absent("replay-timed"))
    return Section(
        name,
        title,
        "Was the trace issued in order and on time, and how did the device answer?",
        verdicts=tuple(v for key, data in replays.items() for v in _verdict(key, data)),
        keys=tuple(k for key, data in replays.items() for k in _keys(key, data)),
        tables=(_fidelity(replays), *_latency(replays)),
        figures=tuple(_figures(replays, run.device)),
        notes=tuple(n for key, data in replays.items() for n in _notes(key, data)),
    )


def _verdict(key: str, data: dict[str, Any]) -> list[Verdict]:
    word = text(data, "fidelity.verdict")
    if word is None:
        return []
    parts = []
    order = number(data, "fidelity.order_kept")
    if order is not None:
        parts.append(f"order kept {percent(order).text}")
    if key != "replay-flat-out" and number(data, "fidelity.lag_ns.p99") is not None:
        parts.append(f"p99 lag {nanoseconds(dig(data, 'fidelity.lag_ns.p99')).text}")
    errors = number(data, "errors")
    if errors is not None:
        parts.append(f"{cell(errors).text} errors")
    subject = f"Replay, {_MODES[key]}" if key != "replay" else "Replay"
    return [Verdict(subject, word, _LEVELS.get(word, Level.UNKNOWN), ", ".join(parts))]


def _keys(key: str, data: dict[str, Any]) -> list[KeyNumber]:
    mode = _MODES[key]
    wanted: list[tuple[str, str, Callable[..., Cell], Better]] = [
        ("fidelity.order_kept", "order kept", percent, Better.HIGHER),
        ("fidelity.duration_s", "duration", duration, Better.LOWER),
    ]
    if key != "replay-flat-out":
        wanted += [
            ("fidelity.end_drift_ns", "end drift", nanoseconds, Better.LOWER),
            ("fidelity.lag_ns.p99", "p99 lag", nanoseconds, Better.LOWER),
        ]
    found = [
        KeyNumber(
            f"Replay {mode}: {label}" if mode != "replay" else f"Replay: {label}",
            form(dig(data, path), f"{key}.{path}"),
            better=better,
            headline=6 * (path == "fidelity.lag_ns.p99"),
        )
        for path, label, form, better in wanted
        if number(data, path) is not None
    ]
    rate = throughput_gbps(data)
    if rate is not None:
        label = f"Replay {mode}: throughput"
        found.append(KeyNumber(label, cell(rate), "GB/s", Better.HIGHER))
    return found


def throughput_gbps(data: dict[str, Any]) -> float | None:
    """Bytes done over the replay's duration, GB/s."""
    moved, seconds = number(data, "bytes"), number(data, "fidelity.duration_s")
    return moved / seconds / 1e9 if moved and seconds else None


_FIDELITY: dict[str, tuple[str, Callable[[Any, str], Cell]]] = {
    "fidelity.verdict": ("verdict", cell),
    "fidelity.order_kept": ("order kept", percent),
    "requests": ("requests done", cell),
    "fidelity.requests.asked": ("requests asked", cell),
    "bytes": ("bytes done", size),
    "fidelity.bytes.asked": ("bytes asked", size),
    "errors": ("errors", cell),
    "split_requests": ("requests issued in parts", cell),
    "fidelity.duration_s": ("duration", duration),
    "fidelity.recorded_duration_s": ("duration recorded", duration),
    "fidelity.end_drift_ns": ("end drift", nanoseconds),
    "fidelity.end_drift_allowed_ns": ("end drift allowed", nanoseconds),
    "fidelity.lag_ns.p50": ("lag, p50", nanoseconds),
    "fidelity.lag_ns.p99": ("lag, p99", nanoseconds),
    "fidelity.lag_ns.max": ("lag, max", nanoseconds),
    "fidelity.lag_floor_ns.p99": ("lag of a perfect replayer, p99", nanoseconds),
    "fidelity.lag_p99_allowed_ns": ("lag allowed, p99", nanoseconds),
    "fidelity.depth.replayed.mean": ("depth at issue, mean", cell),
    "fidelity.depth.recorded.mean": ("depth recorded, mean", cell),
    "fidelity.depth.ks": ("depths: KS distance from the recorded", cell),
    "fidelity.depth.ks_unavoidable": ("depths: KS distance forced by the device", cell),
    "fidelity.gaps_ks": ("gaps: KS distance from the recorded", cell),
    "fidelity.gaps_ks_unavoidable": ("gaps: KS distance forced by the device", cell),
    "engine.held_up.longest_s": ("longest time the replayer was held up", duration),
    "block_layer.kernel_splits": ("splits by the kernel", cell),
    "block_layer.merges": ("merges by the kernel", cell),
}


def _fidelity(replays: dict[str, dict[str, Any]]) -> Table:
    rows = [
        (Cell(label), *(form(dig(data, path), f"{key}.{path}") for key, data in replays.items()))
        for path, (label, form) in _FIDELITY.items()
        if any(dig(data, path) is not None for data in replays.values())
    ]
    rates = (cell(throughput_gbps(data)) for data in replays.values())
    rows.append((Cell("throughput (GB/s)"), *rates))
    columns = (Column("quantity", numeric=False), *(Column(_MODES[key]) for key in replays))
    note = "Lag is issue time against schedule; flat out has no schedule to keep."
    return Table("Fidelity", columns, tuple(rows), note)


def _latency(replays: dict[str, dict[str, Any]]) -> list[Table]:
    rows = []
    for key, data in replays.items():
        rows += _latency_rows(_MODES[key], dig(data, "latency_ns"))
    first = next(iter(replays.values()))
    rows += _latency_rows("recorded", dig(first, "recorded_latency_ns"))
    columns = (
        Column("replay", numeric=False),
        Column("operation", numeric=False),
        Column("requests"),
        *(Column(label) for label in QUANTILES.values()),
    )
    return [Table("Latency", columns, tuple(rows))] if rows else []


def _latency_rows(name: str, by_op: Any) -> list[tuple[Cell, ...]]:
    found = by_op.items() if isinstance(by_op, dict) else ()
    return [
        (
            Cell(name),
            Cell(OPERATIONS.get(op) or str(op)),
            cell(dig(summary, "n")),
            *(nanoseconds(dig(summary, quantile)) for quantile in QUANTILES),
        )
        for op, summary in found
        if number(summary, "max") is not None
    ]


def _notes(key: str, data: dict[str, Any]) -> list[str]:
    found = [n for part in ("notes", "caveats", "warnings") for n in strings(data, part)]
    found += [f"not faithful: {reason}" for reason in strings(data, "fidelity.reasons")]
    kinds = dig(data, "errors_by_kind")
    if isinstance(kinds, dict):
        found += [f"{count} requests failed with {kind}" for kind, count in kinds.items()]
    if dig(data, "interrupted") is True:
        found.append("interrupted: this is a part of the trace")
    stand_in = text(data, "stand_in")
    found += [stand_in] if stand_in else []
    return [f"{_MODES[key]}: {note}" for note in found]


def _figures(replays: dict[str, dict[str, Any]], device: str) -> list[Figure]:
    """Of the first replay that kept a schedule: lateness means nothing flat out."""
    timed = next((data for key, data in replays.items() if key != "replay-flat-out"), None)
    if timed is None:
        return []
    return replay_plots.figures(timed, describe_device(dig(timed, "device")) or device)
