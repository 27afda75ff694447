"""The witness and the verdict, case by case."""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.capture.verdict import Evidence, judge
from harness.capture.witness import Witness, WitnessResult
from harness.core.ops import Op

_MS = 1_000_000


def _reading(at_ms: int, **changed: int) -> dict[str, Any]:
    columns = {"reads": 0, "read_sectors": 2, "writes": 4, "write_sectors": 6, "discards": 11,
               "discard_sectors": 13, "flushes": 15}  # fmt: skip
    stat = [0] * 17
    for name, value in changed.items():
        stat[columns[name]] = value
    none = {f"rejected_{op}_{what}": 0 for op in "RWDFZN" for what in ("requests", "sectors")}
    return {
        "before_ns": at_ms * _MS, "after_ns": at_ms * _MS, "stat": stat, "inflight": [0, 0],
        "iostats": True, "counters": {"before": none, "after": dict(none)},
    }  # fmt: skip


def _add(witness: Witness, *ends: tuple[int, Op, int], last: bool = True) -> None:
    witness.add(
        np.array([ms * _MS for ms, _, _ in ends], np.int64),
        np.array([op for _, op, _ in ends], np.uint8),
        np.array([size for _, _, size in ends], np.uint32),
        np.full(len(ends), last),
    )


def test_equal_counters_agree() -> None:
    witness = Witness(_reading(0))
    _add(witness, (50, Op.READ, 4096), (60, Op.WRITE, 8192), (61, Op.WRITE_ZEROES, 512),
         (62, Op.DISCARD, 4096), (63, Op.FLUSH, 0))  # fmt: skip
    witness.stop(
        _reading(100, reads=1, read_sectors=8, writes=99, write_sectors=17, discards=1,
                 discard_sectors=8, flushes=1)
    )  # fmt: skip
    assert witness.judge().equal is True  # and the 99 writes do not matter


def test_missing_reads_are_counted_and_missing_writes_noticed() -> None:
    witness = Witness(_reading(0))
    _add(witness, (50, Op.READ, 4096))
    witness.stop(_reading(100, reads=3, read_sectors=24))
    result = witness.judge()
    assert (result.equal, result.missing) == (False, 2)
    writes = Witness(_reading(0))
    writes.stop(_reading(100, write_sectors=8))
    assert writes.judge().missing == 1


def test_parts_of_a_request_add_their_sectors_but_no_request() -> None:
    witness = Witness(_reading(0))
    _add(witness, (50, Op.READ, 4096), last=False)
    _add(witness, (51, Op.READ, 4096))
    witness.stop(_reading(100, reads=1, read_sectors=16))
    assert witness.judge().equal is True


def test_events_at_the_moment_of_reading_may_be_on_either_side() -> None:
    for kernel in (1, 2):
        witness = Witness(_reading(0))
        _add(witness, (1, Op.READ, 4096), (50, Op.READ, 4096))
        witness.stop(_reading(100, reads=kernel, read_sectors=8 * kernel))
        _add(witness, (150, Op.READ, 4096))
        assert witness.judge().equal is True


def test_what_a_filter_left_out_is_added() -> None:
    witness = Witness(_reading(0))
    _add(witness, (50, Op.READ, 4096))
    end = _reading(100, reads=5, read_sectors=40)
    for when in ("before", "after"):
        end["counters"][when] = {
            **end["counters"][when], "rejected_R_requests": 4, "rejected_R_sectors": 32
        }  # fmt: skip
    witness.stop(end)
    assert witness.judge().equal is True


def test_lost_completions_of_recorded_requests_are_presumed() -> None:
    witness = Witness(_reading(0))
    witness.presume(np.array([Op.READ], np.uint8), np.array([4096], np.uint32), certain=True)
    witness.stop(_reading(100, reads=1, read_sectors=8))
    assert witness.judge().equal is True


def test_counters_that_cannot_testify_say_why() -> None:
    off = {**_reading(0), "iostats": False}
    counting = Witness(off)
    counting.stop(_reading(100, reads=1, read_sectors=8))
    assert counting.judge().missing == 1  # says that it does not count, but does
    gone = {**_reading(100), "stat": None}
    assert Witness(_reading(0)).judge().equal is None
    for start, stop in ((off, _reading(100)), (_reading(0), gone)):
        witness = Witness(start)
        witness.stop(stop)
        result = witness.judge()
        assert result.equal is None and result.reason


def _evidence(**changed: Any) -> Evidence:
    end = {
        "recorded": 10,
        "ring_full_per_cpu": {"lost_issues": [0, 0], "lost_completions": [0, 0]},
        "missed": {"issues": 0, "completions": 0},
    }
    end.update(changed.pop("end", {}))
    facts: dict[str, Any] = {
        "end": end, "received": 10, "witnesses": [WitnessResult(True, 0, None, {})],
        "unpaired": 0, "in_flight_at_start": 0, "without_completion": 0, "keyed": True,
    }  # fmt: skip
    return Evidence(**{**facts, **changed})


def test_nothing_lost_and_an_equal_witness_is_lossless() -> None:
    judgement = judge(_evidence())
    assert (judgement.verdict, judgement.lost) == ("LOSSLESS", 0)


def test_a_full_ring_is_lossy_by_as_much() -> None:
    full = {"lost_issues": [3, 4], "lost_completions": [1, 1]}
    judgement = judge(_evidence(end={"ring_full_per_cpu": full}))
    assert str(judgement) == "LOSSY(7)"
    assert judgement.completions_lost == 2


def test_lost_completions_alone_are_not_lossy_but_counted() -> None:
    judgement = judge(_evidence(end={"missed": {"issues": 0, "completions": 5}}))
    assert (judgement.verdict, judgement.completions_lost) == ("LOSSLESS", 5)
    assert judge(_evidence(without_completion=3)).completions_lost == 3


def test_the_witness_outvotes_a_probe_that_noticed_nothing() -> None:
    judgement = judge(_evidence(witnesses=[WitnessResult(False, 2, "differs", {})]))
    assert str(judgement) == "LOSSY(2)"


def test_missed_issues_are_others_if_the_witness_agrees() -> None:
    missed = {"missed": {"issues": 2, "completions": 0}}
    assert judge(_evidence(end=missed)).verdict == "LOSSLESS"
    silent = [WitnessResult(None, 0, "no counters", {})]
    assert str(judge(_evidence(end=missed, witnesses=silent))) == "LOSSY(2)"


def test_unexplained_completions_prove_lost_issues() -> None:
    assert judge(_evidence(unpaired=3, in_flight_at_start=3)).verdict == "LOSSLESS"
    assert str(judge(_evidence(unpaired=5, in_flight_at_start=3))) == "LOSSY(2)"
    assert judge(_evidence(unpaired=5, keyed=False)).verdict == "LOSSLESS"


def test_without_a_witness_or_an_end_nothing_is_known() -> None:
    silent = [WitnessResult(None, 0, "no counters", {})]
    assert judge(_evidence(witnesses=silent)).verdict == "UNKNOWN"
    assert judge(_evidence(end={}, witnesses=silent)).verdict == "UNKNOWN"
    # Of several rings one may have been sent further than the others: issues may be missing.
    cut = judge(Evidence(None, 10, silent, 7, 0, 4, True))
    assert (cut.verdict, cut.completions_lost) == ("UNKNOWN", 4)


def test_records_that_did_not_arrive_are_lost() -> None:
    assert str(judge(_evidence(received=8))) == "LOSSY(2)"
