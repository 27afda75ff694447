"""Records of a sweep as the figures take them: in groups, by policy, and with a caption."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from harness.calibrate.constants import (
    SEED_B_PCIE_GBPS,
    SEED_B_SSD_GBPS,
    SEED_R_PREFILL_TOKENS_PER_S,
)
from harness.core.units import format_size
from harness.report.model import Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Row = dict[str, Any]
Rows = Sequence[Row]

DAY_S = 86400.0
HEIGHT_IN = 3.3
_FEW = 8
"""Curves whose legend fits into the axes."""
PUBLISHED_RATES = (
    f"{SEED_B_SSD_GBPS:g} GB/s off the SSD, {SEED_B_PCIE_GBPS:g} GB/s to the GPU,"
    f" {SEED_R_PREFILL_TOKENS_PER_S:,.0f} tokens/s recomputed, as published."
)


def groups(rows: Rows, keys: Sequence[str]) -> list[list[Row]]:
    """Rows that agree in all ``keys``, together."""

    def key(row: Row) -> tuple[str, ...]:
        return tuple(str(row.get(name)) for name in keys)

    return [list(group) for _, group in groupby(sorted(rows, key=key), key=key)]


def by_label(rows: Rows) -> dict[str, list[Row]]:
    """Rows by policy, and by structure where a policy was played under both."""
    structures: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        structures[row["label"]].add(row["structure"])
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        label = row["label"]
        found[f"{label}, {row['structure']}" if len(structures[label]) > 1 else label].append(row)
    return dict(sorted(found.items()))


def _setting(row: Row) -> str:
    lanes = f"{row['lanes']} lanes" if row["lanes"] else "as recorded"
    states = f" ({row['dram_bytes'] // row['state_bytes']} states)" if row["state_bytes"] else ""
    return (
        f"{row['trace'].split('@')[0]}, {lanes}, {row['model']}, DRAM"
        f" {format_size(row['dram_bytes'])}{states}, SSD {format_size(row['ssd_bytes'])},"
        f" checkpoints {row['checkpoint']}"
    )


def figure_of(
    name: str, title: str, unit: str, rows: Rows, draw: Callable[[Axes], None], note: str,
    of: str | None = None, height_in: float = HEIGHT_IN,
) -> Figure:  # fmt: skip
    """A figure of a group of rows, whose caption says of which, and what may be compared."""
    digits = "Shapes may be compared with the paper, digits may not: its trace is another."
    return Figure(name, title, unit, of or _setting(rows[0]), draw, f"{note} {digits}", height_in)


def height_of_rows(rows: Rows) -> float:
    """Inches for a policy a row."""
    return max(HEIGHT_IN, 1.0 + 0.2 * len(rows))


def height_of_curves(curves: int) -> float:
    """Inches for curves with their legend, which is below the axes where they are many."""
    return HEIGHT_IN if curves <= _FEW else HEIGHT_IN + 0.19 * -(-curves // 3)


def legend(axes: Axes, curves: int) -> None:
    """Within the axes, or below them if there are many curves."""
    if curves <= _FEW:
        axes.legend(ncols=2)
    else:
        axes.legend(ncols=3, loc="upper center", bbox_to_anchor=(0.45, -0.17), fontsize=8)


def a_row_each(axes: Axes, rows: Rows) -> None:
    """A policy a row, the first on top, and what the colours are above them."""
    axes.set_yticks(range(len(rows)), [row["label"] for row in rows])
    axes.invert_yaxis()
    axes.margins(y=0.01)
    axes.legend(
        loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2, borderaxespad=0.2,
        handlelength=1.4, columnspacing=1.0,
    )  # fmt: skip


def best_of(rows: Rows) -> list[Row]:
    """Each policy's point of fewest misses, fewest writes among equals."""
    return [
        min(own, key=lambda row: (row["miss"], row["written_bytes"]))
        for own in by_label(rows).values()
    ]
