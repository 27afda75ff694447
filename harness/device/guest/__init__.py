"""Guests: QEMU machines with NVMe drives (stock QEMU's or FEMU's) that start by themselves.

The names below are imported when they are first used: what runs *inside* a guest shares this
package and must not load SSH there, which takes seconds without KVM.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.device.guest.drives import FemuDrive, NvmeDrive
    from harness.device.guest.machine import Guest, GuestError
    from harness.device.guest.session import Completed, Session, connect_remote

__all__ = [
    "Completed",
    "FemuDrive",
    "Guest",
    "GuestError",
    "NvmeDrive",
    "Session",
    "connect_remote",
]

_HOME = {
    "FemuDrive": "drives",
    "NvmeDrive": "drives",
    "Guest": "machine",
    "GuestError": "machine",
    "Completed": "session",
    "Session": "session",
    "connect_remote": "session",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
