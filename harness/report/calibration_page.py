"""The HTML page of one calibration file, wherever it lies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.core.files import write_text
from harness.report.page import page
from harness.report.run import Run
from harness.report.sections import calibration
from harness.report.values import dig, text


def write_calibration_page(data: dict[str, Any], name: str, target: Path) -> None:
    """Write the page of the calibration file ``data`` (its JSON) called ``name`` to ``target``."""
    device = dig(data, "provenance.device")
    record = {
        "command": "calibrate",
        "name": name,
        "started": text(data, "created"),
        "host": {"host": text(data, "provenance.host")},
        "device": {"name": device.get("kind"), **device} if isinstance(device, dict) else None,
    }
    run = Run(target, record, {"calibration": data}, (), None)
    write_text(target, page(run, [calibration.section(run)]))
