"""The paper's digits beside ours: the files of targets, the figures, the reading that fits."""

from __future__ import annotations

import math
from typing import Any

import pytest

from harness.core.errors import UsageError
from harness.simulator import reproduce as module
from harness.simulator.catalogue import defaults
from harness.simulator.outcome import Outcome
from harness.simulator.policies import policy_names
from harness.simulator.reproduce import (
    Paper,
    Target,
    figures_of,
    load_paper,
    point_of,
    reproduce,
)
from tests.simulator.cases import corpus_of, run

CORPUS = corpus_of([[1], [2], [3], [1]])


def paper(*targets: dict[str, Any]) -> Paper:
    return Paper(
        description="", model="qwen3.5-27b", block_tokens=64, dram="2GB", ssd="8GB",
        duration_s=86400.0, tbw_bytes=10.0, targets=tuple(Target(**t) for t in targets),
    )  # fmt: skip


def outcome(**options: Any) -> Outcome:
    return run(CORPUS, **options).outcome


@pytest.mark.parametrize("name", ["trace-a", "claude-code-062126"])
def test_the_targets_name_what_there_is(name: str) -> None:
    """Figures that are counted, policies that exist, choices that a point or a policy has."""
    found = load_paper(name)
    known = figures_of(outcome(dram_bytes=1, ssd_bytes=4), found)
    states = {key.replace("full_", "state_") for key in known if key.startswith("full_")}
    for target in found.targets:
        assert set(target.figures) <= {*known, *states, "full_hits_ssd_share"}, target.label
        assert target.policy in policy_names()
        for choices in target.readings():
            point_of(found, CORPUS, target, choices, seed=None)
        assert {k.removeprefix("parameters.") for k in target.choices
                if k.startswith("parameters.")} <= set(defaults(target.policy))  # fmt: skip


def test_figures_of_a_hand_checked_run() -> None:
    """A B C A on tiers of 2 and 2: one write, hit once; a write a day and 10 B rated: 10 days."""
    found = figures_of(outcome(), paper({"policy": "lru", "figures": {"miss": 1}}))
    assert found["miss"] == 0.75 and found["written_bytes"] == found["full_written"] == 1
    assert found["full_hits_ssd"] == found["full_hits_ssd_share"] == 1
    assert found["full_useful_share"] == 1 and found["full_never_share"] == 0
    assert found["days"] == 10
    assert "state_useful_share" not in found


def test_the_reading_nearest_to_the_paper_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    """``stay`` writes once and ``copy`` twice; the paper wrote 1.9."""
    written = {"stay": 1.0, "copy": 2.0}

    def played(corpus: object, point: Any) -> Any:
        assert (point.policy, point.model, point.dram_bytes) == ("lru", "qwen3.5-27b", 2 * 10**9)
        monkeypatch.setattr(
            module,
            "figures_of",
            lambda *_: {"written_bytes": written[point.on_ssd_hit], "miss": 0.5},
        )
        return run(CORPUS)

    monkeypatch.setattr(module, "simulate", played)
    target = {"policy": "lru", "figures": {"written_bytes": 1.9, "miss": 0.5},
              "choices": {"on_ssd_hit": ["stay", "copy"]}}  # fmt: skip
    stay, copy = reproduce(paper(target, {"policy": "lru-k", "figures": {"miss": 1}}), CORPUS,
                           only="lru")  # fmt: skip
    assert (stay.best, copy.best) == (False, True)
    assert stay.error == pytest.approx(abs(math.log(1 / 1.9)) / math.sqrt(2))
    assert copy.ours == {"written_bytes": 2.0, "miss": 0.5}


def test_a_choice_that_names_nothing_is_an_error() -> None:
    target = Target(policy="lru", figures={"miss": 1})
    with pytest.raises(UsageError, match="lru: tier: unknown key"):
        point_of(
            paper({"policy": "lru", "figures": {"miss": 1}}), CORPUS, target, {"tier": 1}, None
        )
