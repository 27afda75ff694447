"""A run on a drive: what order, layout and streams do to WAF, and the figures beside it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from harness.core.errors import UsageError
from harness.core.profiles import DeviceProfile
from harness.endurance.arrange import as_commands
from harness.endurance.inputs import Batch
from harness.endurance.store_input import COMMAND_BYTES
from harness.endurance.wear import Options, wear
from harness.simulator.requestlog import SsdLog
from harness.simulator.sizes import ObjectSizes
from harness.simulator.wearing.events import LogReader
from harness.simulator.wearing.layout import Layout
from harness.simulator.wearing.result import WearOfRun, wear_row
from harness.simulator.wearing.wear import How, wear_of
from harness.stores.models import load_model
from tests.simulator.wearing.logs import (
    EVICT,
    FULL,
    MIB,
    SIZES,
    STATE,
    WRITE,
    churn,
    clock,
    rows,
    small_drive,
    small_layout,
)

NAMESPACE = 128 * MIB
HELD = 440
"""Chunks of 256 KiB: 110 MiB, 86 % of the namespace."""
REQUESTS = 2000
PLAIN = How()


def worn(
    log: SsdLog, layout: str, drive: DeviceProfile | None = None, how: How = PLAIN, **more: Any
) -> WearOfRun:
    sizes: ObjectSizes = more.pop("sizes", SIZES)
    requests = int(log["request"].max()) + 1
    made = clock(requests, 4, more.pop("turns", 1))
    profile = drive or small_drive(NAMESPACE)
    return wear_of(log, made, sizes, small_layout(layout), profile, how, **more)


def test_slots_evicted_in_order_are_written_in_order_and_at_random_are_not() -> None:
    fifo = worn(churn(REQUESTS, 4, HELD, "fifo"), "kvbm")
    lru = worn(churn(REQUESTS, 4, HELD, "random"), "kvbm")
    assert fifo.waf.run == pytest.approx(1.0, abs=0.01)
    assert fifo.waf.steady == pytest.approx(1.0, abs=0.01)
    assert lru.waf.run is not None
    assert lru.waf.run > 1.4
    assert fifo.object_bytes == lru.object_bytes
    assert fifo.objects.full == 4 * REQUESTS
    assert fifo.utilisation == HELD * (256 << 10) / NAMESPACE


def test_session_extents_evicted_by_the_session_cost_next_to_nothing() -> None:
    # Sessions of 16 chunks fill an extent of 4 MiB each; all of one go at once.
    log = churn(REQUESTS // 4, 16, HELD // 16 * 16, "session")
    requests = int(log["request"].max()) + 1
    found = wear_of(
        log, clock(requests, 16), SIZES, small_layout("session-contiguous"), small_drive(NAMESPACE)
    )
    assert found.waf.run == pytest.approx(1.0, abs=0.02)
    assert found.use is not None
    assert found.use.lost.full == 0
    assert found.use.overhead_bytes == 0


def test_buckets_lose_survivors_where_slots_pay_in_write_amplification() -> None:
    log = churn(REQUESTS, 4, HELD - 100, "random")
    buckets, slots = worn(log, "mooncake-bucket"), worn(log, "lmcache-raw-block")
    assert buckets.use is not None
    assert slots.use is not None
    assert buckets.waf.run is not None
    assert slots.waf.run is not None
    assert slots.use.lost.full == 0 < buckets.use.lost.full
    assert slots.waf.run > buckets.waf.run + 0.1


@dataclass
class Ops:
    """The op stream of a layout, as an input of ``harness.endurance``."""

    parts: list[Batch]
    kind: Any = "trace"
    name: str = "ops"
    endless: bool = False
    has_classes: bool = True
    class_names: list[str] = field(default_factory=lambda: ["full-attention"])
    labels: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    def batches(self) -> Any:
        yield from self.parts


def test_a_pass_costs_what_endurance_says_of_the_same_ops() -> None:
    log = churn(REQUESTS, 4, HELD, "random", seed=3)
    profile = small_drive(NAMESPACE)
    made = clock(REQUESTS, 4)
    nodes = made.first_request
    reader = LogReader(log, made.time_s, made.session[nodes], made.turn[nodes], SIZES)
    layout = Layout(small_layout("vllm-disk"), NAMESPACE, SIZES)
    parts = []
    for events in reader.one_pass():
        for ops in layout.ops(events):
            plain = Batch(
                ops["offset"].copy(), ops["length"].copy(), ops["op"].copy(),
                classes=ops["object_class"].copy(),
            )  # fmt: skip
            parts.append(as_commands(plain, ops["stream"].copy(), COMMAND_BYTES))
    expected = wear(Ops(parts), profile, Options(fills=2)).measured.total
    found = worn(log, "vllm-disk", profile)
    assert expected is not None
    assert found.waf.run == expected.waf
    assert found.op_bytes.total == expected.host_bytes == found.object_bytes.full


def hybrid_log(requests: int = REQUESTS) -> SsdLog:
    """A long-lived chunk and a short-lived state a request, each kind first in, first out."""
    entries = []
    for r in range(requests):
        if r >= 440:
            entries.append((r, EVICT, FULL, 4 * (r - 440), 1))
        if r >= 20:
            entries.append((r, EVICT, STATE, 4 * (r - 20), 1))
        entries += [(r, WRITE, FULL, 4 * r, 1), (r, WRITE, STATE, 4 * r, 1)]
    return rows(entries)


@pytest.mark.parametrize("streams", ["class", "placement"])
def test_streams_by_attention_type_lower_waf(streams: str) -> None:
    sizes = ObjectSizes(chunk_bytes=256 << 10, state_bytes=256 << 10, block_tokens=64)
    log = hybrid_log()
    geometry: dict[str, dict[str, Any]] = {"drive": {"line_bytes": MIB, "max_streams": 4}}
    mixed = worn(log, "kvbm", small_drive(NAMESPACE, **geometry), sizes=sizes)
    geometry["drive"]["streams"] = streams
    apart = worn(log, "kvbm", small_drive(NAMESPACE, **geometry), sizes=sizes)
    assert mixed.streams == "none"
    assert apart.streams == streams
    assert mixed.waf.run is not None
    assert apart.waf.run is not None
    assert apart.waf.run == pytest.approx(1.0, abs=0.03)
    assert mixed.waf.run > 1.2
    assert {row.object_class for row in apart.by_class} == {"full-attention", "fixed-state"}
    host = {row.object_class: row.host_bytes for row in apart.by_class}
    assert host["full-attention"] == pytest.approx(host["fixed-state"], rel=0.01)


def test_a_drive_with_placement_ids_that_is_given_none_mixes_all() -> None:
    sizes = ObjectSizes(chunk_bytes=256 << 10, state_bytes=256 << 10, block_tokens=64)
    geometry = {"line_bytes": MIB, "max_streams": 4, "streams": "placement"}
    drive = small_drive(NAMESPACE, drive=geometry)
    with_ids = worn(hybrid_log(), "kvbm", drive, sizes=sizes)
    without = worn(hybrid_log(), "kvbm", drive, How(placement="none"), sizes=sizes)
    assert with_ids.waf.run is not None
    assert without.waf.run is not None
    assert without.waf.run > with_ids.waf.run


def test_lifetimes_follow_from_bytes_clock_and_steady_waf() -> None:
    found = worn(churn(REQUESTS, 4, HELD, "fifo"), "kvbm")
    span_s = 20.0 * (REQUESTS - 1)
    rate = 4 * REQUESTS * (256 << 10) / span_s * 86400
    assert found.duration_s == span_s
    assert found.writes_per_day_bytes == pytest.approx(rate)
    tbw = 100 * NAMESPACE
    assert found.lifetimes.waf1_days == pytest.approx(tbw / rate)
    assert found.waf.steady is not None
    assert found.lifetimes.paper_days == pytest.approx(tbw / rate / found.waf.steady)
    assert found.required_dwpd == pytest.approx(rate / NAMESPACE)
    assert found.lifetimes.nand_days is None
    given = worn(churn(REQUESTS, 4, HELD, "fifo"), "kvbm", how=How(duration_s=span_s / 2))
    assert given.lifetimes.waf1_days == pytest.approx(tbw / rate / 2)
    assert given.rate_source == f"one pass over a given duration of {span_s / 2:.6g} s"
    fixed = worn(churn(REQUESTS, 4, HELD, "fifo"), "kvbm", how=How(writes_per_day=1e9))
    assert fixed.lifetimes.waf1_days == pytest.approx(tbw / 1e9)


def test_what_is_not_steady_has_no_lifetime_but_says_why() -> None:
    drive = small_drive(NAMESPACE, dwpd=1e-6)  # a rated life of less than a window
    found = worn(churn(200, 4, HELD, "fifo"), "kvbm", drive)
    assert found.waf.steady is None
    assert any("not steady" in reason for reason in found.absent)
    short = worn(churn(REQUESTS, 4, HELD, "random"), "kvbm", how=How(budget_s=1e-9))
    assert short.use is None
    assert short.waf.run is None
    assert short.lifetimes.paper_days is None
    assert any("not written once" in reason for reason in short.absent)


def test_a_short_log_is_repeated_with_fresh_keys_and_says_so() -> None:
    found = worn(churn(200, 4, HELD, "fifo"), "kvbm")  # 200 MiB: less than two namespaces
    assert found.passes > 3
    assert found.waf.steady == pytest.approx(1.0, abs=0.02)
    assert any("fresh keys" in note for note in found.notes)


def test_a_run_that_writes_nothing_has_no_waf_and_says_so() -> None:
    log = churn(4, 4, HELD, "fifo")[:0]
    found = wear_of(log, clock(4, 4), SIZES, small_layout("kvbm"), small_drive(), How())
    assert found.waf.run is found.waf.steady is found.lifetimes.paper_days is None
    assert found.op_bytes.total == 0
    assert "writes nothing" in found.absent[0]
    assert wear_row(found, "strict").waf_kind == "none"
    without_clock = wear_of(log, clock(1, 4), SIZES, small_layout("kvbm"), small_drive(), How())
    assert without_clock.duration_s is without_clock.rate_source is None


def test_a_tier_larger_than_the_drive_is_refused() -> None:
    log = churn(10, 4, HELD, "fifo")
    with pytest.raises(UsageError, match=r"SSD tier of .* larger than the namespace"):
        worn(log, "kvbm", how=How(tier_bytes=2 * NAMESPACE))
    with pytest.raises(UsageError, match="does not fit the namespace"):
        worn(log, "kvbm", how=How(store_bytes=2 * NAMESPACE))


def test_the_band_is_that_of_swapped_neighbours() -> None:
    found = worn(churn(REQUESTS, 4, HELD, "random"), "kvbm", how=How(perturb=2))
    assert found.band == "swapped neighbours"
    assert found.waf.low is not None
    assert found.waf.high is not None
    assert found.waf.low <= found.waf.high


def test_a_model_gives_the_layers_that_session_extents_are_ordered_by() -> None:
    model = load_model("llama-3.1-8b-tp8")
    sizes = ObjectSizes(model.chunk_bytes(16), 0, 16)
    log = churn(300, 16, 320, "session")
    made = clock(300, 16)
    spec = small_layout("session-contiguous").model_copy(update={"extent_tokens": 256})
    nodes = made.first_request
    reader = LogReader(log, made.time_s, made.session[nodes], made.turn[nodes], sizes)
    layout = Layout(spec, NAMESPACE, sizes, model=model)
    ops = np.concatenate([o.copy() for e in reader.one_pass() for o in layout.ops(e)])
    assert len(ops) == 300 * 32
    assert ops["layer"][:32].tolist() == list(range(32))
    with pytest.raises(UsageError, match="the run had"):
        Layout(spec, NAMESPACE, SIZES, model=model)


def test_the_result_is_plain_data_and_a_row_of_the_table() -> None:
    found = worn(churn(REQUESTS, 4, HELD, "fifo"), "lmcache-raw-block")
    again = WearOfRun.model_validate(json.loads(found.model_dump_json()))
    assert again == found
    row = wear_row(found, "lru", miss=0.04, cost_usd=1.5)
    assert (row.policy, row.layout, row.drive) == ("lru", "lmcache-raw-block", "small")
    assert row.written_full_bytes == 4 * REQUESTS * (256 << 10)
    assert row.device_bytes == found.op_bytes.total > row.written_full_bytes
    assert row.waf == found.waf.steady
    assert (row.waf_kind, row.miss, row.cost_usd) == ("steady", 0.04, 1.5)
    assert row.load_mean_s is None
