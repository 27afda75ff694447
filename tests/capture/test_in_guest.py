"""Another kernel (Debian's 6.1) with what this machine lacks: NVMe, multipath, device-mapper.

One guest, two loaders in it, one workload; each test looks at one device of the recordings.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from harness.capture import record_main
from harness.core.assets import asset_dir
from harness.core.errors import MachineError
from harness.device.guest import Guest, NvmeDrive
from harness.trace.parquet import Trace, open_trace

# Compiling the probe takes a minute where the guest is emulated, and more beside other work.
pytestmark = [
    pytest.mark.guest,
    pytest.mark.slow,
    pytest.mark.root,
    pytest.mark.timeout(600),
]

HEAD, SINGLE, NULL, MAPPED = "/dev/nvme0n1", "/dev/nvme1n1", "/dev/nullb0", "/dev/dm-0"
GENERIC = "/dev/ng1n1"  # SINGLE, for passthrough


_DEVICES = """
modprobe null_blk nr_devices=1 gb=1
modprobe dm-mod
/usr/sbin/dmsetup create mapped --table "0 65536 linear /dev/nullb0 2048"
"""


@dataclass(frozen=True)
class Multipath(NvmeDrive):
    """A drive in a subsystem of its own, whose namespace may have several paths."""

    def argv(self, index: int, backing: Path) -> list[str]:
        """QEMU options for drive number ``index``."""
        return [
            *super().argv(index, backing)[:2],
            "-device", "nvme-subsys,id=subsystem,nqn=harness",
            "-device", f"nvme,id=drive{index},serial=harness{index},subsys=subsystem,addr=0x10",
            "-device", f"nvme-ns,drive=back{index},nsid=1,shared=on,bus=drive{index}",
        ]  # fmt: skip


@dataclass(frozen=True)
class Recorded:
    """A recording made in the guest: its result and its trace."""

    details: dict[str, Any]
    trace: Trace


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Recorded]]:
    """Requests of NVMe and null_blk devices, and bios of a mapped one, of one workload."""
    folder = tmp_path_factory.mktemp("guest")
    guest = Guest([Multipath(64 << 20), NvmeDrive(64 << 20)], cpus=2)
    try:
        guest.start()
    except MachineError as error:
        pytest.skip(f"no guest here: {error}")
    with guest:
        guest.run(["sh", "-ec", _DEVICES])
        script = Path(__file__).with_name("guest_start.sh")
        loader = str(asset_dir("ebpf") / "loader.py")
        lists = [f"{HEAD} {SINGLE} {NULL}", MAPPED]
        guest.run(["sh", str(script), loader, *lists], timeout_s=400)
        _work(guest)
        yield [_fetch(guest, number, folder) for number in (1, 2)]


# One script, because each command of its own takes seconds where the guest is emulated. The wall
# clock goes forward by an hour between two writes, and back again before the third.
_WORK = f"""
put() {{ dd if=/dev/zero of=$1 bs=${{4:-4k}} seek=$2 count=${{3:-1}} oflag=direct; }}
step() {{ date -s @$(($(date +%s) + $1)); }}
set -e
put {HEAD} 5 2
put {SINGLE} 7
put {NULL} 9
put {MAPPED} 10 1 1M
put {NULL} 20
step 3600
put {NULL} 21
step -3600
put {NULL} 22
data="--data-size=8192 --data=/dev/zero"
nvme write {SINGLE} --start-block=64 --block-count=15 $data
nvme read {HEAD} --start-block=32 --block-count=7 --data-size=4096
nvme write {SINGLE} --start-block=96 --block-count=15 $data --dir-type=2 --dir-spec=3 || true
fio --name=passthrough --filename={GENERIC} --ioengine=io_uring_cmd --cmd_type=nvme --thread \\
    --rw=write --bs=8k --offset=512k --size=16k --iodepth=2
