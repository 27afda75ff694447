"""The real LMCache on a loop device, captured, and its model beside it on the same requests."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from harness.capture.session import Capture
from harness.core.ops import Op
from harness.device.guard import open_guarded
from harness.device.loop import LoopDevice
from harness.stores.annotate import annotate
from harness.stores.compare import compare_views
from harness.stores.emission import Emission, run_emission
from harness.stores.emit import EmitResult
from harness.stores.lmcache_raw_block import RawBlockStore
from harness.stores.model_trace import DeviceLimits, write_model_trace
from harness.stores.real.environment import REAL
from harness.stores.registry import make_store
from harness.stores.requests.load import open_requests
from harness.stores.slot_view import SlotLayout, SlotView, view_slots
from harness.trace.parquet import open_trace

pytestmark = [
    pytest.mark.timeout(900),  # importing LMCache alone takes minutes on a machine under load
    pytest.mark.root,
    pytest.mark.skipif(
        REAL["lmcache"].missing is not None,
        reason=f"{REAL['lmcache'].missing}; make test-stores installs it",
    ),
]

MODEL = "llama-3.1-8b-tp8"
DEVICE = 1 << 30
SECONDS = 30.0
COLUMNS = ("ts_ns", "op", "lba", "bytes", "latency_ns")


@dataclass(frozen=True)
class Run:
    folder: Path
    result: EmitResult
    verdict: str

    @property
    def trace(self) -> Path:
        return self.folder / "t.parquet"


@pytest.fixture(scope="module", params=["lmcache", "lmcache-uring"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A captured run of half a minute that fills the device and evicts."""
    folder = tmp_path_factory.mktemp(request.param)
    wanted = Emission(request.param, "lmcache-driver", MODEL, seed=3, seconds=SECONDS)
    with (
        LoopDevice(DEVICE, folder) as loop,
        open_guarded(loop.path, own=True) as target,
        Capture(loop.path, folder / "t.parquet") as capture,
    ):
        result = run_emission(wanted, target, folder=folder)
    assert capture.result is not None
    return Run(folder, result, capture.result.verdict)


def test_every_payload_that_is_read_back_is_what_was_stored(run: Run) -> None:
    data = run.result.as_json()
    report = data["store_report"]
    assert (data["verify_errors"], report["prefetch_timeouts"]) == (0, 0)
    assert report["chunks_hit"] > 100
    assert data["bytes_verified"] >= data["bytes_read"] > 0
    assert report["evicted"] > 0
    assert report["lmcache"] == "0.5.6"
    assert report["status"]["slot_bytes"] == (4 << 20) + 4096
    assert json.loads((run.folder / "emit.json").read_text()) | {"objects": None} == data | {
        "objects": None
    }


def test_each_captured_request_is_joined_to_the_key_that_it_moved(run: Run) -> None:
    assert run.verdict == "LOSSLESS"
    out = run.folder / "annotated.parquet"
    joined = annotate(run.trace, run.folder / "objects.parquet", out).as_json()
    assert joined["unmatched"] == 0
    for direction, figure in (("writes", "written_bytes"), ("reads", "read_bytes")):
        for name, counted in run.result.report[direction]["by_class"].items():
            assert joined["by_class"][name][figure] == counted["bytes"]
    table = open_trace(out).table()
    kinds = np.array(table.column("object_class").to_pylist())
    keys = table.column("key").to_numpy()
    asked = {
        key
        for line in (run.folder / "requests.jsonl").read_text().splitlines()
        for key in json.loads(line)["hash_ids"]
    }
    assert set(keys[kinds == "full-attention"].tolist()) <= asked
    assert not keys[kinds == "metadata"].any()


def test_the_log_has_the_store_s_own_calls(run: Run) -> None:
    log = pq.read_table(run.folder / "objects.parquet").to_pydict()
    writes = np.array(log["op"]) == Op.WRITE
    kinds, lengths = np.array(log["object_class"]), np.array(log["length"])
    assert set(lengths[kinds == "header"].tolist()) == {4096}
    assert set(lengths[kinds == "full-attention"].tolist()) == {4 << 20}
    assert (writes & (kinds == "header")).sum() == (writes & (kinds == "full-attention")).sum()
    assert not (~writes & (kinds == "header")).any()  # headers are read in recovery only


def test_the_model_fed_the_same_requests_matches(run: Run, tmp_path: Path) -> None:
    store = make_store(str(run.folder / "store.yaml"), DEVICE, MODEL)
    assert isinstance(store, RawBlockStore)
    layout = SlotLayout(store.data_start, store.slot_bytes)
    requests = open_requests(str(run.folder / "requests.jsonl"), block_tokens=256)
    out = tmp_path / "model.parquet"
    captured = _view(run.trace, layout)
    # Whether L1 is contiguous memory is this machine's business; what follows from it is not.
    scattered = captured.commonest(True) == DeviceLimits().request_bytes(scattered=True)
    write_model_trace(store, requests, out, limits=DeviceLimits(), scattered=scattered)
    result = compare_views(_view(out, layout), captured)
    wrong = [check.as_json() for check in result.checks if check.ok is False]
    assert not wrong, wrong


def _view(path: Path, layout: SlotLayout) -> SlotView:
    batches: Any = open_trace(path).batches(list(COLUMNS))
    return view_slots(batches, layout)
