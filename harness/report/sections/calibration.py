"""Calibration: the constants a simulator assumes, and what was measured in their place."""

from __future__ import annotations

from typing import Any

from harness.report import calibration_plots, calibration_waf_plots
from harness.report.model import Column, KeyNumber, Level, Section, Table, Verdict
from harness.report.run import Run, describe_device
from harness.report.values import cell, dig, interval, number, percent, records, size, text

_REPLACED = ("measured", "modelled")


def section(run: Run) -> Section:
    """The section of ``calibration.json``."""
    name, title = "calibration", "Calibration"
    data = run.get("calibration")
    if data is None:
        return Section(name, title, absent=run.why_absent("calibration"))
    tables = [*_constants(data), *_hops(data), *_terms(data)]
    tables += [*_waf(data), *_waf_terms(data), *_waf_layouts(data), *_missing(data)]
    return Section(
        name,
        title,
        "Which constants of a simulator can be replaced by a measurement now?",
        verdicts=tuple(_verdicts(data)),
        keys=tuple(_keys(data)),
        tables=tuple(tables),
        figures=(
            *calibration_plots.figures(data, _device(data)),
            *calibration_waf_plots.figures(data, "modelled or measured drives"),
        ),
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


def _hops(data: dict[str, Any]) -> list[Table]:
    rows = tuple(
        (
            cell(dig(t, "hop")),
            cell(dig(t, "direction")),
            interval(dig(t, "gbps")),
            cell(dig(t, "conditions")),
        )
        for t in records(data, "hop_terms")
    )
    columns = (
        Column("hop", numeric=False),
        Column("direction", numeric=False),
        Column("best sustained (95 % interval)", "GB/s"),
        Column("conditions", numeric=False),
    )
    return [Table("Hops", columns, rows)] if rows else []


def _waf_terms(data: dict[str, Any]) -> list[Table]:
    rows = tuple(
        (
            cell(dig(t, "store")),
            cell(dig(t, "policy")),
            cell(dig(t, "variable")),
            cell(dig(t, "form")),
            cell(dig(t, "a")),
            cell(dig(t, "b")),
            percent(dig(t, "residuals.rms")),
            percent(dig(t, "residuals.worst")),
            cell(dig(t, "n")),
        )
        for t in records(data, "waf_terms")
    )
    columns = (
        Column("store", numeric=False),
        Column("policy", numeric=False),
        Column("WAF against", numeric=False),
        Column("form", numeric=False),
        Column("a"),
        Column("b"),
        Column("residual rms"),
        Column("residual worst"),
        Column("n"),
    )
    return [Table("Fitted WAF", columns, rows)] if rows else []


def _waf_layouts(data: dict[str, Any]) -> list[Table]:
    rows = tuple(
        (
            cell(dig(one, "store")),
            cell(dig(one, "waf")),
            cell("yes" if dig(one, "steady") else "no"),
            size(dig(one, "chunk_bytes")),
            cell(", ".join(f"{k} {v}" for k, v in group["held"].items() if v is not None)),
        )
        for group in records(data, "waf_layouts")
        if isinstance(group.get("held"), dict)
        for one in records(group, "stores")
    )
    columns = (
        Column("layout", numeric=False),
        Column("WAF"),
        Column("steady", numeric=False),
        Column("chunk"),
        Column("the same for the layouts beside it", numeric=False),
    )
    return [Table("WAF by layout, all else equal", columns, rows)] if rows else []
