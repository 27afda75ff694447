"""What is traced, as macros that the probe compiles in: devices, sectors, processes, cgroups."""

from __future__ import annotations

import argparse
import os
import struct

import sysblock


class FilterError(Exception):
    """A filter that makes no sense here."""


def switches(arguments: argparse.Namespace, devices: list[dict]) -> set[str]:
    """Macros that turn parts of the probe on."""
    on = set()
    if len({device["bio_based"] for device in devices}) > 1:
        raise FilterError(
            "some of the devices take requests and some only bios: capture them apart"
        )
    on |= {"WANT_BIOS", "BIO_BASED"} if devices[0]["bio_based"] else {"WANT_REQUESTS"}
    if arguments.bios:
        on.add("WANT_BIOS")
    if any(device["name"].startswith("nvme") for device in devices):
        on.add("WANT_NVME")
    if arguments.pid:
        on |= {"FILTER_ISSUER", "FILTER_PID"}
    if arguments.cgroup:
        on |= {"FILTER_ISSUER", "FILTER_CGROUP"}
    return on


def device_macros(devices: list[dict]) -> list[str]:
    """How the probe recognises the devices and, of partitions, their sectors."""
    if len({device["dev"] for device in devices}) < len(devices):
        raise FilterError("two of the devices are the same disk, or parts of it")
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
        f"#define N_DEVICES {len(devices)}",
        f"#define MATCH_DEVICE_NUMBER(dev_) {numbers}",
        f"#define DEVICE_NUMBER(device_) {_number_of(devices)}",
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


def _number_of(devices: list[dict]) -> str:
    """C expression for the number of the device with index ``device_``."""
    expression = f"{devices[-1]['dev']}U"
    for index, device in reversed(list(enumerate(devices[:-1]))):
        expression = f"((device_) == {index} ? {device['dev']}U : {expression})"
    return expression


def _name_match(name: str, head: int, index: int) -> str:
    """Recognise a hidden path by its name and report it as the head that users know."""
    first, second = struct.unpack("<QQ", name.encode().ljust(16, b"\0"))
    return (
        f"if ((name_)[0] == {first}ULL && (name_)[1] == {second}ULL) "
        f"{{ (dev_) = {head}U; return {index}; }}"
    )


def cgroup_macros(path: str) -> list[str]:
    """The id and depth of a cgroup v2, given as a folder or as /proc/PID/cgroup shows it."""
    with open("/proc/self/mountinfo") as file:
        mounts = [line.partition(" - ") for line in file.read().splitlines()]
    for fields, _, rest in mounts:
        if rest.split()[0] != "cgroup2":
            continue
        root, place = fields.split()[3:5]
        for folder in (os.path.realpath(path), os.path.normpath(f"{place}/{path}")):
            inside = folder == place or folder.startswith(f"{place}/")
            if inside and os.path.exists(f"{folder}/cgroup.procs"):
                below = f"{root}/{os.path.relpath(folder, place)}"
                level = len([part for part in below.split("/") if part not in ("", ".")])
                return [
                    f"#define CGROUP_ID {os.stat(folder).st_ino}ULL",
                    f"#define CGROUP_LEVEL {level}",
                ]
    raise FilterError(f"{path} is not a cgroup v2 folder")


def descendants(roots: list[int]) -> set[int]:
    """``roots`` and all their living children, by /proc; FilterError if a root is not alive."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            # The command name may hold spaces and parentheses; the parent is the 2nd word after it.
            words = sysblock.read_line(f"/proc/{name}/stat").rpartition(")")[2].split()
            if len(words) > 1:
                children.setdefault(int(words[1]), []).append(int(name))
    found: set[int] = set()
    todo = list(roots)
    while todo:
        pid = todo.pop()
        if pid not in found:
            found.add(pid)
            todo += children.get(pid, [])
    for pid in roots:
        if not os.path.exists(f"/proc/{pid}"):
            raise FilterError(f"no process {pid}")
    return found
