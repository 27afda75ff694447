"""What got worse, what got better, and what else changed that night.

Each figure of each device and job is a series. Two questions are asked of it: do the last few
nights differ from the good nights before them (Mann-Whitney), and did its level change at some
night (change point)? All p-values of one report are one family for Benjamini and Hochberg. A
figure counts only if it also moved by more than its tolerance: a shift of 0.1 % may be certain
and still be of no interest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np

from harness.nightly.nights import SOFTWARE, Metric, Night
from harness.nightly.statistics import (
    MIN_SEGMENT,
    ChangePoint,
    Floats,
    Shift,
    benjamini_hochberg,
    change_points,
    compare,
    first_split,
)

LARGE_DELTA = 0.474
"""Cliff's delta from which an effect is called large (Romano et al. 2006)."""


@dataclass(frozen=True)
class Options:
    """How a report judges. Counts are nights with that figure; ``tolerance`` is a share.

    ``by_metric`` gives some figures a tolerance of their own.

    ``recent`` nights are judged against up to ``baseline`` good ones before them. A change point
    is news as long as its new level began within the last ``news`` nights. ``q`` is the false
    discovery rate of one report.
    """

    recent: int = 3
    baseline: int = 40
    news: int = 14
    series: int = 200
    tolerance: float = 0.05
    q: float = 0.05
    by_metric: Mapping[str, float] = field(default_factory=dict)

    @property
    def least(self) -> int:
        """Nights below which nothing can be said."""
        return self.recent + 2 * MIN_SEGMENT


@dataclass(frozen=True)
class Series:
    """One figure of one device under one job, its nights by time; ``values`` is float64[n]."""

    host: str
    device: str
    job: str
    metric: Metric
    nights: tuple[Night, ...]
    values: Floats


@dataclass(frozen=True)
class Finding:
    """A figure that changed. ``kind`` is ``regression`` or ``improvement``.

    ``since`` is the first night of the new level, ``test`` how it was found, ``q`` its adjusted
    p, ``delta`` Cliff's delta, ``beside`` the software that changed with it.
    """

    kind: str
    series: Series
    test: str
    since: datetime
    run: str
    before: float
    after: float
    ratio: float | None
    q: float
    delta: float
    beside: tuple[str, ...]


@dataclass(frozen=True)
class Judgement:
    """``judged`` series were tested; ``short`` had too few nights to say anything.

    ``bad_nights`` are newest nights of a job that judged themselves bad.
    """

    findings: tuple[Finding, ...]
    judged: int
    short: int
    bad_nights: tuple[Night, ...]

    @property
    def regressed(self) -> bool:
        """Whether somebody should look."""
        return bool(self.bad_nights) or any(f.kind == "regression" for f in self.findings)


@dataclass(frozen=True)
class _Tested:
    series: Series
    shift: Shift
    change_p: float


def all_series(nights: Iterable[Night]) -> list[Series]:
    """The series of good nights, for each figure that has a better direction."""
    found: dict[tuple[str, str, str, str], list[tuple[Night, Metric]]] = {}
    for night in sorted(nights, key=lambda n: n.started):
        for metric in night.metrics if night.good else ():
            if metric.better:
                key = (night.host, night.device, night.job, metric.name)
                found.setdefault(key, []).append((night, metric))
    return [
        Series(
            host, device, job, rows[-1][1], tuple(n for n, _ in rows),
            np.array([m.value for _, m in rows]),
        )
        for (host, device, job, _), rows in sorted(found.items())
    ]  # fmt: skip


def judge(nights: Iterable[Night], options: Options | None = None) -> Judgement:
    """Findings of the newest nights, regressions first, then by q."""
    options = options or Options()
    given = list(nights)
    series = all_series(given)
    tested = [_test(one, options) for one in series if len(one.values) >= options.least]
    p_values = np.array([p for one in tested for p in (one.shift.p, one.change_p)])
    q_values = benjamini_hochberg(p_values)
    findings = []
    for place, one in enumerate(tested):
        q_shift, q_change = (float(q) for q in q_values[2 * place : 2 * place + 2])
        finding = _by_change(one, q_change, options) or _by_shift(one, q_shift, options)
        if finding is not None:
            findings.append(finding)
    findings.sort(key=lambda f: (f.kind != "regression", f.q))
    return Judgement(
        tuple(findings), len(tested), len(series) - len(tested), tuple(_newest_bad(given))
    )


def _newest_bad(nights: list[Night]) -> list[Night]:
    newest: dict[tuple[str, str], Night] = {}
    for night in sorted(nights, key=lambda n: n.started):
        newest[night.host, night.job] = night
    return [night for night in newest.values() if not night.good]


def _test(series: Series, options: Options) -> _Tested:
    recent = series.values[-options.recent :]
    earlier = series.values[-options.recent - options.baseline : -options.recent]
    _, p = first_split(series.values[-options.series :])
    return _Tested(series, compare(earlier, recent), p)


def _by_change(tested: _Tested, q: float, options: Options) -> Finding | None:
    """The newest change of level that is news, certain and large enough."""
    if q > options.q:
        return None
    series = tested.series
    skipped = max(0, len(series.values) - options.series)
    values = series.values[skipped:]
    points = change_points(values, options.q)
    edges = [0, *(point.index for point in points), len(values)]
    for place in reversed(range(1, len(edges) - 1)):
        start, index, end = edges[place - 1 : place + 2]
        if len(values) - index > options.news:
            break
        shift = compare(values[start:index], values[index:end])
        if found := _finding(series, "change point", skipped + index, shift, q, options):
            return found
    return None


def _by_shift(tested: _Tested, q: float, options: Options) -> Finding | None:
    if q > options.q:
        return None
    index = len(tested.series.values) - options.recent
    return _finding(tested.series, "Mann-Whitney", index, tested.shift, q, options)


def _finding(
    series: Series, test: str, index: int, shift: Shift, q: float, options: Options
) -> Finding | None:
    moved = abs(shift.after - shift.before)
    tolerance = options.by_metric.get(series.metric.name, options.tolerance)
    if abs(shift.delta) < LARGE_DELTA or moved <= tolerance * abs(shift.before):
        return None
    better = (shift.after - shift.before) * series.metric.better > 0
    return Finding(
        kind="improvement" if better else "regression",
        series=series,
        test=test,
        since=series.nights[index].started,
        run=series.nights[index].run,
        before=shift.before,
        after=shift.after,
        ratio=shift.ratio,
        q=q,
        delta=shift.delta,
        beside=beside(series.nights, index),
    )


def beside(nights: tuple[Night, ...], index: int) -> tuple[str, ...]:
    """Software that differs from the night before, at night ``index`` or one of its neighbours.

    A change point is exact to a night or two only where the noise is small.
    """
    found = []
    for at in range(max(1, index - 1), min(len(nights), index + 2)):
        for name in SOFTWARE:
            old, new = nights[at - 1].software[name], nights[at].software[name]
            if old != new:
                found.append(
                    f"{name} {old or 'not recorded'} -> {new or 'not recorded'} "
                    f"on {nights[at].started:%Y-%m-%d}"
                )
    return tuple(found)


def past_changes(nights: Iterable[Night], q: float) -> list[tuple[Series, list[ChangePoint]]]:
    """All changes of level of each series, however old, at ``q`` over the first split of each."""
    series = all_series(nights)
    q_values = benjamini_hochberg(np.array([first_split(one.values)[1] for one in series]))
    return [
        (one, change_points(one.values, q))
        for one, adjusted in zip(series, q_values, strict=True)
        if adjusted <= q
    ]
