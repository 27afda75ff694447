"""Figures of a sweep as files: one SVG each, and one page with them all."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.core.files import write_text
from harness.report.model import Figure
from harness.report.page import drawn, render


def write_figures(figures: Sequence[Figure], folder: Path, title: str) -> Path:
    """Write ``NAME.svg`` of each and ``figures.html``; the page's path. Makes the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    shown = drawn(figures)
    for figure in shown:
        write_text(folder / f"{figure['id']}.svg", figure["svg"])
    page = folder / "figures.html"
    heading = f"Misses and wear by policy: {title}"
    write_text(
        page, render("figures.html.j2", title=title, heading=heading, run=title, figures=shown)
    )
    return page