"""


def _work(guest: Guest) -> None:
    guest.run(["sh", "-c", _WORK], timeout_s=120)
    guest.qmp("device_del", id="drive1")
    guest.qmp.wait_event("DEVICE_DELETED")


def _fetch(guest: Guest, number: int, folder: Path) -> Recorded:
    stop = f"kill $(cat /run/{number}.hold); while kill -0 $(cat /run/{number}.loader); do "
    guest.run(["sh", "-c", stop + "sleep 0.2; done; true"])
    guest.get(f"/run/{number}.stream", folder / f"{number}.stream")
    out = folder / f"{number}.parquet"
    arguments = argparse.Namespace(out=out, command="", bios=False, segment_s=10.0)
    with (folder / f"{number}.stream").open("rb") as stream:
        details = record_main.record(stream.fileno(), arguments)
    return Recorded(details, open_trace(out))


def test_requests_of_a_hidden_path_are_the_heads(recordings: list[Recorded]) -> None:
    requests, _ = recordings
    assert requests.details["witness"]["nvme0n1"]["equal"] is True
    table = requests.trace.table()
    assert pc.sum(pc.equal(table["lba"], 40)).as_py() == 1
    assert any("multipath head" in note for note in requests.details["notes"])


def passthrough_of(comm: str, recorded: Recorded) -> list[dict[str, Any]]:
    """Rows of passthrough commands that a program issued."""
    table = recorded.trace.table()
    chosen = table.filter((pc.field("source") == "nvme") & (pc.field("comm") == comm))
    return chosen.to_pylist()


def test_passthrough_has_address_and_operation(recordings: list[Recorded]) -> None:
    requests, _ = recordings
    rows = passthrough_of("nvme", requests)
    assert [(row["op"], row["lba"], row["bytes"]) for row in rows[:2]] == [
        ("W", 64, 8192),
        ("R", 32, 4096),
    ]
    assert all(row["latency_ns"] > 0 for row in rows)


def test_passthrough_of_io_uring_has_address_and_operation(recordings: list[Recorded]) -> None:
    requests, _ = recordings
    rows = passthrough_of("fio", requests)
    assert [(row["op"], row["lba"], row["bytes"]) for row in rows] == [
        ("W", 1024, 8192),
        ("W", 1040, 8192),
    ]
    assert all(row["latency_ns"] > 0 for row in rows)


def test_a_directive_is_a_placement_id(recordings: list[Recorded]) -> None:
    requests, _ = recordings
    table = requests.trace.table()
    rows = table.filter(pc.is_valid(table["placement_id"])).to_pylist()
    assert [(row["lba"], row["placement_id"]) for row in rows] == [(96, 3)]


def test_null_blk_is_recorded_exactly(recordings: list[Recorded]) -> None:
    requests, _ = recordings
    assert requests.details["witness"]["nullb0"]["equal"] is True


def test_steps_of_the_wall_clock_leave_no_trace(recordings: list[Recorded]) -> None:
    requests, _ = recordings
    rows = {row["lba"]: row for row in requests.trace.table().to_pylist()}
    written = [rows[block * 8] for block in (9, 20, 21, 22)]
    gaps_s = [(b["ts_ns"] - a["ts_ns"]) / 1e9 for a, b in pairwise(written)]
    assert all(0 < gap_s < 600 for gap_s in gaps_s), gaps_s
    assert all(0 < row["latency_ns"] < 60e9 for row in written)
    assert requests.details["witness"]["nullb0"]["equal"] is True


def test_a_device_that_was_unplugged_is_not_vouched_for(recordings: list[Recorded]) -> None:
    requests, _ = recordings
    assert requests.details["verdict"] == "UNKNOWN"
    assert "gone" in requests.details["witness"]["nvme1n1"]["reason"]
    table = requests.trace.table()
    assert pc.sum(pc.equal(table["lba"], 56)).as_py() == 1  # what came before is there


def test_a_mapped_device_is_traced_by_its_bios(recordings: list[Recorded]) -> None:
    _, bios = recordings
    (row,) = [row for row in bios.trace.table().to_pylist() if row["op"] == "W"]
    assert (row["lba"], row["bytes"], row["source"]) == (10 * 2048, 1 << 20, "bio")
    assert row["latency_ns"] > 0
    assert bios.details["verdict"] == "LOSSLESS", bios.details["witness"]
