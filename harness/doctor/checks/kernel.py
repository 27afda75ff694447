"""Kernel, architecture and privileges."""

from __future__ import annotations

import os
import platform

from harness.doctor.model import Check, Outcome
from harness.doctor.shell import read_text, version_of

_ARCHITECTURES = ("x86_64",)
_OLDEST_KERNEL = (5, 12)
_CAP_SYS_ADMIN, _CAP_PERFMON, _CAP_BPF = 21, 38, 39


def _kernel() -> Outcome:
    name, release = platform.system(), platform.release()
    if name != "Linux":
        return Outcome(False, f"{name} {release}")
    return Outcome(version_of(release)[:2] >= _OLDEST_KERNEL, f"Linux {release}")


def _architecture() -> Outcome:
    machine = platform.machine()
    return Outcome(machine in _ARCHITECTURES, machine)


def _root() -> Outcome:
    if os.geteuid() != 0:
        return Outcome(False, f"running as user {os.geteuid()}")
    lacking = missing_capabilities(read_text("/proc/self/status") or "")
    if lacking:
        return Outcome(
            False,
            f"root without {', '.join(lacking)}",
            fix="start the container with --privileged, or run outside it",
        )
    return Outcome(True, "root with CAP_SYS_ADMIN, CAP_BPF and CAP_PERFMON")


def missing_capabilities(status: str) -> list[str]:
    """Names of the needed capabilities that ``CapEff`` in ``/proc/self/status`` lacks."""
    words = [line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")]
    effective = int(words[0], 16) if words else 0
    needed = {
        "CAP_SYS_ADMIN": _CAP_SYS_ADMIN,
        "CAP_PERFMON": _CAP_PERFMON,
        "CAP_BPF": _CAP_BPF,
    }
    return [name for name, bit in needed.items() if not effective >> bit & 1]


def _huge_pages() -> Outcome:
    modes = read_text("/sys/kernel/mm/transparent_hugepage/enabled") or ""
    free = next(
        (
            int(line.split()[1])
            for line in (read_text("/proc/meminfo") or "").splitlines()
            if line.startswith("HugePages_Free:")
        ),
        0,
    )
    transparent = "[always]" in modes or "[madvise]" in modes
    detail = f"transparent: {modes or 'not built in'}; reserved and free: {free}"
    return Outcome(transparent or free > 0, detail)


CHECKS = (
    Check(
        "kernel",
        why="io_uring, atomic BPF instructions and block tracepoints",
        fix="use Linux 5.12 or newer",
        needed_by=("run", "capture", "replay"),
        probe=_kernel,
        required=True,
    ),
    Check(
        "architecture",
        why="the rings are read with the memory ordering of x86-64, where it was measured",
        fix="use an x86-64 machine",
        needed_by=("run", "capture", "replay"),
        probe=_architecture,
        required=True,
    ),
    Check(
        "root",
        why="the kernel lets only root load the probe and make loop devices",
        fix="run the same command with sudo",
        needed_by=("run", "capture", "emit", "replay"),
        probe=_root,
        required=True,
    ),
    Check(
        "huge-pages",
        why="buffers on ordinary pages make the kernel split large requests "
        "(1280 KiB became 512 + 512 + 256)",
        fix="echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
        needed_by=("replay", "emit"),
        probe=_huge_pages,
    ),
)
