"""What the eBPF probe stands on: bpf(2), tracefs, tracepoints, BTF, bcc, headers."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import re
from pathlib import Path

from harness.doctor.model import Check, Outcome
from harness.doctor.shell import ask, install, last_line

_TRACEFS = ("/sys/kernel/tracing", "/sys/kernel/debug/tracing")
_BTF = Path("/sys/kernel/btf/vmlinux")
_TRACEPOINTS = ("block_rq_issue", "block_rq_complete")
_SYSTEM_PYTHON = "/usr/bin/python3"
_NR_BPF = {"x86_64": 321, "aarch64": 280}
_MAP_CREATE, _MAP_TYPE_ARRAY, _MMAPABLE = 0, 2, 1024


def _bpf() -> Outcome:
    number = _NR_BPF.get(platform.machine())
    if number is None:
        return Outcome(False, f"no system call number known for {platform.machine()}")
    attributes = (ctypes.c_uint32 * 16)(_MAP_TYPE_ARRAY, 4, 8, 1, _MMAPABLE)
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.syscall(number, _MAP_CREATE, ctypes.byref(attributes), ctypes.sizeof(attributes))
    if fd >= 0:
        os.close(fd)
        return Outcome(True, "a BPF array that can be mapped could be made")
    code = ctypes.get_errno()
    fix = "run the same command with sudo" if code == errno.EPERM else None
    return Outcome(False, f"bpf(2): {os.strerror(code)}", fix=fix)


def _tracefs_mount() -> str | None:
    return next((top for top in _TRACEFS if os.path.isdir(f"{top}/events")), None)


def _tracefs() -> Outcome:
    mounted = _tracefs_mount()
    if mounted:
        return Outcome(True, f"mounted at {mounted}")
    code, said = _in_private_tracefs("true")
    if code == 0:
        return Outcome(True, "not mounted, but it can be (tried in a mount namespace of its own)")
    return Outcome(False, f"not mounted and cannot be: {last_line(said)}")


def _in_private_tracefs(command: str) -> tuple[int, str]:
    # A mount namespace of its own: looking must not change the machine.
    script = f"mount -t tracefs nodev {_TRACEFS[0]} && {command}"
    return ask("unshare", "--mount", "sh", "-c", script)


def _tracepoints() -> Outcome:
    listing = "/events/block"
    mounted = _tracefs_mount()
    if mounted:
        found = set(os.listdir(mounted + listing)) if os.path.isdir(mounted + listing) else set()
    else:
        found = set(_in_private_tracefs(f"ls {_TRACEFS[0]}{listing}")[1].split())
    lacking = [name for name in _TRACEPOINTS if name not in found]
    if lacking:
        return Outcome(False, f"no tracepoint {' or '.join('block:' + n for n in lacking)}")
    return Outcome(True, ", ".join("block:" + name for name in _TRACEPOINTS))


def _btf() -> Outcome:
    if not _BTF.exists():
        return Outcome(False, f"{_BTF} is not there (CONFIG_DEBUG_INFO_BTF)")
    content = _BTF.read_bytes()
    lacking = [n for n in _TRACEPOINTS if f"btf_trace_{n}\0".encode() not in content]
    if lacking:
        return Outcome(False, f"BTF does not describe {', '.join(lacking)}")
    return Outcome(True, f"{_BTF}, {len(content) / 2**20:.1f} MiB, describes the tracepoints")


def _bcc() -> Outcome:
    code, said = ask(_SYSTEM_PYTHON, "-I", "-c", "import bcc; print(bcc.__version__)")
    if code == 0:
        return Outcome(True, f"{last_line(said)} under {_SYSTEM_PYTHON}")
    return Outcome(False, f"{_SYSTEM_PYTHON}: {last_line(said)}")


def _headers() -> Outcome:
    given = os.environ.get("BCC_KERNEL_SOURCE")
    if given:
        return Outcome(Path(given).is_dir(), f"BCC_KERNEL_SOURCE={given}")
    release = platform.release()
    own = Path("/lib/modules") / release / "build"
    if own.exists():
        return Outcome(True, f"{own}, of the running kernel")
    pairs = header_pairs(Path("/usr/src"))
    if pairs:
        return Outcome(True, f"none for {release}; Debian's pair {pairs[-1]} can be merged for bcc")
    return Outcome(False, f"none for {release}, and no Debian pair under /usr/src")


def header_pairs(source: Path) -> list[str]:
    """Versions whose ``-common`` and architecture header folders are both in ``source``."""
    versions = []
    for common in sorted(source.glob("linux-headers-*-common")):
        version = common.name.removeprefix("linux-headers-").removesuffix("-common")
        arches = [
            path
            for path in source.glob(f"linux-headers-{version}-*")
            if path != common and re.fullmatch(r"[a-z0-9]+", path.name.rpartition("-")[2])
        ]
        if arches:
            versions.append(version)
    return versions


_USED_BY = ("run", "capture")

CHECKS = (
    Check(
        "bpf",
        why="the probe hands its events over in a mapped BPF array",
        fix="use a kernel with CONFIG_BPF_SYSCALL that is not locked down",
        needed_by=_USED_BY,
        probe=_bpf,
        required=True,
    ),
    Check(
        "tracefs",
        why="the probe finds the block tracepoints there",
        fix="mount -t tracefs nodev /sys/kernel/tracing (as root)",
        needed_by=_USED_BY,
        probe=_tracefs,
        required=True,
    ),
    Check(
        "tracepoints",
        why="each block request is seen at issue and at completion",
        fix="use a kernel with CONFIG_BLOCK and CONFIG_TRACEPOINTS",
        needed_by=_USED_BY,
        probe=_tracepoints,
        required=True,
    ),
    Check(
        "btf",
        why="raw tracepoints read request fields by the kernel's own description; "
        "without it nested completions may be missed",
        fix="use a kernel with CONFIG_DEBUG_INFO_BTF",
        needed_by=_USED_BY,
        probe=_btf,
    ),
    Check(
        "bcc",
        why="compiles and loads the probe",
        fix=install("python3-bpfcc"),
        needed_by=_USED_BY,
        probe=_bcc,
        required=True,
    ),
    Check(
        "headers",
        why="bcc compiles the probe against a kernel tree, of any version",
        fix=install("linux-headers-amd64"),
        needed_by=_USED_BY,
        probe=_headers,
        required=True,
    ),
)
