"""What the published simulator argues from: hard drives, live states, states that return once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from harness.core.profiles import DeviceProfile
from harness.endurance.lifetimes import hdd_days
from harness.report.model import Figure
from harness.report.plots import GREY, SERIES, log_axis
from harness.report.simulate_plots import style
from harness.report.simulate_rows import DAY_S, Row, Rows, figure_of, groups

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_HARD_DRIVES = (1, 2, 4, 8)
_MOST_READS = 12
_TOKENS = tuple(1 << exponent for exponent in range(10, 21))
_MOST_USES = 4


def hard_drives(rows: Rows, profile: DeviceProfile | None) -> list[Figure]:
    """Figure 2: hard drives are worn by reads too, by the formula, at LRU's rate of writes."""
    written = [row for row in rows if row["label"] == "lru" and row["written_bytes"]]
    if not written or not written[0]["seconds"] or profile is None:
        return []
    if profile.tbw_bytes is None or profile.warranty_years is None:
        return []
    lru = written[0]
    a_day = lru["written_bytes"] / lru["seconds"] * DAY_S
    ssd = profile.tbw_bytes / a_day
    rated, years = profile.hdd_tb_per_year * 1e12, profile.warranty_years
    reads = [_MOST_READS * step / 100 for step in range(101)]

    def draw(axes: Axes) -> None:
        axes.axhline(ssd, color=SERIES[1], label="the SSD")
        for number, drives in enumerate(_HARD_DRIVES):
            lives = [hdd_days(drives * rated, years, a_day, read) for read in reads]
            look = style(number) | {"marker": "", "color": SERIES[0], "alpha": 1 - 0.2 * number}
            axes.plot(reads, lives, label=f"hard drives: {drives}", **look)
        axes.axvline(_reads_a_byte(lru), color=GREY, linestyle=":")
        axes.annotate("LRU", (_reads_a_byte(lru), 1), xycoords=("data", "axes fraction"),
                      xytext=(3, -10), textcoords="offset points")  # fmt: skip
        axes.set_yscale("log")
        axes.set_xlim(0, _MOST_READS)
        axes.set_xlabel("times that a written byte is read")
        axes.set_ylabel("life (days)")
        axes.legend(ncols=2)

    note = (
        f"By formula, {a_day / 1e12:.3g} TB written a day (LRU here). SSD: {profile.name},"
        f" WAF 1. A hard drive: {profile.hdd_tb_per_year:g} TB a year read or written. How many of"
        " them the paper sets against an SSD it does not say."
    )
    title = "Hard drives are worn by reads too (Figure 2)"
    return [figure_of("hard-drives", title, "days", rows, draw, note)]


def _reads_a_byte(row: Row) -> float:
    read = sum(row[f"{kind}_hits_ssd"] * row[f"{size}_bytes"]
               for kind, size in (("full", "chunk"), ("state", "state")))  # fmt: skip
    return float(read / row["written_bytes"])


def dram_shares(rows: Rows) -> list[Figure]:
    """Figure 5: DRAM for a live state over SSD for all full attention, by the formula."""
    models = [own[0] for own in groups(rows, ("model",)) if own[0]["state_bytes"]]
    if not models:
        return []

    def draw(axes: Axes) -> None:
        for number, row in enumerate(models):
            token = row["chunk_bytes"] / row["block_tokens"]
            shares = [100 * row["state_bytes"] / (token * tokens) for tokens in _TOKENS]
            axes.plot([tokens / 1024 for tokens in _TOKENS], shares, label=row["model"],
                      **style(number))  # fmt: skip
        axes.set_xscale("log")
        axes.set_yscale("log")
        log_axis(axes.yaxis, lambda share: f"{share:g}")
        axes.set_xticks([1, 4, 16, 64, 256, 1024], ["1", "4", "16", "64", "256", "1024"])
        axes.minorticks_off()
        axes.set_xlabel("length of a session (Ki tokens)")
        axes.set_ylabel("DRAM over SSD (%)")
        axes.legend()

    note = "By formula: one state a session in DRAM, all of its full attention on the SSD."
    title = "DRAM that states need (Figure 5)"
    of = f"sizes of {', '.join(row['model'] for row in models)}"
    return [figure_of("dram-share", title, "percent", models, draw, note, of)]


def reuse_of_states(rows: Rows, state_uses: Mapping[str, Sequence[int]]) -> list[Figure]:
    """Figure 6: how often states are asked for, by kind of checkpoint."""
    if not state_uses:
        return []
    names = [*map(str, range(_MOST_USES)), f"{_MOST_USES} or more"]

    def draw(axes: Axes) -> None:
        width = 0.8 / len(state_uses)
        for number, (kind, uses) in enumerate(state_uses.items()):
            capped = [min(int(use), _MOST_USES) for use in uses]
            shares = [100 * capped.count(use) / len(capped) for use in range(_MOST_USES + 1)]
            places = [at + (number - (len(state_uses) - 1) / 2) * width for at in range(len(names))]
            bars = axes.bar(places, shares, width, color=SERIES[number], label=kind)
            axes.bar_label(bars, fmt="%.1f", fontsize=8)
        axes.set_xticks(range(len(names)), names)
        axes.set_xlabel("requests that ask for the state after it was made")
        axes.set_ylabel("states (%)")
        if len(state_uses) > 1:
            axes.legend(title="checkpoints")

    note = f"In an endless cache; checkpoints {', '.join(state_uses)}."
    title = "States are asked for once or never (Figure 6)"
    of = rows[0]["trace"].split("@")[0]
    return [figure_of("state-uses", title, "percent", rows, draw, note, of)]
