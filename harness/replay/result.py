"""What a replay says of itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from harness.core.errors import Interrupted
from harness.device.info import BlockStat
from harness.replay.fidelity import FAITHFUL, LATE, WRONG

__all__ = ["FAITHFUL", "LATE", "WRONG", "ReplayInterrupted", "ReplayResult", "block_layer"]


@dataclass(frozen=True)
class ReplayResult:
    """The outcome of a replay; ``details`` holds all of it, as ``--json`` prints it."""

    verdict: str
    requests: int
    bytes: int
    errors: int
    details: dict[str, Any]

    @property
    def fidelity(self) -> dict[str, Any]:
        """Verdict, reasons, order, lags, drift and shapes."""
        found: dict[str, Any] = self.details["fidelity"]
        return found

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain data."""
        return self.details


class ReplayInterrupted(Interrupted):
    """SIGINT or SIGTERM during a replay; ``result`` is what was done by then, and says so."""

    def __init__(self, result: ReplayResult) -> None:
        super().__init__(f"replay interrupted after {result.requests} requests")
        self.result = result


def block_layer(
    moved: BlockStat, commands: dict[str, int], bytes_done: dict[str, int]
) -> dict[str, Any]:
    """What the kernel's own counters say of a replay.

    ``commands`` and ``bytes_done`` are ours by operation letter (R, W, D). More requests than
    commands are splits by the kernel; merges are joined commands. Write-zeroes count as writes.
    """
    rows = {
        "R": (moved.read_ios, moved.read_merges, moved.read_sectors),
        "W": (moved.write_ios, moved.write_merges, moved.write_sectors),
        "D": (moved.discard_ios, moved.discard_merges, moved.discard_sectors),
    }
    seen = {
        letter: {"requests": ios, "merges": merges, "bytes": sectors * 512}
        for letter, (ios, merges, sectors) in rows.items()
    }
    splits = sum(
        max(0, row["requests"] + row["merges"] - commands.get(letter, 0))
        for letter, row in seen.items()
        if letter == "R" or not commands.get("Z")
    )
    return {
        "seen": seen,
        "flushes": moved.flush_ios,
        "merges": sum(row["merges"] for row in seen.values()),
        "kernel_splits": splits,
        "bytes_agree": all(
            seen[letter]["bytes"] >= bytes_done.get(letter, 0) for letter in ("R", "W")
        ),
    }
