"""Benchmark results as tables for people."""

from __future__ import annotations

from rich.table import Table

from harness.bench.results import BenchResult, Cell, Skipped
from harness.bench.stats import Interval
from harness.core.grouping import by_reason
from harness.core.units import format_size

MOST_CELLS = 40
"""Rows of a table on the terminal; the report has all."""


def cell_table(found: BenchResult) -> Table:
    """Every cell: bandwidth with its interval, size of a command, amplification, latency."""
    table = Table(title=f"bench, grid {found.grid}, on {found.device['path']}")
    table.add_column("cell", overflow="fold")
    for name in ("GB/s [95 %]", "of seq.", "KiB", "read/want", "p99 ms"):
        table.add_column(name, justify="right", no_wrap=True)
    for cell in found.cells[:MOST_CELLS]:
        table.add_row(
            label(cell) + ("" if cell.settled else " ~"),
            interval(cell.gbps),
            f"{cell.of_best_sequential.median:.2f}" if cell.of_best_sequential else "-",
            f"{cell.request_bytes / 1024:.0f}",
            f"{cell.amplification:.3f}",
            f"{cell.latency_us['p99'] / 1e3:.2f}" if cell.latency_us else "-",
        )
    _say_more(table, len(found.cells))
    return table


def _say_more(table: Table, rows: int) -> None:
    if rows > MOST_CELLS:
        more = f"{rows - MOST_CELLS} more rows in the report"
        table.caption = f"{table.caption}; {more}" if table.caption else more


def comparison_table(found: BenchResult) -> Table:
    """Each layout's time over the contiguous layout's, beside the seed's figures."""
    table = Table(
        title="time to read back, against session-contiguous read in the same way",
        caption="published (Llama-3.1-70B, to first token, both by GDS): 1.0 at 16K tokens, "
        "1.8 at 64K",
    )
    table.add_column("layout", overflow="fold")
    for name in ("tokens", "KiB", "contiguous KiB", "slower by [95 %]"):
        table.add_column(name, justify="right", no_wrap=True)
    for pair in found.comparisons[:MOST_CELLS]:
        busy = " +writes" if pair.background_writes else ""
        how = f"{pair.access}{busy} qd{pair.queue_depth} {pair.engine}"
        if pair.task_bytes is not None:
            size = format_size(pair.task_bytes)
            how = f"{pair.access} {pair.transport} {pair.threads} threads, tasks of {size}"
        table.add_row(
            f"{pair.layout} {pair.model} chunk {pair.chunk_tokens} {how}",
            str(pair.context_tokens),
            f"{pair.request_bytes / 1024:.0f}",
            f"{pair.contiguous_request_bytes / 1024:.0f}",
            interval(pair.slowdown),
        )
    _say_more(table, len(found.comparisons))
    return table


def load_table(found: BenchResult) -> Table:
    """The open-loop sweep: what arrived in time as the rate rises."""
    table = Table(
        title="sessions restored under rising load (open loop)",
        caption="published: delivered 94 % at every load, against 88 falling to 64 %; prefetch "
        "1.5 to 1.75 s against 3.2 to 9.5 s",
    )
    table.add_column("layout, at the deadline", overflow="fold", min_width=12)
    for name in ("1/s", "in time [95 %]", "late", "cancel", "p50 s", "p99 s", "amp"):
        table.add_column(name, justify="right")
    for point in found.load:
        times = point.prefetch_s
        table.add_row(
            f"{point.layout} {point.on_deadline}",
            f"{point.rate_per_s:.2f}",
            interval(point.delivered),
            f"{point.late}/{point.requests}",
            str(point.cancelled),
            f"{times['p50']:.3f}" if times else "-",
            f"{times['p99']:.3f}" if times else "-",
            f"{point.amplification:.2f}" if point.amplification else "-",
        )
    return table


def notes(found: BenchResult) -> list[str]:
    """What a reader must know beside the figures."""
    lines = [found.settle_rule]
    lines += [f"not measured: {what}: {why}" for what, why in found.not_measured.items()]
    unsettled = sum(not cell.settled for cell in found.cells)
    if unsettled:
        lines.append(f"{unsettled} of {len(found.cells)} cells did not settle (marked ~)")
    if found.shortened:
        lines.append(f"shortened: {found.shortened}")
    if found.stand_in:
        lines.append(f"note: {found.stand_in}")
    skipped = by_reason((cell.id, _why(cell)) for cell in found.skipped)
    return lines + [f"skipped: {what}: {reason}" for what, reason in skipped]


def _why(cell: Skipped) -> str:
    needed = f" ({format_size(cell.needed_bytes)} needed)" if cell.needed_bytes else ""
    return cell.reason + needed


def interval(value: Interval) -> str:
    """``1.23 [1.20, 1.27]``."""
    return f"{value.median:.2f} [{value.low:.2f}, {value.high:.2f}]"


def label(cell: Cell) -> str:
    """A cell in a few words."""
    if cell.layout is None:
        return f"{cell.pattern} {cell.direction} qd{cell.queue_depth} ({cell.engine})"
    parts = [
        f"{cell.layout} {cell.model} {cell.context_tokens} tok",
        f"chunk {cell.chunk_tokens}" if cell.chunk_tokens != 256 else "",
        f"{cell.turns} turns" if cell.turns != 1 else "",
        f"{cell.sessions} sessions" if cell.sessions != 1 else "",
        f"{cell.access} qd{cell.queue_depth}",
        "+writes" if cell.background_writes else "",
        cell.transport if cell.transport != "posix-direct" else "",
        f"{cell.threads} threads" if cell.threads != 1 else "",
        f"tasks of {format_size(cell.task_bytes)}" if cell.task_bytes else "",
        f"({cell.engine})",
    ]
    return " ".join(part for part in parts if part)
