"""Sections print what the files hold, and survive whatever they do not hold."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest

from harness.report import Run, build, read_run
from harness.report.model import Section
from harness.report.page import page
from harness.report.run import FILES
from harness.report.values import dig
from harness.report.wear_plots import histogram, waf_windows
from tests.report.made_run import MADE_UP, make_run
from tests.report.odd import ODD, damaged, spots_of


def _exact(section: Section) -> dict[str, Any]:
    """Every number in the section's tables and key numbers that says where it comes from."""
    cells = [c for t in section.tables for row in t.rows for c in row]
    cells += [k.cell for k in section.keys]
    return {c.key: c.exact for c in cells if c.key and c.exact is not None}


def test_every_number_equals_its_json(made: Run) -> None:
    checked = 0
    for section in build(made):
        for key, value in _exact(section).items():
            file, _, path = key.partition(".")
            if file == "trace":
                continue
            assert dig(made.results[file], path) == value, key
            checked += 1
    assert checked > 50


def test_trace_figures_are_those_of_the_trace(made: Run) -> None:
    section = next(s for s in build(made) if s.name == "trace")
    found = _exact(section)
    assert found["trace.requests.read"] + found["trace.requests.write"] == 20_000
    assert section.verdicts[0].word == "LOSSLESS"
    assert {f.name for f in section.figures} == {
        "trace-sizes", "trace-rate", "trace-map-read", "trace-map-write", "trace-depth",
        "trace-latency",
    }  # fmt: skip


def test_every_figure_names_unit_and_device(made: Run) -> None:
    figures = [f for s in build(made) for f in s.figures]
    assert len(figures) == 16
    assert all(f.unit and f.device and f.device != "device not recorded" for f in figures)
    assert len({f.name for f in figures}) == len(figures)


def test_caveats_name_what_was_lost_late_skipped_or_stood_in_for(made: Run) -> None:
    notes = [n for s in build(made) for n in s.notes]
    assert MADE_UP in notes
    assert "skipped: bench-gds: no GPU" in notes
    assert "a loop device stood in for an NVMe drive" in notes
    assert "shorter than asked: three context lengths" in notes
    assert any(n.startswith("not measured: mooncake-219K: device too small") for n in notes)


ELSEWHERE = {"validate", "simulate"}
"""Sections of commands whose runs hold nothing else; the made run has none of them."""


@pytest.mark.parametrize("name", ["emit", "bench", "calibration"])
def test_a_missing_file_is_an_absent_section_with_the_reason(made: Run, name: str) -> None:
    results = {k: v for k, v in made.results.items() if k != name}
    record = {**made.record, "skipped": {name: "the cat was on it"}}
    sections = build(Run(made.path, record, results, (), made.trace_path))
    absent = [s.absent for s in sections if s.absent and s.name not in ELSEWHERE]
    assert absent == ["the cat was on it"]


def test_nothing_but_run_json_still_makes_a_page(tmp_path: Path) -> None:
    run = Run(tmp_path, {"command": "run"}, {}, (), None)
    sections = build(run)
    assert [s.name for s in sections if s.absent] == [
        "store", "trace", "replay", "wear", "layouts", "validate", "calibration", "simulate",
    ]  # fmt: skip
    assert "this run has no bench.json" in page(run, sections)


def test_a_file_that_is_no_json_is_named_and_left_out(tmp_path: Path) -> None:
    path = make_run(tmp_path)
    (path / "wear.json").write_text('{"waf": ')
    (path / "bench.json").write_text("[]")
    (path / "trace.parquet").write_bytes(b"PAR1 cut off")
    run = read_run(path, json.loads((path / "run.json").read_text()))
    assert [p.split(" ")[0] for p in run.problems] == ["wear.json", "bench.json", "trace.parquet"]
    html = page(run, build(run))
    assert "wear.json cannot be read" in html
    assert "bench.json is not a JSON object" in html


MADE = [n for n in FILES if n not in ("replay", "gds", "simulate", "validate")]
"""What the made run holds."""


@pytest.mark.parametrize("name", MADE)
def test_no_odd_value_anywhere_breaks_a_section(made: Run, name: str) -> None:
    chance = random.Random(name)
    spots = spots_of(made.results[name])
    for spot in chance.sample(spots, min(60, len(spots))):
        for value in chance.sample(ODD, 3):
            results = {name: damaged(made.results[name], spot, value)}
            build(Run(made.path, made.record, results, (), None))


