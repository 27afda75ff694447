"""The sections of a report, one module each: JSON in, tables and figures out."""

from __future__ import annotations

from harness.report.model import Section
from harness.report.run import Run
from harness.report.sections import (
    calibration,
    layouts,
    provenance,
    replay,
    simulate,
    store,
    trace,
    validate,
    wear,
)

SECTIONS = (
    store, trace, replay, wear, layouts, validate, calibration, simulate, provenance
)  # fmt: skip
"""In the order of the page: along the path of the data, provenance last."""


def build(run: Run) -> list[Section]:
    """Every section of ``run``."""
    return [module.section(run) for module in SECTIONS]
