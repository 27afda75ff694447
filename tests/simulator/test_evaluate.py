"""A policy on a machine, whole: the parts agree, and what is missing is said."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.calibrate.export import export
from harness.calibrate.files import write
from harness.calibrate.reader import load
from harness.core.errors import UsageError
from harness.core.profiles import DeviceProfile
from harness.simulator.corpus import Corpus, load_corpus
from harness.simulator.evaluate import Answer, Machine, evaluate, rates_for
from harness.simulator.loading.options import LoadOptions
from harness.simulator.point import Point, trace_id
from harness.simulator.wearing.wear import How
from harness.stores.requests.form import Tag
from tests.calibrate.builders import run_folder, typical_bench, wear
from tests.simulator.cases import corpus_of, run
from tests.simulator.loading.cases import work

DRIVE = DeviceProfile(
    name="toy", nchs=4, luns_per_ch=4, pgs_per_blk=64, blks_per_pl=1024, capacity_bytes=3 << 30,
    dwpd=1, warranty_years=5, price_usd=100, policy="drive",
)  # fmt: skip


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Answer]:
    """200 requests of chats under LRU, in two layouts on a drive of 3 GiB."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        corpus = load_corpus("chat", limit=200, seed=0, note=lambda text: None)
    point = Point(
        trace=trace_id(corpus.name, corpus.content_hash), seed=0, model="llama-3.1-8b-tp8",
        block_tokens=corpus.block_tokens, policy="lru", structure="free",
        dram_bytes=500_000_000, ssd_bytes=2_000_000_000,
    )  # fmt: skip
    machine = Machine(
        constants="seed", profile=DRIVE, layouts=("lmcache-raw-block", "session-contiguous"),
        load=LoadOptions(scheduler="two-queues"), gpu_usd_per_hour=3.6,
        how=How(fills=1, budget_s=600.0),
    )  # fmt: skip
    yield evaluate(corpus, point, machine)


def test_the_parts_agree(answer: Answer) -> None:
    full = answer.hits["dram"]["full"] + answer.hits["ssd"]["full"]
    assert answer.miss == pytest.approx(1 - full / answer.references)
    assert answer.misses["chunk"] == answer.miss
    assert [row.layout for row in answer.rows] == ["lmcache-raw-block", "session-contiguous"]
    for row, worn in zip(answer.rows, answer.wear, strict=True):
        assert row.miss == answer.miss and row.drive == "toy"
        assert worn.object_bytes.full == answer.written_bytes["full"]
        assert row.waf is not None and row.waf >= 1
    assert answer.waf == answer.rows[0].waf
    assert answer.load_s["mean"] == answer.loads[0].load.ttft_s.mean
    assert answer.loads[0].load.requests == answer.requests == 200


def test_the_runs_own_waf_prices_its_writes(answer: Answer) -> None:
    """3.6 $ an hour: 0.001 $ a second of prefill; the drive's 100 $ over its rated writes."""
    assert answer.constants["WAF"] == "from this run's wear"
    cost = answer.cost
    assert cost is not None
    tbw = DRIVE.tbw_bytes
    assert tbw is not None and answer.waf is not None
    nand = sum(answer.written_bytes.values()) * answer.waf
    assert cost["ssd"] == pytest.approx(nand * 100 / tbw * 1000 / 200)
    assert cost["total"] == pytest.approx(cost["gpu"] + cost["ssd"])


def test_the_answer_is_json_with_the_promised_names(answer: Answer) -> None:
    data = json.loads(answer.model_dump_json())
    assert {"miss", "references", "stranded", "written_bytes", "hits", "waf", "lifetimes",
            "load_s", "cost", "constants"} <= set(data)  # fmt: skip
    assert set(data["written_bytes"]) == {"full", "state"}
    assert set(data["load_s"]) == {"mean", "p99"}
    assert np.isfinite(data["load_s"]["p99"])


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({}, "constants calibration need a calibration file"),
        ({"constants": "filled"}, "constants filled need a calibration file"),
        ({"constants": "seed", "layouts": ("kvbm",)}, "a layout has no wear without a drive"),
    ],
)
def test_a_machine_that_lacks_something(facts: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Machine(**facts)


def test_profile_without_layout_is_said() -> None:
    from harness.simulator.evaluate import _absent

    why = _absent(Machine(constants="seed", profile=DRIVE))
    assert why[0].startswith("no layout was given") and "no price of a GPU" in why[1]


def test_what_a_trace_does_not_let_a_policy_do_is_said() -> None:
    from harness.simulator.evaluate import _unmet

    plain = corpus_of([[1], [2]])
    tagged = replace(plain, tag=np.full(2, Tag.MAIN, np.uint8))

    def said(corpus: Corpus, policy: str, **parameters: Any) -> list[str]:
        return _unmet(corpus, run(corpus, policy=policy, parameters=parameters))

    (why,) = said(plain, "lachesis")
    assert why.startswith("listed does not say which requests are a subagent's: lachesis-like")
    (why,) = said(plain, "marconi", tune=True)
    assert why.startswith("marconi was not tuned")
    assert not (said(tagged, "lachesis") + said(plain, "lru") + said(plain, "marconi"))


def test_a_layout_that_was_not_measured_is_said(tmp_path: Path) -> None:
    """``filled`` takes the file's constant for it, and the source tells so."""
    write(tmp_path / "c.json", export([run_folder(tmp_path, bench=typical_bench(), wear=wear())]))
    machine = Machine(constants="filled", calibration=load(tmp_path / "c.json"))
    found = rates_for(work((0, 1, 1, 0)), machine, "kvbm", 1.2)
    assert found.sources["B_ssd"] == "measured: no restore of kvbm was measured"
    assert found.ssd.tolist() == pytest.approx([6.2e9])
