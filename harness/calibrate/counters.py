"""WAF from what a drive, or FEMU, counted itself around a replay."""

from __future__ import annotations

from typing import Any

from harness.calibrate.model import WafSample
from harness.core.config import validate
from harness.core.profiles import DeviceProfile
from harness.device.smart import DATA_UNIT_BYTES

REPLAY_FILES = ("replay.json", "replay-timed.json", "replay-flat-out.json", "replay-femu.json")


def counter_sample(result: dict[str, Any], run: str, name: str) -> WafSample | str | None:
    """The WAF of a replay whose device counts its media writes.

    None where the device has no counters at all, a reason in words where they cannot give a WAF
    (other drives or sources before and after, nothing written, counters too coarse).
    """
    counters = result.get("counters") or {}
    before, after = (_drive(counters.get(when)) for when in ("before", "after"))
    if before is None or after is None:
        return None
    if before["media"] is None or after["media"] is None:
        return str(after.get("why_no_media") or "the drive has no media counters")
    if (before["source"], before["controller"]) != (after["source"], after["controller"]):
        return "counters before and after are not of the same drive and source"
    media = after["media"]["media_units"] - before["media"]["media_units"]
    host = _host_units(before, after)
    if media < 0 or host is None or host <= 0:
        return "the host wrote nothing that the drive counted, or a counter ran backwards"
    waf = media / host
    if waf < 1:
        return f"the counters are too coarse for so few writes (they give a WAF of {waf:.3f})"
    record = {
        "source": "femu" if "femu" in after["source"].lower() else "device-counters",
        **_drive_facts(result, after["controller"] or {}),
        "cumulative": waf,
        "steady": None,
        "note": f"over one replay ({name}), from {after['source']}",
        "run": run,
    }
    return validate(record, WafSample, f"{run}, {name}")


def _drive_facts(result: dict[str, Any], controller: dict[str, Any]) -> dict[str, Any]:
    """Of an emulated drive all that sets its WAF, of another one its model."""
    described, fills = result.get("profile"), result.get("fills")
    if not isinstance(described, dict):
        return {
            "profile": controller.get("model") or "unnamed drive",
            "policy": "the drive's own",
        }
    profile = validate(described, DeviceProfile, "profile")
    return {
        "profile": profile.name,
        "policy": profile.policy,
        "line_bytes": profile.line_bytes,
        "namespace_bytes": profile.namespace_bytes,
        "precondition": f"{fills} sequential fills" if fills else "none: the drive was empty",
    }


def _drive(reading: Any) -> dict[str, Any] | None:
    drive = reading.get("drive") if isinstance(reading, dict) else None
    return drive if isinstance(drive, dict) else None


def _host_units(before: dict[str, Any], after: dict[str, Any]) -> int | None:
    """The host's side in units of the media's: its own count, else SMART's data units."""
    one, two = before["media"]["host_units"], after["media"]["host_units"]
    if one is not None and two is not None:
        return int(two - one)
    unit = after["media"]["unit_bytes"]
    if not unit or not before["smart"] or not after["smart"]:
        return None
    units = after["smart"]["data_units_written"] - before["smart"]["data_units_written"]
    return int(units * DATA_UNIT_BYTES // unit)
