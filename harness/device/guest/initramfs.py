"""The guest's first file system: busybox, a few modules, the start-up files and the keys."""

from __future__ import annotations

import shlex
import shutil
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.core.assets import asset_dir
from harness.core.errors import MachineError
from harness.device.guest.kernel import GuestKernel

_FOLDERS = ("bin", "dev", "proc", "sys", "lower", "layer", "root", "modules", "guest")


@dataclass(frozen=True)
class Entry:
    """One file of an archive; a folder has mode ``S_IFDIR`` and no data."""

    name: str
    mode: int
    data: bytes = b""


def cpio(entries: Iterable[Entry]) -> bytes:
    """An archive in the "newc" format that the kernel unpacks (initramfs buffer format)."""
    out = bytearray()
    for number, entry in enumerate([*entries, Entry("TRAILER!!!", 0)], start=1):
        name = entry.name.encode() + b"\0"
        fields = (
            number, entry.mode, 0, 0, 1, 0, len(entry.data), 0, 0, 0, 0, len(name), 0,
        )  # fmt: skip
        out += b"070701" + b"".join(b"%08X" % field for field in fields) + name
        out += b"\0" * (-len(out) % 4)
        out += entry.data
        out += b"\0" * (-len(out) % 4)
    return bytes(out)


def busybox_path() -> Path:
    """A statically linked busybox; MachineError says what to install."""
    found = shutil.which("busybox", path="/bin:/usr/bin:/usr/local/bin")
    # A dynamic busybox finds no libraries in the initramfs: PT_INTERP gives it away.
    if found is None or b"/ld-linux" in Path(found).read_bytes()[:4096]:
        raise MachineError(
            "guests need a statically linked busybox", fix="apt-get install busybox-static"
        )
    return Path(found)


def initramfs(
    kernel: GuestKernel, settings: Mapping[str, str], files: Mapping[str, bytes]
) -> bytes:
    """The archive to boot ``kernel`` with, uncompressed (unpacking is slow without KVM).

    Parameters
    ----------
    settings
        Shell variables of ``/guest/config`` (quoted here).
    files
        Name -> content of further files in ``/guest`` (keys, sshd's configuration); mode 0600.
    """
    start = asset_dir("femu") / "guest"
    folder, plain, program = stat.S_IFDIR | 0o755, stat.S_IFREG | 0o600, stat.S_IFREG | 0o755
    entries = [Entry(name, folder) for name in _FOLDERS]
    entries.append(Entry("init", program, (start / "init").read_bytes()))
    entries.append(Entry("bin/busybox", program, busybox_path().read_bytes()))
    modules = kernel.early_modules()
    entries += [Entry(f"modules/{path.name}", plain, path.read_bytes()) for path in modules]
    order = "".join(f"{path.name}\n" for path in modules).encode()
    entries.append(Entry("modules/order", plain, order))
    config = "".join(f"{key}={shlex.quote(value)}\n" for key, value in settings.items())
    contents = {
        "config": config.encode(),
        "second-stage": (start / "second-stage").read_bytes(),
        **files,
    }
    entries += [Entry(f"guest/{name}", plain, data) for name, data in contents.items()]
    return cpio(entries)
