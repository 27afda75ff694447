"""A calibration file for people and for other tools: tables, CSV, YAML, differences."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any

import yaml

from harness.calibrate.model import CalibrationFile

CSV_TABLES = (
    "bandwidth", "waf", "endurance", "layout_terms", "bandwidth_terms", "hop_terms", "waf_terms",
    "waf_layouts", "constants", "not_measured",
)  # fmt: skip
"""The lists that can be written as CSV, one row a record."""

_INNER = ("points", "stores")


def to_yaml(file: CalibrationFile) -> str:
    """The whole file as YAML, in its own order."""
    return yaml.safe_dump(file.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def to_csv(file: CalibrationFile, table: str) -> str:
    """One of ``CSV_TABLES``; nested values become columns such as ``gbps.median``.

    Points of a layout term and stores side by side are a row each. An absent value is an empty
    field.
    """
    rows = list(_rows(file.model_dump(mode="json")[table]))
    columns = list(dict.fromkeys(key for row in rows for key in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _rows(records: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for record in records:
        inner = next((key for key in _INNER if key in record), None)
        if inner is None:
            yield dict(_flat(record))
            continue
        rest = {key: value for key, value in record.items() if key != inner}
        for one in record[inner]:
            yield dict(_flat({**rest, **one}))


def _flat(record: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in record.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
