"""Block request events as ftrace (trace_pipe, trace-cmd report) and perf script print them.

``… [cpu] … sec.usec: block_rq_issue: maj,min RWBS bytes (cmd) sector + nr [ioprio] [comm]`` and
``block_rq_complete: maj,min RWBS (cmd) sector + nr [ioprio] [error]``; other lines are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from harness.trace.formats import scan
from harness.trace.formats.base import COMPLETION, ISSUE, BadLine, Format, Reading
from harness.trace.formats.blkparse import RECORD, to_rows
from harness.trace.formats.lines import parse_lines
from harness.trace.formats.streams import Head
from harness.trace.jit import kernel

LAYOUT = "[cpu] sec.frac: block_rq_issue: maj,min RWBS bytes (cmd) sector + nr [comm]"
_EVENT = re.compile(r".*\[\d+\].*\d+\.\d+:\s+(block:)?block_(rq|bio)_\w+:.*")
_LOST = re.compile(rb"\[LOST (\d+) EVENTS\]")
_NEEDLE = np.frombuffer(b"block_rq_", np.uint8)
_ISSUE = np.frombuffer(b"issue: ", np.uint8)
_COMPLETE = np.frombuffer(b"complete: ", np.uint8)


def _detect(head: Head) -> bool:
    return any(_EVENT.fullmatch(line) for line in head.lines)


def _read(reading: Reading) -> Iterator[pa.RecordBatch]:
    def parse(block: bytes) -> pa.RecordBatch:
        text = np.frombuffer(block, np.uint8)
        records = np.zeros(block.count(b"\n"), RECORD)
        count, bad = _scan(text, records)
        if bad >= 0:
            raise BadLine("not a block_rq event line", bad)
        batch = to_rows(block, records[:count])
        if b"LOST" in block:
            lost = sum(int(number) for number in _LOST.findall(block))
            reading.events_lost = (reading.events_lost or 0) + lost
        return batch

    return parse_lines(reading, parse, LAYOUT)


@kernel
def _find(text: Any, at: int, end: int, needle: Any) -> int:
    """Where ``needle`` starts in text[at:end], -1 if nowhere."""
    for start in range(at, end - len(needle) + 1):
        if _starts(text, start, end, needle):
            return start
    return -1


@kernel
def _starts(text: Any, at: int, end: int, needle: Any) -> bool:
    if at + len(needle) > end:
        return False
    for i in range(len(needle)):  # noqa: SIM110 (compiled)
        if text[at + i] != needle[i]:
            return False
    return True


@kernel
def _scan(text: Any, records: Any) -> tuple[int, int]:
    """Fill ``records``; returns (how many, start of a bad line or -1)."""
    at, count = 0, 0
    while at < len(text):
        end = scan.line_end(text, at)
        event = _find(text, at, end, _NEEDLE)
        if event >= 0 and text[at] != 35:
            name = event + len(_NEEDLE)
            kind = 0
            if _starts(text, name, end, _ISSUE):
                kind = _scan_event(
                    text, at, event, name + len(_ISSUE), end, False, records[count : count + 1]
                )
            elif _starts(text, name, end, _COMPLETE):
                kind = _scan_event(
                    text, at, event, name + len(_COMPLETE), end, True, records[count : count + 1]
                )
            if kind < 0:
                return count, at
            count += kind
        at = end + 1
    return count, -1


@kernel
def _scan_event(
    text: Any, line: int, event: int, at: int, end: int, completion: bool, record: Any
) -> int:
    """1 for an event, -1 for a line that cannot be read; ``at`` is behind the event's name."""
    if _scan_issuer(text, line, event, record) < 0:
        return -1
    record["event"][0] = COMPLETION if completion else ISSUE
    major, at = scan.number(text, at, end)
    if at < 0 or text[at] != 44:
        return -1
    minor, at = scan.number(text, at + 1, end)
    if at < 0:
        return -1
    record["dev"][0] = (major << np.uint64(20)) | minor
    at = scan.skip_blanks(text, at, end)
    after = scan.skip_word(text, at, end)
    record["rwbs"][0] = scan.packed(text, at, after)
    while at < end and text[at] != 40:
        at += 1
    while at < end and text[at] != 41:
        at += 1
    sector, at = scan.number(text, scan.skip_blanks(text, at + 1, end), end)
    if at < 0:
        return -1
    at = scan.skip_blanks(text, at, end)
    if at >= end or text[at] != 43:
        return -1
    count, at = scan.number(text, scan.skip_blanks(text, at + 1, end), end)
    if at < 0:
        return -1
    record["sector"][0], record["count"][0] = sector, count
    return _scan_tail(text, at, end, completion, record)


@kernel
def _scan_tail(text: Any, at: int, end: int, completion: bool, record: Any) -> int:
    """The last brackets: the issuer's name, or the error of a completion."""
    while at < end and text[at] != 91:
        at += 1
    close = end - 1
    while close > at and text[close] != 93:
        close -= 1
    if close <= at:
        return -1
    record["word_start"][0], record["word_end"][0], record["error"][0] = at, at, 0
    if not completion:
        record["word_start"][0], record["word_end"][0] = at + 1, close
        record["word_hash"][0] = scan.hashed(text, at + 1, close)
        return 1
    negative = text[at + 1] == 45
    value, at = scan.number(text, at + 2 if negative else at + 1, close)
    if at < 0:
        return -1
    record["error"][0] = -np.int64(value)
    return 1


@kernel
def _scan_issuer(text: Any, line: int, event: int, record: Any) -> int:
    """Time and pid, which stand before the event's name: ``comm-pid [cpu] flags sec.frac:``."""
    at = event - 1
    while (at > line and text[at] != 58) or (at > line and text[at + 1] == 98):
        at -= 1
    start = at
    while start > line and (text[start - 1] == 46 or 48 <= text[start - 1] <= 57):
        start -= 1
    ts_ns, after = scan.seconds(text, start, at)
    if after < 0:
        return -1
    record["ts_ns"][0] = ts_ns
    bracket = start - 1
    while bracket > line and text[bracket] != 91:
        bracket -= 1
    last = bracket
    while last > line and text[last - 1] == 32:
        last -= 1
    first = last
    while first > line and 48 <= text[first - 1] <= 57:
        first -= 1
    pid, after = scan.number(text, first, last)
    record["pid"][0] = np.int64(pid) if after >= 0 else 0
    return 1


FORMAT = Format(
    name="ftrace",
    title="ftrace or perf text of block_rq events",
    layout=LAYOUT,
    detect=_detect,
    read=_read,
    events=True,
)
