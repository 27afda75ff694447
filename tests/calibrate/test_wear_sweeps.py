"""WAF against one thing at a time, from sweeps: what is held, what is fitted, what is read back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.calibrate import Calibration, MissingTerm
from harness.calibrate.diff import diff
from harness.calibrate.export import export
from harness.calibrate.model import CalibrationFile
from harness.calibrate.views import to_csv
from tests.calibrate.builders import run_folder, wear

MIB = 1 << 20


def point(steady: float | None, **facts: Any) -> dict[str, Any]:
    waf = {"first": 1.0, "cumulative": steady or 1.5, "steady": steady, "low": None, "high": None}
    given = {
        "namespace_bytes": 8 << 30, "precondition": "2 sequential fills", "model": "m",
        "requests": "chat", "point": {"swept": 1}, "chunk_bytes": MIB, "line_bytes": 16 * MIB,
    }  # fmt: skip
    return wear(waf=waf, **{**given, **facts})


def exported(tmp_path: Path, points: list[dict[str, Any]]) -> CalibrationFile:
    return export([run_folder(tmp_path, wear={"grid": {"profile": "x"}, "points": points})])


def test_what_differs_beside_the_variable_is_no_curve(tmp_path: Path) -> None:
    same = [point(1 + u, utilisation=u) for u in (0.5, 0.7, 0.9)]
    others = [
        point(9.0, utilisation=0.8, **other)
        for other in (
            {"precondition": "none"}, {"namespace_bytes": 1 << 40}, {"model": "other"},
            {"requests": "agentic"}, {"policy": "femu-late"}, {"store": "kvbm"},
            {"line_bytes": 64 * MIB, "chunk_bytes": 4 * MIB}, {"over_provisioning": 0.28},
        )
    ]  # fmt: skip
    file = exported(tmp_path, [*same, *others])
    (term,) = file.waf_terms
    assert (term.variable, term.n, term.form) == ("utilisation", 3, "linear")
    assert (term.a, term.b) == (pytest.approx(1.0), pytest.approx(1.0))
    assert term.held["precondition"] == "2 sequential fills"
    assert term.held["namespace_bytes"] == 8 << 30
    assert "utilisation" not in term.held
    assert term.runs == [file.waf[0].run] and term.error is not None
    assert set(term.rejected) == {"power"}


def test_whole_slots_and_lines_do_not_tear_a_curve(tmp_path: Path) -> None:
    spare = [(0.0703, 1.5, 0.84998), (0.1406, 1.2, 0.85), (0.2793, 1.1, 0.8502)]
    file = exported(
        tmp_path,
        [point(waf, over_provisioning=op, utilisation=used) for op, waf, used in spare],
    )
    (term,) = file.waf_terms
    assert term.variable == "over_provisioning" and term.held["utilisation"] == 0.85
    assert (term.valid.low, term.valid.high) == (0.0703, 0.2793)


def test_the_ratio_of_chunk_to_line_may_change_by_either(tmp_path: Path) -> None:
    chunks = [point(w, chunk_bytes=c * MIB) for c, w in ((1, 1.1), (4, 1.3), (16, 1.9))]
    lines = [point(w, line_bytes=n * MIB) for n, w in ((8, 1.2), (64, 1.05))]
    file = exported(tmp_path, [*chunks, *lines])
    terms = {tuple(sorted({"chunk_bytes", "line_bytes"} & set(t.held))): t for t in file.waf_terms}
    assert set(terms) == {("line_bytes",), ("chunk_bytes",)}
    assert all(term.variable == "chunk_per_line" and term.n == 3 for term in terms.values())
    by_chunk, by_line = terms["line_bytes",], terms["chunk_bytes",]
    assert (by_chunk.valid.low, by_chunk.valid.high) == (1 / 16, 1.0)
    assert (by_line.valid.low, by_line.valid.high) == (1 / 64, 1 / 8)


def test_points_that_are_not_steady_are_kept_and_not_fitted(tmp_path: Path) -> None:
    points = [point(1 + u, utilisation=u) for u in (0.5, 0.7, 0.9)]
    file = exported(tmp_path, [*points, point(None, utilisation=1.0, point={"utilisation": 1.0})])
    assert len(file.waf) == 4 and file.waf_terms[0].n == 3
    assert any("steady WAF" in m.what and "utilisation 1.0" in m.what for m in file.not_measured)


def test_stores_side_by_side_are_a_layout_term(tmp_path: Path) -> None:
    points = [
        point(1.8, store="lmcache-raw-block"),
        point(1.2, store="mooncake-bucket", chunk_bytes=MIB // 4),
        point(None, store="kvbm"),
        point(3.0, store="session-contiguous", utilisation=0.5),
    ]
    (layouts,) = exported(tmp_path, points).waf_layouts
    found = {one.store: (one.waf, one.steady) for one in layouts.stores}
    assert found == {
        "lmcache-raw-block": (1.8, True), "mooncake-bucket": (1.2, True), "kvbm": (1.5, False),
    }  # fmt: skip
    assert layouts.held["policy"] == "drive" and "store" not in layouts.held


def test_a_sweep_replaces_no_constant_and_makes_no_drive(tmp_path: Path) -> None:
    file = exported(tmp_path, [point(1.3, utilisation=0.5), point(1.4, utilisation=0.7)])
    waf = next(c for c in file.constants if c.name == "WAF")
    assert (waf.status, waf.value) == ("not-measured", None)
    assert "points of sweeps" in waf.conditions
    assert file.endurance == []


def test_a_point_that_failed_is_no_sample(tmp_path: Path) -> None:
    file = exported(tmp_path, [point(1.3), {"point": {"utilisation": 2}, "error": "too large"}])
    assert len(file.waf) == 1


def test_the_reader_takes_a_sample_then_a_curve_then_the_nearest(tmp_path: Path) -> None:
    points = [point(1 + u, utilisation=u) for u in (0.5, 0.7, 0.9)]
    calibration = Calibration(exported(tmp_path, points))
    exact = calibration.waf(utilisation=0.7)
    assert (exact.value, exact.source, exact.extrapolated) == (1.7, "modelled", False)
    between = calibration.waf(utilisation=0.8, over_provisioning=0.07, chunk_per_line=1 / 16)
    assert between.value == pytest.approx(1.8) and between.source == "fitted"
    assert between.low <= between.value <= between.high and not between.extrapolated
    beyond = calibration.waf(utilisation=1.0)
    assert beyond.value == pytest.approx(2.0) and beyond.extrapolated
    # No curve holds this over-provisioning: the nearest sample, and it says so.
    nearest = calibration.waf(utilisation=0.9, over_provisioning=0.5)
    assert nearest.value == pytest.approx(1.9) and nearest.extrapolated
    # Any point of a sweep speaks for itself only.
    assert calibration.waf().extrapolated
    with pytest.raises(MissingTerm, match=r"kvbm, .*utilisation 0\.5; the file has"):
        calibration.waf(store="kvbm", utilisation=0.5)


def test_several_policies_give_an_endurance_each(tmp_path: Path) -> None:
    both = [wear(policy="drive"), wear(policy="femu-late")]
    file = export([run_folder(tmp_path, wear={**both[0], "points": both})])
    assert [(d.policy, d.waf) for d in file.endurance] == [("drive", 2.0), ("femu-late", 2.0)]
    assert Calibration(file).endurance(policy="femu-late").policy == "femu-late"


def test_every_point_of_a_sweep_is_compared_and_tabled(tmp_path: Path) -> None:
    chunks = [point(1 + c / 10, chunk_bytes=c * MIB) for c in (1, 4, 16)]
    file = exported(tmp_path, [*chunks, point(1.2, store="kvbm")])
    found = [item for item in diff(file, file) if item.what.startswith("WAF")]
    assert len(found) == 4 and {item.verdict for item in found} == {"same"}
    rows = to_csv(file, "waf_layouts").splitlines()
    assert len(rows) == 1 + 2 and "held.line_bytes" in rows[0]
    assert len(to_csv(file, "waf_terms").splitlines()) == 1 + len(file.waf_terms) == 2
