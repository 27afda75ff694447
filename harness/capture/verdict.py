"""What a recording may claim: LOSSLESS, LOSSY(n) or UNKNOWN, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from harness.capture.witness import WitnessResult


@dataclass(frozen=True)
class Evidence:
    """All that bears on the verdict.

    ``end`` is the probe's own account (END frame), None if the stream was cut off.
    ``received`` counts the records that arrived, ``unpaired`` the completions with data whose
    issue was not seen, ``in_flight_at_start`` how many of those are explained.
    ``without_completion`` counts requests that surely ended, unseen: their address was used again,
    or nothing was in flight any more. It may exceed the probe's count, because some kernels skip
    BPF programs without counting it (one does while an interrupt hits process 1). Not ``keyed``
    means that pairing had to guess, so that an unpaired completion proves nothing.
    """

    end: Mapping[str, Any] | None
    received: int
    witnesses: Sequence[WitnessResult]
    unpaired: int
    in_flight_at_start: int
    without_completion: int
    keyed: bool


@dataclass(frozen=True)
class Judgement:
    """``lost`` counts issues; it is 0 unless the verdict is LOSSY."""

    verdict: Literal["LOSSLESS", "LOSSY", "UNKNOWN"]
    lost: int
    completions_lost: int
    notes: tuple[str, ...]

    def __str__(self) -> str:
        return f"LOSSY({self.lost})" if self.verdict == "LOSSY" else self.verdict


def judge(evidence: Evidence) -> Judgement:
    """Weigh the probe's own loss counters against the kernel's counters of the device."""
    notes = [w.reason for w in evidence.witnesses if w.reason]
    unexplained = max(0, evidence.unpaired - evidence.in_flight_at_start) if evidence.keyed else 0
    if unexplained:
        notes.append(f"{unexplained} completions of requests whose issue was not seen")
    if evidence.end is None:
        notes.append("the probe ended without its account of losses")
        unexplained = 0  # the issues may wait in a ring whose turn never came
    proven = sum(w.missing for w in evidence.witnesses) + unexplained
    if evidence.end is None:
        verdict: Literal["LOSSY", "UNKNOWN"] = "LOSSY" if proven else "UNKNOWN"
        return Judgement(verdict, proven, evidence.without_completion, tuple(notes))

    full = evidence.end["ring_full_per_cpu"]
    missed = evidence.end["missed"]
    agreed = all(w.equal is True for w in evidence.witnesses)
    missed_issues = sum(missed.get(name) or 0 for name in ("issues", "bio_issues"))
    if missed_issues and agreed and not proven:
        notes.append(
            f"the probe missed {missed_issues} issues of other devices: "
            "the kernel's counters of this one agree"
        )
        missed_issues = 0
    lost = max(sum(full["lost_issues"]) + missed_issues, proven)
    if evidence.end["recorded"] != evidence.received:
        gone = evidence.end["recorded"] - evidence.received
        notes.append(f"{gone} records did not arrive")
        lost = max(lost, gone)
    completions = sum(full["lost_completions"]) + sum(
        missed.get(name) or 0 for name in ("completions", "bio_completions")
    )
    completions = max(completions, evidence.without_completion)
    if None in missed.values():
        notes.append("this kernel does not count the events that its programs miss")
    if lost:
        return Judgement("LOSSY", lost, completions, tuple(notes))
    return Judgement("LOSSLESS" if agreed else "UNKNOWN", 0, completions, tuple(notes))
