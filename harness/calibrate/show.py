"""A calibration file explained to a person, as rich tables and sentences."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table

from harness.bench.stats import Interval
from harness.calibrate.model import CalibrationFile
from harness.core.units import format_duration, format_size


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
        yield _waf(file)
    if file.endurance:
        yield _endurance(file)
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
            _interval(constant.value) if constant.value else "-",
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
    for term in file.layout_terms:
        for point in term.points:
            table.add_row(
                f"{term.layout} {term.model} {term.access} {term.engine}"
                + (" +writes" if term.background_writes else ""),
                str(point.context_tokens), f"{point.request_bytes / 1024:.0f}",
                _interval(point.gbps), _interval(point.slowdown) if point.slowdown else "-",
            )  # fmt: skip
    return table


def _terms(file: CalibrationFile) -> Table:
    table = Table(title="fitted bandwidth (valid only within the sizes given)")
    for name in ("cells", "form", "error", "sizes"):
        table.add_column(name, overflow="fold")
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
        table.add_row(
            f"{term.direction} {term.pattern} {term.engine}", form, f"{term.error:.1%}",
            f"{format_size(sizes.low)}-{format_size(sizes.high)}",
        )  # fmt: skip
    return table


def _waf(file: CalibrationFile) -> Table:
    table = Table(title="write amplification")
    table.add_column("source, profile, policy", overflow="fold")
    for name in ("cumulative", "steady", "band"):
        table.add_column(name, justify="right")
    for sample in file.waf:
        band = "-" if sample.low is None else f"{sample.low:.2f}-{sample.high:.2f}"
        steady = "not steady" if sample.steady is None else f"{sample.steady:.2f}"
        parts = (sample.source, sample.profile, sample.policy, sample.store, sample.note)
        table.add_row(
            ", ".join(part for part in parts if part), f"{sample.cumulative:.2f}", steady, band
        )
    return table


def _endurance(file: CalibrationFile) -> Table:
    table = Table(title="lifetimes by convention (equations: TBW against host or NAND writes)")
    table.add_column("profile", overflow="fold")
    for name in ("TBW", "WAF 1", "paper", "NAND", "JEDEC"):
        table.add_column(name, justify="right")
    for drive in file.endurance:
        days = (drive.waf1_days, drive.paper_days, drive.nand_days, drive.jedec_days)
        table.add_row(
            f"{drive.profile} ({drive.rate_source or 'no rate'})",
            f"{drive.tbw_bytes / 1e12:.4g} TB",
            *(format_duration(d * 86400) if d else "-" for d in days),
        )
    return table


def _missing(file: CalibrationFile) -> Table:
    table = Table(title="not measured")
    for name in ("what", "why"):
        table.add_column(name, overflow="fold")
    for item in file.not_measured:
        table.add_row(item.what, item.reason)
    return table


def _interval(value: Interval) -> str:
    return f"{value.median:.2f} [{value.low:.2f}, {value.high:.2f}]"
