"""The wear section of a sweep, and of a measurement under several policies."""

from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import Any

import pytest

from harness.report import Run
from harness.report.model import Section, Table
from harness.report.plots import svg
from harness.report.sections import wear
from tests.report.odd import ODD, damaged, spots_of


def point(policy: str, spare: float, waf: float, steady: bool) -> dict[str, Any]:
    return {
        "point": {"policy": policy, "over_provisioning": spare, "namespace_bytes": 8 << 30},
        "profile": {"name": "1tb-0.3dwpd"}, "policy": policy, "stopped": "steady",
        "precondition": "2 sequential fills", "namespace_pages": 100, "mapped_pages": 100,
        "namespace_writes": 7.0, "chunk_per_line": 0.25,
        "waf": {"steady": waf if steady else None, "cumulative": waf},
        "lifetimes": {"paper_days": 100.0 / waf if steady else None},
    }  # fmt: skip


POINTS = [
    point("drive", 0.1, 1.5, True), point("drive", 0.28, 1.1, True),
    point("femu-late", 0.1, 4.0, True), point("femu-late", 0.28, 2.0, False),
]  # fmt: skip
FAILED = {"point": {**POINTS[0]["point"], "over_provisioning": 0.01}, "error": "it ran out"}


def wear_section(data: Any) -> Section:
    run = Run(Path("made"), {}, {"wear": data}, (), None)
    return wear.section(run)


def sweep(*more: Any) -> dict[str, Any]:
    return {"grid": {"store": "lmcache-raw-block"}, "points": [*copy.deepcopy(POINTS), *more]}


def cells(table: Table, title: str) -> list[str]:
    at = [column.label for column in table.columns].index(title)
    return [row[at].text for row in table.rows]


def test_a_sweep_is_one_table_and_one_plot() -> None:
    found = wear_section(sweep())
    (table,) = found.tables
    assert cells(table, "policy") == ["drive", "drive", "femu-late", "femu-late"]
    assert cells(table, "over provisioning") == ["0.1", "0.28", "0.1", "0.28"]
    assert cells(table, "WAF, steady") == ["1.50", "1.10", "4.00", "–"]
    assert "namespace_bytes" not in [column.label for column in table.columns]
    assert table.note.startswith("1tb-0.3dwpd, namespace 8 GiB, 2 sequential fills")
    (figure,) = found.figures
    drawn = svg(figure)
    assert "over-provisioning (flash / namespace - 1)" in drawn
    assert "policy femu-late" in drawn
    assert [(v.word, v.level.value) for v in found.verdicts] == [("NOT ALL STEADY", "caution")]
    lowest, highest = found.keys
    assert (lowest.cell.exact, highest.cell.exact) == (1.1, 4.0)
    assert highest.tile == "WAF, highest: policy femu-late, over_provisioning 0.1"


def test_points_that_failed_are_said() -> None:
    found = wear_section(sweep(FAILED))
    assert ("INCOMPLETE", "bad") in [(v.word, v.level.value) for v in found.verdicts]
    assert cells(found.tables[0], "ended by")[-1] == "it ran out"
    only = wear_section({"grid": {"store": "s"}, "points": [FAILED]})
    assert not only.figures
    assert not only.keys


def test_policies_are_compared_with_their_spread(made: Run) -> None:
    drive = copy.deepcopy(made.results["wear"])
    late = copy.deepcopy(drive)
    late.update(policy="femu-late", thresholds={"gc_thres_pcent": 98, "gc_thres_pcent_high": 99})
    late["waf"] = {"first": 2.0, "cumulative": 4.8086, "steady": 5.2062}
    late["lifetimes"]["paper_days"] = drive["lifetimes"]["paper_days"] / 2
    late["lifetimes"]["waf1_days"] = None
    tables = {t.title: t for t in wear_section({**drive, "points": [drive, late]}).tables}
    compared = tables["Policies compared"]
    assert cells(compared, "policy") == ["drive (greedy, streams none)", "femu-late (98/99)"]
    assert cells(compared, "profile") == ["1tb-0.3dwpd", "1tb-0.3dwpd"]
    assert all("2 sequential fills" in text for text in cells(compared, "fill state"))
    assert compared.note == "The cumulative WAF differs by a factor of 2.00."
    lives = tables["Lifetime by policy"]
    assert cells(lives, "longest / shortest")[:2] == ["2.00", "–"]
    assert cells(lives, "femu-late (98/99)")[1] == "–"


def test_a_single_policy_is_not_compared(made: Run) -> None:
    titles = [t.title for t in wear_section(made.results["wear"]).tables]
    assert "Policies compared" not in titles


@pytest.mark.parametrize("seed", range(4))
def test_no_odd_value_breaks_the_section(made: Run, seed: int) -> None:
    chance = random.Random(seed)
    one = made.results["wear"]
    for data in (sweep(FAILED), {**one, "points": [copy.deepcopy(one), copy.deepcopy(one)]}):
        for spot in chance.sample(spots_of(data), 40):
            found = wear_section(damaged(data, spot, chance.choice(ODD)))
            if chance.random() < 0.1:
                for figure in (f for f in found.figures if f.name == "wear-sweep"):
                    assert svg(figure).startswith("<svg")
