"""GPUDirect cells: proven or not called so, and honest where there is no GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness.bench.gds import gds_on_file, why_not
from harness.bench.gpumodes import Evidence, environment, judge, read_bytes
from harness.bench.gpuprocess import GpuProcess
from harness.bench.grid import Grid
from harness.bench.tables import cell_table, notes
from harness.calibrate.export import export
from harness.core.errors import MeasurementError, UsageError
from harness.doctor.registry import missing
from tests.calibrate.builders import run_folder

MIB = 1 << 20

STATS = """\
GDS Version: 1.7.0.149
NVFS statistics(ver: 4.0)
NVFS Driver(version: 2.17.3)
IO stats: Enabled, peer IO stats: Enabled

Active Shadow-Buffer (MiB): 128
Active Process: 1
Reads				: n=65536 ok=65536 err=0 readMiB=4096 io_state_err=0
Reads				: Bandwidth(MB/s)=1200 Avg-Latency(usec)=500
Sparse Reads			: n=6 io=0 holes=0 pages=0
Writes				: n=0 ok=0 err=0 writeMiB=0 io_state_err=0 pg-cache=0
"""


def test_the_drivers_counters_are_read() -> None:
    assert read_bytes(STATS) == 4096 * MIB
    disabled = STATS.replace("n=65536 ok=65536 err=0 readMiB=4096", "err=0")
    assert read_bytes(disabled) is None
    assert read_bytes("") is None


@pytest.mark.parametrize(
    ("mode", "seen", "transport"),
    [
        ("gds", Evidence(100 * MIB, 100 * MIB, False), "gds"),
        ("gds", Evidence(96 * MIB, 100 * MIB, False), "gds"),
        ("gds", Evidence(0, 100 * MIB, False), "cufile-compat"),
        ("gds", Evidence(50 * MIB, 100 * MIB, False), "cufile-unproven"),
        ("gds", Evidence(None, 100 * MIB, False), "cufile-unproven"),
        ("gds", Evidence(None, 100 * MIB, True), "kvikio-posix"),
        ("cufile-compat", Evidence(0, 100 * MIB, False), "cufile-compat"),
        ("cufile-compat", Evidence(100 * MIB, 100 * MIB, False), "gds"),
        ("kvikio-posix", Evidence(0, 100 * MIB, True), "kvikio-posix"),
        ("host-staged", Evidence(None, 100 * MIB, False), "host-staged-gpu"),
    ],
)
def test_what_ran_is_judged_by_evidence_not_by_what_was_asked(
    mode: str, seen: Evidence, transport: str
) -> None:
    found, why = judge(mode, seen)
    assert found == transport
    assert why


def test_modes_are_asked_for_in_the_environment(tmp_path: Path) -> None:
    asked = environment("gds", tmp_path, 4, 1 << 20)
    settings = json.loads(Path(asked["CUFILE_ENV_PATH_JSON"]).read_text())
    assert settings == {"properties": {"allow_compat_mode": False}}
    assert asked["KVIKIO_COMPAT_MODE"] == "OFF"
    assert asked["KVIKIO_GDS_THRESHOLD"] == "0"  # else small reads would be POSIX unseen
    assert (asked["KVIKIO_NTHREADS"], asked["KVIKIO_TASK_SIZE"]) == ("4", str(1 << 20))
    assert environment("cufile-compat", tmp_path, 1, 4096)["CUFILE_FORCE_COMPAT_MODE"] == "true"
    assert environment("kvikio-posix", tmp_path, 1, 4096)["KVIKIO_COMPAT_MODE"] == "ON"


def fake(script: str) -> list[str]:
    return [sys.executable, "-c", script]


def test_a_worker_answers_line_by_line() -> None:
    script = (
        "import json, sys\n"
        "print(json.dumps({'ready': 'GPU X'}), flush=True)\n"
        "for line in sys.stdin:\n"
        "    print(json.dumps({'echo': json.loads(line)}), flush=True)\n"
    )
    with GpuProcess("gds", "/x", 1, 4096, fake(script)) as worker:
        assert worker.gpu == "GPU X"
        assert worker.ask({"do": "copy"}) == {"echo": {"do": "copy"}}


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ('print(\'{"error": "RuntimeError: CUDA driver too old"}\')', "CUDA driver too old"),
        ("import sys; sys.exit('libcuda.so.1: cannot open')", "libcuda.so.1: cannot open"),
        ("import os; os.kill(os.getpid(), 11)", "exit code -11"),
    ],
)
def test_a_worker_that_cannot_start_says_why(script: str, words: str) -> None:
    with pytest.raises(MeasurementError, match=words):
        GpuProcess("gds", "/x", 1, 4096, fake(script))


def test_a_worker_that_dies_or_fails_later() -> None:
    ready = 'import sys; print(\'{"ready": "G"}\', flush=True); '
    with (
        GpuProcess("gds", "/x", 1, 4096, fake(ready + "sys.exit('gone')")) as worker,
        pytest.raises(MeasurementError, match="gone"),
    ):
        worker.ask({"do": "copy"})
    script = ready + 'sys.stdin.readline(); print(\'{"error": "cuFile error"}\', flush=True)'
    with (
        GpuProcess("gds", "/x", 1, 4096, fake(script)) as worker,
        pytest.raises(MeasurementError, match="cuFile error"),
    ):
        worker.ask({"do": "copy"})


def test_a_worker_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.bench.gpuprocess.START_S", 0.5)
    with pytest.raises(MeasurementError, match="did not answer"):
        GpuProcess("gds", "/x", 1, 4096, fake("import time; time.sleep(60)"))


def no_gpu() -> bool:
    return bool(missing(["gpu"]))


@pytest.mark.skipif(not no_gpu(), reason="there is a GPU")
def test_without_a_gpu_every_mode_says_why() -> None:
    for mode in ("gds", "cufile-compat", "kvikio-posix", "host-staged", "copy"):
        assert "gpu: no nvidia-smi" in (why_not(mode) or "")
    assert "nvidia-fs" in (why_not("gds") or "")
    assert "kvikio" in (why_not("kvikio-posix") or "")
    assert "kvikio" not in (why_not("host-staged") or "")


@pytest.mark.skipif(not no_gpu(), reason="there is a GPU")
def test_the_real_worker_reports_what_is_missing() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "harness.bench.gdsworker", "gds", "/dev/null"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "error" in json.loads(done.stdout)


def gds_grid(**changes: object) -> Grid:
    part = {
        "stores": ["session-contiguous", "lmcache-raw-block"], "model": "llama-3.1-8b-tp8",
        "context_tokens": [512], "host": ["posix-direct", "posix-buffered"], "threads": [1, 4],
        "read_bytes": "1MiB", **changes,
    }  # fmt: skip
    return Grid.model_validate(
        {"name": "g", "repeats": 2, "max_repeats": 2, "sample_seconds": 0.02, "gds": [part]}
    )


def test_host_cells_are_measured_and_gpu_cells_are_explained(tmp_path: Path) -> None:
    try:
        found = gds_on_file(tmp_path, gds_grid())
    except UsageError as error:
        pytest.skip(str(error))
    host = {
        (c.layout, c.transport, c.threads) for c in found.cells if c.engine == "host-reader"
    }  # fmt: skip
    assert len(host) == 2 * 2 * 2
    for cell in found.cells:
        if cell.engine != "host-reader":
            continue
        assert cell.access == "window" and cell.gbps.median > 0
        assert cell.commands == (32 if cell.layout == "session-contiguous" else 32 * 2 * 2)
    # Compared with equal transport, threads and task size only.
    pairs = [pair for pair in found.comparisons if pair.engine == "host-reader"]
    assert {(p.transport, p.threads) for p in pairs} == {
        ("posix-direct", 1), ("posix-direct", 4), ("posix-buffered", 1), ("posix-buffered", 4),
    }  # fmt: skip
    if no_gpu():
        assert len(found.not_measured) == 5
        assert all("gpu" in reason for reason in found.not_measured.values())
        assert sum(line.startswith("not measured") for line in notes(found)) == 5
    assert list(tmp_path.iterdir()) == []  # the file is gone
    assert cell_table(found).row_count == len(found.cells)
    file = export([run_folder(tmp_path, gds=found.model_dump(mode="json"))])
    assert any("gds mode gds" in item.what for item in file.not_measured) == no_gpu()
    assert {sample.hop for sample in file.bandwidth if sample.engine == "host-reader"} == {
        "ssd-to-dram"
    }


def test_a_grid_without_gds_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no gds part"):
        gds_on_file(tmp_path, Grid(name="x"))


@pytest.mark.gpu
@pytest.mark.skipif(no_gpu(), reason="needs an NVIDIA GPU (harness doctor says what is missing)")
def test_on_a_gpu_every_mode_gives_its_transport(tmp_path: Path) -> None:
    if missing(["kvikio"]):
        pytest.skip("needs kvikio: pip install 'kvflash-harness[gds]'")
    found = gds_on_file(tmp_path, gds_grid(host=[], threads=[4]))
    transports = {cell.transport for cell in found.cells if cell.layout}
    assert {"kvikio-posix", "host-staged-gpu"} <= transports
    copies = [cell for cell in found.cells if cell.pattern == "copy"]
    assert len(copies) == 3 and all(cell.gbps.median > 0.5 for cell in copies)


CUPY = """\
import numpy as np

