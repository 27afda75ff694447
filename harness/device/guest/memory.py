"""What memory a guest needs, checked before it is started."""

from __future__ import annotations

from collections.abc import Mapping

from harness.core.errors import MachineError
from harness.core.units import format_size

QEMU_OVERHEAD_BYTES = 160 << 20
"""QEMU beside the guest's memory: code, translation cache, 9p buffers (measured 90–150 MiB)."""


def check_memory(parts: Mapping[str, int], available: int, fix: str) -> None:
    """MachineError naming every part in bytes if their sum exceeds ``available``."""
    need = sum(parts.values())
    if need > available:
        listed = ", ".join(f"{name} {format_size(size)}" for name, size in parts.items())
        raise MachineError(
            f"not enough memory for the guest: it needs {format_size(need)} ({listed}),"
            f" {format_size(available)} are available",
            fix=fix,
        )
