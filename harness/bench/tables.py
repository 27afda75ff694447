"""Benchmark results as tables for people."""

from __future__ import annotations

from rich.table import Table

from harness.bench.results import BenchResult, Cell
from harness.bench.stats import Interval
from harness.core.units import format_size


def cell_table(found: BenchResult) -> Table:
    """Every cell: bandwidth with its interval, size of a command, amplification, latency."""
    table = Table(title=f"bench layout, grid {found.grid}, on {found.device['path']}")
    table.add_column("cell", overflow="fold")
    for name in ("GB/s [95 %]", "of seq.", "KiB", "read/want", "p99 ms"):
        table.add_column(name, justify="right", no_wrap=True)
    for cell in found.cells:
        table.add_row(
            label(cell) + ("" if cell.settled else " ~"),
            interval(cell.gbps),
            f"{cell.of_best_sequential.median:.2f}" if cell.of_best_sequential else "-",
            f"{cell.request_bytes / 1024:.0f}",
            f"{cell.amplification:.3f}",
            f"{cell.latency_us['p99'] / 1e3:.2f}" if cell.latency_us else "-",
        )
    return table


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
    for pair in found.comparisons:
        busy = " +writes" if pair.background_writes else ""
        table.add_row(
            f"{pair.layout} {pair.model} {pair.access}{busy} {pair.engine}",
            str(pair.context_tokens),
            f"{pair.request_bytes / 1024:.0f}",
            f"{pair.contiguous_request_bytes / 1024:.0f}",
            interval(pair.slowdown),
        )
    return table


def notes(found: BenchResult) -> list[str]:
    """What a reader must know beside the figures."""
    lines = [found.settle_rule]
    unsettled = sum(not cell.settled for cell in found.cells)
    if unsettled:
        lines.append(f"{unsettled} of {len(found.cells)} cells did not settle (marked ~)")
    if found.shortened:
        lines.append(f"shortened: {found.shortened}")
    if found.stand_in:
        lines.append(f"note: {found.stand_in}")
    lines += [
        f"skipped: {cell.id}: {cell.reason}"
        + (f" ({format_size(cell.needed_bytes)} needed)" if cell.needed_bytes else "")
        for cell in found.skipped
    ]
    return lines


def interval(value: Interval) -> str:
    """``1.23 [1.20, 1.27]``."""
    return f"{value.median:.2f} [{value.low:.2f}, {value.high:.2f}]"


def label(cell: Cell) -> str:
    """A cell in a few words."""
    if cell.layout is None:
        return f"{cell.pattern} {cell.direction} qd{cell.queue_depth} ({cell.engine})"
    parts = [
        f"{cell.layout} {cell.model} {cell.context_tokens} tok",
        f"{cell.turns} turns" if cell.turns != 1 else "",
        f"{cell.sessions} sessions" if cell.sessions != 1 else "",
        f"{cell.access} qd{cell.queue_depth}",
        "+writes" if cell.background_writes else "",
        "staged" if cell.transport == "host-staged" else "",
        f"({cell.engine})",
    ]
    return " ".join(part for part in parts if part)
