"""The HTML page of a run: one file, nothing loaded from anywhere."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jinja2

from harness import __version__
from harness.core.files import write_text
from harness.core.progress import Progress, quiet
from harness.report import plots
from harness.report.model import Cell, Column, Figure, KeyNumber, Section, Table
from harness.report.run import Run, open_run
from harness.report.sections import build
from harness.report.values import duration, text

_TEMPLATES = Path(__file__).with_name("templates")
_SIGNS = {"good": "✓", "caution": "△", "bad": "✗", "unknown": "?"}


def render_run(path: Path, progress: Progress = quiet) -> Path:
    """Write ``report.html`` into the finished run at ``path`` and return where it is."""
    return write_page(open_run(path, progress))


def write_page(run: Run) -> Path:
    """Write ``report.html`` into the folder of ``run``, finished or not."""
    target = run.path / "report.html"
    write_text(target, page(run, build(run)))
    return target


def page(run: Run, sections: list[Section]) -> str:
    """The page of ``run`` with ``sections``."""
    shown = [s for s in sections if not s.absent]
    return render(
        "run.html.j2",
        title=f"{heading(run)} – {run.name}",
        heading=heading(run),
        facts=facts(run),
        run=run.name,
        sections=shown,
        figures={s.name: drawn(s.figures) for s in shown},
        verdicts=[v for s in shown for v in s.verdicts],
        absent=[s for s in sections if s.absent],
        tiles=headlines(shown),
        keys=key_table(k for s in shown for k in s.keys),
    )


def headlines(sections: Iterable[Section]) -> list[KeyNumber]:
    """The numbers that go on top, in their order."""
    found = [k for s in sections for k in s.keys if k.headline]
    return sorted(found, key=lambda k: k.headline)


def heading(run: Run) -> str:
    """What the page calls the run: its command and name."""
    command, name = text(run.record, "command") or "run", text(run.record, "name")
    return f"harness {command}: {name}" if name else f"harness {command}"


def facts(run: Run) -> list[str]:
    """The line under the heading: when, where, on what."""
    started = text(run.record, "started")
    found = [
        started[:16].replace("T", " ") + " UTC" if started else None,
        text(run.record, "host.host"),
        run.device,
        f"took {duration(run.record.get('duration_s')).text}",
    ]
    return [fact for fact in found if fact]


def key_table(keys: Iterable[KeyNumber]) -> Table:
    """Every key number with its exact value and where it stands."""
    rows = tuple(
        (
            Cell(k.label),
            Cell(str(k.cell.exact), k.cell.exact),
            Cell(k.unit),
            Cell(k.cell.key),
        )
        for k in keys
    )
    columns = (
        Column("number", numeric=False),
        Column("exact value"),
        Column("unit", numeric=False),
        Column("where it stands", numeric=False),
    )
    return Table("All key numbers", columns, rows)


def drawn(figures: Iterable[Figure], salt: str = "") -> list[dict[str, Any]]:
    """Figures with their SVG, as the templates take them."""
    return [
        {
            "id": figure.name + salt,
            "title": figure.title,
            "unit": figure.unit,
            "device": figure.device,
            "note": figure.note,
            "svg": plots.svg(figure, salt),
        }
        for figure in figures
    ]


def render(template: str, **context: Any) -> str:
    """Fill a template; what comes from a run is escaped."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(
        style=(_TEMPLATES / "style.css").read_text(encoding="utf-8"),
        script=(_TEMPLATES / "page.js").read_text(encoding="utf-8"),
        signs=_SIGNS,
        version=__version__,
        **context,
    )
