"""Tuning a policy while it runs: the recent past is played again with each value, the best is kept.

A policy that tunes itself has three functions beside its hooks: ``tunings(settings)``, the values
to try and the window (none: it does not tune); ``tune(own, value)``, which sets one; ``saved(own,
hits)``, what it has saved where requests used so many chunks, int64[n]. As Marconi does: let n be
the requests served when a tier first gives an object up for room, other than to the SSD; after
``window`` x n requests those since then are played again, from a copy of the state at n, and the
value that saves most is set, the first among equals. Only requests that were served are looked at.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

from harness.simulator.bind import Play
from harness.simulator.policies import Policy
from harness.simulator.state import DROPPED, EVICTED, ROW_HIT, State


class Tunings(NamedTuple):
    """Values to try, and the window as a multiple of the requests until the first eviction."""

    values: tuple[float, ...]
    window: int


class Tuned(NamedTuple):
    """The value that was set, after so many requests."""

    value: float
    requests: int


def tuner_of(policy: Policy, state: State, engine: Play) -> Tuner:
    """What serves a run's requests, and tunes its policy if that tunes itself."""
    return Tuner(policy, tunings_of(policy), state, engine)


def tunings_of(policy: Policy) -> Tunings | None:
    """What a policy tries; None for one that does not tune itself."""
    find = getattr(policy.module, "tunings", None)
    found: Tunings | None = find(policy.parameters) if find else None
    return found


class Tuner:
    """Serves requests like the engine that it wraps, and tunes its state's policy once."""

    def __init__(self, policy: Policy, tries: Tunings | None, state: State, engine: Play) -> None:
        self._module, self._tries = policy.module, tries
        self._state, self._engine = state, engine
        self._serve = engine(state)
        self._served_first = 0
        self._before: State | None = None
        self.tuned: Tuned | None = None

    def __call__(self, first: int, last: int) -> None:
        """Serve requests ``first`` to ``last`` - 1."""
        if self._tries is not None and self.tuned is None:
            first = self._watch(self._tries, first, last)
        if first < last:
            self._serve(first, last)

    def _watch(self, tries: Tunings, first: int, last: int) -> int:
        """Serve up to the end of the window, or ``last``; up to where it served."""
        while first < last and self._before is None:
            self._serve(first, first + 1)
            first += 1
            if _has_evicted(self._state):
                self._served_first, self._before = first, copy.deepcopy(self._state)
        end = tries.window * self._served_first
        if first < last:
            self._serve(first, min(end, last))
            first = min(end, last)
        if self._before is not None and first == end:
            self._tune(tries, end)
        return first

    def _tune(self, tries: Tunings, end: int) -> None:
        best = max(tries.values, key=lambda value: self._saved(value, end))
        self._module.tune(self._state.p, best)
        self.tuned, self._before = Tuned(best, end), None

    def _saved(self, value: float, end: int) -> float:
        """What the window would have saved."""
        replayed: Any = copy.deepcopy(self._before)
        self._module.tune(replayed.p, value)
        self._engine(replayed)(self._served_first, end)
        hits = replayed.row[self._served_first : end, ROW_HIT]
        return float(self._module.saved(replayed.p, hits))


def _has_evicted(state: State) -> bool:
    return bool(state.total[[DROPPED, EVICTED]].any())
