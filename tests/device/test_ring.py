"""The io_uring ring against a real loop device."""

from __future__ import annotations

import errno
import os
import platform
import time
from collections.abc import Iterator

import numpy as np
import pytest

from harness.core.errors import MachineError
from harness.device.buffers import AlignedPool, PayloadPool
from harness.device.guard import Target, open_guarded
from harness.device.loop import LoopDevice
from harness.device.ring import RWF_NOWAIT, SQE_FIXED_FILE, Opcode, Ring, empty_sqes

MIB = 1 << 20


@pytest.fixture
def target() -> Iterator[Target]:
    with LoopDevice(64 * MIB, "/dev/shm") as device, open_guarded(device.path) as target:
        yield target


@pytest.mark.root
def test_written_data_comes_back_through_registered_files_and_buffers(target: Target) -> None:
    size, count = 64 << 10, 300
    source, sink = PayloadPool(16, size, seed=3), AlignedPool(16, size)
    with Ring(16, files=[target.fd]) as ring:
        ring.register_buffers([source.span(), sink.span()])
        for kind in (Opcode.WRITE_FIXED, Opcode.READ_FIXED):
            pool = source if kind == Opcode.WRITE_FIXED else sink
            for first in range(0, count, 16):
                numbers = np.arange(first, min(first + 16, count))
                batch = empty_sqes(len(numbers))
                batch["opcode"], batch["flags"] = kind, SQE_FIXED_FILE
                batch["off"], batch["len"] = numbers * size, size
                batch["addr"] = pool.address + np.arange(len(numbers)) * size
                batch["buf_index"] = 0 if kind == Opcode.WRITE_FIXED else 1
                batch["user_data"] = numbers
                if kind == Opcode.WRITE_FIXED:
                    for slot, number in enumerate(numbers):
                        source.stamp(slot, int(number) * size, size, int(number) + 1)
                assert ring.submit(batch) == len(batch)
                done = ring.reap(len(batch))
                assert sorted(done["user_data"]) == list(numbers)
                assert (done["res"] == size).all()
                if kind == Opcode.READ_FIXED:
                    for slot, number in enumerate(numbers):
                        offset, sequence = int(number) * size, int(number) + 1
                        assert source.wrong_sectors(sink.memory[slot], offset, sequence) == 0


@pytest.mark.root
def test_errors_come_back_as_errno(target: Target) -> None:
    pool = AlignedPool(1, 4096)
    batch = empty_sqes(2)
    batch["opcode"], batch["fd"], batch["addr"] = Opcode.READ, target.fd, pool.address
    batch["len"], batch["user_data"] = 4096, [1, 2]
    batch["off"] = [100, 4096]
    with Ring(4) as ring:
        assert ring.submit(batch) == 2
        done = ring.reap(2)
    results = dict(zip(done["user_data"].tolist(), done["res"].tolist(), strict=True))
    assert results == {1: -errno.EINVAL, 2: 4096}


def test_a_full_ring_takes_what_fits_and_order_is_kept() -> None:
    batch = empty_sqes(100)
    batch["user_data"] = np.arange(100)
    seen: list[int] = []
    with Ring(32) as ring:
        while len(seen) < 100:
            batch = batch[ring.submit(batch) :]
            seen += ring.reap(1)["user_data"].tolist()
        assert ring.cq_overflow[0] == ring.sq_dropped[0] == 0
    assert seen == list(range(100))


def test_waiting_ends_with_the_timeout() -> None:
    with Ring(4) as ring:
        start = time.monotonic()
        assert len(ring.reap(1, timeout_s=0.05)) == 0
        assert 0.045 < time.monotonic() - start < 2


def test_nothing_is_left_open() -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        with Ring(64):
            pass
    assert len(os.listdir("/proc/self/fd")) == before


def test_another_architecture_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    with pytest.raises(MachineError, match="aarch64"):
        Ring(4)


@pytest.mark.root
def test_a_large_request_on_huge_pages_stays_whole(target: Target) -> None:
    from harness.device.info import read_stat

    pool = AlignedPool(1, 1280 << 10)
    if not pool.huge:
        pytest.skip("the kernel gave no huge pages")
    batch = empty_sqes(1)
    batch["opcode"], batch["fd"], batch["addr"] = Opcode.READ_FIXED, target.fd, pool.address
    batch["len"], batch["rw_flags"] = 1280 << 10, RWF_NOWAIT
    with Ring(4) as ring:
        ring.register_buffers([pool.span()])
        before = read_stat(target.name)
        assert ring.submit(batch) == 1
        assert ring.reap(1)["res"][0] == 1280 << 10
        assert read_stat(target.name).since(before).read_ios == 1
