"""Guests with an emulated NVMe device: FEMU, or stock QEMU in its place."""

from __future__ import annotations

import os

from harness.core.errors import UsageError
from harness.core.settings import FEMU_VARIABLE, named_femu
from harness.doctor.model import Check, Outcome
from harness.doctor.shell import ask, find_tool, install

_QEMU = "qemu-system-x86_64"


def _qemu() -> Outcome:
    path = find_tool(_QEMU)
    if path is None:
        return Outcome(False, f"{_QEMU} not found")
    code, said = ask(path, "--version")
    return Outcome(code == 0, said.splitlines()[0] if said else "no version")


def _femu() -> Outcome:
    try:
        named = named_femu()
    except UsageError as error:
        return Outcome(False, str(error))
    if named is None:
        return Outcome(False, f"{FEMU_VARIABLE} is not set; stock QEMU stands in, without any WAF")
    code, said = ask(named.path, "-device", "help")
    if code != 0:
        return Outcome(False, f"{named.by}: {named.path} does not start as a QEMU")
    if 'name "femu"' not in said:
        return Outcome(False, f"{named.path} is a QEMU without the femu device")
    return Outcome(True, named.path)


def _kvm() -> Outcome:
    if not os.path.exists("/dev/kvm"):
        return Outcome(False, "no /dev/kvm; guests run under TCG, about ten times slower")
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return Outcome(False, "/dev/kvm cannot be opened by this user")
    return Outcome(True, "/dev/kvm is present; whether a guest runs on it only a guest can tell")


CHECKS = (
    Check(
        "qemu",
        why="guests with an NVMe device, where there is no FEMU",
        fix=install("qemu-system-x86"),
        needed_by=("replay --femu", "validate"),
        probe=_qemu,
    ),
    Check(
        "femu",
        why="the flash emulator whose write amplification the FTL model must equal",
        fix="build FEMU (github.com/MoatLab/FEMU) and set HARNESS_FEMU to its qemu-system-x86_64",
        needed_by=("replay --femu", "validate"),
        probe=_femu,
    ),
    Check(
        "kvm",
        why="guests at full speed",
        fix="load kvm_amd or kvm_intel, or enable nested virtualisation",
        needed_by=("replay --femu",),
        probe=_kvm,
    ),
)
