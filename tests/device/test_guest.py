"""A real guest under stock QEMU: it starts by itself, does work, and never survives us."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.core.errors import MachineError, MeasurementError
from harness.device.guest import Guest, GuestError, machine
from harness.device.guest.session import CommandTimeout

pytestmark = [pytest.mark.guest, pytest.mark.slow, pytest.mark.root]


def test_host_files_and_drives_are_inside(guest: Guest) -> None:
    here = Path(__file__)
    assert guest.run(["cat", str(here)]).stdout == here.read_bytes()
    listed = guest.run(["blockdev", "--getsize64", *guest.devices]).text.split()
    assert [int(size) for size in listed] == [drive.size_bytes for drive in guest.drives]


def test_root_is_a_layer_that_the_host_never_sees(guest: Guest, tmp_path: Path) -> None:
    inside = tmp_path / "made-inside"
    guest.run(["sh", "-c", f"echo secret > {inside}"])
    assert guest.run(["cat", str(inside)]).text == "secret"
    assert not inside.exists()
    guest.get(str(inside), tmp_path / "copy")
    assert (tmp_path / "copy").read_text() == "secret\n"


def test_put_and_get_keep_bytes(guest: Guest, tmp_path: Path) -> None:
    data = os.urandom(300_000)
    (tmp_path / "out").write_bytes(data)
    guest.put(tmp_path / "out", "/root/there")
    guest.get("/root/there", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == data
    with pytest.raises(MeasurementError, match="no file /root/nothing"):
        guest.get("/root/nothing", tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_arguments_are_not_shell(guest: Guest) -> None:
    hostile = "$(touch /root/pwned); `id` \"'\n*"
    assert guest.run(["printf", "%s", hostile]).stdout == hostile.encode()
    assert guest.run(["test", "-e", "/root/pwned"], check=False).returncode == 1


def test_status_stdin_and_both_streams(guest: Guest) -> None:
    done = guest.run(["sh", "-c", "cat; echo no >&2; exit 7"], stdin=b"abc", check=False)
    assert (done.returncode, done.stdout, done.stderr) == (7, b"abc", b"no\n")
    with pytest.raises(MeasurementError, match="status 7: broken"):
        guest.run(["sh", "-c", "echo broken >&2; exit 7"])


def test_large_output_is_whole(guest: Guest) -> None:
    size = 3_000_000
    assert len(guest.run(["head", "-c", str(size), "/dev/zero"]).stdout) == size


def test_environment_with_compiled_libraries_runs(guest: Guest) -> None:
    # Under emulation QEMU's default processor kills these with SIGILL.
    program = "import numpy, pyarrow; print(int(numpy.arange(5).sum()))"
    assert guest.run([sys.executable, "-c", program]).text == "10"


def test_network_lets_nothing_out(guest: Guest) -> None:
    done = guest.run(
        ["python3", "-c", "import socket; socket.create_connection(('10.0.2.2', 22), 3)"],
        check=False,
    )
    assert done.returncode != 0


def test_command_limit_leaves_the_guest_usable(guest: Guest) -> None:
    with pytest.raises(CommandTimeout, match="time limit"):
        guest.run(["sleep", "60"], timeout_s=0.5)
    assert guest.run(["echo", "still here"]).text == "still here"


def test_guest_that_hangs_is_told_from_a_slow_command(
    guest: Guest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "_HANG_LIMIT_S", 1.0)
    guest.qmp("stop")
    try:
        with pytest.raises(GuestError, match="guest hangs"):
            guest.run(["true"], timeout_s=0.5)
    finally:
        guest.qmp("cont")
    assert guest.run(["echo", "back"]).text == "back"


def test_drive_can_be_unplugged(guest: Guest) -> None:
    victim = guest.devices[-1]
    guest.qmp("device_del", id=f"drive{len(guest.devices) - 1}")
    guest.qmp.wait_event("DEVICE_DELETED")
    assert guest.run(["test", "-b", victim], check=False).returncode == 1


def test_facts_name_emulation(guest: Guest) -> None:
    facts = guest.facts()
    assert facts["accelerator"] in ("kvm", "tcg")
    assert facts["boot_s"] > 0
    json.dumps(facts)


def test_port_taken_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(MachineError, match="port for SSH is taken") as caught, Guest(port=port):
            pass
    assert caught.value.fix is not None and "port" in caught.value.fix


def test_no_memory_is_refused_before_starting() -> None:
    with (
        pytest.raises(MachineError, match="not enough memory for the guest"),
        Guest(memory_bytes=1 << 50),
    ):
        pass


def test_panic_is_named(tmp_path: Path) -> None:
    """Also: a second guest beside the shared one, and a console where it was asked for."""
    console = tmp_path / "console.log"
    with Guest(console=console, memory_bytes=512 << 20) as second:
        with pytest.raises(GuestError, match="kernel panicked: sysrq triggered crash"):
            second.run(["sh", "-c", "echo c > /proc/sysrq-trigger; sleep 60"])
        assert not second.alive
    assert "Kernel panic" in console.read_text()


def test_boot_that_hangs_is_ended_and_named() -> None:
    # What follows `--` goes to the first process, which then sleeps instead of starting up.
    asleep = ["rdinit=/bin/busybox", "--", "sleep", "600"]
    hang = Guest(memory_bytes=512 << 20, boot_limit_s=9, kernel_args=asleep)
    with pytest.raises(GuestError, match=r"did not come up \(last seen: power on\): .*hangs"):
        hang.start()
    assert not hang.alive


_HOLDER = """
import os, sys, time
from harness.device.guest import Guest, NvmeDrive
with Guest([NvmeDrive(16 << 20)], memory_bytes=512 << 20) as guest:
    print(guest._process.pid, guest._state.name, flush=True)
    time.sleep(600)
"""


def test_no_guest_survives_its_command() -> None:
    holder = subprocess.Popen([sys.executable, "-c", _HOLDER], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    keeper, state = holder.stdout.readline().split()
    children = Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split()
    assert len(children) == 1
    holder.kill()
    holder.wait(timeout=20)
    for pid in (keeper, *children):
        _wait_gone(int(pid))
    assert not Path(state).exists()


def _wait_gone(pid: int) -> None:
    deadline = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists():
        if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            return
        assert time.monotonic() < deadline, f"process {pid} is still there"
        time.sleep(0.05)
