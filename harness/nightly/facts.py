"""Nights and findings as plain data, for ``--json``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from harness.nightly.nights import Night
from harness.nightly.regressions import Finding, Judgement, Series
from harness.nightly.statistics import ChangePoint


def night_facts(night: Night) -> dict[str, Any]:
    """A night with its figures."""
    return {
        **night_line(night),
        "software": dict(night.software),
        "metrics": [
            {"name": m.name, "value": m.value, "unit": m.unit, "better": m.better}
            for m in night.metrics
        ],
    }


def night_line(night: Night) -> dict[str, Any]:
    """A night without its figures."""
    return {
        "run": night.run,
        "started": night.started.isoformat(),
        "host": night.host,
        "device": night.device,
        "job": night.job,
        "good": night.good,
        "figures": len(night.metrics),
    }


def judgement_facts(judgement: Judgement) -> dict[str, Any]:
    """A report: ``verdict`` is REGRESSED, IMPROVED, STEADY, or UNKNOWN where nothing was judged."""
    return {
        "verdict": verdict(judgement),
        "judged": judgement.judged,
        "too_short": judgement.short,
        "bad_nights": [night_line(night) for night in judgement.bad_nights],
        "findings": [_finding(found) for found in judgement.findings],
    }


def verdict(judgement: Judgement) -> str:
    """The one word of a report."""
    if judgement.regressed:
        return "REGRESSED"
    if judgement.findings:
        return "IMPROVED"
    return "STEADY" if judgement.judged else "UNKNOWN"


def change_facts(changes: Iterable[tuple[Series, list[ChangePoint]]]) -> list[dict[str, Any]]:
    """Every change of level of every series, by series and time."""
    return [
        {
            **_series(series),
            "since": series.nights[point.index].started.isoformat(),
            "run": series.nights[point.index].run,
            "before": point.before,
            "after": point.after,
            "p": point.p,
        }
        for series, points in changes
        for point in points
    ]


def _series(series: Series) -> dict[str, Any]:
    return {
        "host": series.host,
        "device": series.device,
        "job": series.job,
        "metric": series.metric.name,
        "unit": series.metric.unit,
    }


def _finding(found: Finding) -> dict[str, Any]:
    return {
        "kind": found.kind,
        **_series(found.series),
        "since": found.since.isoformat(),
        "run": found.run,
        "before": found.before,
        "after": found.after,
        "ratio": found.ratio,
        "q": found.q,
        "cliffs_delta": found.delta,
        "test": found.test,
        "beside": list(found.beside),
    }
