"""What a policy's misses and writes cost (Figure 14)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from harness.calibrate.constants import SEED_R_PREFILL_TOKENS_PER_S
from harness.core.profiles import DeviceProfile
from harness.report.model import Figure
from harness.report.plots import SERIES
from harness.report.simulate_rows import Row, Rows, a_row_each, by_label, figure_of, height_of_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def costs(
    rows: Rows, profile: DeviceProfile | None, gpu_usd_per_hour: float | None
) -> list[Figure]:
    """Each policy at its cheapest value; nothing without the prices of both GPU and drive."""
    if profile is None or profile.price_usd is None or profile.tbw_bytes is None:
        return []
    if gpu_usd_per_hour is None or any(row["missed_tokens"] is None for row in rows):
        return []
    gpu_usd = gpu_usd_per_hour / 3600 / SEED_R_PREFILL_TOKENS_PER_S
    ssd_usd = profile.price_usd / profile.tbw_bytes

    def parts(row: Row) -> tuple[float, float]:
        """Dollars for 1,000 requests: GPU, drive."""
        gpu, ssd = row["missed_tokens"] * gpu_usd, row["written_bytes"] * ssd_usd
        return 1000 * gpu / row["requests"], 1000 * ssd / row["requests"]

    cheapest = [min(own, key=lambda row: sum(parts(row))) for own in by_label(rows).values()]
    shown = [{**row, "label": _named(row)} for row in cheapest]

    def draw(axes: Axes) -> None:
        for at, row in enumerate(cheapest):
            gpu, ssd = parts(row)
            first = at == 0
            axes.barh(at, gpu, 0.6, color=SERIES[0], label="GPU, recomputing" if first else None)
            axes.barh(at, ssd, 0.6, left=gpu, color=SERIES[1],
                      label="drive, worn" if first else None)  # fmt: skip
        a_row_each(axes, shown)
        axes.set_xlabel("USD for 1,000 requests")

    note = (
        f"Each policy at its cheapest value, in brackets. {gpu_usd_per_hour:g} USD an hour of a GPU"
        f" that prefills {SEED_R_PREFILL_TOKENS_PER_S:,.0f} tokens/s; {profile.price_usd:g} USD for"
        f" {profile.tbw_bytes / 1e12:g} TB written, WAF 1. The paper gives no prices."
    )
    title, height = "Cost of a request (Figure 14)", height_of_rows(cheapest)
    return [figure_of("cost", title, "USD", rows, draw, note, height_in=height)]


def _named(row: Row) -> str:
    values = ", ".join(str(value) for value in json.loads(row["parameters"]).values())
    return f"{row['label']} ({values})" if values else str(row["label"])
