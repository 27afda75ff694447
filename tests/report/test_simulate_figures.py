"""The published simulator's figures from records: which are drawn, and what they show."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from harness.core.profiles import load_profile
from harness.report.plots import svg
from harness.report.simulate_figures import figures

DRIVE = load_profile("1tb-0.3dwpd").model_copy(
    update={"capacity_bytes": 10**12, "dwpd": 1.0, "warranty_years": 5.0, "price_usd": 200.0}
)
"""Rated for 1,825 TB."""
DAY = 86400.0


def row(label: str, knob: int, miss: float, written: int, **changes: Any) -> dict[str, Any]:
    """A record of a sweep over one day of 1,000 requests."""
    counts = {
        f"{kind}_{name}": value
        for kind in ("full", "state")
        for name, value in (("hits_dram", 300), ("hits_ssd", 100), ("written", 50),
                            ("first_written", 40), ("useful", 20), ("never_again", 10))
    }  # fmt: skip
    return {
        **counts, "trace": "t@1", "lanes": 2, "seed": 1, "checkpoint": "end",
        "on_ssd_hit": "stay", "replays": 1, "model": "m", "block_tokens": 64,
        "chunk_bytes": 10**6, "state_bytes": 10**8, "dram_bytes": 10**10, "ssd_bytes": 10**11,
        "policy": label, "label": label, "parameters": f'{{"k": {knob}}}', "structure": "free",
        "requests": 1000, "miss": miss, "written_bytes": written, "seconds": DAY,
        "missed_tokens": int(miss * 10**8), "load_mean_s": 1 - miss, "error": None, **changes,
    }  # fmt: skip


ROWS = [
    row("lru", 0, 0.1, 10 * 10**12), row("lru-k", 2, 0.2, 10**12),
    row("lru-k", 3, 0.9, 10**11), row("broken", 1, 0.0, 0, error="why"),
]  # fmt: skip
USES = {"t@1": {"end": [0, 0, 1, 1, 1, 1, 1, 1, 2, 9]}}


@pytest.fixture
def axes() -> Iterator[Axes]:
    yield Canvas().subplots()


def drawn(name: str, axes: Axes, **options: Any) -> str:
    """Draw the figure of a name; its note."""
    (found,) = [one for one in figures(ROWS, **options) if one.name.endswith(name)]
    found.draw(axes)
    assert "<svg" in svg(found)
    return found.note


def test_each_figure_needs_what_it_shows() -> None:
    def names(**options: Any) -> set[str]:
        return {one.name.split("-", 1)[1] for one in figures(ROWS, **options)}

    plain = names()
    assert {"frontier", "load", "dram-share"} <= plain
    assert names(profile=DRIVE) - plain == {"hard-drives"}
    assert names(profile=DRIVE, gpu_usd_per_hour=2) - plain == {"hard-drives", "cost"}
    unpriced = DRIVE.model_copy(update={"price_usd": None})
    assert "cost" not in names(profile=unpriced, gpu_usd_per_hour=2)
    assert names(state_uses=USES) - plain == {"state-uses"}
    assert names(state_uses={"other@2": USES["t@1"]}) == plain
    assert "load" not in {
        one.name[3:] for one in figures([{**one, "load_mean_s": None} for one in ROWS])
    }


def test_loads_are_set_against_lives(axes: Axes) -> None:
    note = drawn("-load", axes, profile=DRIVE)
    lines = {line.get_label(): line.get_xydata() for line in axes.lines}
    assert lines["lru"].tolist() == [[182.5, 0.9]]
    assert lines["lru-k"].tolist() == [[1825.0, 0.8], [18250.0, pytest.approx(0.1)]]
    assert "10 GB/s off the SSD" in note and "digits may not" in note
    assert "DRAM 9.31 GiB (100 states), SSD 93.1 GiB" in figures(ROWS)[0].device


def test_a_request_costs_its_gpu_time_and_its_share_of_the_drive(axes: Axes) -> None:
    """2.16 $ an hour is 1e-8 $ a token. LRU: 1e7 tokens and 10 TB of 1,825 at 200 $. The cheapest
    of LRU-K's is k = 2: 0.2 + 0.11 $, where k = 3 is 0.9 + 0.011 $."""
    note = drawn("-cost", axes, profile=DRIVE, gpu_usd_per_hour=2.16)
    widths = [bar.get_width() for bar in axes.patches]
    drive = 200 * 10 / 1825
    assert widths == pytest.approx([0.1, drive, 0.2, drive / 10])
    assert [label.get_text() for label in axes.get_yticklabels()] == ["lru (0)", "lru-k (2)"]
    assert "2.16 USD an hour" in note and "200 USD for 1825 TB" in note


def test_a_hard_drive_lives_longer_only_if_little_is_read(axes: Axes) -> None:
    """10 TB a day: the SSD lives 182.5 days; two hard drives of 550 TB a year and five years
    550 days over 1 + r. LRU read 10 GB of chunks and states off the SSD for 10 TB written."""
    drawn("-hard-drives", axes, profile=DRIVE)
    lines = {str(line.get_label()): line for line in axes.lines}
    assert lines["the SSD"].get_ydata()[0] == pytest.approx(182.5)
    reads, lives = (list(part) for part in zip(*lines["hard drives: 2"].get_xydata(), strict=True))
    assert lives[0] == pytest.approx(550)
    crossing = next(r for r, life in zip(reads, lives, strict=True) if life < 182.5)
    assert crossing == pytest.approx(550 / 182.5 - 1, abs=0.2)
    (seen,) = [line for line in axes.lines if line.get_linestyle() == ":"]
    assert seen.get_xdata()[0] == pytest.approx((100 * 1e6 + 100 * 1e8) / 10e12)


def test_longer_sessions_need_less_dram_a_byte_of_ssd(axes: Axes) -> None:
    """A state of 100 MB against chunks of 1 MB for 64 tokens: at 2,048 tokens 100 over 32."""
    drawn("-dram-share", axes)
    (line,) = axes.lines
    shares = dict(line.get_xydata().tolist())
    assert shares[2.0] == pytest.approx(100 * 100 / 32)
    assert all(math.isclose(shares[2 * x], shares[x] / 2) for x in (1.0, 16.0, 512.0))


def test_states_are_counted_by_how_often_they_are_asked_for(axes: Axes) -> None:
    drawn("-state-uses", axes, state_uses=USES)
    assert [bar.get_height() for bar in axes.patches] == [20, 60, 10, 0, 10]


def test_many_policies_have_room_and_their_legend_below(axes: Axes) -> None:
    many = [row(f"policy-{n}", n, 0.1, 10**12) for n in range(30)]
    by_name = {one.name[3:]: one for one in figures(many)}
    few = {one.name[3:]: one for one in figures(ROWS)}
    for name in ("frontier", "load", "tiers", "written", "useful"):
        assert by_name[name].height_in > few[name].height_in == 3.3, name
    by_name["frontier"].draw(axes)
    box = axes.get_legend().get_bbox_to_anchor().transformed(axes.transAxes.inverted())
    assert box.y1 < 0
