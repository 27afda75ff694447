"""Why a guest did not start or died: the cause and the cure, from what it left behind."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Diagnosis:
    """``cause`` for the message, ``fix`` for the line below it (None: nothing to advise)."""

    cause: str
    fix: str | None = None
    machine: bool = False
    """The host lacks something, as opposed to: the guest or its drive failed."""


_QEMU = (
    (
        r"No free lines left",
        "FEMU ran out of free lines and aborted: the drive's flash has too little spare area for"
        " its garbage-collection thresholds",
        "give the profile more over-provisioning, or later thresholds (gc_thres_pcent 98,"
        " gc_thres_pcent_high 99); spare lines must exceed the high threshold's by two",
    ),
    (
        r"Failed to pin the memory backend|mlock",
        "FEMU may not lock the drive's memory",
        "run as root, or raise the limit: `ulimit -l unlimited`, LimitMEMLOCK=infinity in a unit",
    ),
    (
        r"failed to allocate|[Cc]annot set up guest memory|Cannot allocate memory",
        "the host refused the memory that the guest asked for",
        "use a smaller drive (--scale) or less guest memory",
    ),
    (
        r"Could not set up host forwarding rule|Address already in use",
        "the loopback port for SSH is taken",
        "leave the port out, then a free one is chosen",
    ),
    (
        r"'?femu'? is not a valid device model name",
        "this QEMU has no FEMU drive",
        "set HARNESS_FEMU to the qemu-system-x86_64 that FEMU's build made",
    ),
    (
        r"Property '[^']*' not found|is not a valid device model name",
        "this QEMU does not know the device or one of its properties",
        "check the profile against the FEMU version (99ce4fb2b was checked)",
    ),
    (
        r"Could not access KVM|failed to initialize kvm",
        "KVM is not usable here",
        "let the harness choose, or ask for emulation (tcg)",
    ),
)

_HOST_LACKS = frozenset(cause for _, cause, _ in _QEMU[1:])
"""All of QEMU's complaints at start are about the host; running out of lines is not."""

_CONSOLE = (
    (
        r"Out of memory: Killed process.*\((\S+)\)",
        "the guest ran out of memory and killed {0}",
        "give the guest more memory",
    ),
    (
        r"Kernel panic - not syncing: (.*)",
        "the guest's kernel panicked: {0}",
        "see the console for what came before",
    ),
    (
        r"nvme\S* .*(Removing after probe failure|Device not ready|disabl\S+ [Cc]ontroller|"
        r"timeout, (?:disable|reset) controller)",
        "the guest's NVMe driver gave the drive up: {0}",
        "FEMU needs a guest kernel that uses shadow doorbells (5.4, 5.10 and 6.1 do); on a busy"
        " host give the guest more time",
    ),
)

_SIGNALS = {
    6: "QEMU aborted (SIGABRT)",
    9: "QEMU was killed (SIGKILL): by the out-of-memory killer or by somebody",
    11: "QEMU crashed (SIGSEGV)",
}


def diagnose(console: str, qemu_log: str, status: int | None) -> Diagnosis:
    """The most telling cause. ``status`` is the keeper's exit status, None while QEMU runs."""
    for text, patterns in ((qemu_log, _QEMU), (console, _CONSOLE)):
        for pattern, cause, fix in patterns:
            match = re.search(pattern, text)
            if match:
                machine = cause in _HOST_LACKS
                return Diagnosis(cause.format(*match.groups()), fix, machine)
    if status is None:
        return Diagnosis(
            "QEMU runs, but the guest hangs or is too slow",
            "give it more time on a busy host; the console shows how far it came",
        )
    if status == 124:
        return Diagnosis("the guest reached its time limit and was ended")
    signal = status - 128
    if signal in _SIGNALS:
        return Diagnosis(_SIGNALS[signal])
    lines = [line for line in qemu_log.splitlines() if line.strip()]
    return Diagnosis(lines[-1] if lines else f"QEMU ended by itself (status {status})")
