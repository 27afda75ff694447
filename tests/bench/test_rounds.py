"""Rounds, budgets and the journal: what is sampled, when it stops, how it goes on."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from harness.bench.cells import Sample
from harness.bench.grid import Grid
from harness.bench.journal import Journal
from harness.bench.rounds import Budget, run_rounds
from harness.core.errors import UsageError

KEY = {"grid": {"name": "x"}, "device": ["m", "s", 1]}


class Fake:
    """A cell whose bandwidths are given."""

    facts: dict[str, Any] = {}  # noqa: RUF012

    def __init__(self, name: str, gbps: list[float], calls: list[str], pause_s: float = 0) -> None:
        self.id, self._gbps, self._calls, self._pause = name, iter(gbps), calls, pause_s

    def sample(self) -> Sample:
        self._calls.append(self.id)
        time.sleep(self._pause)
        return Sample(next(self._gbps), 1.0, None, 0.1, 100)


def grid(**changes: Any) -> Grid:
    return Grid(**{"name": "x", "repeats": 5, "max_repeats": 8, "settle": 0.1, **changes})


def steady(count: int = 20) -> list[float]:
    return [1.0] * count


def test_every_cell_once_a_round_in_an_order_that_the_seed_fixes() -> None:
    def order(seed: int) -> list[str]:
        calls: list[str] = []
        cells = [Fake(name, steady(), calls) for name in "abcdef"]
        run_rounds(cells, grid(seed=seed), 0, Journal(KEY), Budget.start(None))
        return calls

    calls = order(1)
    rounds = [calls[i : i + 6] for i in range(0, len(calls), 6)]
    assert len(rounds) == 5
    assert all(sorted(r) == list("abcdef") for r in rounds)
    assert len({tuple(r) for r in rounds}) > 1
    assert order(1) == calls != order(2)


def test_only_unsettled_cells_get_more_repeats() -> None:
    calls: list[str] = []
    cells = [Fake("steady", steady(), calls), Fake("wild", [1.0, 9.0] * 10, calls)]
    journal = Journal(KEY)
    run_rounds(cells, grid(), 0, journal, Budget.start(None))
    assert calls.count("steady") == 5
    assert calls.count("wild") == 8
    assert len(journal.of("wild")) == 8


def test_a_spent_budget_ends_after_whole_rounds_and_says_so() -> None:
    calls: list[str] = []
    cells = [Fake(name, steady(), calls, pause_s=0.05) for name in "ab"]
    budget = Budget.start(0.25)
    run_rounds(cells, grid(), 0, Journal(KEY), budget)
    assert budget.cut
    assert 2 <= len(calls) < 10
    assert calls.count("a") == calls.count("b")


def test_parts_share_a_budget_evenly_however_long_the_first_could_go_on() -> None:
    calls: list[str] = []
    budget = Budget.start(0.4)
    for parts_left, name in ((2, "a"), (1, "b")):
        budget.next_part(parts_left)
        cell = Fake(name, steady(), calls, pause_s=0.06)
        run_rounds([cell], grid(repeats=20), 0, Journal(KEY), budget)
    assert budget.cut
    assert calls.count("b") >= 2  # the first part would have taken all


def test_even_without_budget_every_cell_has_one_sample() -> None:
    calls: list[str] = []
    budget = Budget.start(1e-9)
    run_rounds([Fake("a", steady(), calls)], grid(), 0, Journal(KEY), budget)
    assert calls == ["a"] and budget.cut


def test_an_interrupted_run_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    calls: list[str] = []
    journal = Journal(KEY, path)
    broken = Fake("b", [1.0, 1.0], calls)  # its third sample raises
    with pytest.raises(StopIteration):
        run_rounds([Fake("a", steady(), calls), broken], grid(), 0, journal, Budget.start(None))
    journal.describe("a", {"pattern": "layout"})
    journal.close()
    taken = len(calls) - 1
    again: list[str] = []
    journal = Journal(KEY, path)
    cells = [Fake(name, steady(), again) for name in "ab"]
    run_rounds(cells, grid(), 0, journal, Budget.start(None))
    assert len(again) == 10 - taken
    assert len(journal.of("a")) == len(journal.of("b")) == 5
    assert journal.facts == {"a": {"pattern": "layout"}}
    journal.close()


def test_a_line_cut_off_by_a_crash_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    journal = Journal(KEY, path)
    sample = Sample(1.0, 1.0, {"p50": 2.0}, 0.1, 100)
    journal.add("a", 0, 0, sample)
    journal.add("a", 0, 1, sample)
    journal.close()
    path.write_text(path.read_text()[:-15])
    journal = Journal(KEY, path)
    assert list(journal.of("a")) == [(0, 0)]
    journal.add("a", 0, 1, sample)
    journal.close()
    assert list(Journal(KEY, path).of("a").values()) == [sample, sample]


def test_samples_of_another_grid_or_device_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    Journal(KEY, path).close()
    with pytest.raises(UsageError, match="another grid or device"):
        Journal({**KEY, "device": ["m", "other", 1]}, path)


@pytest.mark.parametrize("line", ["nonsense", json.dumps({"cell": "a"}), json.dumps([1])])
def test_a_line_that_is_no_sample_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "samples.jsonl"
    path.write_text(json.dumps({"key": KEY}) + "\n" + line + "\n")
    with pytest.raises(UsageError, match=r"samples\.jsonl:2: not a sample"):
        Journal(KEY, path)