@pytest.mark.parametrize("name", MADE)
def test_no_odd_value_breaks_the_figures(made: Run, name: str) -> None:
    from harness.report.plots import svg

    chance = random.Random(name)
    spots = spots_of(made.results[name])
    for spot in chance.sample(spots, min(5, len(spots))):
        results = {name: damaged(made.results[name], spot, chance.choice(ODD))}
        for section in build(Run(made.path, made.record, results, (), None)):
            for figure in section.figures:
                assert svg(figure).startswith("<svg")


def test_waf_windows_are_differences_of_the_snapshots() -> None:
    data = {"snapshots": [{"host_pages": 100, "gc_pages": 0}, {"host_pages": 200, "gc_pages": 50},
                          {"host_pages": 200, "gc_pages": 60}]}  # fmt: skip
    assert waf_windows(data) == [(100.0, 1.0, 1.0), (200.0, 1.5, 1.25)]
    data["windows"] = [{"host_pages": 100, "gc_pages": 100}, {"host_pages": 100, "gc_pages": 0}]
    assert waf_windows(data) == [(100.0, 2.0, 2.0), (200.0, 1.0, 1.5)]


def test_an_erase_histogram_is_drawn_only_if_it_is_whole() -> None:
    whole = {"edges": [0.5, 1.5, 2.5], "counts": [4, 3]}
    assert histogram({"erases": {"histogram": whole}}) == [(0.5, 1.5, 4), (1.5, 2.5, 3)]
    for odd in ({"edges": [0.5, 1.5]}, {"counts": [4, "x"]}, {"counts": None}):
        assert histogram({"erases": {"histogram": {**whole, **odd}}}) == []


def test_what_failed_in_a_run_is_said_on_top(made: Run) -> None:
    record = {**made.record, "failures": ["capture: LOSSY(7)"]}
    run = Run(made.path.with_name(made.name + ".partial"), record, made.results, (), None)
    assert run.name == made.name
    verdicts = [v for s in build(run) for v in s.verdicts if v.subject == "This run"]
    assert [(v.word, v.detail) for v in verdicts] == [("FAILED", "capture: LOSSY(7)")]


def test_lossy_wrong_and_unsteady_are_not_called_good(made: Run) -> None:
    results = copy.deepcopy(made.results)
    results["capture"].update(verdict="LOSSY", lost=7)
    results["replay-timed"]["fidelity"]["verdict"] = "WRONG"
    results["wear"]["waf"]["steady"] = None
    results["emit"]["verify_errors"] = 3
    sections = build(Run(made.path, made.record, results, (), None))
    levels = {v.subject: (v.word, v.level.value) for s in sections for v in s.verdicts}
    assert levels["Capture"] == ("LOSSY", "bad")
    assert levels["Replay, timed"] == ("WRONG", "bad")
    assert levels["WAF, full-size drive"] == ("NOT STEADY", "caution")
    assert levels["Payloads read back"] == ("WRONG", "bad")


def test_the_ladder_of_trust_has_a_verdict_and_a_row_a_comparison(made: Run) -> None:
    def ladder(*verdicts: tuple[int, str]) -> Section:
        rungs = [
            {"rung": rung, "compared": f"c{n}", "expected": {"a": 1}, "measured": 0.25 * n,
             "verdict": word, "note": "why" if word == "NOT RUN" else None}
            for n, (rung, word) in enumerate(verdicts)
        ]  # fmt: skip
        run = Run(made.path, made.record, {"validate": {"rungs": rungs}}, (), None)
        return next(s for s in build(run) if s.name == "validate")

    found = ladder((1, "AGREES"), (2, "DIFFERS"), (3, "NOT RUN"))
    (verdict,) = found.verdicts
    assert (verdict.word, verdict.level.value) == ("DIFFERS", "caution")  # rung 2 measures an error
    assert verdict.detail == "1 AGREES, 1 DIFFERS, 1 NOT RUN"
    assert found.notes == ("rung 3, c2: why",)
    assert [k.cell.exact for k in found.keys] == [1, 0.0, 0.25, 0.5]
    assert [row[2].text for row in found.tables[0].rows] == ["a: 1"] * 3
    assert ladder((3, "DIFFERS")).verdicts[0].level.value == "bad"
    assert ladder((1, "AGREES"), (3, "NOT RUN")).verdicts[0].word == "AGREES"
    assert ladder((1, "NOT RUN")).verdicts[0].level.value == "unknown"
