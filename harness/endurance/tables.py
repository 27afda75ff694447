"""A wear result as people read it. No WAF without profile, policy and fill state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from harness.core.units import format_duration, format_size

DAY_S = 86400.0
_LIVES = {
    "paper_days": "TBW / (writes a day x WAF)",
    "waf1_days": "TBW / writes a day (WAF assumed 1)",
    "nand_days": "P/E x flash x levelling / (writes a day x WAF)",
    "nand_level_days": "the same, perfectly levelled",
    "jedec_days": "TBW x rated WAF / (writes a day x WAF)",
}


def headline(result: dict[str, Any]) -> str:
    """One line: the WAF, what it is, and on what."""
    waf = result["waf"]
    if waf["steady"] is not None:
        figure = f"WAF {waf['steady']:.3f}, steady"
    else:
        figure = f"WAF {waf['cumulative']:.3f} over all writes, not steady"
    return f"{figure} - {result['profile']['name']}, policy {result['policy']}, {result['fill']}"


def waf_table(result: dict[str, Any]) -> Table:
    """The WAF and what must stand beside it."""
    waf, table = result["waf"], Table(title=f"Wear of {result['input']}", title_justify="left")
    table.add_column("quantity")
    table.add_column("value", justify="right")
    for name in ("first", "cumulative", "steady"):
        table.add_row(f"WAF, {name}", _number(waf[name], "not steady" if name == "steady" else "-"))
    if waf["band"]:
        band = "-" if waf["low"] is None else f"{waf['low']:.3f} to {waf['high']:.3f}"
        table.add_row(f"band ({waf['band']}, {waf['band_done']} more)", band)
    table.add_row("profile, policy", f"{result['profile']['name']}, {result['policy']}")
    table.add_row("thresholds", _settings(result["thresholds"]))
    table.add_row("fill", result["fill"])
    table.add_row("line, chunk", f"{_size(result['line_bytes'])}, {_size(result['chunk_bytes'])}")
    table.add_row("chunk / line", _number(result["chunk_per_line"]))
    table.add_row("mapped / flash", _percent(result["mapped_share"]))
    table.add_row("effective over-provisioning", _spare(result["over_provisioning"]))
    table.add_row("store / namespace", _number(result["utilisation"]))
    table.add_row("concurrent append streams", _number(result["append_streams"]))
    table.add_row("namespaces written", _number(result["namespace_writes"]))
    table.add_row("discards seen", str(result["discards"]))
    table.add_row("written by host", _size(result["host_bytes"]))
    table.add_row("moved by GC", _size(result["gc_bytes"]))
    table.add_row("written to flash", _size(result["nand_bytes"]))
    erases = result["erases"]
    spread = f"{erases['min']} / {erases['mean']:.2f} / {erases['max']}"
    table.add_row("erases a line, min / mean / max", spread)
    table.add_row("stopped because", result["stopped"])
    return table


def snapshot_table(result: dict[str, Any], most: int = 24) -> Table:
    """Counters at each snapshot; the middle ones are left out where there are many."""
    snapshots = result["snapshots"]
    title = f"Counters since {result['counted_from']}"
    table = Table(title=title, title_justify="left")
    for name in ("at", "ops", "host pages", "GC pages", "erased", "free", "fg / bg GC", "WAF"):
        table.add_column(name, justify="left" if name == "at" else "right")
    if len(snapshots) > most:
        table.caption = f"{len(snapshots) - most} more in the JSON"
        snapshots = snapshots[: most // 2] + snapshots[-most // 2 :]
    for shot in snapshots:
        at = shot["event"] if shot["tag"] is None else f"{shot['event']} {shot['tag']}"
        table.add_row(
            at,
            f"{shot['ops_done']:,}",
            f"{shot['host_pages']:,}",
            f"{shot['gc_pages']:,}",
            f"{shot['erased_lines']:,}",
            f"{shot['free_lines']:,}",
            f"{shot['foreground_gc']:,} / {shot['background_gc']:,}",
            _number(shot["waf"]),
        )
    return table


def lifetime_table(result: dict[str, Any]) -> Table | None:
    """Lifetimes by convention and rate; None where there is no rate."""
    if result["writes_per_day_bytes"] is None:
        return None
    rates = [result, *result["rates"]]
    table = Table(title="Lifetime", title_justify="left")
    table.add_column("convention")
    for rate in rates:
        heading = f"{rate['writes_per_day_bytes'] / 1e12:.3g} TB/day\n{rate['rate_source']}"
        table.add_column(heading, justify="right")
    table.add_column("formula")
    for name, formula in _LIVES.items():
        values = [rate["lifetimes"][name] for rate in rates]
        if any(value is not None for value in values):
            table.add_row(name, *(_days(value) for value in values), formula)
    table.add_row("required DWPD", *(_number(rate["required_dwpd"]) for rate in rates), "")
    drives = [_days(rate["hdd_days_without_reads"]) for rate in rates]
    table.add_row("a hard drive", *drives, "its yearly rating, if nothing is read")
    return table


def class_table(result: dict[str, Any]) -> Table | None:
    """Which objects cause the wear."""
    if not result["by_class"]:
        return None
    table = Table(title="Wear by object class", title_justify="left")
    for name in ("class", "host", "GC", "WAF"):
        table.add_column(name, justify="left" if name == "class" else "right")
    for row in result["by_class"]:
        table.add_row(
            row["class"], _size(row["host_bytes"]), _size(row["gc_bytes"]), _number(row["waf"])
        )
    return table


def comparison_table(results: Sequence[dict[str, Any]]) -> Table:
    """The same input under several policies, and the spread of their WAF."""
    first = results[0]
    title = f"Policies compared on {first['profile']['name']}, {first['precondition']}"
    table = Table(title=title, title_justify="left")
    names = ("mapped", "first", "all", "steady", "writes", "erases", "paper\ndays")
    table.add_column("policy", no_wrap=True)
    for name in names:
        table.add_column(name, justify="right")
    for result in results:
        waf = result["waf"]
        table.add_row(
            result["policy"],
            _percent(result["mapped_pages"] / result["namespace_pages"]),
            _number(waf["first"]),
            _number(waf["cumulative"]),
            _number(waf["steady"], "no"),
            _number(result["namespace_writes"]),
            f"{result['erases']['mean']:.2f}",
            _days(result["lifetimes"]["paper_days"]),
        )
    wafs = [result["waf"]["cumulative"] for result in results]
    table.caption = (
        f"WAF differs by a factor of {max(wafs) / min(wafs):.2f} between policies\n"
        "first, all, steady: WAF of the first namespace, of all writes, when steady;\n"
        "mapped: of the namespace; writes: namespaces; erases: a line"
    )
    return table


def _number(value: float | None, absent: str = "-") -> str:
    return absent if value is None else f"{value:.4g}"


def _percent(value: float) -> str:
    return f"{100 * value:.3g} %"


def _spare(value: float | None) -> str:
    """Flash beyond what is mapped, over what is mapped; no figure for an almost empty drive."""
    if value is None or value > 1:
        return "more flash is free than mapped"
    return f"{100 * value:.1f} %"


def _size(value: float | None) -> str:
    return "-" if value is None else format_size(value)


def _days(value: float | None) -> str:
    return "-" if value is None else format_duration(value * DAY_S)


def _settings(settings: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in settings.items() if value is not None)
