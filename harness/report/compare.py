"""Two runs side by side: every key number that both have, and what differs in how they ran."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.core.files import write_text
from harness.core.progress import Progress, quiet
from harness.report.model import Better, Cell, Column, KeyNumber, Section, Table
from harness.report.page import drawn, render
from harness.report.run import Run, open_run
from harness.report.sections import build
from harness.report.values import ABSENT, dig, plain

QUESTION = (
    "Change is B against A. Where an interval was measured, a change inside it is called "
    "within noise; single figures carry no such judgement."
)
_CIRCUMSTANCES = {
    "device": "device",
    "host.host": "host",
    "host.kernel": "kernel",
    "host.cpu": "CPU",
    "host.harness_version": "harness",
    "host.harness_commit": "commit",
    "fio_version": "fio",
}


def compare(path_a: Path, path_b: Path, target: Path, progress: Progress = quiet) -> Path:
    """Write the comparison of two finished runs to ``target``."""
    runs = [open_run(path, progress) for path in (path_a, path_b)]
    built = [build(run) for run in runs]
    write_text(target, compare_page(runs, built))
    return target


def compare_page(runs: list[Run], built: list[list[Section]]) -> str:
    """The page for two runs and their sections."""
    names = [
        (one.name, one.title)
        for one, other in zip(*built, strict=True)
        if any(s.tables or s.figures for s in (one, other))
    ]
    return render(
        "compare.html.j2",
        title=f"{runs[0].name} against {runs[1].name}",
        heading="Comparison",
        question=QUESTION,
        a=_side(runs[0], built[0], "-a"),
        b=_side(runs[1], built[1], "-b"),
        numbers=number_table(*built),
        differences=circumstances(*runs),
        parts=names,
    )


def _side(run: Run, sections: list[Section], salt: str) -> dict[str, Any]:
    return {
        "run": run.name,
        "verdicts": [v for s in sections for v in s.verdicts],
        "sections": {s.name: s for s in sections},
        "figures": {s.name: drawn(s.figures, salt) for s in sections},
    }


def number_table(sections_a: list[Section], sections_b: list[Section]) -> Table:
    """Key numbers of both runs with their change; those of one run alone at the end."""
    a, b = ({k.label: k for s in side for k in s.keys} for side in (sections_a, sections_b))
    both = [label for label in a if label in b]
    alone = [label for label in (*a, *b) if label not in both]
    rows = [(*_names(a[x]), a[x].cell, b[x].cell, *change(a[x], b[x])) for x in both]
    for label in alone:
        known = a.get(label) or b[label]
        shown_a, shown_b = (side[label].cell if label in side else ABSENT for side in (a, b))
        rows.append((*_names(known), shown_a, shown_b, ABSENT, Cell("only in one run")))
    columns = (
        Column("number", numeric=False),
        Column("unit", numeric=False),
        Column("A"),
        Column("B"),
        Column("B / A"),
        Column("judgement", numeric=False),
    )
    return Table("Key numbers", columns, tuple(rows))


def _names(key: KeyNumber) -> tuple[Cell, Cell]:
    return Cell(key.label), Cell(key.unit)


def change(a: KeyNumber, b: KeyNumber) -> tuple[Cell, Cell]:
    """Ratio B / A and what to think of it."""
    one, other = a.cell.exact, b.cell.exact
    if one is None or other is None:
        return ABSENT, ABSENT
    if one == other:
        return Cell("1", 1.0), Cell("equal")
    ratio = Cell(plain(other / one), other / one) if one else ABSENT
    if _overlap(a, b):
        return ratio, Cell("within noise")
    if a.better is Better.NEITHER:
        return ratio, Cell("different")
    improved = (other > one) == (a.better is Better.HIGHER)
    return ratio, Cell("better" if improved else "worse")


def _overlap(a: KeyNumber, b: KeyNumber) -> bool:
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return False
    return a.low <= b.high and b.low <= a.high


def circumstances(a: Run, b: Run) -> Table:
    """What differs between the two apart from their results: machine, versions, settings."""
    rows = []
    for path, label in _CIRCUMSTANCES.items():
        one, other = (run.device if path == "device" else dig(run.record, path) for run in (a, b))
        if one != other:
            rows.append((Cell(label), Cell(str(one)), Cell(str(other))))
    for key in sorted({*_config(a), *_config(b)}):
        one, other = (str(_config(run).get(key, "–")) for run in (a, b))
        if one != other:
            rows.append((Cell(f"setting {key}"), Cell(one), Cell(other)))
    columns = tuple(Column(label, numeric=False) for label in ("differs", "A", "B"))
    return Table("What else differs", columns, tuple(rows))


def _config(run: Run) -> dict[str, Any]:
    found = dig(run.record, "config")
    return found if isinstance(found, dict) else {}
