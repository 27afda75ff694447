"""One made-up run for the tests that only look at it."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.report import Run, build, open_run
from harness.report.page import page
from tests.report.made_run import make_run


@pytest.fixture(scope="session")
def made_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a run with every file; do not change it."""
    return make_run(tmp_path_factory.mktemp("results"))


@pytest.fixture(scope="session")
def made(made_path: Path) -> Run:
    """The same run, opened."""
    return open_run(made_path)


@pytest.fixture(scope="session")
def made_html(made: Run) -> str:
    """Its page."""
    return page(made, build(made))
