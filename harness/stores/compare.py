"""A modelled slot store against a real one: the same workload, seen at the block layer.

Tolerances, and why they are what they are
------------------------------------------
The captures come from a chat driver whose random numbers are not known, in a closed loop on another
disk: which session comes when, how often two requests are stored at once, and which chunks host
memory still holds differ from run to run. Over three seeds the model's own figures spread by up to
0.03 (write adjacency), 0.09 (read adjacency), 0.1 (jumps) and 10 % (overwrite factor).

What follows from the layout alone has no tolerance to speak of: payload bytes a header, untouched
slots, discards, flushes. Headers: runs end at the same bytes, but only with a whole request, which
stores up to 40 chunks in the captures' workload: 8 % of the shortest capture's 501. How many chunks
are read for each one written depends on what memory still held: the chunks moved in either
direction a header spread by 8 % over seeds (one standard deviation, shortest capture), so 20 %.
Writes a slot are whole numbers, so a percentile of them is known to one write, which is the
tolerance. Checkpoints wait for quiet moments, which a closed loop never leaves and a rate does (the
captures have 1 to 2, the model up to one an interval); so not their number is compared but what
they cost, to 0.1 % of the bytes written. Request sizes depend on the memory behind the buffers:
pages that are contiguous give requests of the device's limit, scattered ones of its number of
segments. Where the real store's commonest request is one of these two, the model's must agree to
the byte (it takes either); between them memory is contiguous in part, and only the mean is
compared, which is up to 25 % from the model in the captures and in runs of our own: 30 %. Depth is
that of the machine: a factor of three.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from harness.stores.model_trace import DeviceLimits
from harness.stores.slot_view import FIFTHS, SlotView


@dataclass(frozen=True)
class Check:
    """One figure of both; ``ok`` None where one of them does not have it."""

    name: str
    modelled: float
    real: float
    tolerance: float
    relative: bool = False
    compared: bool = True

    @property
    def ok(self) -> bool | None:
        """Whether they agree."""
        if not self.compared:
            return None
        gap = abs(self.modelled - self.real)
        return bool(gap <= self.tolerance * (abs(self.real) if self.relative else 1.0) + 1e-12)

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "name": self.name,
            "modelled": self.modelled,
            "real": self.real,
            "tolerance": self.tolerance,
            "relative": self.relative,
            "ok": self.ok,
        }


@dataclass(frozen=True)
class Comparison:
    """All checks. MATCHES if every figure that both have agrees."""

    checks: tuple[Check, ...]

    @property
    def verdict(self) -> str:
        """MATCHES or DIFFERS."""
        return "DIFFERS" if any(check.ok is False for check in self.checks) else "MATCHES"

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        notes = [] if all(check.compared for check in self.checks) else [_NO_DEPTH]
        return {
            "verdict": self.verdict,
            "notes": notes,
            "checks": [check.as_json() for check in self.checks],
        }


_NO_DEPTH = (
    "depth is not compared: a modelled trace has no latencies; emit the store on a device, capture "
    "that, and compare the capture"
)

Figure = Callable[[SlotView], float]

_ONE_WRITE = 1.0
_LOOP = DeviceLimits()

_LAYOUT: tuple[tuple[str, Figure, float, bool], ...] = (
    ("headers", lambda v: len(v.written), 0.08, True),
    ("payload bytes a header, of a payload", SlotView.payload_per_header, 0.002, False),
    ("chunks read or written a header", SlotView.moved_per_header, 0.2, True),
    ("header bytes a chunk", lambda v: v.header_bytes / len(v.written), 0.0, False),
    ("operations that are no read or write", lambda v: v.other_ops, 0.0, False),
    ("metadata, share of the bytes written", SlotView.metadata_share, 0.001, False),
    ("touched slots up to the highest", SlotView.top_share, 0.02, False),
    ("overwrite factor", SlotView.overwrite_factor, 0.15, True),
    ("mean request written, bytes", lambda v: v.mean_request(True), 0.3, True),
    ("mean request read, bytes", lambda v: v.mean_request(False), 0.3, True),
    ("writes a slot, 10th percentile", lambda v: v.reuse()[0], _ONE_WRITE, False),
    ("writes a slot, 50th percentile", lambda v: v.reuse()[1], _ONE_WRITE, False),
    ("writes a slot, 90th percentile", lambda v: v.reuse()[2], _ONE_WRITE, False),
)
_WRITE_ADJACENCY, _READ_ADJACENCY = 0.2, 0.25
_WRITE_JUMP, _READ_JUMP = 0.15, 0.2


def compare_views(
    modelled: SlotView, real: SlotView, limits: DeviceLimits = _LOOP
) -> Comparison:  # fmt: skip
    """Compare two runs of about as many chunks written; ``limits`` of the real one's device."""
    checks = [
        Check(name, float(of(modelled)), float(of(real)), tolerance, relative)
        for name, of, tolerance, relative in _LAYOUT
    ]
    for word, writes in (("written", True), ("read", False)):
        checks.append(_commonest(modelled, real, word, writes, limits))
    for label, fifth in (("first", 0), ("last", FIFTHS - 1)):
        checks += _placement(modelled, real, label, fifth)
    return Comparison((*checks, _depth(modelled, real)))


def _commonest(
    modelled: SlotView, real: SlotView, word: str, writes: bool, limits: DeviceLimits
) -> Check:  # fmt: skip
    """The commonest request, to the byte unless memory that is contiguous in part made it."""
    one, two = modelled.commonest(writes), real.commonest(writes)
    least, most = (limits.request_bytes(scattered=scattered) for scattered in (True, False))
    tolerance = most - least if least < two < most else 0
    return Check(f"commonest request {word}, bytes", one, two, tolerance)


def _placement(modelled: SlotView, real: SlotView, label: str, fifth: int) -> list[Check]:
    def check(name: str, of: Figure, tolerance: float) -> Check:
        return Check(f"{name}, {label} fifth", of(modelled), of(real), tolerance)

    return [
        check("next slot written", lambda v: v.adjacent(v.written, fifth), _WRITE_ADJACENCY),
        check("next slot read", lambda v: v.adjacent(v.read, fifth), _READ_ADJACENCY),
        check(
            "median write jump over slots touched",
            lambda v: v.median_jump(v.written, fifth),
            _WRITE_JUMP,
        ),
        check(
            "median read jump over slots touched",
            lambda v: v.median_jump(v.read, fifth),
            _READ_JUMP,
        ),
    ]


def _depth(modelled: SlotView, real: SlotView) -> Check:
    """Payloads in flight, by their ratio; a modelled trace without latencies has none."""
    one, two = modelled.busy_depth(), real.busy_depth()
    both = one > 0 and two > 0
    ratio = max(one, two) / min(one, two) if both else 1.0
    return Check("median payloads in flight, ratio of the two", ratio, 1.0, 2.0, compared=both)
