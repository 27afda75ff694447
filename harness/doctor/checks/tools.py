"""Programs that are called: fio, nvme-cli, sshd, and peers to compare with."""

from __future__ import annotations

from harness.doctor.model import Check, Outcome
from harness.doctor.shell import ask, find_tool, install, last_line, version_of

_FIO_OLDEST = (3, 31)
_FIO_HANGS_FROM = (3, 41)


def _fio() -> Outcome:
    path = find_tool("fio")
    if path is None:
        return Outcome(False, "not found")
    code, said = ask(path, "--version")
    return fio_outcome(last_line(said)) if code == 0 else Outcome(False, last_line(said))


def fio_outcome(text: str) -> Outcome:
    """Judge what ``fio --version`` printed."""
    version = version_of(text)[:2]
    if not version:
        return Outcome(False, f"version not understood: {text}")
    if version < _FIO_OLDEST:
        return Outcome(False, f"{text}; iolog version 3 needs 3.31", fix="install a newer fio")
    if version >= _FIO_HANGS_FROM:
        detail = f"{text}; 3.41 and newer hang in timed io_uring replay, libaio is used there"
        return Outcome(True, detail, warning=True)
    return Outcome(True, text)


def _tool(name: str, *version: str) -> Outcome:
    path = find_tool(name)
    if path is None:
        return Outcome(False, "not found")
    if not version:
        return Outcome(True, path)
    code, said = ask(path, *version)
    first = said.splitlines()[0] if said else "no version"
    return Outcome(code == 0, f"{path}: {first}")


CHECKS = (
    Check(
        "fio",
        why="the layout benchmark",
        fix=install("fio"),
        needed_by=("run", "bench"),
        probe=_fio,
        required=True,
    ),
    Check(
        "nvme-cli",
        why="reads a drive's wear counters",
        fix=install("nvme-cli"),
        needed_by=("replay", "validate"),
        probe=lambda: _tool("nvme", "version"),
    ),
    Check(
        "sshd",
        why="the tests of remote capture and of nightly jobs log in on loopback",
        fix=install("openssh-server"),
        needed_by=("test",),
        probe=lambda: _tool("sshd"),
    ),
    Check(
        "bpftrace",
        why="a peer that the capture benchmark compares with",
        fix=install("bpftrace"),
        needed_by=("benchmarks",),
        probe=lambda: _tool("bpftrace", "--version"),
    ),
    Check(
        "perf",
        why="a peer that the capture benchmark compares with",
        fix=install("linux-perf"),
        needed_by=("benchmarks",),
        probe=lambda: _tool("perf", "--version"),
    ),
    Check(
        "chromium",
        why="the tests open each report in a real browser",
        fix=install("chromium"),
        needed_by=("test",),
        probe=lambda: _tool("chromium"),
    ),
)
