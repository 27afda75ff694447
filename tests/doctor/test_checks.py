"""Each probe's judgement, on this machine and on prepared answers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.core.errors import MachineError
from harness.doctor import Check, Outcome, all_checks, missing, require, run_checks
from harness.doctor.checks import guests, kernel, probe, space, tools
from harness.doctor.shell import version_of


def _run(name: str) -> Outcome:
    return next(c for c in all_checks() if c.name == name).run().outcome


def test_every_check_says_what_it_is_for_and_how_to_get_it() -> None:
    checks = all_checks()
    names = [check.name for check in checks]
    assert len(names) == len(set(names))
    assert all(c.why and c.fix and c.needed_by for c in checks)
    expected = {
        "kernel", "architecture", "root", "tracefs", "tracepoints", "btf", "bcc", "headers",
        "io_uring", "loop", "blkid", "fio", "nvme", "nvme-cli", "gpu", "nvidia-fs", "kvikio",
        "qemu", "femu", "kvm", "sshd", "huge-pages", "memory", "disk", "perf", "bpftrace",
    }  # fmt: skip
    assert expected <= set(names)


def test_json_entry_has_the_promised_fields() -> None:
    entry = run_checks([all_checks()[0]])[0].as_json()
    assert entry["name"] == "kernel"
    assert entry["ok"] is True
    assert {"name", "ok", "why", "fix", "detail", "needed_by", "required"} <= set(entry)


@pytest.mark.parametrize(
    ("text", "ok", "warning"),
    [
        ("fio-3.33", True, False),
        ("fio-3.31", True, False),
        ("fio-3.40-17-gabc", True, False),
        ("fio-3.41", True, True),
        ("fio-4.0", True, True),
        ("fio-3.30", False, False),
        ("fio-2.21", False, False),
        ("fio from somewhere", False, False),
    ],
)
def test_fio_versions(text: str, ok: bool, warning: bool) -> None:
    outcome = tools.fio_outcome(text)
    assert (outcome.ok, outcome.warning) == (ok, warning)


def test_version_of_takes_the_first_dotted_number() -> None:
    assert version_of("bpftrace v0.17.0 (2023)") == (0, 17, 0)
    assert version_of("no digits") == ()


def test_capabilities_of_a_container_root() -> None:
    everything = "Name:\tx\nCapEff:\t000001fffeffffff\n"
    docker = "Name:\tx\nCapEff:\t00000000a80425fb\n"
    assert kernel.missing_capabilities(everything) == []
    assert kernel.missing_capabilities(docker) == ["CAP_SYS_ADMIN", "CAP_PERFMON", "CAP_BPF"]


def test_header_pairs_need_both_halves(tmp_path: Path) -> None:
    for name in (
        "linux-headers-6.1.0-57-common", "linux-headers-6.1.0-57-amd64",
        "linux-headers-6.5.0-1-common", "linux-headers-6.9.0-1-amd64",
    ):  # fmt: skip
        (tmp_path / name).mkdir()
    assert probe.header_pairs(tmp_path) == ["6.1.0-57"]


def test_given_kernel_source_must_exist(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BCC_KERNEL_SOURCE", str(tmp_path / "gone"))
    assert not _run("headers").ok
    monkeypatch.setenv("BCC_KERNEL_SOURCE", str(tmp_path))
    assert _run("headers").ok


def test_a_tool_that_is_not_on_the_path_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert _run("fio") == Outcome(False, "not found")


def test_require_names_thing_reason_and_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(MachineError, match=r"fio: not found \(the layout benchmark\)") as caught:
        require("kernel", "fio")
    assert caught.value.exit_code == 3
    assert caught.value.fix is not None
    assert "fio" in caught.value.fix
    assert [found.check.name for found in missing(["kernel", "fio"])] == ["fio"]


def test_require_is_silent_when_all_is_there() -> None:
    require("kernel", "architecture")


def test_unknown_name_is_a_bug_not_a_finding() -> None:
    with pytest.raises(KeyError):
        require("no-such-check")


def test_a_probe_that_cannot_look_counts_as_missing() -> None:
    def broken() -> Outcome:
        raise PermissionError(13, "Permission denied", "/proc/x")

    finding = Check("x", why="y", fix="z", needed_by=("run",), probe=broken, required=True).run()
    assert finding.blocking
    assert "Permission denied" in finding.outcome.detail


def test_disk_is_looked_at_where_results_will_be(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    disk = space.checks(tmp_path / "not" / "yet")[1]
    monkeypatch.setattr(space, "NEEDED_DISK_BYTES", 1)
    assert disk.run().ok
    monkeypatch.setattr(space, "NEEDED_DISK_BYTES", 1 << 60)
    found = disk.run()
    assert found.blocking
    assert "1024 PiB needed" in found.outcome.detail


@pytest.mark.parametrize(
    ("devices", "ok"), [('name "nvme", bus PCI', False), ('name "femu", bus PCI', True)]
)
def test_femu_is_asked_for_its_device(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, devices: str, ok: bool
) -> None:
    binary = tmp_path / "qemu"
    binary.write_text(f"#!/bin/sh\necho '{devices}'\n")
    binary.chmod(0o755)
    monkeypatch.setenv("HARNESS_FEMU", str(binary))
    assert guests._femu().ok is ok


def test_femu_unset_or_broken_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HARNESS_FEMU", raising=False)
    assert "not set" in guests._femu().detail
    monkeypatch.setenv("HARNESS_FEMU", "/nonexistent/qemu")
    assert not guests._femu().ok


@pytest.mark.root
def test_looking_changes_no_mount_and_leaves_no_loop_device() -> None:
    before = Path("/proc/self/mountinfo").read_text()
    assert _run("tracefs").ok
    assert _run("tracepoints").ok
    loop = _run("loop")
    assert loop.ok, loop.detail
    assert Path("/proc/self/mountinfo").read_text() == before
    name = loop.detail.split("/dev/")[1].rstrip(")")
    backing = Path(f"/sys/block/{name}/loop/backing_file")
    assert not (backing.exists() and str(os.getpid()) in backing.read_text())


@pytest.mark.root
def test_the_mapped_array_and_io_uring_are_really_tried() -> None:
    assert _run("bpf").detail == "a BPF array that can be mapped could be made"
    assert _run("io_uring").detail.startswith("a ring of 8 entries")


@pytest.mark.parametrize(
    ("script", "ok", "detail"),
    [
        ("echo 'NVIDIA H200, 143771 MiB, 570.1'", True, "NVIDIA H200, 143771 MiB, 570.1"),
        ("echo 'NVIDIA-SMI has failed: no driver'; exit 9", False, "NVIDIA-SMI has failed"),
        ("true", False, "nvidia-smi lists no GPU"),
    ],
)
def test_a_gpu_counts_only_with_its_driver(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, ok: bool, detail: str
) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    outcome = _run("gpu")
    assert outcome.ok is ok
    assert detail in outcome.detail
