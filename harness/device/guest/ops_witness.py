"""Runs inside a guest: in which order did the kernel give the commands to the drive?

Uses the kernel's own ``block_rq_issue`` trace event, so it is independent of the sender.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

_INSTANCES = Path("/sys/kernel/tracing/instances")
_ROOM_KIB = 65536
_LINE = re.compile(r"block_rq_issue: (\d+),(\d+) (\S+) \d+ \(.*\) (\d+) \+ (\d+) ")

Command = tuple[str, int, int]
"""Letter (R, W or D), first sector, sectors."""


class OrderWitness:
    """Records the requests issued to one device, in a trace buffer of its own.

    OSError where the kernel's tracing is not mounted or not permitted.
    """

    def __init__(self, device: str) -> None:
        numbers = Path("/sys/block", Path(device).name, "dev").read_text().strip()
        major, minor = (int(part) for part in numbers.split(":"))
        self._buffer = _INSTANCES / f"harness-{os.getpid()}"
        self._buffer.mkdir()
        event = self._buffer / "events" / "block" / "block_rq_issue"
        try:
            (self._buffer / "buffer_size_kb").write_text(str(_ROOM_KIB))
            (event / "filter").write_text(f"dev == {major << 20 | minor}")
            (event / "enable").write_text("1")
        except OSError:
            self.close()
            raise

    def commands(self) -> list[Command]:
        """What was issued since the last call, in order."""
        found = parse_issues((self._buffer / "trace").read_text())
        (self._buffer / "trace").write_text("")
        return found

    def close(self) -> None:
        """Stop recording and give the buffer back."""
        self._buffer.rmdir()


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
