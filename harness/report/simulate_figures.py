"""The published simulator's figures, from the records of a sweep of ours.

Each caption says what trace and tiers it is of, and what must not be compared with the paper's
digits: those are of traces that are not published.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from harness.core.profiles import DeviceProfile
from harness.report import simulate_costs, simulate_premises
from harness.report.model import Figure
from harness.report.plots import MARKERS, SERIES
from harness.report.simulate_plots import TB, plain_log_ticks, style
from harness.report.simulate_rows import (
    DAY_S,
    PUBLISHED_RATES,
    Row,
    Rows,
    a_row_each,
    best_of,
    by_label,
    figure_of,
    groups,
    height_of_curves,
    height_of_rows,
    legend,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_CACHE = ("trace", "lanes", "seed", "checkpoint", "on_ssd_hit", "replays")
_TIERS = ("dram_bytes", "ssd_bytes")


def figures(
    rows: Iterable[Row],
    profile: DeviceProfile | None = None,
    gpu_usd_per_hour: float | None = None,
    state_uses: Mapping[str, Mapping[str, Sequence[int]]] | None = None,
) -> list[Figure]:
    """All figures that the records allow; a point that could not be played is left out.

    Parameters
    ----------
    profile
        The drive, for lifetimes in place of bytes written, and for what needs its rating or price.
    gpu_usd_per_hour
        Price of a GPU at the published prefill rate; with the drive's it gives the cost.
    state_uses
        How often each state is asked for, by the trace's id and the kind of checkpoint.
    """
    tbw_bytes = profile.tbw_bytes if profile else None
    played = [row for row in rows if row.get("error") is None]
    found: list[Figure] = []
    for group in groups(played, (*_CACHE, "model", *_TIERS)):
        found += [
            *_against_wear(group, tbw_bytes),
            *_hits_by_tier(group),
            *_written_by_class(group),
            *_useful(group),
            *_candidates(group),
            *simulate_costs.costs(group, profile, gpu_usd_per_hour),
            *simulate_premises.hard_drives(group, profile),
        ]
    for group in groups(played, (*_CACHE, "model", "policy", "parameters")):
        found += _tier_ratio(group)
    for group in groups(played, (*_CACHE, *_TIERS)):
        found += _models(group)
    for group in groups(played, ("trace", "block_tokens")):
        found += simulate_premises.dram_shares(group)
        found += simulate_premises.reuse_of_states(
            group, (state_uses or {}).get(group[0]["trace"], {})
        )
    return [replace(one, name=f"{number:02}-{one.name}") for number, one in enumerate(found, 1)]


def _against_wear(rows: Rows, tbw_bytes: float | None) -> list[Figure]:
    """Figures 3, 7 and 13: every point of every policy, its misses and its loads."""
    if len(by_label(rows)) < 2:
        return []
    days = tbw_bytes is not None and all(row["seconds"] for row in rows)
    curves = len(by_label(rows))

    def worn(row: Row) -> float | None:
        if not days or tbw_bytes is None:
            return float(row["written_bytes"]) / TB
        written = row["written_bytes"] / row["seconds"] * DAY_S
        return tbw_bytes / written if written else None

    def drawn(value: str, label_y: str) -> Callable[[Axes], None]:
        def draw(axes: Axes) -> None:
            for number, (label, own) in enumerate(by_label(rows).items()):
                points = sorted((x, row[value]) for row in own if (x := worn(row)) is not None)
                axes.plot([x for x, _ in points], [y for _, y in points], label=label,
                          **style(number))  # fmt: skip
            if days:
                axes.set_xscale("log")
                plain_log_ticks(axes)
            axes.set_xlabel("life at WAF 1 (days)" if days else "written to the SSD (TB)")
            axes.set_ylabel(label_y)
            legend(axes, curves)

        return draw

    knob = "Each line is one policy over all values of its knob."
    found = [
        figure_of(
            "frontier", "Misses against wear (Figures 3 and 7)", "miss ratio, days or TB", rows,
            drawn("miss", "miss ratio"), knob, height_in=height_of_curves(curves),
        )
    ]  # fmt: skip
    if all(row["load_mean_s"] is not None for row in rows):
        found.append(
            figure_of(
                "load", "Load latency against wear (Figure 13)", "seconds, days or TB", rows,
                drawn("load_mean_s", "mean load of a request (s)"),
                f"{knob} Each request alone on the machine: {PUBLISHED_RATES}",
                height_in=height_of_curves(curves),
            )
        )  # fmt: skip
    return found


def _hits_by_tier(rows: Rows) -> list[Figure]:
    """Figure 10: where hits come from, for each policy's point of fewest misses."""
    best = best_of(rows)

    def draw(axes: Axes) -> None:
        for side, kind in enumerate(("full", "state")):
            for at, row in enumerate(best):
                dram, ssd = row[f"{kind}_hits_dram"], row[f"{kind}_hits_ssd"]
                share = 100 * ssd / (dram + ssd) if dram + ssd else 0.0
                axes.barh(at + 0.4 * side - 0.2, share, 0.36, color=SERIES[side],
                          label=("chunks", "states")[side] if at == 0 else None)  # fmt: skip
        a_row_each(axes, best)
        axes.set_xlim(0, 100)
        axes.set_xlabel("share of the hits that come from the SSD (%)")

    return [
        figure_of("tiers", "Which tier serves hits (Figure 10)", "percent", rows, draw,
                "Each policy at its value of fewest misses.", height_in=height_of_rows(best))
    ]  # fmt: skip


