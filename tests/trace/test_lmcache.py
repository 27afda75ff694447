"""The captured LMCache traces: counts, sizes and locality that were measured independently."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.core.ops import Op
from harness.trace.columns import op_codes
from harness.trace.convert import convert
from harness.trace.parquet import open_trace
from harness.trace.source import open_source
from harness.trace.stats import collect

GOLDEN: dict[str, dict[str, Any]] = {
    "main": {
        "issued": (38_874, 48_311),
        "completed": (38_642, 48_261),
        "span_s": 149.3,
        "gib": (38.7, 46.7),
        "write_sizes": [(1_310_720, 31_684), (524_288, 6_397), (4_096, 1_603), (528_384, 1_278)],
        "read_sizes": [(1_310_720, 26_233), (524_288, 5_655), (528_384, 928), (786_432, 703)],
        "touched_mib": 7_745,
        "slot": (33_558_528, 64 << 20, 1_495, 240),
    },
    "small": {
        "issued": (30_104, 29_589),
        "completed": (29_951, 29_430),
        "span_s": 89.2,
        "gib": (28.3, 22.0),
        "write_sizes": [(1_310_720, 15_700), (4_096, 5_634), (262_144, 5_183), (524_288, 1_770)],
        "read_sizes": [(1_310_720, 20_740), (262_144, 6_851), (524_288, 1_415)],
        "touched_mib": 7_123,
        "slot": (4_198_400, 64 << 20, 5_630, 1_763),
    },
    "uring32": {
        "issued": (27_968, 32_569),
        "completed": (27_867, 32_507),
        "span_s": 53.7,
        "gib": (13.7, 15.7),
        "write_sizes": [(524_288, 32_064), (4_096, 503), (32_768, 2)],
        "read_sizes": [(524_288, 27_968)],
        "touched_mib": 7_329,
        "slot": (33_558_528, 64 << 20, 501, 227),
    },
    "e2e": {
        "issued": (40, 510),
        "completed": (40, 510),  # 511 completions, one of them of an issue that was not recorded
        "span_s": 268.4,
        "gib": (0.04, 0.33),
        "write_sizes": [(1_310_720, 188), (4_096, 130), (262_144, 62), (1_044_480, 46)],
        "read_sizes": [(1_044_480, 13), (1_310_720, 12)],
        "touched_mib": 348,
        "slot": (4_198_400, 16 << 20, 82, 82),
    },
}


@pytest.fixture(scope="module")
def trace_of(shared_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("lmcache")

    def made(name: str) -> Path:
        path = folder / f"{name}.parquet"
        if not path.exists():
            convert(shared_dir / "traces" / "lmcache" / f"{name}.csv.gz", path)
        return path

    return made


@pytest.mark.parametrize("name", GOLDEN)
def test_counts_sizes_and_span(trace_of: Any, name: str) -> None:
    golden = GOLDEN[name]
    data = collect(open_trace(trace_of(name))).data
    read, write = (data["operations"][op] for op in ("read", "write"))
    assert set(data["operations"]) == {"read", "write"}
    assert (read["requests"], write["requests"]) == golden["issued"]
    assert data["duration_s"] == pytest.approx(golden["span_s"], abs=0.06)
    completed = tuple(each["latency_ns"]["count"] for each in (read, write))
    assert completed == golden["completed"]
    for each, gib in zip((read, write), golden["gib"], strict=True):
        assert each["bytes"] / 2**30 == pytest.approx(gib, rel=0.02, abs=0.005)
    for each, sizes in ((write, golden["write_sizes"]), (read, golden["read_sizes"])):
        common = [(size["bytes"], size["requests"]) for size in each["common_sizes"]]
        assert common[: len(sizes)] == sizes
    assert data["touched"]["high"] / 2**20 == pytest.approx(golden["touched_mib"], abs=1)
    assert write["flags"] == {"sync": write["requests"]}
    assert data["meta"]["completions_lost"] == sum(golden["issued"]) - sum(golden["completed"])


@pytest.mark.parametrize("name", GOLDEN)
def test_slot_headers(trace_of: Any, name: str) -> None:
    slot_bytes, data_start, headers, slots = GOLDEN[name]["slot"]
    table = open_trace(trace_of(name)).table(["op", "lba", "bytes"])
    start = table["lba"].to_numpy().astype(np.int64) * 512
    at_slot = (start >= data_start) & ((start - data_start) % slot_bytes == 0)
    at_slot &= op_codes(table["op"]) == Op.WRITE
    assert np.count_nonzero(at_slot) == headers
    assert set(table["bytes"].to_numpy()[at_slot].tolist()) == {4096}
    assert len(np.unique(start[at_slot])) == slots


def test_sequentiality_depth_and_overwrite(trace_of: Any) -> None:
    share = {}
    for name in ("main", "uring32", "small"):
        data = collect(open_trace(trace_of(name))).data
        locality = data["locality"]
        share[name] = [locality[op]["sequential_share"] for op in ("write", "read")]
        if name == "main":
            assert data["rewrites"]["overwrite_factor"] == pytest.approx(6.2, abs=0.05)
            assert data["queue_depth"]["max"] == 128
        if name == "uring32":
            assert data["rewrites"]["overwrite_factor"] == pytest.approx(2.2, abs=0.05)
            assert data["queue_depth"]["max"] == 128
            streams = [locality[op]["sequential_share_8_streams"] for op in ("write", "read")]
            assert min(streams) > 0.94
        if name == "small":
            assert data["queue_depth"]["max"] == 24
    assert share["main"] == pytest.approx([0.954, 0.967], abs=0.001)
    assert share["uring32"] == pytest.approx([0.84, 0.78], abs=0.005)
    assert all(0.74 <= value <= 0.76 for value in share["small"])


def test_file_system_traffic(traces_dir: Path) -> None:
    data = collect(open_source(traces_dir / "lmcache" / "ldisk.csv.gz")).data
    operations = data["operations"]
    assert operations["flush"]["requests"] == 47
    assert operations["other"]["requests"] == 58
    assert operations["write"]["requests"] == 18_978 + 47 + 19
    assert operations["write"]["flags"]["meta"] == 47 + 19
    assert operations["read"]["requests"] == 35_422 + 3
    assert operations["read"]["flags"]["readahead"] == 3
    assert data["duration_s"] == pytest.approx(122.8, abs=0.06)


def test_mqsim_sample(traces_dir: Path) -> None:
    data = collect(open_source(traces_dir / "mqsim" / "tpcc-small.trace")).data
    assert data["operations"]["write"]["requests"] == 2_618
    assert data["operations"]["read"]["requests"] == 4_381
    assert data["meta"]["source"] == "mqsim"
