"""The page's section of simulated caches."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from harness.report.plots import svg
from harness.report.run import Run
from harness.report.sections import simulate


def answer(policy: str, miss: float, written: int, steady: bool) -> dict[str, Any]:
    """What ``harness simulate --json`` holds, as far as the section reads it."""
    row = {
        "policy": policy, "layout": "lmcache-raw-block", "drive": "1tb-0.3dwpd", "miss": miss,
        "device_bytes": written, "waf": 1.5, "waf_kind": "steady" if steady else "run",
        "required_dwpd": 2.0, "waf1_days": 90.0, "paper_days": 60.0 if steady else None,
        "load_mean_s": 0.7, "cost_usd": None,
    }  # fmt: skip
    return {
        "point": {"policy": policy, "parameters": {"alpha": 4}, "lanes": 20, "model": "kimi-k3",
                  "dram_bytes": 10**11, "ssd_bytes": 10**12, "checkpoint": "end",
                  "structure": "leaf"},
        "label": policy, "trace": "t", "miss": miss, "references": 1000, "stranded": 20,
        "written_bytes": {"full": written // 4, "state": 3 * written // 4},
        "hits": {"dram": {"full": 300, "state": 4}, "ssd": {"full": 100, "state": 1}},
        "load_s": {"mean": 0.7, "p99": 2.0}, "cost": None, "waf": 1.5,
        "constants": {"B_ssd": "measured", "B_pcie": "seed"}, "rows": [row],
        "absent": ["no price of a GPU was given"],
    }  # fmt: skip


def run_of(data: dict[str, Any]) -> Run:
    return Run(Path("x"), {}, {"simulate": data}, (), None)


TWO = {"answers": [answer("lru", 0.04, 4 * 10**12, True), answer("gandalf", 0.05, 10**12, False)]}


def test_policies_and_drives_are_compared() -> None:
    found = simulate.section(run_of(TWO))
    policies, drives = found.tables
    assert [row[0].text for row in policies.rows] == ["lru (alpha 4)", "gandalf (alpha 4)"]
    assert policies.rows[0][1].exact == 0.04
    assert [policies.rows[0][n].text for n in (2, 3, 4, 5)] == [
        "2.00\N{NO-BREAK SPACE}%", "25.0\N{NO-BREAK SPACE}%", "1.00\N{NO-BREAK SPACE}TB",
        "3.00\N{NO-BREAK SPACE}TB",
    ]  # fmt: skip
    assert [row[6].text for row in drives.rows] == ["steady", "run"]
    assert drives.rows[1][9].text == "–"
    assert {figure.name for figure in found.figures} == {"misses-writes", "lives"}
    assert all("<svg" in svg(figure) for figure in found.figures)
    assert "Constants: B_ssd: measured, B_pcie: seed." in found.notes
    assert found.keys == ()


def test_one_policy_has_its_numbers_on_top() -> None:
    found = simulate.section(run_of(TWO["answers"][0]))
    assert [(key.label, key.cell.exact) for key in found.keys] == [
        ("miss ratio", 0.04), ("WAF", 1.5), ("mean load", 0.7),
    ]  # fmt: skip
    assert found.figures == ()


def test_without_a_simulation_it_says_so() -> None:
    assert simulate.section(Run(Path("x"), {}, {}, (), None)).absent


@pytest.mark.parametrize("value", [None, "text", [], {}, -1, float("nan"), True])
def test_no_odd_value_breaks_it(value: Any) -> None:
    for place in (("answers", 0), ("answers", 0, "rows", 0)):
        for name in _at(TWO, place):
            data = copy.deepcopy(TWO)
            _at(data, place)[name] = value
            simulate.section(run_of(data))
    data = copy.deepcopy(TWO)
    for row in (data["answers"][0], data["answers"][0]["rows"][0]):
        row.update(dict.fromkeys(("miss", "written_bytes", "waf1_days", "paper_days"), value))
    for figure in simulate.section(run_of(data)).figures:
        svg(figure)


def _at(data: Any, place: tuple[str | int, ...]) -> dict[str, Any]:
    for part in place:
        data = data[part]
    found: dict[str, Any] = data
    return found
