"""blkparse text in its default form, read and written.

``maj,min cpu seq sec.nsec pid action RWBS [sector + nsectors] [process or error]``. Requests
are the D (issue) events, or Q (queue) events where the file has no D; C events give latencies.
A file of completions alone is read by its completions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from harness.core.errors import UsageError
from harness.core.ops import SECTOR_BYTES
from harness.trace.formats import scan
from harness.trace.formats.base import COMPLETION, ISSUE, BadLine, Format, Reading, rows
from harness.trace.formats.blkparse_text import write
from harness.trace.formats.flags import decode_packed
from harness.trace.formats.lines import parse_lines
from harness.trace.formats.streams import HEAD_BYTES, Head, line_blocks
from harness.trace.jit import kernel

LAYOUT = "maj,min cpu sequence sec.nsec pid action RWBS sector + nsectors [process]"
_START = r"\s*\d+,\d+\s+\d+\s+\d+\s+\d+\.\d+\s+\d+\s+"
_LINE = _START + r"[A-Za-z]{1,2}\s+\S+.*"
_CHOICE = re.compile(_START.encode() + rb"([DQC])\s", re.MULTILINE)

RECORD = np.dtype(
    [
        ("ts_ns", "<i8"),
        ("sector", "<u8"),
        ("count", "<u8"),
        ("rwbs", "<u8"),
        ("word_hash", "<u8"),
        ("word_start", "<i8"),
        ("word_end", "<i8"),
        ("dev", "<u4"),
        ("pid", "<i4"),
        ("error", "<i4"),
        ("event", "u1"),
    ]
)


def _detect(head: Head) -> bool:
    return any(re.fullmatch(_LINE, line) for line in head.lines)


def _read(reading: Reading) -> Iterator[pa.RecordBatch]:
    issue = choose_issue(reading)
    ended = False

    def parse(block: bytes) -> pa.RecordBatch | None:
        nonlocal ended
        if ended:
            return None
        text = np.frombuffer(block, np.uint8)
        records = np.zeros(block.count(b"\n"), RECORD)
        count, bad, ended = _scan(text, ord(issue), records)
        if bad >= 0:
            ended = False
            raise BadLine("not a blkparse line", bad)
        return to_rows(block, records[:count])

    for batch in parse_lines(reading, parse, LAYOUT):
        if batch is not None:
            yield batch


def choose_issue(reading: Reading) -> str:
    """The action that stands for a request: D, else Q, else C, whichever the start has."""
    _, block = next(iter(line_blocks(reading.path)))
    found = set(_CHOICE.findall(block[:HEAD_BYTES]))
    for action in ("D", "Q", "C"):
        if action.encode() in found:
            if action == "Q":
                reading.note("no D events: requests are as queued (Q), before merging")
            if action == "C":
                reading.note("only C events: times are completions")
            return action
    raise UsageError(f"{reading.path} has no D, Q or C events")


def to_rows(block: bytes, records: npt.NDArray[Any]) -> pa.RecordBatch:
    """Scanned records as an event batch; BadLine for a flag string that is none."""
    size = records["count"] * np.uint64(SECTOR_BYTES)
    op, flags = decode_packed(records["rwbs"], size)
    comm = scan.words_column(
        block, records["word_hash"], records["word_start"], records["word_end"]
    )
    return rows(
        ts_ns=records["ts_ns"],
        op=op,
        lba=records["sector"],
        bytes=size,
        flags=flags,
        dev=records["dev"],
        pid=records["pid"],
        comm=comm,
        error=records["error"],
        event=records["event"],
    )


@kernel
def _scan(text: Any, issue: int, records: Any) -> tuple[int, int, bool]:
    """Fill ``records``; returns (how many, start of a bad line or -1, summary reached)."""
    at, count = 0, 0
    while at < len(text):
        end = scan.line_end(text, at)
        start = scan.skip_blanks(text, at, end)
        if start < end:
            first = text[start]
            if first == 67 or first == 84:  # "CPU0 (dev):" or "Total": blkparse's summary
                return count, -1, True
            if first != 73:  # "Input file ... added"
                kind = _scan_line(text, start, end, issue, records[count : count + 1])
                if kind < 0:
                    return count, at, False
                count += kind
        at = end + 1
    return count, -1, False


@kernel
def _scan_line(text: Any, at: int, end: int, issue: int, record: Any) -> int:
    """1 for a wanted event, 0 for another, -1 for a line that is none."""
    major, at = scan.number(text, at, end)
    if at < 0 or at >= end or text[at] != 44:
        return -1
    minor, at = scan.number(text, at + 1, end)
    if at < 0:
        return -1
    for _ in range(2):  # CPU and sequence number
        _, at = scan.number(text, scan.skip_blanks(text, at, end), end)
        if at < 0:
            return -1
    ts_ns, at = scan.seconds(text, scan.skip_blanks(text, at, end), end)
    if at < 0:
        return -1
    pid, at = scan.number(text, scan.skip_blanks(text, at, end), end)
    if at < 0:
        return -1
    at = scan.skip_blanks(text, at, end)
    after = scan.skip_word(text, at, end)
    if after == at:
        return -1
    action = text[at] if after == at + 1 else 0
    if action != issue and action != 67:
        return 0
    at = scan.skip_blanks(text, after, end)
    after = scan.skip_word(text, at, end)
    record["rwbs"][0] = scan.packed(text, at, after)
    record["ts_ns"][0] = ts_ns
    record["dev"][0] = (major << np.uint64(20)) | minor
    record["pid"][0] = pid
    record["event"][0] = ISSUE if action == issue else COMPLETION
    return _scan_extent(text, after, end, action == 67, record)


@kernel
def _scan_extent(text: Any, at: int, end: int, completion: bool, record: Any) -> int:
    """The rest of a line: ``[sector [+ count]] [(elapsed)] [word]``."""
    at = scan.skip_blanks(text, at, end)
    record["sector"][0], record["count"][0] = 0, 0
    if at < end and 48 <= text[at] <= 57:
        sector, at = scan.number(text, at, end)
        if at < 0:
            return -1
        record["sector"][0] = sector
        at = scan.skip_blanks(text, at, end)
        if at < end and text[at] == 43:
            count, at = scan.number(text, scan.skip_blanks(text, at + 1, end), end)
            if at < 0:
                return -1
            record["count"][0] = count
    while at < end and text[at] != 91:
        at += 1
    close = end - 1
    while close > at and text[close] != 93:
        close -= 1
    if close <= at:
        return -1
    return _scan_word(text, at + 1, close, completion, record)


@kernel
def _scan_word(text: Any, at: int, end: int, completion: bool, record: Any) -> int:
    record["word_start"][0], record["word_end"][0], record["error"][0] = at, at, 0
    if not completion:
        record["word_end"][0] = end
        record["word_hash"][0] = scan.hashed(text, at, end)
        return 1
    negative = at < end and text[at] == 45
    value, at = scan.number(text, at + 1 if negative else at, end)
    if at < 0:
        return -1
    error = np.int64(value)
    if error > 32767:  # the 16-bit field printed without its sign
        error = 65536 - error
    record["error"][0] = -error
    return 1


FORMAT = Format(
    name="blkparse",
    title="blkparse text",
    layout=LAYOUT,
    detect=_detect,
    read=_read,
    write=write,
    extensions=(".blkparse",),
    events=True,
)
