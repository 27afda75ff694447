"""Guests: QEMU machines with NVMe drives (stock QEMU's or FEMU's) that start by themselves."""

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
