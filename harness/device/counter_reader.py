"""Reads a drive's counters through nvme-cli, here or on the other side of a session."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence

from harness.device.counter_logs import (
    FDP_STATISTICS_BYTES,
    FDP_STATISTICS_LOG_ID,
    VENDOR_LOG_BYTES,
    VENDOR_LOG_ID,
    fdp_statistics,
    femu_smart,
    femu_vendor_log,
    is_femu,
    ocp_smart,
)
from harness.device.counter_vendors import VENDOR_LOGS, parse_vendor
from harness.device.counters import Counters, MediaTotals
from harness.device.smart import (
    SMART_LOG_BYTES,
    SMART_LOG_ID,
    Controller,
    parse_controller,
    parse_smart,
)

Runner = Callable[[Sequence[str]], bytes | None]
"""Runs a command and gives its standard output; None if it failed or does not exist."""

_LIMIT_S = 30.0


def run_here(argv: Sequence[str]) -> bytes | None:
    """A ``Runner`` on this machine."""
    try:
        done = subprocess.run(
            list(argv), capture_output=True, stdin=subprocess.DEVNULL, timeout=_LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def read_counters(device: str, run: Runner = run_here) -> Counters:
    """All that ``device`` counts. A device that counts nothing gives a reading that says so."""
    identity = run(["nvme", "id-ctrl", device, "--raw-binary"])
    if not identity:
        return Counters(
            why_no_media=f"{device} is no NVMe drive, or nvme-cli is missing or not permitted"
        )
    controller = parse_controller(identity)
    smart = _log(run, device, SMART_LOG_ID, SMART_LOG_BYTES)
    if smart is None:
        return Counters(controller, why_no_media=f"{device} gives no SMART log")
    media = _media(run, device, controller, smart)
    why = None if media else f"{controller.model} exposes no NAND writes: no WAF can be measured"
    return Counters(controller, parse_smart(smart), media, why)


def _media(run: Runner, device: str, controller: Controller, smart: bytes) -> MediaTotals | None:
    if controller.fdp:
        statistics = _log(run, device, FDP_STATISTICS_LOG_ID, FDP_STATISTICS_BYTES, "--lsi=1")
        if statistics is not None:
            return fdp_statistics(statistics)
    if is_femu(controller):
        found = femu_smart(smart)
        if found is not None:
            return found
    vendor_page = _log(run, device, VENDOR_LOG_ID, VENDOR_LOG_BYTES)
    if vendor_page is not None:
        if is_femu(controller):
            return femu_vendor_log(vendor_page)
        found = ocp_smart(vendor_page)
        if found is not None:
            return found
    return _vendor(run, device, controller)


def _vendor(run: Runner, device: str, controller: Controller) -> MediaTotals | None:
    log = VENDOR_LOGS.get(controller.vendor_id)
    text = run(["nvme", *log.argv, device]) if log else None
    return parse_vendor(controller.vendor_id, text) if text else None


def _log(run: Runner, device: str, log_id: int, size: int, *words: str) -> bytes | None:
    data = run(
        ["nvme", "get-log", device, f"--log-id={log_id}", f"--log-len={size}", "--raw-binary",
         *words]
    )  # fmt: skip
    return data if data is not None and len(data) >= size else None
