"""The page of a history: its numbers, its changes, its size, and what a browser makes of it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from harness.cli.app import app
from harness.nightly.dashboard import dashboard
from harness.nightly.history import History
from harness.nightly.nights import Metric, Night
from harness.nightly.regressions import Options
from harness.nightly.series_plots import course
from harness.report.values import dig
from tests.nightly.made import gbps, night, waf
from tests.report import browser

needs_browser = pytest.mark.skipif(browser.CHROMIUM is None, reason="no chromium (apt-get install)")


def changed(nights: int = 40) -> list[Night]:
    """Bandwidth falls eight nights ago under another kernel; WAF gets better five nights ago."""
    rng = np.random.default_rng(5)
    return [
        night(
            day,
            gbps(float(rng.normal(2.0 if day < nights - 8 else 1.5, 0.02))),
            waf(1.5 if day < nights - 5 else 1.25),
            kernel="6.1" if day < nights - 8 else "6.12",
        )
        for day in range(nights)
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("results") / "history"
    for one in changed():
        History(made).append(one)
    run = made.parent / changed()[-1].run
    run.mkdir()
    (run / "report.html").write_text("<p>a run")
    return made


@pytest.fixture(scope="module")
def page(folder: Path) -> Path:
    target = folder / "dashboard.html"
    words = ["nightly", "report", "--history", str(folder), "--html", str(target)]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 1  # something got worse
    assert f"page: {target}" in result.stdout
    return target


@needs_browser
def test_numbers_on_the_page_equal_the_json(folder: Path, page: Path) -> None:
    words = ["nightly", "report", "--history", str(folder), "--json"]
    data = json.loads(CliRunner().invoke(app, words).stdout)
    shown = browser.show(page)
    assert shown.complaints == []
    found = shown.data()
    keys = ["nights", "judged", "too_short"]
    keys += [f"findings.{n}.{key}" for n in (0, 1) for key in ("before", "after", "ratio", "q")]
    assert {key: float(found[key][1]) for key in keys} == {key: dig(data, key) for key in keys}
    assert found["findings.1.after"][0] == "1.250"
    assert shown.dom.count("<svg") == 2


def test_the_page_says_what_changed_and_what_changed_beside_it(page: Path) -> None:
    html = page.read_text()
    assert "✗ REGRESSED" in html
    assert "beside: kernel 6.1 -&gt; 6.12 on 2026-02-02" in html
    assert "1.5 to 1.25 since 2026-02-05; SN1 of rack1" in html
    assert f'href="../{changed()[-1].run}/report.html"' in html
    for text in ("GB/s against the night, UTC", "SN1 of rack1, bench quick", "40 nights, 2026-01"):
        assert text in html


def test_nothing_is_loaded_from_anywhere(page: Path) -> None:
    html = page.read_text()
    targets = re.findall(r'(?:src|href|action)="([^"]*)"', html)
    assert all(t.startswith(("#", "data:", "../")) for t in targets)
    assert "default-src 'none'" in html


@needs_browser
@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_sticks_out_sideways_and_tables_sort(page: Path, width: int) -> None:
    script = (
        "(() => { const t = [...document.querySelectorAll('table')]"
        ".find(t => t.textContent.includes('Bandwidth'));"
        "const column = [...t.querySelectorAll('th')].findIndex(h => h.textContent == 'before');"
        "t.querySelectorAll('th')[column].querySelector('button').click();"
        "return innerWidth + ' ' + document.documentElement.scrollWidth + ' ' +"
        "[...t.tBodies[0].rows].map(r => r.cells[column].textContent).join(' ') })()"
    )
    inner, needed, *before = browser.measured(page, script, width).split()
    assert int(needed) <= int(inner)
    assert len(before) == 2
    assert [float(text) for text in before] == sorted(float(text) for text in before)


@pytest.mark.slow
def test_a_long_and_wide_history_stays_small() -> None:
    rng = np.random.default_rng(6)
    nights = [
        night(day, *(Metric(f"figure {i}", float(v), "s", -1) for i, v in enumerate(row)))
        for day, row in enumerate(rng.normal(1.0, 0.1, (650, 30)))
    ]
    html = dashboard(nights, Options(), Path("."), None)
    assert 100_000 < len(html.encode()) < 3_000_000
    assert html.count("<svg") == 18
    assert "18 of 30 are drawn" in html
    assert "each point the median of 3 nights" in html


def test_a_history_without_nights_has_a_page_too() -> None:
    html = dashboard([], Options(), Path("."), None)
    assert "no nights yet" in html
    assert "UNKNOWN" in html


def test_what_a_run_says_is_escaped() -> None:
    evil = "<script>alert(1)</script>"
    html = dashboard([night(0, Metric(evil, 1.0, evil, 1), host=evil)], Options(), Path("."), None)
    assert evil not in html


def test_the_course_of_a_series_is_a_line_of_blocks() -> None:
    assert course(np.array([0.0, 0.5, 1.0])) == "▁▅█"
    assert course(np.ones(3)) == "▄▄▄"
    assert len(course(np.arange(240.0))) == 24
    assert course(np.arange(240.0))[0::23] == "▁█"
