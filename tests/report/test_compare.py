"""Two runs side by side: what changed, by how much, and whether that means anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.report import Run, build, compare, open_run
from harness.report.compare import change, circumstances, number_table
from harness.report.facts import changes, facts
from harness.report.model import Better, Cell, KeyNumber
from tests.report.made_run import make_run


def _key(value: float | None, better: Better, *bounds: float) -> KeyNumber:
    low, high = bounds or (None, None)
    return KeyNumber("x", Cell(str(value), value), better=better, low=low, high=high)


@pytest.mark.parametrize(
    ("a", "b", "ratio", "judgement"),
    [
        (_key(2, Better.LOWER), _key(3, Better.LOWER), 1.5, "worse"),
        (_key(2, Better.HIGHER), _key(3, Better.HIGHER), 1.5, "better"),
        (_key(2, Better.NEITHER), _key(3, Better.NEITHER), 1.5, "different"),
        (_key(2, Better.LOWER), _key(2, Better.LOWER), 1.0, "equal"),
        (_key(2, Better.LOWER, 1.8, 2.6), _key(3, Better.LOWER, 2.5, 3.2), 1.5, "within noise"),
        (_key(2, Better.LOWER, 1.8, 2.2), _key(3, Better.LOWER, 2.5, 3.2), 1.5, "worse"),
        (_key(0, Better.LOWER), _key(3, Better.LOWER), None, "worse"),
        (_key(None, Better.LOWER), _key(3, Better.LOWER), None, "–"),
    ],
)
def test_a_change_is_judged_by_direction_and_interval(
    a: KeyNumber, b: KeyNumber, ratio: float | None, judgement: str
) -> None:
    found, word = change(a, b)
    assert found.exact == ratio
    assert word.text == judgement


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return open_run(make_run(tmp_path_factory.mktemp("other"), "other", seed=2, scale=1.1))


def test_numbers_of_one_run_alone_are_named_as_such(made: Run, other: Run) -> None:
    fewer = {k: v for k, v in other.results.items() if k != "bench"}
    stripped = Run(other.path, other.record, fewer, (), other.trace_path)
    table = number_table(build(made), build(stripped))
    alone = [row[0].text for row in table.rows if row[-1].text == "only in one run"]
    assert len(alone) == 9
    assert all("contiguous" in name or "raw-block" in name for name in alone)


def test_what_else_differs_is_listed(made: Run, other: Run) -> None:
    rows = {row[0].text: (row[1].text, row[2].text) for row in circumstances(made, other).rows}
    assert rows["setting seed"] == ("1", "2")
    assert set(rows) == {"setting seed", "commit"}


def test_json_holds_the_same_changes_as_the_table(made: Run, other: Run) -> None:
    found = {n["label"]: n for n in changes(build(made), build(other))["numbers"]}
    lag = found["Replay timed: p99 lag"]
    assert lag["ratio"] == pytest.approx(1.1)
    assert lag["judgement"] == "worse"
    assert found["WAF steady, full-size drive"]["judgement"] == "within noise"
    assert found["Requests captured"]["judgement"] == "equal"
    table = number_table(build(made), build(other))
    assert {row[0].text for row in table.rows} == set(found)


def test_facts_carry_every_verdict(made: Run) -> None:
    found = facts(build(made))
    words = {v["subject"]: v["verdict"] for v in found["verdicts"]}
    assert words["Capture"] == "LOSSLESS"
    assert words["Replay, timed"] == "FAITHFUL"
    numbers = {n["key"]: n["value"] for n in found["numbers"]}
    assert numbers["wear.waf.steady"] == 2.6031


def test_the_page_shows_both_runs(made: Run, other: Run, tmp_path: Path) -> None:
    target = compare(made.path, other.path, tmp_path / "c.html")
    html = target.read_text()
    assert made.name in html
    assert other.name in html
    assert html.count('id="trace-map-write-a"') == html.count('id="trace-map-write-b"') == 1
