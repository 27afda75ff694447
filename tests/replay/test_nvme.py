"""An NVMe drive in a guest with Debian's kernel: replayed on, checked, and pulled out meanwhile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.core.errors import MachineError
from harness.device.guest import Guest, NvmeDrive

from .traces import MIB, mixed_trace

pytestmark = [pytest.mark.guest, pytest.mark.slow, pytest.mark.root, pytest.mark.timeout(600)]

# Compiled loops are for this processor alone, and emulation compiles slowly: compile them here
# for any processor, into a cache that the guest reads.
_ANY_PROCESSOR = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
_COMMAND = [sys.executable, "-m", "harness", "replay"]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("any")
    environment = {**_ANY_PROCESSOR, "XDG_CACHE_HOME": str(folder / "cache")}
    trace = mixed_trace(folder / "t.parquet", 10)
    place = ["--loop", "64MiB", "--loop-dir", "/dev/shm", "--results", str(folder)]
    subprocess.run(
        [*_COMMAND, str(trace), *place, "--verify"],
        env={**os.environ, **environment}, check=False, capture_output=True,
    )  # fmt: skip
    return environment


@pytest.fixture(scope="module")
def machine() -> Iterator[Guest]:
    guest = Guest([NvmeDrive(64 * MIB)])
    try:
        guest.start()
    except MachineError as error:
        pytest.skip(f"no guest here: {error}")
    yield guest
    guest.stop()


def replay_inside(
    machine: Guest, environment: dict[str, str], trace: Path, *words: str
) -> tuple[int, dict[str, Any]]:
    place = ["--device", machine.devices[0], "--destroy", "harness0", "--results", "/root/runs"]
    done = machine.run(
        [*_COMMAND, str(trace), *place, "--json", *words],
        env=environment, check=False, timeout_s=280,
    )  # fmt: skip
    assert done.stdout, done.stderr.decode()[-2000:]
    return done.returncode, json.loads(done.stdout)


def test_a_replay_on_nvme_is_in_order_and_verified(
    machine: Guest, environment: dict[str, str], tmp_path: Path
) -> None:
    trace = mixed_trace(tmp_path / "t.parquet", 1500, seconds=60.0, span=48 * MIB)
    status, result = replay_inside(machine, environment, trace, "--mode", "flat-out", "--verify")
    assert result["fidelity"]["verdict"] == "FAITHFUL", result["fidelity"]["reasons"]
    assert status == 0
    assert result["requests"] == 1500
    assert result["verification"]["reads"]["wrong_sectors"] == 0
    assert result["verification"]["scan"]["wrong_sectors"] == 0
    assert result["engine"]["no_room"] == 0
    before, after = (result["counters"][name]["drive"]["smart"] for name in ("before", "after"))
    assert after["host_write_commands"] > before["host_write_commands"]


def test_a_drive_that_is_pulled_out_ends_the_replay(
    machine: Guest, environment: dict[str, str], tmp_path: Path
) -> None:
    trace = mixed_trace(tmp_path / "t.parquet", 20_000, seconds=200.0, span=48 * MIB)
    reads = written(machine)

    def pull_out() -> None:
        deadline = time.monotonic() + 200
        while written(machine) < reads + 100 and time.monotonic() < deadline:
            time.sleep(0.5)
        machine.qmp("device_del", id="drive0")

    thread = threading.Thread(target=pull_out)
    thread.start()
    status, result = replay_inside(machine, environment, trace)
    thread.join()
    assert status == 1
    assert result["fidelity"]["verdict"] == "WRONG"
    assert result["stopped_by"] == "the device nvme0n1 is gone"
    assert result["errors"] > 0
    assert 0 < result["requests"] < 20_000
    assert result["in_flight_at_end"] == 0


def written(machine: Guest) -> int:
    """Writes that the drive has done, as QEMU counts them."""
    found = machine.qmp("query-blockstats")
    return sum(int(drive["stats"]["wr_operations"]) for drive in found)