class _Array(np.ndarray):
    def set(self, source, stream=None):
        self[:] = source

def empty(size, dtype):
    return np.empty(size, dtype).view(_Array)

class _Stream:
    def synchronize(self):
        pass

class _Runtime:
    @staticmethod
    def getDeviceProperties(number):
        return {"name": b"No GPU at all"}

class cuda:
    runtime = _Runtime
    get_current_stream = staticmethod(_Stream)
    alloc_pinned_memory = staticmethod(bytearray)
"""
KVIKIO = """\
import os
print("dlopen libcuda.so.1: what libraries say on stdout")

class _Read:
    def __init__(self, got):
        self._got = got

    def get(self):
        return self._got

class CuFile:
    def __init__(self, path, flags):
        self._fd = os.open(path, os.O_RDONLY)

    def pread(self, buf, size=None, file_offset=0):
        return _Read(os.preadv(self._fd, [memoryview(buf)[:size]], file_offset))
"""
KVIKIO_DEFAULTS = """\
import os

def set(settings):
    assert settings["task_size"] and settings["num_threads"]

def is_compat_mode_preferred():
    return os.environ["KVIKIO_COMPAT_MODE"] == "ON"
"""


@pytest.fixture
def libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand-ins for CUDA's Python libraries that keep everything in host memory."""
    folder = tmp_path / "libraries"
    (folder / "kvikio").mkdir(parents=True)
    (folder / "cupy.py").write_text(CUPY)
    (folder / "kvikio" / "__init__.py").write_text(KVIKIO)
    (folder / "kvikio" / "defaults.py").write_text(KVIKIO_DEFAULTS)
    (folder / "kvikio" / "cufile_driver.py").write_text("def get(name):\n    return False\n")
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.setattr("harness.bench.gds.missing", lambda names: [])
    return folder


