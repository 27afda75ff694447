"""Programs under another Python, and the log that they leave; no real store needed."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.core.errors import MeasurementError
from harness.core.ops import Op
from harness.stores.lmcache_raw_block import LmcacheRawBlock
from harness.stores.ops import NO_SESSION, OP_DTYPE, ObjectClass
from harness.stores.real import logged_device
from harness.stores.real.lmcache_store import speeds
from harness.stores.real.logged_device import LoggedDevice, Place, write_log
from harness.stores.real.program import child, covered_s, deepest, read_calls, result_of
from harness.stores.registry import load_store_spec

KIB = 1024
START, SLOT = 64 * KIB, 20 * KIB


def program(text: str) -> list[str]:
    return [sys.executable, "-c", text]


def test_a_program_tells_how_far_it_is_and_then_its_result(tmp_path: Path) -> None:
    told: list[dict[str, Any]] = []
    text = 'print("a banner"); print(\'{"served": 1}\'); print(\'{"result": {"x": 2}}\')'
    result = result_of("it", program(text), tmp_path / "log", told.append)
    assert (result, told) == ({"x": 2}, [{"served": 1}])


def test_a_program_that_fails_is_quoted(tmp_path: Path) -> None:
    text = 'import sys; print("no room", file=sys.stderr); sys.exit(4)'
    with pytest.raises(MeasurementError, match="it ended with status 4: no room") as caught:
        result_of("it", program(text), tmp_path / "log", lambda said: None)
    assert str(tmp_path / "log") in str(caught.value.fix)
    with pytest.raises(MeasurementError, match="status 0: it said nothing"):
        result_of("it", program("pass"), tmp_path / "log", lambda said: None)


def test_a_child_ends_with_us(tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(RuntimeError), child(program("import time; time.sleep(60)"), tmp_path / "l"):
        raise RuntimeError
    assert time.monotonic() - began < 15


class FakeDevice:
    """Keeps what is written; ``io_uring`` batches are done when they are waited for."""

    def __init__(self) -> None:
        self.data = bytearray(START + 10 * SLOT)

    def pwrite_from_buffer(self, offset: int, buffer: Any, payload: int, total: int) -> None:
        self.data[offset : offset + payload] = bytes(buffer)[:payload]

    def pread_into(self, offset: int, buffer: Any, payload: int, total: int) -> None:
        memoryview(buffer)[:payload] = self.data[offset : offset + payload]

    def batched_write(self, offsets: list[int], buffers: list[Any], totals: list[int]) -> int:
        return 7

    def wait_iouring(self, batch: int) -> tuple[list[bool], list[Any]]:
        return [True], []

    def size(self) -> int:
        return len(self.data)


def header(identity: int) -> bytes:
    return b"LMCBLK01" + identity.to_bytes(8, "little") + bytes(4096 - 16)


def test_the_numbers_of_ops_and_classes_are_the_harness_s() -> None:
    assert (logged_device.READ, logged_device.WRITE) == (Op.READ, Op.WRITE)
    assert logged_device.FULL_ATTENTION == ObjectClass.FULL_ATTENTION
    assert logged_device.HEADERS == ObjectClass.HEADER
    assert logged_device.METADATA == ObjectClass.METADATA
    assert logged_device.NO_SESSION == NO_SESSION


def test_calls_are_logged_with_the_key_in_the_slot_s_header(tmp_path: Path) -> None:
    place = Place(session=3, turn=1)
    place.stored_by[2**63 + 5] = (8, 2)
    device = LoggedDevice(FakeDevice(), START, SLOT, place, {77: 2**63 + 5})
    assert device.size() == START + 10 * SLOT
    payload = bytes(16 * KIB)
    device.pwrite_from_buffer(START + SLOT, header(77), 4096, 4096)
    device.pwrite_from_buffer(START + SLOT + 4096, payload, len(payload), len(payload))
    device.pread_into(START + SLOT + 4096, bytearray(16 * KIB), 16 * KIB, 16 * KIB)
    device.pwrite_from_buffer(4096, payload, 4096, 4096)
    device.batched_write([START + SLOT], [header(77)], [4096])
    assert len(device.rows) == 4
    device.wait_iouring(7)
    path = tmp_path / "calls.npz"
    write_log(path, device.rows)
    ops, issue, done = read_calls(path)
    assert ops["object_class"].tolist() == [2, 0, 0, 3, 2]
    assert ops["op"].tolist() == [1, 1, 0, 1, 1]
    assert ops["key"].tolist() == [2**63 + 5] * 3 + [0] + [2**63 + 5]
    # Written by whom it was stored, read by whom it is asked for now.
    assert ops["session"].tolist() == [8, 8, 3, 3, 8]
    assert ops["turn"].tolist() == [2, 2, 1, 1, 2]
    assert np.all(done >= issue)


def test_without_names_payloads_are_compared_by_checksum() -> None:
    fake = FakeDevice()
    device = LoggedDevice(fake, START, SLOT, Place())
    buffer = bytearray(16 * KIB)
    device.pwrite_from_buffer(START, header(99), 4096, 4096)
    device.pwrite_from_buffer(START + 4096, bytes(range(256)) * 64, 16 * KIB, 16 * KIB)
    device.pread_into(START + 4096, buffer, 16 * KIB, 16 * KIB)
    assert (device.bytes_checked, device.wrong_payloads) == (16 * KIB, 0)
    fake.data[START + 5000] ^= 1
    device.pread_into(START + 4096, buffer, 16 * KIB, 16 * KIB)
    assert (device.bytes_checked, device.wrong_payloads) == (32 * KIB, 1)
    assert device.rows[1][7] == 99


def test_the_depth_is_that_of_overlapping_calls() -> None:
    issue, done = np.array([0, 1, 2, 9]), np.array([3, 8, 4, 10])
    assert deepest(issue, done) == 3
    assert deepest(issue[:0], done[:0]) == 0


def test_time_that_calls_overlap_in_counts_once() -> None:
    issue, done = np.array([0, 1, 2, 9]) * 10**9, np.array([3, 8, 4, 10]) * 10**9
    assert covered_s(issue, done) == 9.0
    assert covered_s(issue[:0], done[:0]) == 0.0


def test_the_speeds_of_a_run_are_those_of_a_worker_and_of_what_the_driver_counted() -> None:
    mib = 1 << 20
    ops = np.zeros(5, OP_DTYPE)
    ops["op"] = [Op.WRITE, Op.WRITE, Op.WRITE, Op.WRITE, Op.READ]
    ops["object_class"] = [2, 0, 2, 0, 0]
    ops["length"] = [4096, 4 * mib, 4096, 4 * mib, 4 * mib]
    ops["stream"] = [0, 0, 1, 1, 2]
    issue = np.array([0, 1, 0, 1, 50]) * 10**6
    done = np.array([1, 10, 1, 10, 52]) * 10**6
    spec = load_store_spec("lmcache-driven")
    assert isinstance(spec, LmcacheRawBlock)
    chunk = 4 * mib / 1e6
    counted = {"chunks_loaded": 1, "load_s": 0.008}
    assert speeds(spec, ops, issue, done, counted) == {
        "drain_mbps": round(2 * chunk / 0.01, 1), "load_mbps": round(chunk / 0.008, 1),
    }  # fmt: skip
    assert speeds(spec, ops, issue, done, {})["load_mbps"] == round(chunk / 0.002, 1)
    assert speeds(spec, ops[:0], issue[:0], done[:0], {}) == {}
