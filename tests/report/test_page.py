"""The page as a file: self-contained, escaped, small, always the same."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from harness.core.errors import UsageError
from harness.report import Run, build, open_run, render_run
from harness.report.page import page
from harness.trace.parquet import TraceWriter
from harness.trace.schema import TraceMeta
from tests.report.made_run import make_run

LIMIT_BYTES = 3_000_000


def test_nothing_is_loaded_from_anywhere(made_html: str) -> None:
    targets = re.findall(r'(?:src|href|action)="([^"]*)"', made_html)
    assert targets
    assert all(t.startswith(("#", "data:")) for t in targets)
    assert "default-src 'none'" in made_html
    assert "@import" not in made_html


def test_the_same_run_gives_the_same_page(made_path: Path, made_html: str) -> None:
    again = open_run(made_path)
    assert page(again, build(again)) == made_html


def test_what_a_run_says_is_escaped(made: Run) -> None:
    evil = "<script>alert(1)</script>"
    record = {**made.record, "name": evil, "caveats": [evil], "config": {evil: evil}}
    results = {**made.results, "wear": {**made.results["wear"], "profile": evil}}
    html = page(run := Run(made.path, record, results, (), None), build(run))
    assert evil not in html
    assert "&lt;script&gt;" in html


def test_ids_are_unique(made_html: str) -> None:
    ids = re.findall(r'\sid="([^"]+)"', made_html)
    assert len(ids) == len(set(ids))


def test_a_trace_of_any_length_stays_small(tmp_path: Path) -> None:
    path = make_run(tmp_path)
    (path / "trace.parquet").unlink()
    rows, random = 1_000_000, np.random.default_rng(3)
    with TraceWriter(path / "trace.parquet", TraceMeta(verdict="LOSSLESS")) as writer:
        for part in range(3):
            writer.write(
                {
                    "ts_ns": np.arange(rows, dtype=np.int64) * 4000 + part * rows * 4000,
                    "op": random.integers(0, 3, rows).astype(np.uint8),
                    "lba": random.integers(0, 1 << 31, rows).astype(np.uint64),
                    "bytes": (random.integers(1, 2000, rows) * 512).astype(np.uint64),
                    "latency_ns": random.integers(10_000, 10_000_000, rows),
                }
            )
    size = render_run(path).stat().st_size
    assert 200_000 < size < LIMIT_BYTES


def test_an_interrupted_run_is_no_result(tmp_path: Path) -> None:
    path = make_run(tmp_path)
    partial = path.rename(path.with_name(path.name + ".partial"))
    with pytest.raises(UsageError, match="interrupted run"):
        render_run(partial)


def test_another_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a run folder"):
        render_run(tmp_path)
