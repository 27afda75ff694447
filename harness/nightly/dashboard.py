"""One page a history: what changed, when, beside what, and every series at a glance."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from harness.core.files import write_text
from harness.nightly.facts import verdict
from harness.nightly.nights import SOFTWARE, Night
from harness.nightly.regressions import (
    Judgement,
    Options,
    Series,
    all_series,
    beside,
    judge,
    past_changes,
)
from harness.nightly.series_plots import course, figure
from harness.nightly.statistics import ChangePoint
from harness.report.model import Cell, Column, KeyNumber, Level, Section, Table, Verdict
from harness.report.page import drawn, render
from harness.report.values import cell

PLOTS = 18
"""Series that are drawn: changed ones first. All others are a line of the table."""

_LEVELS = {
    "REGRESSED": Level.BAD,
    "IMPROVED": Level.GOOD,
    "STEADY": Level.GOOD,
    "UNKNOWN": Level.UNKNOWN,
}
_NEWEST = 30

Changes = list[tuple[Series, list[ChangePoint]]]


def write_dashboard(
    nights: list[Night], options: Options, target: Path, results: Path | None = None
) -> None:
    """Write the page of a history. Runs whose ``report.html`` is below ``results`` are linked."""
    write_text(target, dashboard(nights, options, target.parent, results))


def dashboard(nights: list[Night], options: Options, at: Path, results: Path | None) -> str:
    """The page, as it lies in the folder ``at``."""
    judgement = judge(nights, options)
    series, changes = all_series(nights), past_changes(nights, options.q)
    links = _Links(at, results)
    plotted = _plotted(judgement, series, changes)
    sections = [
        Section(
            "changes",
            "What changed",
            "Which figures left their level, when, and what else changed that night?",
            tables=tuple(_change_tables(judgement, changes, links)),
            notes=(
                f"Compared: the newest {options.recent} nights of each figure with the good nights "
                f"before (Mann-Whitney), and its whole course (rank CUSUM), {judgement.judged} "
                f"series as one family at a false discovery rate of {options.q:g}; a move within "
                f"{options.tolerance:.0%} is not reported. The first night of a change is exact "
                "to a night or two.",
            ),
        ),
        Section(
            "series",
            "Figures night after night",
            f"Changed ones first; {len(plotted)} of {len(series)} are drawn, all are in the table.",
            tables=(_series_table(series, changes),),
        ),
        Section(
            "nights",
            "The newest nights",
            "Which runs are behind this, and which of them failed?",
            tables=(_night_table(nights, links),),
        ),
    ]
    return render(
        "history.html.j2",
        title="Nightly history",
        facts=_facts(nights),
        span=_span(nights),
        verdicts=_verdicts(judgement),
        tiles=_tiles(nights, judgement),
        sections=sections,
        figures={"series": drawn(figure(n, one, pts) for n, (one, pts) in enumerate(plotted))},
    )


class _Links:
    def __init__(self, at: Path, results: Path | None) -> None:
        self._at, self._results = at.resolve(), results.resolve() if results else None

    def run(self, name: str) -> Cell:
        """The name of a run, and the way to its page where there is one."""
        page = self._results / name / "report.html" if self._results else None
        if page is None or not page.is_file():
            return Cell(name)
        return Cell(name, link=os.path.relpath(page, self._at))


def _plotted(judgement: Judgement, series: list[Series], changes: Changes) -> Changes:
    points = {_key(one): found for one, found in changes}
    found = [f.series for f in judgement.findings]
    newest_first = sorted(
        (one for one, _ in changes), key=lambda s: -max(p.index for p in points[_key(s)])
    )
    courses = [one for one in series if len(one.values) > 2]  # fewer points draw nothing
    ordered = {_key(one): one for one in (*found, *newest_first, *courses)}
    return [(one, points.get(key, [])) for key, one in list(ordered.items())[:PLOTS]]


def _key(series: Series) -> tuple[str, str, str, str]:
    return series.host, series.device, series.job, series.metric.name


def _verdicts(judgement: Judgement) -> list[Verdict]:
    word = verdict(judgement)
    kinds = [f.kind for f in judgement.findings]
    detail = (
        f"{kinds.count('regression')} worse, {kinds.count('improvement')} better, of "
        f"{judgement.judged} figures judged; {judgement.short} have too few nights yet"
    )
    found = [Verdict("All figures", word, _LEVELS[word], detail)]
    for night in judgement.bad_nights:
        found.append(Verdict(f"{night.job} on {night.host}", "FAILED", Level.BAD, night.run))
    for one in judgement.findings:
        level = Level.BAD if one.kind == "regression" else Level.GOOD
        change = f"{one.before:.4g} to {one.after:.4g} {one.series.metric.unit}".rstrip()
        detail = f"{change} since {one.since:%Y-%m-%d}; {one.series.device} of {one.series.host}"
        if one.beside:
            detail += f"; beside: {', '.join(one.beside)}"
        word = "WORSE" if one.kind == "regression" else "BETTER"
        found.append(Verdict(one.series.metric.name, word, level, detail))
    return found[:12]


def _tiles(nights: list[Night], judgement: Judgement) -> list[KeyNumber]:
    kinds = [f.kind for f in judgement.findings]
    counts = (
        ("nights recorded", len(nights), "nights"),
        ("figures judged", judgement.judged, "judged"),
        ("with too few nights yet", judgement.short, "too_short"),
        ("worse", kinds.count("regression"), ""),
        ("better", kinds.count("improvement"), ""),
        ("newest jobs failed", len(judgement.bad_nights), ""),
    )
    return [KeyNumber(label, Cell(str(n), n, key)) for label, n, key in counts]


def _change_tables(judgement: Judgement, changes: Changes, links: _Links) -> list[Table]:
    head = (
        *_NAMES,
        Column("before"),
        Column("after"),
        Column("unit", numeric=False),
        Column("after / before"),
        Column("since (UTC)", numeric=False),
    )
    news = tuple(
        (
            Cell("worse" if f.kind == "regression" else "better"),
            *_names(f.series),
            cell(f.before, f"findings.{n}.before", 4),
            cell(f.after, f"findings.{n}.after", 4),
            Cell(f.series.metric.unit),
            cell(f.ratio, f"findings.{n}.ratio", 3),
            Cell(f"{f.since:%Y-%m-%d}"),
            links.run(f.run),
            cell(f.q, f"findings.{n}.q"),
            Cell(f.test),
            Cell("; ".join(f.beside) or "nothing known"),
        )
        for n, f in enumerate(judgement.findings)
    )
    more = (
        Column("first run", numeric=False),
        Column("q"),
        Column("found by", numeric=False),
        Column("changed beside it", numeric=False),
    )
    rows = [
        (
            *_names(one),
            cell(p.before, digits=4),
            cell(p.after, digits=4),
            Cell(one.metric.unit),
            cell(p.after / p.before if p.before else None),
            Cell(f"{one.nights[p.index].started:%Y-%m-%d}"),
            Cell("; ".join(beside(one.nights, p.index)) or "nothing known"),
        )
        for one, points in changes
        for p in points
    ]
    rows.sort(key=lambda row: row[8].text, reverse=True)
    beside_it = Column("changed beside it", numeric=False)
    return [
        *([Table("News", (Column("", numeric=False), *head, *more), news)] if news else []),
        *([Table("Every change of level", (*head, beside_it), tuple(rows[:200]))] if rows else []),
    ]


_NAMES = tuple(Column(word, numeric=False) for word in ("figure", "host", "device", "job"))


def _names(series: Series) -> tuple[Cell, Cell, Cell, Cell]:
    return Cell(series.metric.name), Cell(series.host), Cell(series.device), Cell(series.job)


def _series_table(series: list[Series], changes: Changes) -> Table:
    points = {_key(one): len(found) for one, found in changes}
    rows = tuple(
        (
            *_names(one),
            Cell(course(one.values[-240:])),
            cell(float(one.values[-1]), digits=4),
            cell(float(np.median(one.values)), digits=4),
            Cell(one.metric.unit),
            cell(len(one.values)),
            cell(points.get(_key(one), 0)),
        )
        for one in series
    )
    columns = (
        *_NAMES,
        Column("course", numeric=False),
        Column("newest"),
        Column("median"),
        Column("unit", numeric=False),
        Column("nights"),
        Column("changes of level"),
    )
    return Table("All figures", columns, rows, "Course: the last 240 nights at most, low to high.")


def _night_table(nights: list[Night], links: _Links) -> Table:
    rows = tuple(
        (
            Cell(f"{n.started:%Y-%m-%d %H:%M}"),
            Cell(n.host),
            Cell(n.job),
            Cell(n.device),
            Cell("good" if n.good else "FAILED"),
            cell(len(n.metrics)),
            links.run(n.run),
            *(Cell(n.software[name] or "–") for name in SOFTWARE),
        )
        for n in reversed(nights[-_NEWEST:])
    )
    words = ("started (UTC)", "host", "job", "device", "judged itself")
    software = tuple(
        Column(name, numeric=False) for name in (nights[-1].software if nights else ())
    )
    columns = (*(Column(w, numeric=False) for w in words), Column("figures"))
    columns = (*columns, Column("run", numeric=False), *software)
    return Table(f"The newest {len(rows)} of {len(nights)}", columns, rows)


def _facts(nights: Sequence[Night]) -> list[str]:
    hosts = {night.host for night in nights}
    devices = {(night.host, night.device) for night in nights}
    return [_span(nights), f"{len(hosts)} hosts", f"{len(devices)} devices"]


def _span(nights: Sequence[Night]) -> str:
    if not nights:
        return "no nights yet"
    first, last = nights[0].started, nights[-1].started
    return f"{len(nights)} nights, {first:%Y-%m-%d} to {last:%Y-%m-%d}"
