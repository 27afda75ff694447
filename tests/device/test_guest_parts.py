"""The parts of a guest that need none: archive, modules, diagnosis, command line, memory."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.core.errors import MachineError
from harness.core.memory import available_bytes
from harness.device.guest import Guest, accel, binary, keeper, kernel, memory
from harness.device.guest.accel import Accelerator
from harness.device.guest.boot import Links, Secrets, qemu_argv
from harness.device.guest.diagnose import diagnose
from harness.device.guest.drives import FemuDrive, NvmeDrive
from harness.device.guest.initramfs import Entry, busybox_path, cpio
from harness.device.guest.ops_witness import in_order, parse_issues
from harness.device.guest.qmp import Qmp, QmpError

# -- initramfs ------------------------------------------------------------------------------------


def test_archive_is_what_busybox_unpacks(tmp_path: Path) -> None:
    entries = [
        Entry("dir", stat.S_IFDIR | 0o755),
        Entry("dir/odd", stat.S_IFREG | 0o600, b"12345"),
        Entry("run", stat.S_IFREG | 0o755, bytes(range(256))),
    ]
    subprocess.run(
        [str(busybox_path()), "cpio", "-idm"], input=cpio(entries), cwd=tmp_path, check=True,
        capture_output=True,
    )  # fmt: skip
    assert (tmp_path / "dir/odd").read_bytes() == b"12345"
    assert stat.S_IMODE((tmp_path / "dir/odd").stat().st_mode) == 0o600
    assert (tmp_path / "run").read_bytes() == bytes(range(256))
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["dir", "odd", "run"]


def test_modules_come_after_what_they_need() -> None:
    index = kernel.parse_modules_dep(
        "k/nvme.ko: k/nvme-core.ko k/t10-pi.ko k/crc-t10dif.ko\n"
        "k/nvme-core.ko: k/t10-pi.ko k/crc-t10dif.ko\n"
        "k/t10-pi.ko: k/crc-t10dif.ko\nk/crc-t10dif.ko:\nk/9p.ko.xz: \n"
    )
    order = kernel.load_order(index, ("nvme", "9p", "built_in", "nvme_core"))
    assert order == ["k/crc-t10dif.ko", "k/t10-pi.ko", "k/nvme-core.ko", "k/nvme.ko", "k/9p.ko.xz"]


# -- kernel ---------------------------------------------------------------------------------------


def test_no_kernel_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path))
    monkeypatch.setattr(kernel, "_choose_package", lambda: None)
    with pytest.raises(MachineError, match="no guest kernel") as caught:
        kernel.guest_kernel()
    assert caught.value.fix is not None and "apt-get update" in caught.value.fix


def test_failed_fetch_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path))
    monkeypatch.setenv("HARNESS_GUEST_KERNEL", "linux-image-no-such-release")
    with pytest.raises(MachineError, match="linux-image-no-such-release failed"):
        kernel.guest_kernel()
    assert list((tmp_path / "kernels").iterdir()) == []


# -- diagnosis ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("console", "log", "status", "cause", "fix"),
    [
        ("", "No free lines left in [vSSD0] !!!!", 134, "free lines", "over-provisioning"),
        ("", "Failed to pin the memory backend to the host DRAM", 134, "lock", "ulimit -l"),
        ("", "GLib-ERROR: failed to allocate 68719476736 bytes", 133, "refused", "--scale"),
        ("", "-netdev user: Could not set up host forwarding rule", 1, "port for SSH", "free one"),
        ("", "'femu' is not a valid device model name", 1, "no FEMU drive", "HARNESS_FEMU"),
        ("", "Property 'femu.op_pcent' not found", 1, "does not know", "99ce4fb2b"),
        ("Kernel panic - not syncing: VFS: x", "", 0, "panicked: VFS: x", "console"),
        ("Out of memory: Killed process 9 (python3)", "", None, "killed python3", "more memory"),
        ("nvme nvme0: Removing after probe failure status: -19", "", None, "gave the drive up",
         "shadow doorbells"),
        ("", "", 124, "time limit", None),
        ("", "", 139, "crashed (SIGSEGV)", None),
        ("", "", 137, "out-of-memory", None),
        ("", "", None, "hangs", "more time"),
        ("", "qemu: weird\n", 1, "qemu: weird", None),
        ("", "", 0, "ended by itself (status 0)", None),
    ],
)  # fmt: skip
def test_diagnosis(console: str, log: str, status: int | None, cause: str, fix: str | None) -> None:
    found = diagnose(console, log, status)
    assert cause in found.cause
    assert (found.fix is None) if fix is None else (found.fix is not None and fix in found.fix)


# -- QEMU -----------------------------------------------------------------------------------------


def test_devices_and_properties_as_qemu_prints_them() -> None:
    listed = 'Storage devices:\nname "femu", bus PCI, desc "FEMU"\nname "nvme", bus PCI\n\n'
    assert binary.parse_devices(listed) == {"femu", "nvme"}
    options = "femu options:\n  op_pcent=<uint32>        -  (default: 0)\n  fdp.nruh=<uint16>\n"
    assert binary.parse_properties(options) == {"op_pcent", "fdp.nruh"}


def test_femu_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    stock = binary.find_qemu({"nvme"})
    monkeypatch.setenv("HARNESS_FEMU", stock)
    with pytest.raises(MachineError, match="has no femu device"):
        binary.find_qemu({"femu"})
    monkeypatch.setenv("HARNESS_FEMU", "/no/such/qemu")
    with pytest.raises(MachineError, match="cannot run /no/such/qemu"):
        binary.find_qemu({"femu"})
    monkeypatch.delenv("HARNESS_FEMU")
    with pytest.raises(MachineError, match="FEMU is not installed") as caught:
        binary.find_qemu({"femu"})
    assert caught.value.fix is not None and "github.com/MoatLab/FEMU" in caught.value.fix


def test_command_line_binds_to_loopback_and_lets_nothing_out(tmp_path: Path) -> None:
    links = Links.make(40022)
    try:
        argv = qemu_argv(
            "qemu", Accelerator("tcg", ""), Path("k"), Path("i"), tmp_path / "con,sole", links,
            1 << 30, 1, [(NvmeDrive(1 << 20, options={"mdts": "5"}), tmp_path / "d")], ["quiet"],
        )  # fmt: skip
    finally:
        links.close()
    network = argv[argv.index("-netdev") + 1]
    assert network == "user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:40022-:22"
    share = argv[argv.index("-fsdev") + 1]
    assert "path=/," in share and "readonly=on" in share
    assert argv[argv.index("-cpu") + 1] == "max"
    assert any(word.endswith("con,,sole") for word in argv)
    assert any(word.startswith("nvme,id=drive0,addr=0x10,") and "mdts=5" in word for word in argv)
    assert argv[argv.index("-append") + 1].endswith(" quiet")


def test_every_guest_has_keys_of_its_own() -> None:
    first, second = Secrets.make(), Secrets.make()
    files = first.guest_files()
    assert first.host_key != second.host_key and first.user_key != second.user_key
    assert files["host_key"].startswith(b"-----BEGIN EC PRIVATE KEY-----")
    assert b"PasswordAuthentication no" in files["sshd_config"]


def test_qmp_keeps_events_and_refusals_apart() -> None:
    ours, theirs = socket.socketpair()
    replies = [
        {"QMP": {"version": {}}},
        {"return": {}},
        {"event": "DEVICE_DELETED", "data": {"device": "d"}},
        {"error": {"class": "GenericError", "desc": "no such device"}},
        {"return": {"status": "running"}},
    ]
    theirs.sendall(b"".join(json.dumps(reply).encode() + b"\r\n" for reply in replies))
    qmp = Qmp(ours)
    qmp.handshake()
    with pytest.raises(QmpError, match="refused device_del: no such device"):
        qmp("device_del", id="x")
    assert qmp("query-status") == {"status": "running"}
    assert qmp.wait_event("DEVICE_DELETED")["data"] == {"device": "d"}
    theirs.close()
    with pytest.raises(QmpError, match="closed"):
        qmp("query-status")
    qmp.close()


# -- memory ---------------------------------------------------------------------------------------


def test_memory_that_is_missing_is_listed_part_by_part() -> None:
    memory.check_memory({"guest": 1 << 30}, 1 << 30, "x")
    with pytest.raises(MachineError) as caught:
        memory.check_memory({"guest": 1 << 30, "drive data 0": 12 << 30}, 4 << 30, "smaller")
    assert str(caught.value) == (
        "not enough memory for the guest: it needs 13 GiB (guest 1 GiB, drive data 0 12 GiB),"
        " 4 GiB are available"
    )
    assert caught.value.fix == "smaller"
    assert available_bytes() > 0


def test_femu_drive_larger_than_the_host_never_starts() -> None:
    drive = FemuDrive({"femu_mode": 1}, 1 << 50, 1 << 50, 1 << 38)
    guest = Guest([drive], binary="unused", accelerator=Accelerator("tcg", "test"))
    with pytest.raises(MachineError, match="drive data 0 1 PiB, FTL metadata 0 20 TiB"):
        guest.start()


# -- KVM probe ------------------------------------------------------------------------------------


def test_kvm_answer_is_asked_once_and_remembered(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = []
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path))
    monkeypatch.setattr(accel.os, "access", lambda path, mode: True)
    monkeypatch.setattr(accel, "probe_kvm", lambda name, image: asked.append(name) or False)
    for _ in range(2):
        found = accel.choose_accelerator("qemu", Path("k"))
        assert found.name == "tcg" and "does not boot" in found.why
    accel.choose_accelerator("other-qemu", Path("k"))
    assert asked == ["qemu", "other-qemu"]


def test_kvm_probe_ends_within_its_limit() -> None:
    clock = time.monotonic()
    works = accel.probe_kvm(binary.find_qemu({"nvme"}), kernel.guest_kernel().image, limit_s=3.0)
    assert time.monotonic() - clock < 8.0
    assert isinstance(works, bool)


def emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the probe run under emulation instead of KVM."""
    real = subprocess.run

    def run(argv: list[str], **options: object) -> object:
        words = ["tcg" if word == "kvm" else "max" if word == "host" else word for word in argv]
        return real(words, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(accel.subprocess, "run", run)


@pytest.mark.guest
@pytest.mark.slow
def test_probe_says_yes_where_linux_boots(monkeypatch: pytest.MonkeyPatch) -> None:
    emulated(monkeypatch)
    image = kernel.guest_kernel().image
    assert accel.probe_kvm(binary.find_qemu({"nvme"}), image, limit_s=120.0)


def test_probe_says_no_where_a_guest_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    emulated(monkeypatch)
    image = kernel.guest_kernel().image
    assert not accel.probe_kvm(binary.find_qemu({"nvme"}), image, limit_s=0.5)


# -- keeper ---------------------------------------------------------------------------------------


def keep(limit_s: str, state: Path, *argv: str) -> subprocess.Popen[bytes]:
    """A keeper of ``argv`` whose parent is this process."""
    words = [sys.executable, "-I", keeper.__file__, str(os.getpid()), limit_s, str(state), *argv]
    return subprocess.Popen(words)


def test_keeper_gives_the_exit_status_on(tmp_path: Path) -> None:
    assert keep("60", tmp_path, "sh", "-c", "exit 7").wait(20) == 7
    assert keep("60", tmp_path, "sh", "-c", "kill -SEGV $$").wait(20) == 128 + 11
    assert tmp_path.exists()


def test_keeper_ends_what_takes_too_long(tmp_path: Path) -> None:
    assert keep("0.3", tmp_path, "sleep", "600").wait(20) == keeper.TIMED_OUT


def child_of(held: subprocess.Popen[bytes]) -> int:
    """The process a keeper holds, once it is there."""
    children = Path(f"/proc/{held.pid}/task/{held.pid}/children")
    deadline = time.monotonic() + 10
    while not children.read_text():
        assert time.monotonic() < deadline
    return int(children.read_text().split()[0])


def test_keeper_ends_its_child_when_told(tmp_path: Path) -> None:
    held = keep("60", tmp_path, "sleep", "600")
    child = child_of(held)
    held.terminate()
    assert held.wait(20) == 128 + 9
    assert not Path(f"/proc/{child}").exists()


def test_child_dies_with_its_keeper(tmp_path: Path) -> None:
    held = keep("60", tmp_path, "sleep", "600")
    child = child_of(held)
    held.kill()
    held.wait(20)
    deadline = time.monotonic() + 10
    while Path(f"/proc/{child}").exists():
        assert time.monotonic() < deadline


# -- order ----------------------------------------------------------------------------------------


def test_order_is_read_from_the_kernels_own_trace() -> None:
    text = """# tracer: nop
          python-99    [000] ..s1.   12.5: block_rq_issue: 259,0 WS 4096 () 8 + 8 [python]
          python-99    [000] ..s1.   12.6: block_rq_issue: 259,0 FF 0 () 0 + 0 [python]
          python-99    [000] ..s1.   12.7: block_rq_issue: 259,0 R 131072 () 2048 + 256 [python]
          python-99    [000] ..s1.   12.8: block_rq_issue: 259,0 DS 4096 () 16 + 8 [python]
    """
    issued = parse_issues(text)
    assert issued == [("W", 8, 8), ("R", 2048, 256), ("D", 16, 8)]
    assert in_order(issued, issued) == 3
    assert in_order([("R", 2048, 256), ("W", 8, 8), ("D", 16, 8)], issued) == 1
    assert in_order(issued, issued[:1]) == 1
