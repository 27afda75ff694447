"""Be a KV store: its calls as real I/O, every payload stamped, every read verified.

Direct I/O, but for stores that are buffered themselves: theirs goes through the page cache.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.core.errors import UsageError
from harness.core.progress import Progress, quiet
from harness.device.guard import Target
from harness.stores.base import Store
from harness.stores.issuer import Issued, Issuer
from harness.stores.object_log import ObjectLog
from harness.stores.requests.form import RequestBatch, RequestSource, take

_STEP_REQUESTS = 8


@dataclass(frozen=True)
class Pace:
    """Open loop: requests begin at the trace's clock, ``speed`` times as fast."""

    speed: float = 1.0


@dataclass(frozen=True)
class EmitResult:
    """What an emission did. ``as_json`` is the result of ``harness emit --json``."""

    store: str
    requests: str
    device: str
    seed: int
    served: int
    new_tokens: int
    duration_s: float
    issued: Issued
    report: dict[str, Any]
    objects: str | None
    stopped_by: str
    buffered: bool = False
    pace: Pace | None = None
    behind_s: float | None = None

    @property
    def verified(self) -> bool:
        """Whether everything that was read back is what was written."""
        return self.issued.wrong_sectors == 0

    def as_json(self) -> dict[str, Any]:
        """Plain data; ``bytes_written_per_new_token`` is null when there was no new token.

        ``speed`` is null for a closed loop, which has no clock to be ``max_behind_s`` of.
        """
        done = self.issued
        return {
            "store": self.store,
            "requests_from": self.requests,
            "device": self.device,
            "seed": self.seed,
            "requests": self.served,
            "new_tokens": self.new_tokens,
            "duration_s": self.duration_s,
            "ops": done.calls,
            "bytes": done.read_bytes + done.written_bytes,
            "bytes_written": done.written_bytes,
            "bytes_read": done.read_bytes,
            "bytes_verified": done.verified_bytes,
            "verify_errors": done.wrong_sectors,
            "bytes_written_per_new_token": (
                done.written_bytes / self.new_tokens if self.new_tokens else None
            ),
            "max_depth": done.deepest,
            "buffered": self.buffered,
            "speed": self.pace.speed if self.pace else None,
            "max_behind_s": self.behind_s,
            "stopped_by": self.stopped_by,
            "objects": self.objects,
            "store_report": self.report,
        }


def emit(
    store: Store,
    requests: RequestSource,
    target: Target,
    *,
    seed: int,
    limit: int | None = None,
    seconds: float | None = None,
    pace: Pace | None = None,
    objects: Path | None = None,
    progress: Progress = quiet,
) -> EmitResult:
    """Serve ``requests`` on a device, as fast as it lets the store's workers (closed loop).

    With a ``pace`` in an open loop: a request's calls are handed over at its time of the trace,
    whether or not earlier ones are done, until as many wait as ``issuer.WINDOW_OPS``.

    Parameters
    ----------
    store
        A fresh store, whose capacity must not exceed the device's.
    seed
        Of the payloads.
    limit, seconds
        Stop after so many requests, or when that much time has passed; what the store holds by
        then is still written. An endless trace needs one of them.
    objects
        Where to write the log that says which object each call moved (see ``object_log``).

    Raises
    ------
    UsageError
        The store is larger than the device, or nothing would ever end the emission.
    MeasurementError
        The device failed a call. Wrong data is no error here: see ``EmitResult.verified``.
    """
    if store.capacity_bytes > target.size_bytes:
        raise UsageError(
            f"a store of {store.capacity_bytes} bytes does not fit {target.path} "
            f"({target.size_bytes} bytes)"
        )
    if limit is None and seconds is None and requests.endless:
        raise UsageError(f"{requests.name} never ends: say how many requests or seconds to emit")
    served = tokens = 0
    behind_s = 0.0
    stopped_by = "requests"
    with (
        ObjectLog(objects, buffered=store.buffered) as log,
        Issuer(
            target, seed=seed, streams=store.streams, largest_bytes=store.largest_op_bytes,
            fixed=store.fixed_buffers, buffered=store.buffered,
            done=log.done if objects else None,
        ) as issuer,
    ):  # fmt: skip
        began = time.monotonic()
        for step in _steps(requests, limit, 1 if pace else _STEP_REQUESTS):
            if pace is not None:
                behind_s = max(behind_s, _wait(issuer, began, pace, step, seconds))
            if seconds is not None and time.monotonic() - began >= seconds:
                stopped_by = "seconds"
                break
            ops = store.serve_batch(step)
            log.add(ops)
            issuer.feed(ops)
            served += len(step)
            tokens += int(step.new_tokens.sum())
            if limit is not None:
                progress(served, limit, "requests")
            else:
                progress(time.monotonic() - began, seconds, "s")
        rest = store.close()
        log.add(rest)
        issuer.feed(rest)
        issuer.finish()
        duration = time.monotonic() - began
    return EmitResult(
        store.name, requests.name, target.path, seed, served, tokens, duration, issuer.issued,
        store.report(), str(objects) if objects else None, stopped_by, store.buffered, pace,
        behind_s if pace else None,
    )  # fmt: skip


def _wait(
    issuer: Issuer, began: float, pace: Pace, step: RequestBatch, seconds: float | None
) -> float:
    """Work until the step is due, or the time is over; how many seconds late it is already."""
    due = began + float(step.time_s[0]) / pace.speed
    late = time.monotonic() - due
    issuer.work_until(due if seconds is None else min(due, began + seconds))
    return max(0.0, late)


def _steps(requests: RequestSource, limit: int | None, size: int) -> Iterator[RequestBatch]:
    for batch in take(requests.batches(), limit):
        yield from batch.parts(size)
