"""The whole measurement on small drives: what it says, and what it refuses to say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.core.errors import UsageError
from harness.core.ops import Op
from harness.core.profiles import DeviceProfile
from harness.endurance.arrange import Looped, Tiled
from harness.endurance.inputs import Batch, Input, OpListInput, TraceInput
from harness.endurance.result import to_json
from harness.endurance.wear import Options, wear
from harness.trace.parquet import TraceWriter
from harness.trace.schema import TraceMeta
from tests.endurance.inputs import MIB, RandomWrites, Rows, oplist_file, small_drive, writes

NAMESPACE = 64 * MIB


def result(source: Input, profile: DeviceProfile | None = None, **options: Any) -> dict[str, Any]:
    return to_json(wear(source, profile or small_drive(), Options(**options)))


def test_random_writes_become_steady_and_live_as_long_as_theory_says() -> None:
    found = result(RandomWrites(NAMESPACE))
    waf = found["waf"]
    assert found["stopped"] == "steady"
    assert 5 <= len(found["windows"]) < 60
    assert waf["steady"] == pytest.approx(
        sum(w["waf"] for w in found["windows"][-5:]) / 5, rel=1e-6
    )
    assert waf["first"] < waf["steady"]
    # 4096 pages a second of the input's clock.
    rate = 4096 * 4096 * 86400
    assert found["writes_per_day_bytes"] == pytest.approx(rate, rel=1e-3)
    assert found["rate_source"] == "clock of the requests random"
    assert found["required_dwpd"] == pytest.approx(rate / NAMESPACE, rel=1e-3)
    lives = found["lifetimes"]
    assert lives["waf1_days"] == pytest.approx(100 * NAMESPACE / rate, rel=1e-3)
    assert lives["paper_days"] == pytest.approx(lives["waf1_days"] / waf["steady"], rel=1e-6)
    assert lives["nand_days"] is None
    assert found["bytes_per_new_token"] == pytest.approx(4096 * 4096 / 10, rel=0.02)
    assert [note.split(",")[0] for note in found["notes"]] == [
        "no nand_days: the profile has no pe_cycles"
    ]


def test_counters_count_from_the_end_of_the_fill() -> None:
    found = result(Rows([writes(np.arange(100) * 4096, 4096)]))
    assert found["precondition"] == "2 sequential fills"
    assert found["counted_from"] == "the end of the fill"
    assert found["snapshots"][-1]["ops_done"] == 100
    assert found["host_bytes"] == 100 * 4096
    assert found["mapped_pages"] == NAMESPACE // 4096
    assert found["over_provisioning"] == pytest.approx(71 / 64 - 1)


def test_an_empty_drive_says_so() -> None:
    source = Rows([writes(np.arange(0, NAMESPACE, MIB), MIB)])
    found = result(source, fills=0)
    assert found["precondition"] == "none: the drive was empty"
    assert "the drive was empty at the start: a used one gives a higher WAF" in found["notes"]


def test_what_is_not_steady_gets_no_lifetime_with_waf() -> None:
    source = Rows([writes(np.arange(0, NAMESPACE, MIB), MIB)])
    found = result(source, writes_per_day=(1e9, 2e9))
    assert found["waf"]["steady"] is None
    assert found["waf"]["cumulative"] == 1.0
    assert found["lifetimes"]["paper_days"] is None
    assert found["lifetimes"]["waf1_days"] == pytest.approx(100 * NAMESPACE / 1e9)
    assert found["rate_source"] == "given (--writes-per-day)"
    assert [rate["writes_per_day_bytes"] for rate in found["rates"]] == [2e9]
    assert any(note.startswith("not steady after 1 windows") for note in found["notes"])


def test_without_a_rate_there_are_no_days() -> None:
    source = Looped(Rows([writes(np.arange(0, NAMESPACE, MIB), MIB)]), None)
    found = result(source)
    assert found["waf"]["steady"] == 1.0
    assert set(found["lifetimes"].values()) == {None}
    assert found["rate_source"] is None
    assert found["required_dwpd"] is None
    # What the drive could take: its life over its warranty.
    assert found["affordable_bytes_per_day"] == pytest.approx(0.2 * NAMESPACE)


def test_each_repeat_is_a_snapshot_and_a_loop_is_labelled() -> None:
    part = Rows([writes(np.arange(0, NAMESPACE // 4, MIB), MIB)])
    found = result(Looped(part, 3))
    repeats = [s for s in found["snapshots"] if s["event"] == "repeat"]
    assert [s["ops_done"] for s in repeats] == [16, 32, 48]
    assert found["repeats"] == 3
    assert "the trace was repeated: artificial seam at each end" in found["notes"]


def test_the_whole_life_is_written_and_no_more() -> None:
    found = result(RandomWrites(NAMESPACE, size=65536, rows=64), whole_life=True)
    assert found["host_bytes"] == pytest.approx(100 * NAMESPACE, rel=0.001)
    assert found["stopped"] == "all that was asked for is written"
    assert len(found["windows"]) == 100
    with pytest.raises(UsageError, match="a whole life needs capacity_bytes, dwpd and"):
        result(RandomWrites(NAMESPACE), small_drive(dwpd=None), whole_life=True)


def test_a_budget_stops_it_and_says_so() -> None:
    found = result(RandomWrites(NAMESPACE, rows=16), budget_s=0.3)
    assert found["stopped"] == "the time budget is spent"
    assert found["waf"]["steady"] is None
    assert found["seconds"] < 5


def test_perturbed_orders_give_a_band() -> None:
    found = result(RandomWrites(NAMESPACE), perturb=2)
    waf = found["waf"]
    assert (waf["band"], waf["band_asked"], waf["band_done"]) == ("swapped neighbours", 2, 2)
    assert waf["low"] <= waf["steady"] <= waf["high"]
    assert 1 < waf["high"] / waf["low"] < 1.05


def test_tile_phases_give_a_band() -> None:
    trace = Rows([writes(np.tile(np.arange(0, 6 * MIB, 65536), 2), 65536)])
    found = to_json(
        wear(lambda phase: Tiled(trace, NAMESPACE, phase), small_drive(), Options(phases=3))
    )
    assert found["waf"]["band"] == "tile phases"
    assert found["waf"]["band_done"] == 2
    assert any("10 tiles of 6291456 B" in note for note in found["notes"])


def test_a_kept_drive_is_used_again(tmp_path: Path) -> None:
    state = tmp_path / "drive"
    first = result(Rows([writes(np.arange(0, NAMESPACE, MIB), MIB)]), save=state)
    again = result(Rows([writes(np.arange(100) * 4096, 4096)]), resume=state)
    assert again["precondition"] == "resumed: 2 sequential fills, then rows"
    assert again["snapshots"][-1]["ops_done"] == 100
    assert sum(again["erases"]["histogram"]["counts"]) == first["lines"]
    assert again["erases"]["mean"] >= first["erases"]["mean"]


def test_wear_by_class_names_the_class_that_is_moved() -> None:
    """Every other page is overwritten at random; its neighbours are written once."""
    cold = Rows([writes(np.arange(0, NAMESPACE, MIB), MIB, classes=np.ones(64, np.uint8))])
    hot = next(RandomWrites(NAMESPACE, size=8192, rows=8000).batches())
    hot = writes(hot.offset, 4096, classes=np.zeros(8000, np.uint8))
    found = result(Rows([*cold.parts, hot], class_names=["hot", "cold"]))
    by_class = {row["class"]: row for row in found["by_class"]}
    assert by_class["hot"]["host_bytes"] == 8000 * 4096
    assert by_class["cold"]["host_bytes"] == NAMESPACE
    moved = sum(row["gc_bytes"] for row in found["by_class"])
    assert moved == found["gc_bytes"] > 0
    assert by_class["cold"]["gc_bytes"] > by_class["hot"]["gc_bytes"] > 0


def test_streams_follow_the_class_where_the_profile_says_so() -> None:
    """A log and random writes: apart, the log's lines die whole."""
    rng = next(RandomWrites(NAMESPACE // 4, rows=60_000).batches())
    log = writes(np.arange(60_000) * 4096 % (NAMESPACE * 3 // 4) + NAMESPACE // 4, 4096)
    offset = np.stack([rng.offset, log.offset], axis=1).ravel()
    classes = np.tile(np.array([0, 1], np.uint8), 60_000)
    source = Rows([writes(offset, 4096, classes=classes)], class_names=["random", "log"])
    drives = [small_drive(drive={"line_bytes": MIB, "streams": s, "max_streams": 2})
              for s in ("none", "class")]  # fmt: skip
    mixed, apart = (result(source, drive)["waf"]["cumulative"] for drive in drives)
    assert apart < 0.8 * mixed


def test_erase_histogram_counts_every_line() -> None:
    found = result(RandomWrites(NAMESPACE))["erases"]
    edges, counts = found["histogram"]["edges"], found["histogram"]["counts"]
    assert sum(counts) == 71
    assert len(edges) == len(counts) + 1 <= 42
    assert edges[0] < found["min"] <= found["mean"] <= found["max"] < edges[-1]
    assert found["levelling"] == pytest.approx(found["mean"] / found["max"])


@pytest.mark.parametrize("policy", ["drive", "femu-late"])
def test_the_flash_itself_bounds_life(policy: Any) -> None:
    profile = small_drive(pe_cycles=3000, pe_source="made up, TLC").with_policy(policy)
    found = result(RandomWrites(NAMESPACE), profile)
    lives, steady = found["lifetimes"], found["waf"]["steady"]
    assert lives["nand_level_days"] == pytest.approx(
        3000 * profile.raw_bytes / (found["writes_per_day_bytes"] * steady)
    )
    assert lives["nand_days"] == pytest.approx(
        lives["nand_level_days"] * found["erases"]["levelling"]
    )
    assert "waf_rated is estimated as P/E cycles x raw flash / TBW" in found["notes"]


def test_small_writes_to_large_pages_shorten_life_beyond_their_waf() -> None:
    profile = small_drive(secs_per_pg=32, pgs_per_blk=4)
    source = Looped(Rows([writes(np.arange(0, NAMESPACE, 16384), 4096)]), None)
    found = result(source, profile, writes_per_day=(1e9,))
    assert found["waf"]["steady"] == 1.0
    assert found["rounding"] == 4.0
    assert found["lifetimes"]["paper_days"] == pytest.approx(100 * NAMESPACE / 4e9)


def test_reads_alone_wear_nothing_and_are_refused() -> None:
    reads = Batch(np.zeros(3, np.uint64), np.full(3, 4096, np.uint64), np.zeros(3, np.uint8))
    with pytest.raises(UsageError, match="rows writes nothing"):
        result(Rows([reads]))


def test_a_request_beyond_the_namespace_is_named() -> None:
    good, bad = writes(np.arange(10) * 4096, 4096), writes([NAMESPACE], 4096)
    with pytest.raises(UsageError, match=r"request 10 .* ends beyond the namespace of 67108864 B"):
        result(Rows([good, bad]))


def test_an_op_list_is_the_whole_experiment(tmp_path: Path) -> None:
    rows = [(0, 0, "SNAP"), (0, MIB, "W"), (7, 0, "SNAP"), (0, 4096, "R"), (0, MIB, "D")]
    found = result(OpListInput(oplist_file(tmp_path / "ops.csv", rows)))
    shots = found["snapshots"]
    assert [(s["event"], s["tag"], s["host_pages"]) for s in shots] == [
        ("snap", 0, 0), ("snap", 7, 256), ("end", None, 256),
    ]  # fmt: skip
    assert shots[-1]["ops_done"] == 3
    assert found["counted_from"] == "the drive's first command"
    assert found["discards"] == 1


def trace_file(path: Path, *history: str, classes: bool = False) -> Path:
    count = 64
    columns: dict[str, Any] = {
        "ts_ns": np.arange(count) * 1000,
        "op": np.full(count, Op.WRITE),
        "lba": np.arange(count, dtype=np.uint64) * np.uint64(2048),
        "bytes": np.full(count, MIB, np.uint64),
    }
    if classes:
        columns["object_class"] = ["header", "chunk"] * (count // 2)
    meta = TraceMeta(source="capture", history=list(history))
    with TraceWriter(path, meta, ("object_class",) if classes else ()) as out:
        out.write(columns)
    return path


def test_a_block_trace_with_classes(tmp_path: Path) -> None:
    found = result(TraceInput(trace_file(tmp_path / "t.parquet", classes=True)))
    assert found["waf"]["cumulative"] == 1.0
    assert {row["class"]: row["host_bytes"] for row in found["by_class"]} == {
        "header": 32 * MIB,
        "chunk": 32 * MIB,
    }
    assert len(found["trace_sha256"]) == 64


def test_stretched_traces_have_no_waf(tmp_path: Path) -> None:
    path = trace_file(tmp_path / "t.parquet", "scale stretch 1 -> 2 bytes, 0 pages aliased")
    with pytest.raises(UsageError, match="addresses were stretched or folded"):
        TraceInput(path)


def test_empty_inputs_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "ops.csv"
    path.write_text("offset,length,op\n")
    with pytest.raises(UsageError):
        result(OpListInput(path))
