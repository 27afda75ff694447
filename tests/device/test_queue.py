"""Queue settings: set, given back, and given back also for a process that was killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.core.errors import UsageError
from harness.device.loop import LoopDevice
from harness.device.queue import queue_settings, restore_stale

pytestmark = pytest.mark.root


@pytest.fixture
def disk() -> Iterator[str]:
    with LoopDevice(1 << 20, "/dev/shm") as device:
        attribute(device.name, "nomerges").write_text("0")
        attribute(device.name, "scheduler").write_text("mq-deadline")
        yield device.name
        attribute(device.name, "nomerges").write_text("0")
        attribute(device.name, "scheduler").write_text("none")


def attribute(disk: str, key: str) -> Path:
    return Path(f"/sys/block/{disk}/queue/{key}")


def state(disk: str) -> tuple[str, str]:
    scheduler = attribute(disk, "scheduler").read_text()
    return attribute(disk, "nomerges").read_text().strip(), scheduler.split("[")[1].split("]")[0]


def test_settings_are_set_and_given_back(disk: str, tmp_path: Path) -> None:
    with queue_settings(disk, notes=tmp_path) as found:
        assert (found["scheduler"], found["nomerges"]) == ("mq-deadline", "0")
        assert state(disk) == ("2", "none")
        assert [p.name for p in tmp_path.iterdir()] == [f"queue-{disk}.json"]
    assert state(disk) == ("0", "mq-deadline")
    assert list(tmp_path.iterdir()) == []


def test_settings_are_given_back_after_an_error(disk: str, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), queue_settings(disk, notes=tmp_path):
        raise KeyboardInterrupt
    assert state(disk) == ("0", "mq-deadline")


def test_what_is_right_already_is_left_alone(disk: str, tmp_path: Path) -> None:
    with queue_settings(disk, {"nomerges": "0"}, notes=tmp_path):
        assert list(tmp_path.iterdir()) == []


def test_after_kill_9_the_next_one_gives_back(disk: str, tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from harness.device.queue import queue_settings\n"
        "with queue_settings(sys.argv[1], notes=Path(sys.argv[2])):\n"
        "    print('set', flush=True); input()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, disk, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"set\n"
    assert restore_stale(tmp_path) == []  # it lives
    assert state(disk) == ("2", "none")
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert state(disk) == ("2", "none")
    assert restore_stale(tmp_path) == [disk]
    assert state(disk) == ("0", "mq-deadline")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("after_a_crash", [False, True])
def test_what_a_change_of_the_scheduler_resets_comes_back(
    disk: str, tmp_path: Path, after_a_crash: bool
) -> None:
    """The kernel gives the queue another size and forgets the scheduler's settings."""
    own = {"nr_requests": "50", "iosched/read_expire": "200"}
    defaults = {key: attribute(disk, key).read_text().strip() for key in own}
    for key, value in own.items():
        attribute(disk, key).write_text(value)
    with queue_settings(disk, notes=tmp_path) as found:
        assert own.items() <= found.items()
        assert attribute(disk, "nr_requests").read_text().strip() != "50"
        note = json.loads((tmp_path / f"queue-{disk}.json").read_text())
    if after_a_crash:
        attribute(disk, "scheduler").write_text("none")
        attribute(disk, "nomerges").write_text("2")
        note["pid"] = 1 << 30
        (tmp_path / f"queue-{disk}.json").write_text(json.dumps(note))
        assert restore_stale(tmp_path) == [disk]
    assert state(disk) == ("0", "mq-deadline")
    assert {key: attribute(disk, key).read_text().strip() for key in own} == own
    assert own.items().isdisjoint(defaults.items())


def test_one_at_a_time_may_set_a_disk(disk: str, tmp_path: Path) -> None:
    with queue_settings(disk, notes=tmp_path):
        with (
            pytest.raises(UsageError, match=f"another measurement runs on {disk}"),
            queue_settings(disk, notes=tmp_path),
        ):
            raise AssertionError("not reached")
        assert state(disk) == ("2", "none")
    assert state(disk) == ("0", "mq-deadline")
    with queue_settings(disk, notes=tmp_path):
        assert state(disk) == ("2", "none")


def test_what_somebody_else_set_meanwhile_stays(disk: str, tmp_path: Path) -> None:
    note = {"pid": 1 << 30, "started": 1, "disk": disk}
    note |= {"set": {"nomerges": "2"}, "found": {"nomerges": "0"}}
    (tmp_path / f"queue-{disk}.json").write_text(json.dumps(note))
    attribute(disk, "nomerges").write_text("1")
    assert restore_stale(tmp_path) == [disk]
    assert state(disk)[0] == "1"


def test_a_note_that_makes_no_sense_or_of_a_lost_device_is_dropped(tmp_path: Path) -> None:
    (tmp_path / "queue-x.json").write_text("{")
    lost = {"pid": 1 << 30, "started": 1, "disk": "nosuch0"}
    lost |= {"set": {"nomerges": "2"}, "found": {"nomerges": "0"}}
    (tmp_path / "queue-y.json").write_text(json.dumps(lost))
    assert restore_stale(tmp_path) == ["nosuch0"]
    assert list(tmp_path.iterdir()) == []
