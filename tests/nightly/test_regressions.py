"""What is reported, and how often by mistake, on series whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest

from harness.nightly.nights import Metric, Night
from harness.nightly.regressions import Finding, Judgement, Options, judge, past_changes
from harness.nightly.statistics import (
    benjamini_hochberg,
    change_points,
    compare,
    first_split,
)
from tests.nightly.made import gbps, night, waf

NIGHTS = 60
NOISE = 0.03


def report(
    rng: np.random.Generator,
    *,
    shift: float = 0.0,
    nights_ago: int = 1,
    tails: str = "normal",
    options: Options | None = None,
) -> Judgement:
    """A report on ten figures of 3 % noise, the first of which may have shifted."""
    size = (NIGHTS, 10)
    draw = rng.standard_normal(size) if tails == "normal" else rng.standard_t(3, size)
    values = np.exp(NOISE * draw)
    values[NIGHTS - nights_ago :, 0] *= 1 + shift
    return judge(
        [
            night(day, *(Metric(f"figure {i}", float(v), "", 1) for i, v in enumerate(row)))
            for day, row in enumerate(values)
        ],
        options,
    )


def of_first(judgement: Judgement) -> list[Finding]:
    return [f for f in judgement.findings if f.series.metric.name == "figure 0"]


@pytest.mark.parametrize("tails", ["normal", "heavy"])
def test_at_most_one_report_in_twenty_raises_a_false_alarm(tails: str) -> None:
    """Without any tolerance for small shifts, over reports of ten figures in 60 nights.

    150 reports at a true rate of 5 % exceed 14 with probability below 1 %.
    """
    rng = np.random.default_rng(7)
    options = Options(tolerance=0.0)
    alarms = sum(bool(report(rng, tails=tails, options=options).findings) for _ in range(150))
    assert alarms <= 14


@pytest.mark.parametrize(("shift", "nights_ago", "least"), [(0.1, 3, 0.85), (0.1, 10, 0.95)])
def test_a_shift_of_ten_percent_is_found(shift: float, nights_ago: int, least: float) -> None:
    """At 3 % noise: at least 85 % found on the third night, 95 % on the tenth; both directions."""
    rng = np.random.default_rng(8)
    for sign, kind in ((-1, "regression"), (1, "improvement")):
        hits = [of_first(report(rng, shift=sign * shift, nights_ago=nights_ago)) for _ in range(30)]
        assert sum(bool(f) for f in hits) >= least * 30
        assert {f.kind for found in hits for f in found} == {kind}


def bandwidth_nights(values: list[float], **software: str) -> list[Night]:
    """Nights with ``values``; ``software`` holds from night 30 on."""
    return [night(day, gbps(v), **(software if day >= 30 else {})) for day, v in enumerate(values)]


def test_a_finding_says_when_how_much_and_what_changed_beside_it() -> None:
    rng = np.random.default_rng(1)
    values = [*rng.normal(2.0, 0.02, 30), *rng.normal(1.6, 0.02, 8)]
    judgement = judge(bandwidth_nights([float(v) for v in values], kernel="2", firmware="F2"))
    (found,) = judgement.findings
    assert judgement.regressed
    assert (found.kind, found.test) == ("regression", "change point")
    assert found.run == night(30).run
    assert found.ratio == pytest.approx(0.8, rel=0.03)
    assert found.delta == -1.0
    assert [text.split(" on ")[0] for text in found.beside] == ["kernel 1 -> 2", "firmware 1 -> F2"]


def test_less_waf_is_an_improvement_and_does_not_alarm() -> None:
    """Also for figures without any noise: the FTL model repeats to the last digit."""
    nights = [night(day, waf(2.5 if day < 40 else 1.5)) for day in range(50)]
    judgement = judge(nights)
    assert [f.kind for f in judgement.findings] == ["improvement"]
    assert not judgement.regressed
    assert not judge(nights[:40]).findings


def test_a_small_recovery_does_not_hide_a_regression_and_a_whole_one_is_an_improvement() -> None:
    levels = [2.0] * 30 + [1.0] * 5 + [1.02] * 5
    (found,) = judge([night(day, gbps(v)) for day, v in enumerate(levels)]).findings
    assert (found.kind, found.run, found.after) == ("regression", night(30).run, 1.0)
    levels = [2.0] * 30 + [1.0] * 5 + [2.0] * 5
    (found,) = judge([night(day, gbps(v)) for day, v in enumerate(levels)]).findings
    assert (found.kind, found.run) == ("improvement", night(35).run)


def test_an_old_change_is_history_not_news() -> None:
    nights = [night(day, waf(1.5 if day < 30 else 2.5)) for day in range(80)]
    assert not judge(nights).findings
    ((series, points),) = past_changes(nights, 0.05)
    assert (series.metric.name, [p.index for p in points]) == ("WAF", [30])
    assert (points[0].before, points[0].after) == (1.5, 2.5)


def test_a_certain_but_small_shift_is_within_tolerance() -> None:
    nights = [night(day, waf(2.0 if day < 30 else 2.06)) for day in range(40)]
    assert not judge(nights).findings
    assert judge(nights, Options(tolerance=0.02)).regressed
    assert judge(nights, Options(by_metric={"WAF": 0.02})).regressed
    assert not judge(nights, Options(tolerance=0.02, by_metric={"WAF": 0.05})).regressed


def test_devices_and_hosts_are_never_mixed() -> None:
    one = [night(day, waf(1.0)) for day in range(20)]
    other = [night(day, waf(9.0), host="rack2") for day in range(20, 40)]
    judgement = judge(one + other)
    assert (judgement.judged, judgement.findings) == (2, ())


def test_bad_nights_are_no_baseline_and_the_newest_bad_one_alarms() -> None:
    good = [night(day, waf(1.0)) for day in range(20)]
    bad = [night(day, waf(50.0), good=False) for day in range(20, 30)]
    judgement = judge(good + bad)
    assert not judgement.findings
    assert [n.run for n in judgement.bad_nights] == [bad[-1].run]
    assert judgement.regressed
    assert not judge([*good, *bad, night(30, waf(1.0))]).regressed


def test_few_nights_and_figures_without_direction_are_counted_not_judged() -> None:
    judgement = judge([night(day, waf(day), Metric("Requests", day, "", 0)) for day in range(5)])
    assert (judgement.judged, judgement.short, judgement.findings) == (0, 1, ())


def test_mann_whitney_and_cliffs_delta_by_hand() -> None:
    shift = compare(np.array([1.0, 2, 3, 4, 5]), np.array([6.0, 7, 8]))
    assert shift.p == pytest.approx(2 / 56)  # the two extreme orders of 8 over 3
    assert (shift.delta, shift.before, shift.after) == (1.0, 3.0, 7.0)
    assert compare(np.ones(5), np.ones(3)).p == 1.0
    assert compare(np.zeros(5), np.ones(3)).ratio is None


def test_two_changes_are_found_where_they_are() -> None:
    rng = np.random.default_rng(3)
    levels = np.repeat([1.0, 2.0, 1.5], [20, 25, 15])
    points = change_points(levels + rng.normal(0, 0.02, 60), 0.01)
    assert [p.index for p in points] == [20, 45]
    assert [p.after for p in points] == pytest.approx([2.0, 1.5], abs=0.02)


def test_p_of_a_split_is_uniform_where_nothing_changes() -> None:
    rng = np.random.default_rng(4)
    p_values = np.array([first_split(rng.standard_normal(30))[1] for _ in range(400)])
    assert abs(np.mean(p_values <= 0.1) - 0.1) < 0.045  # three standard deviations
    assert abs(np.mean(p_values <= 0.5) - 0.5) < 0.075


def test_benjamini_hochberg_by_hand() -> None:
    q = benjamini_hochberg(np.array([0.01, 0.04, 0.03, 0.5]))
    assert q == pytest.approx([0.04, 0.16 / 3, 0.16 / 3, 0.5])
    assert len(benjamini_hochberg(np.array([]))) == 0
