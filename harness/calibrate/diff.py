"""Two calibration files side by side: what changed beyond its own uncertainty."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

from harness.bench.stats import Interval
from harness.calibrate.model import BandwidthSample, CalibrationFile, LayoutTerm, WafSample

Verdict = Literal["same", "higher", "lower", "only in first", "only in second"]


@dataclass(frozen=True)
class Difference:
    """One figure in both files. ``change`` is second over first, minus one."""

    what: str
    first: float | None
    second: float | None
    change: float | None
    verdict: Verdict

    def as_json(self) -> dict[str, Any]:
        """All fields."""
        return asdict(self)


def diff(first: CalibrationFile, second: CalibrationFile) -> list[Difference]:
    """Constants, bandwidth cells, slowdowns and WAF that either file has, in a stable order.

    ``same`` means that the intervals overlap: the files do not contradict each other there.
    """
    a, b = dict(_figures(first)), dict(_figures(second))
    return [_compare(key, a.get(key), b.get(key)) for key in dict.fromkeys([*a, *b])]


def _compare(what: str, a: Interval | None, b: Interval | None) -> Difference:
    if a is None or b is None:
        verdict: Verdict = "only in second" if a is None else "only in first"
        first, second = (value.median if value else None for value in (a, b))
        return Difference(what, first, second, None, verdict)
    verdict = "same"
    if b.low > a.high:
        verdict = "higher"
    elif b.high < a.low:
        verdict = "lower"
    return Difference(what, a.median, b.median, b.median / a.median - 1, verdict)


def _figures(file: CalibrationFile) -> Iterator[tuple[str, Interval]]:
    for constant in file.constants:
        if constant.value is not None:
            yield f"constant {constant.name} [{constant.unit}]", constant.value
    for cell in file.bandwidth:
        yield f"bandwidth {_cell_name(cell)} [GB/s]", cell.gbps
    for term in file.layout_terms:
        for point in term.points:
            if point.slowdown is not None:
                yield f"slowdown {_term_name(term)}, {point.context_tokens} tokens", point.slowdown
    for sample in file.waf:
        value = sample.steady if sample.steady is not None else sample.cumulative
        low, high = sample.low or value, sample.high or value
        band = Interval(median=value, low=min(low, value), high=max(high, value), n=1)
        yield f"WAF {_waf_name(sample)}", band


def _cell_name(cell: BandwidthSample) -> str:
    """A cell by its parameters; where it was measured does not matter."""
    return cell.source.partition(": ")[2]


def _term_name(term: LayoutTerm) -> str:
    parts = [
        term.layout, term.model, term.access, term.transport, term.engine, f"qd{term.queue_depth}",
        f"{term.threads} threads", f"task {term.task_bytes}" if term.task_bytes else None,
        f"{term.turns} turns", f"{term.sessions} sessions", f"age {term.age:g}",
        f"chunk {term.chunk_tokens}", "beside writes" if term.background_writes else None,
    ]  # fmt: skip
    return ", ".join(part for part in parts if part)


def _waf_name(sample: WafSample) -> str:
    parts = [
        sample.source, sample.profile, sample.policy, sample.store,
        f"utilisation {sample.utilisation:.3g}" if sample.utilisation is not None else None,
        f"op {sample.over_provisioning:.3g}" if sample.over_provisioning is not None else None,
        f"line {sample.line_bytes}" if sample.line_bytes else None,
        f"chunk {sample.chunk_bytes}" if sample.chunk_bytes else None,
        f"namespace {sample.namespace_bytes}" if sample.namespace_bytes else None,
        sample.model, sample.requests, sample.precondition, sample.note,
    ]  # fmt: skip
    return ", ".join(part for part in parts if part)
