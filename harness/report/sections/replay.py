"""The replay: was the trace issued in order and on time, and what did the device answer?"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

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
from harness.report.plots import LINES, MARKERS, SERIES, duration_axis, legend_above
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

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MODES = {
    "replay-timed": "timed",
    "replay-flat-out": "flat out",
    "replay": "replay",
}
_LEVELS = {"FAITHFUL": Level.GOOD, "LATE": Level.CAUTION, "WRONG": Level.BAD}
_QUANTILES = {
    "p50": "p50", "p90": "p90", "p99": "p99", "p999": "p99.9", "p99.9": "p99.9",
    "p9999": "p99.99", "max": "max",
}  # fmt: skip


def section(run: Run) -> Section:
    """The section of the replays that ``run`` holds."""
    name, title = "replay", "Replay"
    replays = {key: run.results[key] for key in _MODES if key in run.results}
    if not replays:
        return Section(name, title, absent=run.why_absent("replay-timed"))
    device = next((d for r in replays.values() if (d := describe_device(dig(r, "device")))), None)
    latency = [t for key, data in replays.items() for t in _latency(key, data)]
    return Section(
        name,
        title,
        "Was the trace issued in order and on time, and how did the device answer?",
        verdicts=tuple(v for key, data in replays.items() for v in _verdict(key, data)),
        keys=tuple(k for key, data in replays.items() for k in _keys(key, data)),
        tables=(_fidelity(replays), *latency),
        figures=tuple(_figures(replays, device or run.device)),
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
    "requests": ("requests", cell),
    "bytes": ("bytes", size),
    "errors": ("errors", cell),
    "fidelity.duration_s": ("duration", duration),
    "fidelity.end_drift_ns": ("end drift", nanoseconds),
    "fidelity.lag_ns.p50": ("lag, p50", nanoseconds),
    "fidelity.lag_ns.p99": ("lag, p99", nanoseconds),
    "fidelity.lag_ns.max": ("lag, max", nanoseconds),
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


def latency_of(data: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Latency quantiles by operation, however the replay nests them."""
    found = dig(data, "latency_ns") or dig(data, "latency")
    if not isinstance(found, dict):
        return {}
    if any(number(found, q) is not None for q in _QUANTILES):
        return {"all": found}
    return {op: value for op, value in found.items() if isinstance(value, dict)}


def _latency(key: str, data: dict[str, Any]) -> list[Table]:
    by_op = latency_of(data)
    shown = [q for q in _QUANTILES if any(number(v, q) is not None for v in by_op.values())]
    if not shown:
        return []
    rows = tuple(
        (Cell(op), cell(dig(v, "n") or dig(v, "count")), *(nanoseconds(dig(v, q)) for q in shown))
        for op, v in by_op.items()
    )
    columns = (
        Column("operation", numeric=False),
        Column("requests"),
        *(Column(_QUANTILES[q]) for q in shown),
    )
    return [Table(f"Latency, {_MODES[key]}", columns, rows)]


def _figures(replays: dict[str, dict[str, Any]], device: str) -> list[Figure]:
    lags = {
        _MODES[key]: dig(data, "fidelity.lag_ns")
        for key, data in replays.items()
        if key != "replay-flat-out" and number(data, "fidelity.lag_ns.max")
    }
    return [_lag(lags, device)] if lags else []


def _lag(lags: dict[str, dict[str, Any]], device: str) -> Figure:
    def draw(axes: Axes) -> None:
        shown = [q for q in _QUANTILES if any(number(lag, q) is not None for lag in lags.values())]
        for place, (mode, lag) in enumerate(lags.items()):
            points = [(shown.index(q), number(lag, q)) for q in shown]
            known = [(x, y / 1e9) for x, y in points if y]
            axes.plot(
                [x for x, _ in known], [y for _, y in known],
                LINES[place % len(LINES)], marker=MARKERS[place], color=SERIES[place], label=mode,
            )  # fmt: skip
            for x, y in known:
                axes.annotate(
                    nanoseconds(y * 1e9).text, (x, y), xytext=(0, 7), textcoords="offset points",
                    ha="center", fontsize=8.5,
                )  # fmt: skip
        axes.set_yscale("log")
        axes.margins(x=0.12, y=0.2)
        duration_axis(axes.yaxis)
        axes.set_xticks(range(len(shown)), [_QUANTILES[q] for q in shown])
        axes.set_xlabel("requests, by how late they were issued")
        axes.set_ylabel("lag behind the schedule")
        if len(lags) > 1:
            legend_above(axes)

    return Figure("replay-lag", "How late requests were issued", "quantile; time", device, draw)


def _notes(key: str, data: dict[str, Any]) -> list[str]:
    return [
        f"{_MODES[key]}: {note}"
        for part in ("notes", "caveats", "warnings", "fidelity.reasons")
        for note in strings(data, part)
    ]
