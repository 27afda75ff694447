"""What can be asked of a replay."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from harness.core.errors import UsageError

MODES = ("timed", "flat-out", "closed-loop")
ENGINES = ("uring", "fio")


@dataclass(frozen=True)
class ReplayOptions:
    """How to replay a trace.

    mode
        ``timed`` keeps the recorded issue times; ``flat-out`` the order alone, ``depth`` requests
        in flight; ``closed-loop`` the recorded think times and dependencies.
    speed
        2 makes the recorded times pass twice as fast (timed and closed-loop).
    depth
        Requests in flight at most; None: as many as the queue holds with order kept.
    repeat, until_bytes
        Replay the trace so often, or until so many bytes are written (read, where the trace
        writes nothing).
    queues
        Engines (threads and rings) that share the requests; between them only time keeps order.
    discard
        Whether discards and write-zeroes are replayed.
    zero
        Write zeros, which drives and file systems may treat as nothing at all.
    verify
        Check every read against what the replay wrote, and all of it afterwards.
    seed
        Of the payload.
    stall_limit_s
        Give up when a request is not done after so long.
    realtime
        Give the engine a real-time priority where that is permitted.
    engine
        ``uring`` is ours; ``fio`` for comparison.
    """

    mode: str = "timed"
    speed: float = 1.0
    depth: int | None = None
    repeat: int = 1
    until_bytes: int | None = None
    queues: int = 1
    discard: bool = True
    zero: bool = False
    verify: bool = False
    seed: int = 1
    stall_limit_s: float = 30.0
    realtime: bool = True
    engine: str = "uring"

    def __post_init__(self) -> None:
        for value, known, name in (
            (self.mode, MODES, "mode"),
            (self.engine, ENGINES, "engine"),
        ):
            if value not in known:
                raise UsageError(f"unknown {name} {value!r}; known: {', '.join(known)}")
        for name in ("speed", "depth", "repeat", "until_bytes", "queues", "stall_limit_s"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise UsageError(f"{name.replace('_', '-')} must be positive: {value}")
        if self.verify and self.zero:
            raise UsageError("--verify needs stamped payloads, which --zero leaves out")
        if self.verify and self.queues > 1:
            raise UsageError("--verify needs one queue: it follows which write came last")
        if self.until_bytes is not None and self.repeat != 1:
            raise UsageError("--until repeats the trace as often as needed: leave --repeat out")
        if self.mode == "flat-out" and self.speed != 1:
            raise UsageError("--speed means nothing flat out")
        if self.mode == "closed-loop" and self.queues > 1:
            raise UsageError("a closed loop has one queue: its order is that of its dependencies")
        if self.engine == "fio":
            self._check_fio()

    def _check_fio(self) -> None:
        if self.mode == "closed-loop":
            raise UsageError("fio has no closed loop; use the engine uring")
        for name, default in (("verify", False), ("until_bytes", None), ("queues", 1)):
            if getattr(self, name) != default:
                raise UsageError(f"the engine fio has no --{name.replace('_bytes', '')}")

    def as_dict(self) -> dict[str, Any]:
        """All options, for JSON."""
        return asdict(self)