@pytest.mark.skipif(not no_gpu(), reason="there is a GPU: the real thing is tested")
def test_the_whole_way_through_the_worker(tmp_path: Path, libraries: Path) -> None:
    """Plans, double buffer, protocol and verdicts; what is read lands in the 'GPU's' memory."""
    try:
        found = gds_on_file(tmp_path, gds_grid(host=[], threads=[1]))
    except UsageError as error:
        pytest.skip(str(error))
    assert found.skipped == [] and found.not_measured == {}
    placed = [cell for cell in found.cells if cell.layout == "lmcache-raw-block"]
    # Without nvidia-fs's counters nothing is called GDS, whatever did not fail.
    assert [cell.transport for cell in placed] == [
        "cufile-unproven", "cufile-unproven", "kvikio-posix", "host-staged-gpu",
    ]  # fmt: skip
    assert {cell.pattern for cell in found.cells} == {"layout", "copy"}
    proofs = [cell.proof or "" for cell in placed]
    assert "no counters" in proofs[0] and "GDS available False" in proofs[0]
    assert "kvikio reports its POSIX mode" in proofs[2] and "our own" in proofs[3]
    file = export([run_folder(tmp_path, gds=found.model_dump(mode="json"))])
    assert {sample.hop for sample in file.bandwidth} == {"ssd-to-gpu", "dram-to-gpu"}
    # Three sizes of copies are the second hop against request size.
    (hop,) = [term for term in file.bandwidth_terms if term.hop == "dram-to-gpu"]
    assert (hop.n, hop.valid["request_bytes"].high) == (3, 16 * MIB)


