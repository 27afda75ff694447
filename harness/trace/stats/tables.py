"""Statistics as tables for people."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from harness.core.units import format_duration, format_size


def tables(data: dict[str, Any]) -> list[Table]:
    """The tables of a ``TraceStats.data``, the most important first."""
    made = [_operations(data), _sizes(data)]
    if any(each["latency_ns"]["count"] for each in data["operations"].values()):
        made.append(_latencies(data))
    if data["locality"]:
        made.append(_locality(data))
    made += [_rewrites(data), _regions(data)]
    if len(data["devices"]) > 1:
        made.append(_devices(data))
    return made


def headline(data: dict[str, Any]) -> str:
    """One line: how much, over how long, where."""
    parts = [f"{data['requests']:,} requests", format_size(data["bytes"])]
    if data["has_clock"] and data["duration_s"]:
        parts.append(f"over {format_duration(data['duration_s'])}")
        parts.append(f"{data['requests_per_s']:,.0f} requests/s")
        parts.append(f"{format_size(data['bytes_per_s'])}/s")
    if not data["has_clock"]:
        parts.append("no clock")
    if data["touched"] is not None:
        low, high = (format_size(data["touched"][end]) for end in ("low", "high"))
        parts.append(f"addresses {low} to {high}")
    return ", ".join(parts)


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right")
    return table


def _operations(data: dict[str, Any]) -> Table:
    table = _table("Operations", "", "requests", "bytes", "share", "errors", "not 4 KiB", "flags")
    for name, each in data["operations"].items():
        flags = ", ".join(f"{flag} {count:,}" for flag, count in each["flags"].items())
        share = each["bytes"] / data["bytes"] if data["bytes"] else 0.0
        table.add_row(
            name,
            f"{each['requests']:,}",
            format_size(each["bytes"]),
            f"{share:.1%}",
            f"{each['errors']:,}",
            f"{each['unaligned_4k']:,}",
            flags,
        )
    return table


def _sizes(data: dict[str, Any]) -> Table:
    table = _table("Request sizes", "", "mean", "p50", "p99", "max", "most frequent")
    for name, each in data["operations"].items():
        sizes = each["size_bytes"]
        common = ", ".join(
            f"{format_size(size['bytes'])} x {size['requests']:,}"
            for size in each["common_sizes"][:4]
        )
        table.add_row(
            name, *(format_size(sizes[key]) for key in ("mean", "p50", "p99", "max")), common
        )
    return table


def _latencies(data: dict[str, Any]) -> Table:
    table = _table("Latency", "", "p50", "p90", "p99", "p99.9", "max", "unknown")
    for name, each in data["operations"].items():
        latency = each["latency_ns"]
        if latency["count"]:
            values = (format_duration(latency[key] / 1e9) for key in table_keys(latency))
            table.add_row(name, *values, f"{each['without_latency']:,}")
    depth = data["queue_depth"]
    if depth is not None:
        values = (f"{depth[key]:,}" for key in table_keys(depth))
        table.add_row("queue depth", *values, f"{depth['unplaced']:,}")
    return table


def table_keys(summary: dict[str, Any]) -> list[str]:
    """Percentiles and maximum, as a summary names them."""
    return [key for key in ("p50", "p90", "p99", "p99.9", "max") if key in summary]


def _locality(data: dict[str, Any]) -> Table:
    table = _table(
        "Locality", "", "sequential", "in 8 streams", "jumps", "forward", "p50 jump", "p90 jump"
    )
    for name, each in data["locality"].items():
        jumps = each["jump_bytes"]
        some = jumps["count"] > 0
        table.add_row(
            name,
            f"{each['sequential_share']:.1%}",
            f"{each['sequential_share_8_streams']:.1%}",
            f"{jumps['count']:,}",
            f"{each['jumps_forward_share']:.0%}" if some else "-",
            format_size(jumps["p50"]) if some else "-",
            format_size(jumps["p90"]) if some else "-",
        )
    return table


def _rewrites(data: dict[str, Any]) -> Table:
    table = _table("Written data (4 KiB pages)", "", "bytes", "share of written")
    fates = data["rewrites"]
    written = fates["written_bytes"]
    for label, key in (
        ("written", "written_bytes"),
        ("overwritten later", "overwritten_bytes"),
        ("discarded while valid", "discarded_bytes"),
        ("never rewritten", "never_rewritten_bytes"),
        ("distinct", "distinct_written_bytes"),
    ):
        share = f"{fates[key] / written:.1%}" if written else "-"
        table.add_row(label, format_size(fates[key]), share)
    factor = fates["overwrite_factor"]
    table.add_row("overwrite factor", "-" if factor is None else f"{factor:.3g}", "")
    return table


def _regions(data: dict[str, Any]) -> Table:
    regions = data["regions"]
    uneven = regions["hottest_tenth_share"]
    title = f"Hottest regions of {format_size(regions['region_bytes'])}"
    if uneven is not None:
        title += f" (the hottest tenth of {regions['touched_regions']:,} has {uneven:.0%})"
    table = _table(title, "offset", "read", "written", "share")
    for each in regions["hottest"][:5]:
        table.add_row(
            f"{each['offset'] // 2**20:,} MiB",
            format_size(each["read_bytes"]),
            format_size(each["write_bytes"]),
            f"{each['share']:.2%}",
        )
    return table


def _devices(data: dict[str, Any]) -> Table:
    table = _table("Devices", "device", "requests")
    for each in data["devices"][:10]:
        table.add_row(f"{each['major']}:{each['minor']}", f"{each['requests']:,}")
    if len(data["devices"]) > 10:
        table.add_row(f"{len(data['devices']) - 10} more", "")
    return table
