"""Runs inside a guest: in which order did the kernel give the commands to the drive?

Uses the kernel's own ``block_rq_issue`` trace event, so it is independent of the sender.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

_TRACING = Path("/sys/kernel/tracing")
_EVENT = _TRACING / "events" / "block" / "block_rq_issue"
_ROOM_KIB = 65536
_LINE = re.compile(r"block_rq_issue: (\d+),(\d+) (\S+) \d+ \(.*\) (\d+) \+ (\d+) ")

Command = tuple[str, int, int]
"""Letter (R, W or D), first sector, sectors."""


class OrderWitness:
    """Records the requests issued to one device between two calls of ``order``."""

    def __init__(self, device: str) -> None:
        numbers = Path("/sys/block", Path(device).name, "dev").read_text().strip()
        self._device = tuple(int(part) for part in numbers.split(":"))
        major, minor = self._device
        (_TRACING / "buffer_size_kb").write_text(str(_ROOM_KIB))
        (_EVENT / "filter").write_text(f"dev == {major << 20 | minor}")
        (_TRACING / "trace").write_text("")
        (_EVENT / "enable").write_text("1")

    def commands(self) -> list[Command]:
        """What was issued since the last call, in order."""
        found = parse_issues((_TRACING / "trace").read_text())
        (_TRACING / "trace").write_text("")
        return found

    def close(self) -> None:
        """Stop recording."""
        (_EVENT / "enable").write_text("0")
        (_EVENT / "filter").write_text("0")


def parse_issues(text: str) -> list[Command]:
    """The trace file's ``block_rq_issue`` lines; flushes and other operations are left out."""
    found = []
    for match in _LINE.finditer(text):
        flags = match.group(3)
        if flags[0] in "RWD" and int(match.group(5)) > 0:
            found.append((flags[0], int(match.group(4)), int(match.group(5))))
    return found


def in_order(sent: Sequence[Command], issued: Sequence[Command]) -> int:
    """How many of ``sent`` came out at the place where they were sent."""
    return sum(left == right for left, right in zip(sent, issued, strict=False))
