"""A drive on disk: filled once, used again by later runs.

The file is one line of JSON (profile, arrays, what was done to the drive), the arrays one after
the other, and the SHA-256 of all before it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from harness.core.config import validate
from harness.core.errors import UsageError
from harness.core.files import whole_file
from harness.core.profiles import DeviceProfile
from harness.ftl.model import Ftl

MAGIC = "kvflash-ftl-1"
_PIECE = 1 << 24
_FREE_KEYS = (
    "name", "description", "capacity_bytes", "devsz_mb", "op_pcent", "dwpd", "warranty_years",
    "price_usd", "pe_cycles", "pe_source", "waf_rated", "hdd_tb_per_year",
)  # fmt: skip
"""Keys that may differ between the profile of a saved drive and the one it is used under."""


def save(ftl: Ftl, path: Path, facts: dict[str, Any]) -> None:
    """Write the drive to ``path`` as a whole; ``facts`` (plain data) come back from ``load``."""
    arrays = dict(_arrays(ftl))
    header = {
        "magic": MAGIC,
        "profile": ftl.profile.model_dump(mode="json", exclude_unset=True),
        "facts": facts,
        "arrays": {name: [str(a.dtype), list(a.shape)] for name, a in arrays.items()},
    }
    digest = hashlib.sha256()
    with whole_file(path) as temporary, temporary.open("wb") as file:
        for piece in _pieces(json.dumps(header).encode() + b"\n", *arrays.values()):
            digest.update(piece)
            file.write(piece)
        file.write(digest.digest())


def load(path: Path, profile: DeviceProfile) -> tuple[Ftl, dict[str, Any]]:
    """The drive of ``path`` and its facts, to be used under ``profile``.

    Raises
    ------
    UsageError
        Not such a file, truncated, damaged, or of a drive with another geometry or policy.
    """
    try:
        with path.open("rb") as file:
            digest = hashlib.sha256()
            header = _header(file, path, digest)
            saved = validate(header["profile"], DeviceProfile, str(path))
            _same_drive(saved, profile, path)
            ftl = Ftl(profile, by_class=header["arrays"]["pages.tags"][1] != [0])
            for name, array in _arrays(ftl):
                if header["arrays"].get(name) != [str(array.dtype), list(array.shape)]:
                    raise UsageError(f"{path}: {name} is not what this drive has")
                _fill(array, file, path, digest)
            if file.read() != digest.digest():
                raise UsageError(f"{path} is damaged: its checksum does not fit")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except (KeyError, TypeError, IndexError) as error:
        raise UsageError(f"{path} is damaged: its header is not whole") from error
    return ftl, header["facts"]


def _arrays(ftl: Ftl) -> Iterator[tuple[str, np.ndarray]]:
    for name, value in ftl.state._asdict().items():
        if name == "pages":
            for inner, array in value._asdict().items():
                yield f"pages.{inner}", array
        else:
            yield name, value


def _bytes(array: np.ndarray) -> memoryview:
    flat: Any = array.reshape(-1).view(np.uint8)
    return memoryview(flat)


def _pieces(first: bytes, *arrays: np.ndarray) -> Iterator[memoryview]:
    yield memoryview(first)
    for array in arrays:
        data = _bytes(array)
        for start in range(0, len(data), _PIECE):
            yield data[start : start + _PIECE]


def _header(file: BinaryIO, path: Path, digest: Any) -> dict[str, Any]:
    line = file.readline(1 << 20)
    try:
        header = json.loads(line)
    except ValueError:
        header = None
    if not isinstance(header, dict) or header.get("magic") != MAGIC:
        raise UsageError(f"{path} is not a saved drive")
    digest.update(line)
    return header


def _fill(array: np.ndarray, file: BinaryIO, path: Path, digest: Any) -> None:
    data = _bytes(array)
    for start in range(0, len(data), _PIECE):
        piece = data[start : start + _PIECE]
        view: Any = file
        if view.readinto(piece) != len(piece):
            raise UsageError(f"{path} is truncated")
        digest.update(piece)


def _same_drive(saved: DeviceProfile, wanted: DeviceProfile, path: Path) -> None:
    if saved.namespace_bytes != wanted.namespace_bytes:
        raise UsageError(
            f"{path} holds a namespace of {saved.namespace_bytes} B, the profile has "
            f"{wanted.namespace_bytes} B"
        )
    for key in DeviceProfile.model_fields:
        have, want = getattr(saved, key), getattr(wanted, key)
        if key not in _FREE_KEYS and have != want:
            raise UsageError(f"{path} holds a drive with {key} {have}, the profile says {want}")
