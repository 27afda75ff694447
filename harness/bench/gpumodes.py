"""The ways into a GPU's memory, how each is asked for, and how it is proven which one ran.

kvikio and cuFile fall back silently: no error is no evidence. True GPUDirect Storage moves the
counters of the nvidia-fs driver, by as many bytes as were read; the compatibility modes do not.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

NVIDIA_FS_STATS = Path("/proc/driver/nvidia-fs/stats")

GPU_TRANSPORTS = frozenset(
    {"gds", "cufile-compat", "cufile-unproven", "kvikio-posix", "host-staged-gpu"}
)
"""Transports of cells that end in a GPU's memory."""

_PROVEN_SHARE = 0.95
"""Share of the bytes that nvidia-fs must have moved: alignment may send the ends elsewhere."""


@dataclass(frozen=True)
class Evidence:
    """What was seen around a measurement: bytes that nvidia-fs read (None: no counters), bytes
    that were asked for, and whether kvikio says that it used its own POSIX mode."""

    nvidia_fs_bytes: int | None
    asked_bytes: int
    kvikio_compat: bool


def environment(mode: str, folder: Path, threads: int, task_bytes: int) -> dict[str, str]:
    """Environment variables that ask for ``mode``; cuFile reads them once, when it is loaded.

    ``gds_threshold`` is 0: by default kvikio reads small pieces by POSIX, and small pieces are
    what scattered layouts consist of.
    """
    settings = folder / f"cufile-{mode}.json"
    compat = mode != "gds"
    settings.write_text(json.dumps({"properties": {"allow_compat_mode": compat}}))
    variables = {
        "CUFILE_ENV_PATH_JSON": str(settings),
        "KVIKIO_COMPAT_MODE": "ON" if mode == "kvikio-posix" else "OFF",
        "KVIKIO_GDS_THRESHOLD": "0",
        "KVIKIO_NTHREADS": str(threads),
        "KVIKIO_TASK_SIZE": str(task_bytes),
    }
    if mode == "cufile-compat":
        variables["CUFILE_FORCE_COMPAT_MODE"] = "true"
    return variables


def read_bytes(text: str) -> int | None:
    """Bytes read through nvidia-fs, from the text of its ``stats``; None if it does not count.

    The driver prints ``Reads : n=12 ok=12 err=0 readMiB=48 …`` where its statistics are on.
    """
    line = re.search(r"^Reads\s*:(.*)$", text, re.MULTILINE)
    if line is None:
        return None
    amount = re.search(r"readMiB=(\d+)", line.group(1))
    return int(amount.group(1)) << 20 if amount else None


def counters(path: Path = NVIDIA_FS_STATS) -> int | None:
    """Bytes that nvidia-fs has read so far; None without the driver or its statistics."""
    try:
        return read_bytes(path.read_text())
    except OSError:
        return None


def judge(mode: str, seen: Evidence) -> tuple[str, str]:
    """(transport, why) of what really ran when ``mode`` was asked for."""
    if mode == "host-staged":
        return "host-staged-gpu", "our own O_DIRECT reads and copies"
    if seen.kvikio_compat:
        return "kvikio-posix", "kvikio reports its POSIX mode"
    if seen.nvidia_fs_bytes is None:
        return "cufile-unproven", "nvidia-fs has no counters: GDS or cuFile's compatibility mode"
    share = seen.nvidia_fs_bytes / seen.asked_bytes
    if share >= _PROVEN_SHARE:
        return "gds", f"nvidia-fs moved {share:.0%} of the bytes"
    if seen.nvidia_fs_bytes == 0:
        return "cufile-compat", "nvidia-fs moved nothing"
    return "cufile-unproven", f"nvidia-fs moved only {share:.0%} of the bytes"
