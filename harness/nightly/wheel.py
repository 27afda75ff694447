"""The running harness as a wheel, the same bytes each time: hosts tell by its hash what they have.

Made from the files that run, not from a build: that works from an installed wheel too, needs no
network and no build tools, and cannot send anything but what runs here.
"""

from __future__ import annotations

import base64
import hashlib
import zipfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from harness import __version__
from harness.core.errors import MachineError
from harness.core.identity import package_files

_PROJECT = "kvflash-harness"
_STEM = f"kvflash_harness-{__version__}"
_INFO = f"{_STEM}.dist-info"
_DATE = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip file can hold


def build_wheel(folder: Path) -> Path:
    """Write the wheel into ``folder``; MachineError where the harness was never installed."""
    files = {name: path.read_bytes() for name, path in package_files()}
    files |= {f"{_INFO}/{name}": text.encode() for name, text in _info().items()}
    record = f"{_INFO}/RECORD"
    lines = [f"{name},sha256={_digest(data)},{len(data)}" for name, data in files.items()]
    files[record] = "\n".join([*lines, f"{record},,", ""]).encode()
    target = folder / f"{_STEM}-py3-none-any.whl"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, _DATE)
            entry.external_attr = 0o100644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return target


def _info() -> dict[str, str]:
    try:
        installed = distribution(_PROJECT)
    except PackageNotFoundError as error:
        raise MachineError(
            f"{_PROJECT} is not installed here, so no wheel of it can be made", fix="make deps"
        ) from error
    wheel = "Wheel-Version: 1.0\nGenerator: harness nightly\nRoot-Is-Purelib: true\n"
    return {
        "METADATA": installed.read_text("METADATA") or "",
        "entry_points.txt": installed.read_text("entry_points.txt") or "",
        "WHEEL": f"{wheel}Tag: py3-none-any\n",
    }


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