def _written_by_class(rows: Rows) -> list[Figure]:
    """Figure 12: bytes by class, first writes and again."""
    best = best_of(rows)

    def draw(axes: Axes) -> None:
        for at, row in enumerate(best):
            left = 0.0
            for side, kind in enumerate(("full", "state")):
                size = row["chunk_bytes" if kind == "full" else "state_bytes"] / TB
                for part, shade in (("first", 1.0), ("again", 0.45)):
                    first = row[f"{kind}_first_written"]
                    count = first if part == "first" else row[f"{kind}_written"] - first
                    name = f"{('chunks', 'states')[side]}, {part}"
                    axes.barh(at, count * size, 0.6, left=left, color=SERIES[side], alpha=shade,
                              label=name if at == 0 else None)  # fmt: skip
                    left += count * size
        a_row_each(axes, best)
        axes.set_xlabel("written to the SSD (TB)")

    return [
        figure_of("written", "What is written, by kind (Figure 12)", "TB", rows, draw,
                "Each policy at its value of fewest misses.", height_in=height_of_rows(best))
    ]  # fmt: skip


def _useful(rows: Rows) -> list[Figure]:
    """Figure 11's totals: shares of the writes that were hit, or asked for never again."""
    best = [row for row in best_of(rows) if row["full_written"] or row["state_written"]]
    if not best:
        return []

    def draw(axes: Axes) -> None:
        for number, (kind, what) in enumerate(
            (kind, what) for kind in ("full", "state") for what in ("useful", "never_again")
        ):
            shares = [
                100 * row[f"{kind}_{what}"] / row[f"{kind}_written"] if row[f"{kind}_written"]
                else float("nan") for row in best
            ]  # fmt: skip
            name = f"{'chunks' if kind == 'full' else 'states'}, {what.replace('_', ' ')}"
            axes.plot(shares, range(len(best)), linestyle="none", label=name,
                      marker=MARKERS[number], color=SERIES[number])  # fmt: skip
        a_row_each(axes, best)
        axes.set_xlim(0, 100)
        axes.set_xlabel("share of what was written (%)")

    return [
        figure_of("useful", "What writes were good for (Figure 11)", "percent", rows, draw,
                "Useful: hit on the SSD before it left; never again: in no later request.",
                height_in=height_of_rows(best))
    ]  # fmt: skip


def _candidates(rows: Rows) -> list[Figure]:
    """Section 5.8: how many candidates are looked at."""
    own = [(json.loads(row["parameters"]).get("candidates"), row["miss"]) for row in rows]
    points = sorted((number, miss) for number, miss in own if number)
    if len({number for number, _ in points}) < 2:
        return []

    def draw(axes: Axes) -> None:
        axes.plot([n for n, _ in points], [m for _, m in points], **style(0))
        axes.set_xscale("log", base=2)
        axes.set_xlabel("candidates")
        axes.set_ylabel("miss ratio")

    return [figure_of("candidates", "More candidates (section 5.8)", "miss ratio", rows, draw, "")]


def _tier_ratio(rows: Rows) -> list[Figure]:
    """Figure 8: the same capacity in all, more or less of it DRAM."""
    found = []
    for group in groups([{**r, "total": r["dram_bytes"] + r["ssd_bytes"]} for r in rows],
                         ("total",)):  # fmt: skip
        if len({row["dram_bytes"] for row in group}) < 3:
            continue
        points = sorted((100 * r["dram_bytes"] / r["total"], r["miss"]) for r in group)

        def draw(axes: Axes, points: list[tuple[float, float]] = points) -> None:
            axes.plot([x for x, _ in points], [y for _, y in points], **style(0))
            axes.set_xlabel("DRAM's share of the capacity (%)")
            axes.set_ylabel("miss ratio")

        title = f"{group[0]['label']}: DRAM against SSD (Figure 8)"
        found.append(figure_of("ratio", title, "miss ratio, percent", group, draw, ""))
    return found


def _models(rows: Rows) -> list[Figure]:
    """Figure 9: the gain over LRU by the size of a state against a chunk."""
    by_model = groups(rows, ("model",))
    if len(by_model) < 2:
        return []
    series: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for group in by_model:
        best = {row["label"]: row["written_bytes"] for row in best_of(group)}
        base = best.get("lru")
        ratio = group[0]["state_bytes"] / group[0]["chunk_bytes"]
        for label, written in best.items():
            if base and written:
                series[label].append((ratio, base / written))

    def draw(axes: Axes) -> None:
        for number, (label, points) in enumerate(sorted(series.items())):
            points.sort()
            axes.plot([x for x, _ in points], [y for _, y in points], label=label, **style(number))
        axes.set_xlabel("bytes of a state over bytes of a chunk")
        axes.set_ylabel("LRU's writes over its own")
        legend(axes, len(series))

    return [
        figure_of("models", "Gain in writes by model (Figure 9)", "ratio", rows, draw,
                "The ratio of state to chunk falls with the block: 64 tokens are a quarter of 16.",
                height_in=height_of_curves(len(series)))
    ]  # fmt: skip
