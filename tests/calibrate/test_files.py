"""Versions, hand edits, sense: every fault is named by its path."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from harness.calibrate import Calibration
from harness.calibrate.check import check
from harness.calibrate.diff import diff
from harness.calibrate.export import export
from harness.calibrate.files import (
    SCHEMA_FILE,
    InvalidCalibration,
    json_schema,
    parse,
    read,
    write,
)
from harness.calibrate.model import VERSION
from harness.calibrate.show import explain
from harness.calibrate.views import CSV_TABLES, to_csv, to_yaml
from harness.core.errors import UsageError
from tests.calibrate.builders import STARTED, run_folder, typical_bench, wear

NOW = STARTED + timedelta(days=2)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    run = run_folder(tmp_path_factory.mktemp("runs"), bench=typical_bench(), wear=wear())
    return export([run], now=NOW).model_dump(mode="json")


@pytest.fixture
def edited(data: dict[str, Any], tmp_path: Path) -> Callable[..., Path]:
    """Write the file after a hand edit: a dotted path and its new value."""

    def edit(**changes: Any) -> Path:
        copy = json.loads(json.dumps(data))
        for dotted, value in changes.items():
            *parts, last = dotted.split("__")
            place = copy
            for part in parts:
                place = place[int(part) if part.isdigit() else part]
            place[last] = value
        path = tmp_path / "calibration.json"
        path.write_text(json.dumps(copy))
        return path

    return edit


def test_the_published_schema_is_the_models() -> None:
    assert json.loads(SCHEMA_FILE.read_text()) == json_schema()


@pytest.mark.parametrize(
    ("changes", "path", "words"),
    [
        ({"bandwidth__0__gbps__low": 99.0}, "bandwidth.0.gbps", "low <= median"),
        ({"bandwidth__1__queue_depth": 0}, "bandwidth.1.queue_depth", "greater than"),
        ({"bandwidth__1__queue_depth": "8"}, "bandwidth.1.queue_depth", "integer"),
        ({"bandwidth__0__speed": 1}, "bandwidth.0.speed", "unknown key"),
        ({"waf__0__cumulative": 0.5}, "waf.0.cumulative", "greater than or equal to 1"),
        ({"constants__1__value": {"median": 1.0, "low": 1.0, "high": 1.0, "n": 1}},
         "constants.1", "exactly when"),
        ({"provenance__device__serial_sha256": "S123"},
         "provenance.device.serial_sha256", "match pattern"),
        ({"created": "yesterday"}, "created", "datetime"),
        ({"kind": "something-else"}, "kind", "not a calibration file"),
    ],
)  # fmt: skip
def test_hand_edits_are_named_by_path(
    edited: Callable[..., Path], changes: dict[str, Any], path: str, words: str
) -> None:
    found = check(edited(**changes), now=NOW)
    assert not found.valid
    assert found.problems[0].path == path
    assert words in found.problems[0].message


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"bandwidth__0__gbps": {"median": 6e9, "low": 5e9, "high": 7e9, "n": 5}},
         "bandwidth.0.gbps"),
        ({"bandwidth__0__layout": None}, "bandwidth.0.layout"),
        ({"bandwidth_terms__0__t0_us": -3.0}, "bandwidth_terms.0"),
        ({"waf__0__low": 3.0, "waf__0__high": 4.0}, "waf.0"),
        ({"endurance__0__tbw_bytes": 1e12}, "endurance.0.tbw_bytes"),
        ({"endurance__0__paper_days": 900.0}, "endurance.0.paper_days"),
        ({"endurance__0__waf1_days": 900.0}, "endurance.0.waf1_days"),
        ({"provenance__measured_from": "2027-01-01T00:00:00Z"}, "provenance.measured_from"),
    ],
)  # fmt: skip
def test_nonsense_that_fits_the_schema_is_found(
    edited: Callable[..., Path], changes: dict[str, Any], path: str
) -> None:
    found = check(edited(**changes), now=NOW)
    assert not found.valid
    assert path in [problem.path for problem in found.problems]


def test_age_is_a_warning_or_a_problem(edited: Callable[..., Path]) -> None:
    late = NOW + timedelta(days=400)
    found = check(edited(), now=late)
    assert found.valid
    assert any("days ago" in warning.message for warning in found.warnings)
    assert not check(edited(), now=late, max_age_days=30).valid
    assert not any("days ago" in w.message for w in check(edited(), now=NOW).warnings)


def test_a_newer_minor_version_is_read_without_what_it_added(edited: Callable[..., Path]) -> None:
    path = edited(schema_version="1.9.0", bandwidth__0__zns_zone=3, extra={"a": 1})
    parsed = read(path)
    assert set(parsed.unknown_keys) == {"bandwidth.0.zns_zone", "extra"}
    assert parsed.file.schema_version == "1.9.0"
    warned = {warning.path for warning in check(path, now=NOW).warnings}
    assert {"bandwidth.0.zns_zone", "extra"} <= warned


ADDED_IN_1_1 = {
    "bandwidth_terms": ("transport", "access", "layout"),
    "waf": ("namespace_bytes", "model", "requests", "point"),
    "waf_terms": ("error", "rejected", "held", "runs"),
    "endurance": ("policy", "store", "waf"),
}


def test_an_older_minor_version_is_read(tmp_path: Path, data: dict[str, Any]) -> None:
    old = json.loads(json.dumps(data))
    old["schema_version"] = "1.0.0"
    del old["waf_layouts"]
    for table, keys in ADDED_IN_1_1.items():
        for record in old[table]:
            for key in keys:
                del record[key]
    path = tmp_path / "old.json"
    path.write_text(json.dumps(old))
    parsed = read(path)
    assert parsed.file.schema_version == "1.0.0" and parsed.unknown_keys == ()
    assert parsed.file.waf_layouts == [] and check(path, now=NOW).valid
    # It serves a reader as before.
    new = Calibration(parse(json.dumps(data), "new").file)
    assert Calibration(parsed.file).bandwidth_gbps(65536, 8) == new.bandwidth_gbps(65536, 8)
    assert Calibration(parsed.file).waf() == new.waf()


def test_the_same_keys_in_our_own_version_are_errors(edited: Callable[..., Path]) -> None:
    with pytest.raises(InvalidCalibration, match=r"bandwidth\.0\.zns_zone: unknown key"):
        read(edited(bandwidth__0__zns_zone=3))


@pytest.mark.parametrize(
    ("version", "words"),
    [("2.0.0", "newer"), ("0.9.0", "older"), ("one", "expected a version"), (None, "expected a v")],
)
def test_other_major_versions_are_refused_by_name(
    edited: Callable[..., Path], version: object, words: str
) -> None:
    with pytest.raises(InvalidCalibration, match=words) as caught:
        read(edited(schema_version=version))
    assert caught.value.exit_code == 2
    if words != "expected a version" and version in ("2.0.0", "0.9.0"):
        assert str(version) in str(caught.value) and VERSION in str(caught.value)


def test_a_file_that_is_cut_off_or_missing(tmp_path: Path, data: dict[str, Any]) -> None:
    path = tmp_path / "c.json"
    path.write_text(json.dumps(data)[:-20])
    found = check(path)
    assert not found.valid and found.problems[0].path == "(file)"
    with pytest.raises(UsageError, match="cannot read"):
        read(tmp_path / "missing.json")
    with pytest.raises(InvalidCalibration, match="not a calibration file"):
        parse("[1, 2]", "here")


def test_differences_are_those_beyond_the_intervals(
    edited: Callable[..., Path], data: dict[str, Any]
) -> None:
    first = parse(json.dumps(data), "first").file
    assert {d.verdict for d in diff(first, first)} == {"same"}
    slower = {"median": 3.0, "low": 2.9, "high": 3.1, "n": 5}
    second = read(edited(bandwidth__0__gbps=slower)).file
    changed = [d for d in diff(first, second) if d.verdict != "same"]
    assert [d.verdict for d in changed] == ["lower"]
    assert changed[0].change == pytest.approx(-0.5)
    fewer = read(edited(bandwidth=data["bandwidth"][1:])).file
    assert "only in first" in {d.verdict for d in diff(first, fewer)}
    assert "only in second" in {d.verdict for d in diff(fewer, first)}


def test_views_hold_the_same_figures(data: dict[str, Any]) -> None:
    import yaml

    file = parse(json.dumps(data), "here").file
    assert yaml.safe_load(to_yaml(file)) == data
    lines = to_csv(file, "bandwidth").splitlines()
    assert len(lines) == 1 + len(file.bandwidth)
    row = dict(zip(lines[0].split(","), lines[1].split(","), strict=True))
    assert float(row["gbps.median"]) == file.bandwidth[0].gbps.median
    points = sum(len(term.points) for term in file.layout_terms)
    assert len(to_csv(file, "layout_terms").splitlines()) == 1 + points
    for table in CSV_TABLES:
        assert to_csv(file, table)


def test_the_explanation_names_what_matters(data: dict[str, Any]) -> None:
    from rich.console import Console

    console = Console(width=200, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    for part in explain(parse(json.dumps(data), "here").file):
        console.print(part)
    said = console.export_text()
    for words in (
        "ACME Flash 1",
        "B_ssd",
        "imported",
        "lmcache-raw-block",
        "547.5 TB",
        "R_prefill",
    ):
        assert words in said


def test_written_files_are_read_back(tmp_path: Path, data: dict[str, Any]) -> None:
    file = parse(json.dumps(data), "here").file
    write(tmp_path / "c.json", file)
    assert read(tmp_path / "c.json").file == file
    assert file.created == NOW.astimezone(UTC)
    assert datetime.fromisoformat(data["created"]) == NOW
