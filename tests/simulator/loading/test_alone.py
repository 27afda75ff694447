"""Closed forms: the published formula, its constants, costs, and what they are read from."""

from __future__ import annotations

import numpy as np
import pytest

from harness.core.errors import UsageError
from harness.simulator.loading.alone import load_s, prefetched_s
from harness.simulator.loading.cost import Prices, cost_per_thousand
from harness.simulator.loading.rates import seed_rates
from harness.simulator.loading.work import work_of
from harness.simulator.requestlog import REQUEST_DTYPE, StateFrom
from harness.simulator.sizes import ObjectSizes
from tests.simulator.loading.cases import GB, rates, work


def test_the_published_formula() -> None:
    """20 GB, half of it on the SSD, 60,000 tokens missed: 1 s + 0.4 s of hops, 1 s of prefill."""
    load = load_s(work((0, 10, 10, 60_000)), seed_rates(1))
    assert load.tolist() == pytest.approx([10 / 10 + 20 / 50])
    load = load_s(work((0, 10, 10, 600_000)), seed_rates(1))
    assert load.tolist() == pytest.approx([10.0])


def test_a_window_of_two_layers_overlaps_the_hops() -> None:
    """32 layers of 1/32 s and 1/320 s each: the reads, and the last layer's copy."""
    found = load_s(work((0, 1, 0, 0)), rates(1), layers=32)
    assert found.tolist() == pytest.approx([1 + 0.1 / 32])
    copies_longer = work((0, 1, 99, 0))
    assert load_s(copies_longer, rates(1), layers=32).tolist() == pytest.approx([1 / 32 + 10])


def test_direct_reads_skip_the_copy() -> None:
    one = work((0, 2, 10, 500))
    assert load_s(one, rates(1), "direct").tolist() == pytest.approx([2 + 1])
    assert load_s(one, rates(1), "staged").tolist() == pytest.approx([2 + 1.2])
    assert prefetched_s(one, rates(1), "direct").tolist() == pytest.approx([2 + 1])
    late = work((0, 2, 0, 5000))
    assert load_s(late, rates(1), "direct").tolist() == pytest.approx([5])
    assert prefetched_s(late, rates(1), "direct").tolist() == pytest.approx([2 + 5])


def test_cost_has_two_parts_and_waf_is_in_one() -> None:
    """1000 tokens are 1 s of a GPU at 3.6 $/h; 2 GB at WAF 1.5 and 1e-9 $/B are 3 $."""
    cost = cost_per_thousand(work((0, 0, 0, 1000)), rates(1), Prices(3.6, 1e-9))
    assert (cost.gpu_usd, cost.ssd_usd) == pytest.approx((1.0, 3000.0))
    assert cost.total_usd == pytest.approx(3001.0)
    with pytest.raises(UsageError, match="negative"):
        Prices(-1, 0)


def test_work_is_read_off_a_log() -> None:
    """Three hits of four chunks, one of them on the SSD and the state too."""
    log = np.zeros(2, REQUEST_DTYPE)
    log["time_s"], log["input_tokens"] = (0.0, 2.0), (70, 16)
    log[0]["chunks"], log[0]["hit"], log[0]["hit_ssd"] = 4, 3, 1
    log[0]["state_from"], log[0]["written_full"], log[0]["written_state"] = StateFrom.SSD, 2, 1
    found = work_of(log, ObjectSizes(chunk_bytes=100, state_bytes=1000, block_tokens=16))
    assert found.ssd_bytes.tolist() == [1100, 0]
    assert found.dram_bytes.tolist() == [200, 0]
    assert found.hit_tokens.tolist() == [48, 0]
    assert found.ssd_tokens.tolist() == [48, 0]
    assert found.missed_tokens.tolist() == [22, 16]
    assert found.written_bytes.tolist() == [1200, 0]
    assert found.rate == 0.5


def test_prefill_must_be_positive() -> None:
    with pytest.raises(UsageError, match="prefill must be more than 0"):
        seed_rates(1, prefill=0)
    assert seed_rates(1, prefill=5.0).sources["R_prefill"] == "given"
    assert seed_rates(1, waf=2.5).sources["WAF"] == "from this run's wear"
    assert seed_rates(3).ssd.tolist() == [10 * GB] * 3
