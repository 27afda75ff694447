"""A replay's result as people read it."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from harness.core.units import format_duration, format_size


def summary_table(details: dict[str, Any]) -> Table:
    """The figures that matter, one a row; ``details`` is the result's JSON."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="dim")
    table.add_column()
    for name, value in _rows(details):
        table.add_row(name, value)
    return table


def _rows(details: dict[str, Any]) -> list[tuple[str, str]]:
    fidelity = details["fidelity"]
    seconds = fidelity["duration_s"]
    rows = [
        ("requests", f"{details['requests']:,} ({format_size(details['bytes'])}), "
                     f"{details['errors']} failed"),
        ("duration", f"{format_duration(seconds)} "
                     f"(recorded {format_duration(fidelity['recorded_duration_s'])})"),
    ]  # fmt: skip
    if seconds:
        rate = details["requests"] / seconds
        rows.append(("rate", f"{rate:,.0f} IOPS, {details['bytes'] / seconds / 1e9:.3g} GB/s"))
    if fidelity["order_kept"] is not None:
        rows.append(("order kept", f"{fidelity['order_kept']:.4%}"))
    rows += _timing(fidelity)
    for op, found in details.get("latency_ns", {}).items():
        rows.append((f"latency {op}", _quantiles(found)))
        recorded = details["recorded_latency_ns"].get(op)
        if recorded:
            rows.append((f"  recorded {op}", _quantiles(recorded)))
    if details["errors_by_kind"]:
        kinds = (f"{count} {kind}" for kind, count in details["errors_by_kind"].items())
        rows.append(("errors", ", ".join(kinds)))
    return rows + _checks(details)


def _timing(fidelity: dict[str, Any]) -> list[tuple[str, str]]:
    rows = []
    if fidelity["lag_ns"]["p99"] is not None:
        rows.append(("lag", _quantiles(fidelity["lag_ns"])))
        floor = fidelity.get("lag_floor_ns")
        if floor:
            rows.append(("  unavoidable", _quantiles(floor)))
    if fidelity["end_drift_ns"] is not None:
        rows.append(("end drift", format_duration(fidelity["end_drift_ns"] / 1e9)))
    depth = fidelity.get("depth")
    if depth:
        text = f"mean {depth['replayed']['mean'] or 0:.1f}, max {depth['replayed']['max']}"
        if depth["recorded"]:
            recorded = depth["recorded"]
            text += f" (recorded mean {recorded['mean'] or 0:.1f}, max {recorded['max']})"
        rows.append(("depth", text))
        rows += _distance("  depths", depth["ks"], depth["ks_unavoidable"])
        rows += _distance("  gaps", fidelity["gaps_ks"], fidelity["gaps_ks_unavoidable"])
    return rows


def _distance(name: str, found: float | None, forced: float | None) -> list[tuple[str, str]]:
    """A Kolmogorov-Smirnov distance from the recording, and what the device forces of it."""
    if found is None:
        return []
    return [(name, f"KS {found:.3f} from the recorded (unavoidable {forced or 0:.3f})")]


def _checks(details: dict[str, Any]) -> list[tuple[str, str]]:
    rows = []
    verified = details["verification"]
    if verified:
        reads, scan = verified["reads"], verified["scan"]
        text = f"reads: {format_size(reads['checked_bytes'])}, {reads['wrong_sectors']} wrong"
        if scan:
            read_back = format_size(scan["checked_bytes"])
            text += f" sectors; read back: {read_back}, {scan['wrong_sectors']} wrong sectors"
        rows.append(("verified", text))
    witness = details.get("witness")
    if witness:
        text = f"{witness['matched']} of {witness['requests']} seen by the probe, order kept "
        text += f"{witness['order_kept']:.4%}"
        rows.append(("witness", text))
        if witness["lag_ns"]:
            rows.append(("  lag in the kernel", _quantiles(witness["lag_ns"])))
    return rows


def _quantiles(found: dict[str, Any]) -> str:
    parts = [
        f"{name} {format_duration(found[name] / 1e9)}"
        for name in ("p50", "p99", "max")
        if found[name] is not None
    ]
    return ", ".join(parts)
