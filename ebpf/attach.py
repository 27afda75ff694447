"""Compile the probe with bcc, attach it, and describe what the pump needs to carry on."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from typing import Any

import bpfsys
import filters
import frames
import layout
import tracefs
from btf import Btf, BtfError

HERE = os.path.dirname(os.path.abspath(__file__))
_RAW_TRACEPOINT, _TRACEPOINT = 17, 5  # BPF_PROG_TYPE_...
_MOST_RINGS = 8
_PROGRAMS_A_CPU = 8  # that may be at work at once on one CPU, each interrupting the one before

# Attached in this order: completions first, so that no issue is seen without its completion.
_ALWAYS = (
    ("block_bio_backmerge", "on_bio_merge"),
    ("block_bio_frontmerge", "on_bio_merge"),
    ("block_split", "on_split"),
)
_PIDS = (("sched_process_fork", "on_fork"), ("sched_process_exit", "on_exit"))
_BIO_ENDS = (("block_bio_complete", "on_bio_complete"),)
_BIOS = (("block_bio_queue", "on_bio_queue"),)
_NVME = ("nvme_setup_cmd", "on_nvme_setup")  # perhaps of a module, so without types
_REQUESTS = (
    ("block_rq_requeue", "on_requeue"),
    ("block_rq_merge", "on_request_merge"),
    ("block_rq_complete", "on_complete"),
    ("block_rq_issue", "on_issue"),
)
_FALLBACK = (("block_rq_complete", "on_complete"), ("block_rq_issue", "on_issue"))


class AttachError(Exception):
    """The kernel or bcc refused; ``fix`` says what to do."""

    def __init__(self, message: str, fix: str | None = None) -> None:
        super().__init__(message)
        self.fix = fix


def attach(arguments: argparse.Namespace, devices: list[dict]) -> dict:
    """Attach the probe to ``devices``; the state that pump.py is started with.

    File descriptors in the state survive exec; the probe lives as long as they are open.
    """
    if platform.machine() != "x86_64":
        raise AttachError(
            f"the ring is read without memory barriers, which {platform.machine()} needs",
            "capture on an x86-64 host",
        )
    btf = None
    notes = []
    if not arguments.no_btf:
        try:
            btf = Btf.load()
        except BtfError as error:
            notes.append(str(error))
    parts = _attach_raw(btf, arguments, devices) if btf else _attach_fallback(arguments, devices)
    for fd in (*(fd for _, fd in parts["links"]), *parts["programs"].values()):
        os.set_inheritable(fd, True)
    bpf = parts.pop("bpf")
    maps = {name: bpf[name.encode()].map_fd for name in ("ring", "positions", "counters")}
    for fd in maps.values():
        os.set_inheritable(fd, True)
    state = {
        **parts,
        "maps": maps,
        "ring_records": _ring_records(arguments),
        "rings": _rings(),
        "devices": devices,
        "compress": arguments.compress,
        "by_issuer": bool(arguments.pid or arguments.cgroup),
        "notes": notes + parts["notes"],
    }
    return state


def _attach_raw(btf: Btf, arguments: argparse.Namespace, devices: list[dict]) -> dict:
    on = filters.switches(arguments, devices)
    macros = [f"#define {name} {value}" for name, value in layout.kernel_macros(btf).items()]
    macros += [f"#define {name}" for name in sorted(on)]
    macros.append(f"#define CLASS_MASK {layout.class_mask(arguments.ops)}")
    if arguments.cgroup:
        macros += filters.cgroup_macros(arguments.cgroup)
    bpf = _compile(("kernel.h", "issuer.h", "probe.bpf.c"), macros, arguments, devices)
    links: list[tuple[str, int]] = []
    programs: dict[str, int] = {}
    notes = []
    if "WANT_NVME" in on:
        tracepoint, function = _NVME
        programs[function] = _load(bpf, function, _RAW_TRACEPOINT).fd
        fd = _bcc().lib.bpf_attach_raw_tracepoint(programs[function], tracepoint.encode())
        if fd >= 0:
            links.append((function, fd))
        else:
            notes.append(f"no tracepoint {tracepoint}: passthrough commands have no address")
    for tracepoint, function in _wanted(on):
        programs[function] = _load_typed(bpf, function, btf.tracepoint_id(tracepoint))
        links.append((function, bpfsys.attach_typed(programs[function])))
    if arguments.pid:
        table = bpf[b"pids"]
        for _ in range(2):  # forks are followed by now, but only those of processes in the table
            for pid in filters.descendants(arguments.pid):
                table[table.Key(pid)] = table.Leaf(1)
    return {
        "bpf": bpf, "links": links, "programs": programs, "notes": notes,
        "meaning": layout.meaning(btf), "mode": "raw",
    }  # fmt: skip


def _wanted(on: set[str]) -> list[tuple[str, str]]:
    programs = list(_ALWAYS)
    if "FILTER_PID" in on:
        programs += _PIDS
    if "BIO_BASED" in on:
        programs += _BIO_ENDS
    if on & {"WANT_BIOS", "FILTER_ISSUER"}:
        programs += _BIOS
    if "WANT_REQUESTS" in on:
        programs += _REQUESTS
    return programs


def _attach_fallback(arguments: argparse.Namespace, devices: list[dict]) -> dict:
    if arguments.pid or arguments.cgroup or arguments.ops or arguments.bios:
        raise AttachError("filters and bios need the kernel's BTF", "use a kernel with BTF")
    if any(device["bio_based"] or device["hidden_paths"] for device in devices):
        raise AttachError("a device without requests of its own needs the kernel's BTF",
                          "use a kernel with BTF")  # fmt: skip
    try:
        with tracefs.mounted() as folder:
            macros = _fallback_macros(folder)
            bpf = _compile(("fallback.bpf.c",), macros, arguments, devices)
            links: list[tuple[str, int]] = []
            programs: dict[str, int] = {}
            for tracepoint, function in _FALLBACK:
                program = _load(bpf, function, _TRACEPOINT)
                fd = _bcc().lib.bpf_attach_tracepoint(program.fd, b"block", tracepoint.encode())
                if fd < 0:
                    raise AttachError(f"cannot attach to the tracepoint {tracepoint}")
                links.append((function, fd))
                programs[function] = program.fd
    except tracefs.TracefsError as error:
        raise AttachError(str(error), "mount -t tracefs tracefs /sys/kernel/tracing") from error
    return {
        "bpf": bpf, "links": links, "programs": programs, "notes": [], "meaning": None,
        "mode": "tracepoint",
    }  # fmt: skip


def _fallback_macros(folder: str) -> list[str]:
    macros = []
    for prefix, fields in (
        ("ISSUE", ("DEV", "SECTOR", "NR_SECTOR", "RWBS")),
        ("COMPLETE", ("DEV", "SECTOR", "NR_SECTOR", "RWBS", "ERROR")),
    ):
        offsets = tracefs.field_offsets(folder, f"block_rq_{prefix.lower()}")
        macros += [f"#define {prefix}_{name} {offsets[name]}" for name in fields]
    return macros


def _compile(
    parts: tuple[str, ...], macros: list[str], arguments: argparse.Namespace, devices: list[dict]
) -> Any:
    lines = [*macros, *filters.device_macros(devices)]
    lines.append(f"#define RING_RECORDS {_ring_records(arguments)}ULL")
    lines.append(f"#define RINGS {_rings()}")
    lines.append(f"#define RING_MARGIN {_ring_margin()}")
    for part in ("record.h", "ring.h", *parts):
        with open(os.path.join(HERE, part)) as file:
            lines.append(file.read())
    try:
        return _bcc().BPF(text="\n".join(lines).encode())
    except Exception as error:
        if os.geteuid() != 0:
            raise _refused(error) from error
        raise AttachError(f"the probe does not compile: {error}") from error


def _load(bpf: Any, function: str, kind: int) -> Any:
    try:
        return bpf.load_func(function.encode(), kind)
    except Exception as error:
        raise _refused(error) from error


def _load_typed(bpf: Any, function: str, btf_id: int) -> int:
    try:
        return bpfsys.load_typed(function, bpf.dump_func(function.encode()), btf_id)
    except OSError as error:
        raise _refused(error) from error


def _refused(error: Exception) -> AttachError:
    if os.geteuid() != 0:
        return AttachError("loading a probe needs root", "run it with sudo")
    return AttachError(f"the kernel refuses the probe: {error}")


def _rings() -> int:
    """A power of two: one for each CPU that is online, up to a number from which on they share."""
    return 1 << (min(os.cpu_count() or 1, _MOST_RINGS) - 1).bit_length()


def _ring_records(arguments: argparse.Namespace) -> int:
    """Of all rings, a power of two: not more than asked for, but room in each beside its margin."""
    wanted = int(arguments.ring_mib * (1 << 20)) // frames.RECORD_BYTES
    return 1 << (max(wanted, 2 * _rings() * _ring_margin()).bit_length() - 1)


def _ring_margin() -> int:
    """Places of a ring that stay free: programs on all its CPUs may reserve one at once."""
    return -(-bpfsys.possible_cpus() // _rings()) * _PROGRAMS_A_CPU


def _bcc() -> Any:
    try:
        import bcc
    except ImportError as error:
        raise AttachError(
            f"{sys.executable} has no bcc: {error}", "apt-get install python3-bpfcc"
        ) from error
    return bcc
