"""The WAF under given conditions: a sample that has them, else a curve, else the nearest sample."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from harness.calibrate.constants import best_waf
from harness.calibrate.fits import waf_at
from harness.calibrate.model import WafSample, WafTerm
from harness.calibrate.wear import Variable, rounded, value_of

Conditions = Mapping[Variable, float]


@dataclass(frozen=True)
class Choice:
    """Either a sample (``exact``: it has the conditions) or a value on a fitted curve."""

    sample: WafSample | None = None
    term: WafTerm | None = None
    value: float = math.nan
    exact: bool = True


def choose(
    samples: Sequence[WafSample], terms: Sequence[WafTerm], wanted: Conditions
) -> Choice | None:
    """What speaks for ``wanted``; None if no sample records all of its variables."""
    known = [
        sample for sample in samples if all(value_of(sample, name) is not None for name in wanted)
    ]
    same = [
        sample for sample in known if all(_is(value_of(sample, n), x) for n, x in wanted.items())
    ]
    best = best_waf(same)
    if best is not None and (best.steady is not None or not wanted):
        return Choice(sample=best, exact=best.point is None or len(same) == 1 or bool(wanted))
    curves = [(term, name) for term in terms for name in wanted if _lies_on(term, name, wanted)]
    if curves:
        inside = [pair for pair in curves if _valid(pair[0], wanted[pair[1]])]
        term, name = min(inside or curves, key=lambda pair: pair[0].error or 0.0)
        waf = float(waf_at(term.form, np.array([wanted[name]]), term.a, term.b)[0])
        return Choice(term=term, value=waf, exact=_valid(term, wanted[name]))
    if not known:
        return None
    distance = {id(sample): _distance(sample, wanted) for sample in known}
    least = min(distance.values())
    near = best_waf([sample for sample in known if distance[id(sample)] == least])
    return Choice(sample=near, exact=bool(same))


def _lies_on(term: WafTerm, name: Variable, wanted: Conditions) -> bool:
    """Whether ``term`` is a curve over ``name`` with all other wanted values held."""
    return term.variable == name and all(
        _is(_held_value(term, other), value) for other, value in wanted.items() if other != name
    )


def _held_value(term: WafTerm, name: Variable) -> float | None:
    if name == "chunk_per_line":
        chunk, line = term.held.get("chunk_bytes"), term.held.get("line_bytes")
        return chunk / line if isinstance(chunk, int) and isinstance(line, int) and line else None
    value = term.held.get(name)
    return value if isinstance(value, float) else None


def _valid(term: WafTerm, x: float) -> bool:
    return term.valid.low <= x <= term.valid.high


def _is(value: float | None, wanted: float) -> bool:
    return value is not None and math.isclose(
        rounded(value) or 0.0, rounded(wanted) or 0.0, rel_tol=0.02
    )


def _distance(sample: WafSample, wanted: Conditions) -> float:
    return sum(
        abs(math.log(max(value_of(sample, name) or 0.0, 1e-9) / max(x, 1e-9)))
        for name, x in wanted.items()
    )
