"""Parsing text a block at a time and yet naming the line that is wrong.

A parser handles a whole block of lines at once and knows nothing of line numbers. When it
refuses a block, the block is halved until the offending line stands alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from harness.core.errors import UsageError
from harness.trace.formats.base import BadLine, Reading
from harness.trace.formats.streams import line_blocks

ParsedT = TypeVar("ParsedT")
_SHOWN_CHARS = 120


def parse_lines(
    reading: Reading,
    parse: Callable[[bytes], ParsedT],
    layout: str,
    *,
    header: Callable[[bytes], bool] | None = None,
) -> Iterator[ParsedT]:
    """``parse`` applied to the whole file in blocks of lines.

    ``parse`` raises BadLine for a block it cannot read. ``header`` says whether a line is one;
    there may be several at the start. UsageError with file and line once more than
    ``reading.skip_bad`` lines are bad.
    """
    for number, block in line_blocks(reading.path, reading.progress):
        if number == 1 and header is not None:
            while block and header(block[: (end := block.index(b"\n") + 1)].strip()):
                number, block = number + 1, block[end:]
        if block and not block.isspace():
            yield from _parse_block(reading, parse, layout, number, block)


def _parse_block(
    reading: Reading, parse: Callable[[bytes], ParsedT], layout: str, number: int, block: bytes
) -> Iterator[ParsedT]:
    waiting = [(number, block)]
    while waiting:
        number, block = waiting.pop()
        if not block or block.isspace():
            continue
        try:
            parsed = parse(block)
        except BadLine as bad:
            waiting.extend(reversed(_around(reading, bad, layout, number, block)))
        else:
            yield parsed


def _around(
    reading: Reading, bad: BadLine, layout: str, number: int, block: bytes
) -> list[tuple[int, bytes]]:
    """What is left to parse of a refused block, as (line number, bytes) in order."""
    if bad.offset is not None:
        end = block.index(b"\n", bad.offset) + 1
        before, line, after = block[: bad.offset], block[bad.offset : end], block[end:]
        at = number + before.count(b"\n")
        _count_bad(reading, bad, layout, at, line)
        return [(number, before), (at + 1, after)]
    if block.count(b"\n") <= 1:
        _count_bad(reading, bad, layout, number, block)
        return []
    middle = block.find(b"\n", len(block) // 2) + 1
    if middle in (0, len(block)):
        middle = block.rfind(b"\n", 0, len(block) - 1) + 1
    first, second = block[:middle], block[middle:]
    return [(number, first), (number + first.count(b"\n"), second)]


def _count_bad(reading: Reading, bad: BadLine, layout: str, number: int, line: bytes) -> None:
    reading.bad_lines += 1
    if reading.bad_lines <= reading.skip_bad:
        return
    text = line.decode("utf-8", errors="replace").strip()
    shown = text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "…"
    tolerated = f" (after {reading.skip_bad} skipped)" if reading.skip_bad else ""
    raise UsageError(
        f"{reading.path}:{number}: {bad.reason}{tolerated}: {shown!r}; expected {layout}",
        fix="force another format with --format, or tolerate bad lines with --skip-bad N",
    )
