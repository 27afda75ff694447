"""Compile the probe with bcc, attach it, and describe what the pump needs to carry on."""

from __future__ import annotations

import argparse
import os
import platform
import struct
import sys
from typing import Any

import layout
import sysblock
from btf import Btf

HERE = os.path.dirname(os.path.abspath(__file__))
# Attached in this order: completions first, so that no issue is seen without its completion.
_ALWAYS = (
    ("block_bio_backmerge", "on_bio_merge"),
    ("block_bio_frontmerge", "on_bio_merge"),
    ("block_split", "on_split"),
)
_BIOS = (("block_bio_complete", "on_bio_complete"), ("block_bio_queue", "on_bio_queue"))
_REQUESTS = (
    ("block_rq_requeue", "on_requeue"),
    ("block_rq_merge", "on_request_merge"),
    ("block_rq_complete", "on_complete"),
    ("block_rq_issue", "on_issue"),
)
_PIDS = (("sched_process_fork", "on_fork"), ("sched_process_exit", "on_exit"))
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class AttachError(Exception):
    """The kernel or bcc refused; ``fix`` says what to do."""

    def __init__(self, message: str, fix: str | None = None) -> None:
        super().__init__(message)
        self.fix = fix


def attach(arguments: argparse.Namespace, devices: list[dict]) -> dict:
    """Attach the probe to ``devices``; the state that pump.py is started with.

    File descriptors in the state survive exec; the probe lives as long as they are open.
    """
    if platform.machine() not in ("x86_64", "s390x"):
        raise AttachError(
            f"the ring is read without memory barriers, which {platform.machine()} needs",
            "capture on an x86-64 host",
        )
    btf = Btf.load()
    macros = {**layout.kernel_macros(btf), **_ring_macros(arguments), "N_DEVICES": len(devices)}
    macros["CLASS_MASK"] = layout.class_mask(arguments.ops)
    switches = _switches(arguments, devices)
    text = _source(macros, switches, devices)
    bpf = _compile(text)
    _fill_pids(bpf, arguments.pid)
    links = {
        tracepoint: _attach_one(bpf, tracepoint, function)
        for tracepoint, function in _programs(switches)
    }
    programs = {tracepoint: bpf.funcs[function.encode()].fd
                for tracepoint, function in _programs(switches)}  # fmt: skip
    state = {
        "ring_fd": bpf[b"ring"].map_fd,
        "ring_bytes": int(macros["RING_PAGES"]) * _PAGE_BYTES,
        "counters_fd": bpf[b"counters"].map_fd,
        "links": links,
        "programs": programs,
        "devices": devices,
        "compress": arguments.compress,
        "meaning": layout.meaning(btf),
        "mode": "raw",
    }
    for fd in (state["ring_fd"], state["counters_fd"], *links.values(), *programs.values()):
        os.set_inheritable(fd, True)
    return state


def _switches(arguments: argparse.Namespace, devices: list[dict]) -> set[str]:
    switches = set()
    if any(not device["bio_based"] for device in devices):
        switches.add("WANT_REQUESTS")
    if arguments.bios or any(device["bio_based"] for device in devices):
        switches.add("WANT_BIOS")
    if arguments.pid:
        switches |= {"FILTER_ISSUER", "FILTER_PID"}
    if arguments.cgroup:
        switches |= {"FILTER_ISSUER", "FILTER_CGROUP"}
    return switches


def _programs(switches: set[str]) -> list[tuple[str, str]]:
    programs = list(_ALWAYS)
    if "FILTER_PID" in switches:
        programs += _PIDS
    if switches & {"WANT_BIOS", "FILTER_ISSUER"}:
        programs += _BIOS
    if "WANT_REQUESTS" in switches:
        programs += _REQUESTS
    return programs


def _ring_macros(arguments: argparse.Namespace) -> dict[str, int]:
    pages = max(1, int(arguments.ring_mib * (1 << 20)) // _PAGE_BYTES)
    return {"RING_PAGES": 1 << (pages.bit_length() - 1)}


def _source(macros: dict[str, int], switches: set[str], devices: list[dict]) -> str:
    lines = [f"#define {name} {value}" for name, value in macros.items()]
    lines += [f"#define {name}" for name in sorted(switches)]
    lines += _device_macros(devices)
    for name in ("record.h", "probe.bpf.c"):
        with open(os.path.join(HERE, name)) as file:
            lines.append(file.read())
    return "\n".join(lines)


def _device_macros(devices: list[dict]) -> list[str]:
    numbers = " ".join(
        f"if ((dev_) == {device['dev']}U) return {index};" for index, device in enumerate(devices)
    )
    ranges = " ".join(
        f"if ((device_) == {index} && (bytes_) && ((sector_) < {device['first_sector']}ULL || "
        f"(sector_) >= {device['first_sector'] + device['sectors']}ULL)) return 0;"
        for index, device in enumerate(devices)
        if device["first_sector"] is not None
    )
    lines = [
        f"#define MATCH_DEVICE_NUMBER(dev_) {numbers}",
        f"#define MATCH_SECTORS(device_, sector_, bytes_) {ranges}",
    ]
    names = " ".join(
        _name_match(name, device["dev"], index)
        for index, device in enumerate(devices)
        for name in device["hidden_paths"]
    )
    if names:
        lines.append(f"#define MATCH_DISK_NAME(name_, dev_) {names}")
    return lines


def _name_match(name: str, head: int, index: int) -> str:
    """Recognise a hidden path by its name and report it as the head that users know."""
    first, second = struct.unpack("<QQ", name.encode().ljust(16, b"\0"))
    return (
        f"if ((name_)[0] == {first}ULL && (name_)[1] == {second}ULL) "
        f"{{ (dev_) = {head}U; return {index}; }}"
    )


def _compile(text: str) -> Any:
    try:
        from bcc import BPF
    except ImportError as error:
        raise AttachError(
            f"{sys.executable} has no bcc: {error}", "apt-get install python3-bpfcc"
        ) from error
    try:
        return BPF(text=text.encode(), cflags=["-Wno-macro-redefined"])
    except Exception as error:
        if os.geteuid() != 0:
            raise AttachError("loading a probe needs root", "run it with sudo") from error
        raise AttachError(f"the probe does not compile or load: {error}") from error


def _attach_one(bpf: Any, tracepoint: str, function: str) -> int:
    loaded = bpf.load_func(function.encode(), 17)  # BPF_PROG_TYPE_RAW_TRACEPOINT
    from bcc import lib

    fd = lib.bpf_attach_raw_tracepoint(loaded.fd, tracepoint.encode())
    if fd < 0:
        raise AttachError(f"the kernel has no raw tracepoint {tracepoint}")
    return int(fd)


def _fill_pids(bpf: Any, roots: list[int]) -> None:
    if not roots:
        return
    table = bpf[b"pids"]
    for pid in descendants(roots):
        table[table.Key(pid)] = table.Leaf(1)


def descendants(roots: list[int]) -> set[int]:
    """``roots`` and all their living children, by /proc."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            # The command name may hold spaces and parentheses; the parent is the 2nd word after it.
            words = sysblock.read_line(f"/proc/{name}/stat").rpartition(")")[2].split()
            if len(words) > 1:
                children.setdefault(int(words[1]), []).append(int(name))
    found, todo = set(), list(roots)
    while todo:
        pid = todo.pop()
        if pid not in found:
            found.add(pid)
            todo += children.get(pid, [])
    return found
