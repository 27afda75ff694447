"""Calibration: the constants a simulator assumes, and what was measured in their place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.report.model import (
    Column,
    Figure,
    KeyNumber,
    Level,
    Section,
    Table,
    Verdict,
)
from harness.report.plots import MARKERS, SERIES, byte_axis, legend_above
from harness.report.run import Run, describe_device
from harness.report.values import cell, dig, interval, number, percent, records, text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_REPLACED = ("measured", "modelled")


def section(run: Run) -> Section:
    """The section of ``calibration.json``."""
    name, title = "calibration", "Calibration"
    data = run.get("calibration")
    if data is None:
        return Section(name, title, absent=run.why_absent("calibration"))
    tables = [*_constants(data), *_terms(data), *_waf(data), *_missing(data)]
    return Section(
        name,
        title,
        "Which constants of a simulator can be replaced by a measurement now?",
        verdicts=tuple(_verdicts(data)),
        keys=tuple(_keys(data)),
        tables=tuple(tables),
        figures=tuple(_figures(data, _device(data))),
    )


def _device(data: dict[str, Any]) -> str:
    device = dig(data, "provenance.device")
    if not isinstance(device, dict):
        return "not recorded"
    return describe_device({"name": device.get("kind"), **device}) or "not recorded"


def _verdicts(data: dict[str, Any]) -> list[Verdict]:
    constants = records(data, "constants")
    if not constants:
        return []
    done = [c for c in constants if text(c, "status") in _REPLACED]
    names = ", ".join(str(c.get("name")) for c in done) or "none"
    level = Level.GOOD if done else Level.CAUTION
    word = f"{len(done)} OF {len(constants)} CONSTANTS"
    return [Verdict("Calibration", word, level, f"measured or modelled: {names}")]


def _keys(data: dict[str, Any]) -> list[KeyNumber]:
    found = []
    for place, constant in enumerate(records(data, "constants")):
        value = number(constant, "value.median")
        if value is not None:
            label = f"Constant {text(constant, 'name') or place}"
            shown = cell(value, f"calibration.constants.{place}.value.median")
            bounds = (number(constant, "value.low"), number(constant, "value.high"))
            unit = text(constant, "unit") or ""
            found.append(KeyNumber(label, shown, unit, low=bounds[0], high=bounds[1]))
    return found


def _constants(data: dict[str, Any]) -> list[Table]:
    rows = tuple(
        (
            cell(dig(c, "name")),
            cell(dig(c, "unit")),
            cell(dig(c, "seed")),
            interval(dig(c, "value")),
            cell(dig(c, "status")),
            cell(dig(c, "conditions")),
        )
        for c in records(data, "constants")
    )
    columns = (
        Column("constant", numeric=False),
        Column("unit", numeric=False),
        Column("assumed"),
        Column("in its place"),
        Column("status", numeric=False),
        Column("conditions", numeric=False),
    )
    return [Table("Constants of the published simulator", columns, rows)] if rows else []


def _terms(data: dict[str, Any]) -> list[Table]:
    rows = tuple(
        (
            cell(dig(t, "hop")),
            cell(dig(t, "direction")),
            cell(dig(t, "pattern")),
            cell(dig(t, "form")),
            cell(dig(t, "t0_us")),
            cell(dig(t, "b1_gbps")),
            cell(dig(t, "b_max_gbps")),
            percent(dig(t, "residuals.rms")),
            percent(dig(t, "residuals.worst")),
            cell(dig(t, "n")),
        )
        for t in records(data, "bandwidth_terms")
    )
    columns = (
        Column("hop", numeric=False),
        Column("direction", numeric=False),
        Column("pattern", numeric=False),
        Column("form", numeric=False),
        Column("t0", "µs"),
        Column("one stream", "GB/s"),
        Column("limit", "GB/s"),
        Column("residual rms"),
        Column("residual worst"),
        Column("n"),
    )
    return [Table("Fitted bandwidth", columns, rows)] if rows else []


def _waf(data: dict[str, Any]) -> list[Table]:
    rows = tuple(
        (
            cell(dig(w, "source")),
            cell(dig(w, "profile")),
            cell(dig(w, "policy")),
            cell(dig(w, "store")),
            cell(dig(w, "cumulative")),
            cell(dig(w, "steady")),
        )
        for w in records(data, "waf")
    )
    columns = (
        Column("source", numeric=False),
        Column("profile", numeric=False),
        Column("policy", numeric=False),
        Column("store", numeric=False),
        Column("WAF, cumulative"),
        Column("WAF, steady"),
    )
    return [Table("WAF samples", columns, rows)] if rows else []


def _missing(data: dict[str, Any]) -> list[Table]:
    rows = tuple(
        (cell(dig(m, "what")), cell(dig(m, "reason"))) for m in records(data, "not_measured")
    )
    columns = (Column("not measured", numeric=False), Column("why", numeric=False))
    return [Table("What a reader may look for and will not find", columns, rows)] if rows else []


def _figures(data: dict[str, Any], device: str) -> list[Figure]:
    samples = [
        s for s in records(data, "bandwidth")
        if number(s, "request_bytes") and number(s, "gbps.median")
    ]  # fmt: skip
    sizes = {s["request_bytes"] for s in samples}
    return [_bandwidth(samples, device)] if len(sizes) > 1 else []


def _series(sample: dict[str, Any]) -> str:
    name = text(sample, "layout") or text(sample, "pattern") or "sample"
    direction = text(sample, "direction")
    return f"{name}, {direction}" if direction else name


def _bandwidth(samples: list[dict[str, Any]], device: str) -> Figure:
    def draw(axes: Axes) -> None:
        for place, name in enumerate(dict.fromkeys(_series(s) for s in samples)):
            mine = [s for s in samples if _series(s) == name]
            middle = [s["gbps"]["median"] for s in mine]
            low = [m - (number(s, "gbps.low") or m) for m, s in zip(middle, mine, strict=True)]
            high = [(number(s, "gbps.high") or m) - m for m, s in zip(middle, mine, strict=True)]
            axes.errorbar(
                [s["request_bytes"] for s in mine], middle, [low, high], linestyle="none",
                marker=MARKERS[place % 7], color=SERIES[place % 7], capsize=2, label=name,
            )  # fmt: skip
        axes.set_xscale("log", base=2)
        byte_axis(axes.xaxis)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("mean request size")
        axes.set_ylabel("bandwidth (GB/s)")
        legend_above(axes, 2)

    note = "Median with its 95 % interval, all depths."
    title = "Measured bandwidth by request size"
    return Figure("calibration-bandwidth", title, "bytes; GB/s", device, draw, note)
