"""Write amplification and endurance of a calibration file, as rich tables."""

from __future__ import annotations

from rich.table import Table

from harness.calibrate.model import CalibrationFile
from harness.calibrate.show_rows import fill
from harness.core.units import format_duration, format_size


def waf(file: CalibrationFile) -> Table:
    """Every WAF with what it belongs to."""
    table = Table(title="write amplification")
    table.add_column("source, profile, policy", overflow="fold")
    for name in ("cumulative", "steady", "band"):
        table.add_column(name, justify="right")
    rows = []
    for sample in file.waf:
        band = "-" if sample.low is None else f"{sample.low:.2f}-{sample.high:.2f}"
        steady = "not steady" if sample.steady is None else f"{sample.steady:.2f}"
        parts = (sample.source, sample.profile, sample.policy, sample.store, sample.note)
        point = (f"{key} {value}" for key, value in (sample.point or {}).items())
        rows.append(
            (", ".join(filter(None, (*parts, *point))), f"{sample.cumulative:.2f}", steady, band)
        )
    return fill(table, rows)


def waf_terms(file: CalibrationFile) -> Table:
    """The fitted curves."""
    table = Table(title="write amplification against one thing at a time")
    table.add_column("store, policy, what is held", overflow="fold")
    for name in ("curve", "error", "n", "valid"):
        table.add_column(name, overflow="fold")
    rows = []
    for term in file.waf_terms:
        x = _NAMES[term.variable]
        curve = f"{term.a:.3g} {term.b:+.3g} * {x}"
        if term.form == "power":
            curve = f"1 + {term.a:.3g} * {x}^{term.b:.3g}"
        rows.append(
            (
                ", ".join(filter(None, (term.store, term.policy, term.profile, *_held(term.held)))),
                curve, "-" if term.error is None else f"{term.error:.1%}", str(term.n),
                f"{term.valid.low:.3g}-{term.valid.high:.3g}",
            )
        )  # fmt: skip
    return fill(table, rows)


_NAMES = {"utilisation": "used", "over_provisioning": "spare", "chunk_per_line": "chunk/line"}


def _held(conditions: dict[str, str | int | float | None]) -> list[str]:
    """Those conditions that a reader will look for, in words."""
    words = []
    for key, value in conditions.items():
        if isinstance(value, int) and key.endswith("_bytes"):
            words.append(f"{key.removesuffix('_bytes')} {format_size(value)}")
        elif key in _NAMES and value is not None:
            words.append(f"{_NAMES[key]} {value:g}")
    return words


def waf_layouts(file: CalibrationFile) -> Table:
    """Layouts side by side."""
    table = Table(title="write amplification by layout, all else equal")
    table.add_column("held", overflow="fold")
    table.add_column("layout", overflow="fold")
    table.add_column("WAF", justify="right", no_wrap=True)
    rows = []
    for group in file.waf_layouts:
        for number, one in enumerate(group.stores):
            known = ", ".join((str(group.held.get("policy")), *_held(group.held)))
            steady = "" if one.steady else " ~"
            rows.append(("" if number else known, one.store, f"{one.waf:.3f}{steady}"))
    return fill(table, rows)


def endurance(file: CalibrationFile) -> Table:
    """Budgets and lifetimes."""
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