@pytest.mark.skipif(not no_gpu(), reason="there is a GPU: the real thing is tested")
@pytest.mark.parametrize(
    ("file", "line", "modes"),
    [
        ("cupy.py", "raise RuntimeError('cudaErrorInsufficientDriver:\\nold driver')", 4),
        ("kvikio/__init__.py", "raise ImportError('libcufile.so.0: cannot open')", 3),
        ("kvikio/__init__.py", "import os; os.kill(os.getpid(), 11)", 3),
    ],
)
def test_a_gpu_whose_driver_or_library_fails_is_not_measured_with_the_reason(
    tmp_path: Path, libraries: Path, file: str, line: str, modes: int
) -> None:
    broken = libraries / file
    broken.write_text(f"{line}\n{broken.read_text()}")
    try:
        found = gds_on_file(tmp_path, gds_grid(host=["posix-direct"], threads=[1]))
    except UsageError as error:
        pytest.skip(str(error))
    failed = {what: why for what, why in found.not_measured.items() if "mode" in what}
    assert len(failed) == modes
    for why in failed.values():
        assert "old driver" in why or "libcufile" in why or "exit code -11" in why
    # What can be measured is.
    assert sum(cell.engine == "host-reader" for cell in found.cells) == 2
    assert ("copy to the GPU (B_pcie)" in found.not_measured) == (modes == 4)


def test_an_interrupted_benchmark_goes_on_cell_by_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from harness.bench import gdscells

    journal, real, calls = tmp_path / "samples.jsonl", gdscells.HostCell.sample, []

    def fail_at_the_sixth(cell: gdscells.HostCell) -> object:
        calls.append(cell.id)
        if len(calls) == 6:
            raise MeasurementError("the disk is gone")
        return real(cell)

    monkeypatch.setattr(gdscells.HostCell, "sample", fail_at_the_sixth)
    wanted = gds_grid(host=["posix-direct"], threads=[1, 4], modes=[])
    try:
        with pytest.raises(MeasurementError, match="disk is gone"):
            gds_on_file(tmp_path, wanted, journal=journal)
    except UsageError as error:
        pytest.skip(str(error))
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    taken = {(r["cell"], r["round"]): r["gbps"] for r in lines if "round" in r}
    assert len(taken) == 5
    monkeypatch.setattr(gdscells.HostCell, "sample", real)
    found = gds_on_file(tmp_path, wanted, journal=journal)
    for (name, number), gbps in taken.items():
        assert found.cell(name).samples_gbps[number] == gbps
    assert {cell.gbps.n for cell in found.cells} == {2}
    # Once all is there nothing is laid out or read again.
    monkeypatch.setattr(gdscells.HostCell, "sample", None)
    again = gds_on_file(tmp_path, wanted, journal=journal)
    assert [cell.gbps for cell in again.cells] == [cell.gbps for cell in found.cells]
    with pytest.raises(UsageError, match="another grid or device"):
        gds_on_file(tmp_path, gds_grid(threads=[2]), journal=journal)
