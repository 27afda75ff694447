"""A calibration file explained to a person, as rich tables and sentences."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table

from harness.bench.tables import interval
from harness.calibrate import show_wear
from harness.calibrate.model import CalibrationFile
from harness.calibrate.show_rows import fill
from harness.core.grouping import by_reason
from harness.core.units import format_size


def explain(file: CalibrationFile) -> Iterator[RenderableType]:
    """What a reader should see, in the order in which it matters."""
    yield _origin(file)
    yield _constants(file)
    yield _conditions(file)
    if file.layout_terms:
        yield _layouts(file)
    if file.bandwidth_terms:
        yield _terms(file)
    if file.waf:
        yield show_wear.waf(file)
    if file.waf_terms:
        yield show_wear.waf_terms(file)
    if file.waf_layouts:
        yield show_wear.waf_layouts(file)
    if file.endurance:
        yield show_wear.endurance(file)
    yield _missing(file)


def _origin(file: CalibrationFile) -> str:
    origin = file.provenance
    device = origin.device
    what = "no device was benchmarked"
    if device is not None:
        name = " ".join(part for part in (device.model, device.firmware) if part) or device.kind
        what = f"{name}, {format_size(device.size_bytes)}"
    lines = [
        f"calibration {file.schema_version}, made {file.created:%Y-%m-%d %H:%M} UTC",
        f"device: {what}; host {origin.host}, kernel {origin.kernel}, {origin.cpu}",
        f"measured {origin.measured_from:%Y-%m-%d} to {origin.measured_to:%Y-%m-%d} with harness "
        f"{origin.harness_version} and {origin.fio_version or 'no fio'} in "
        f"{len(origin.runs)} run(s)",
    ]
    return "\n".join([*lines, *(f"note: {stand_in}" for stand_in in origin.stand_ins)])


def _constants(file: CalibrationFile) -> Table:
    table = Table(title="constants of the published simulator, and what takes their place")
    for name in ("constant", "assumed", "here", "status"):
        table.add_column(name)
    for constant in file.constants:
        table.add_row(
            constant.name,
            f"{constant.seed:g} {constant.unit}",
            interval(constant.value) if constant.value else "-",
            constant.status,
        )
    return table


def _conditions(file: CalibrationFile) -> str:
    return "\n".join(f"{constant.name}: {constant.conditions}" for constant in file.constants)


def _layouts(file: CalibrationFile) -> Table:
    table = Table(title="reading a session back, by layout and context")
    table.add_column("layout", overflow="fold")
    for name in ("tokens", "KiB/command", "GB/s", "slower by"):
        table.add_column(name, justify="right", no_wrap=True)
    rows = [
        (
            f"{term.layout} {term.model} {term.access} qd{term.queue_depth} {term.engine}"
            + (f" {term.turns} turns" if term.turns > 1 else "")
            + (f" {term.sessions} sessions" if term.sessions > 1 else "")
            + (" +writes" if term.background_writes else ""),
            str(point.context_tokens), f"{point.request_bytes / 1024:.0f}",
            interval(point.gbps), interval(point.slowdown) if point.slowdown else "-",
        )
        for term in file.layout_terms
        for point in term.points
    ]  # fmt: skip
    return fill(table, rows)


def _terms(file: CalibrationFile) -> Table:
    table = Table(title="fitted bandwidth (valid only within the sizes given)")
    for name in ("cells", "form", "error", "sizes"):
        table.add_column(name, overflow="fold")
    rows = []
    for term in file.bandwidth_terms:
        if term.form == "latency":
            form = (
                f"min(d*s / ({term.t0_us:.1f} us + s / {term.b1_gbps:.2f} GB/s), "
                f"{term.b_max_gbps:.2f} GB/s)"
            )
        else:
            half = format_size(term.half_bytes or 0)
            form = f"{term.b_max_gbps:.2f} GB/s * x / (x + {half}), x = d*s"
        sizes = term.valid["request_bytes"]
        kind = (term.direction, term.layout or term.pattern, term.access, term.engine)
        rows.append(
            (
                " ".join(filter(None, kind)), form, f"{term.error:.1%}",
                f"{format_size(sizes.low)}-{format_size(sizes.high)}",
            )
        )  # fmt: skip
    return fill(table, rows)


def _missing(file: CalibrationFile) -> Table:
    table = Table(title="not measured")
    for name in ("what", "why"):
        table.add_column(name, overflow="fold")
    for what, reason in by_reason((item.what, item.reason) for item in file.not_measured):
        table.add_row(what, reason)
    return table
