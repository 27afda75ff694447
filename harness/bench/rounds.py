"""Rounds: every cell once a round, in random order, until the samples are enough.

Because a round holds one sample of every cell, whatever drifts meanwhile (a neighbour's load, a
drive's temperature, its garbage collection) hits all cells alike, and ratios are taken round by
round.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.bench.cells import Runner
from harness.bench.grid import Grid
from harness.bench.journal import Journal
from harness.bench.stats import settled
from harness.core.progress import Progress, quiet

_WITHOUT_TRIALS = 0.6
"""Share of the first round that a later one takes: the first also finds out how long a sample
of each cell must be."""

MIN_SETTLED = 4
"""Fewer samples than this cannot show whether a cell has settled."""


@dataclass
class Budget:
    """Time that may still be spent; ``cut`` once it ended rounds early."""

    limit_s: float | None
    started: float
    cut: bool = False
    _part_until_s: float = math.inf

    @staticmethod
    def start(limit_s: float | None) -> Budget:
        """A budget that starts now."""
        return Budget(limit_s, time.monotonic())

    def next_part(self, parts_left: int) -> None:
        """Give the part that starts now, of ``parts_left``, its even share of the time left."""
        if self.limit_s is not None:
            spent = time.monotonic() - self.started
            self._part_until_s = spent + max(0.0, self.limit_s - spent) / parts_left

    def allows(self, next_s: float) -> bool:
        """Whether work of ``next_s`` still fits; if not, remembers that it was cut."""
        if self.limit_s is None:
            return True
        if time.monotonic() - self.started + next_s <= min(self.limit_s, self._part_until_s):
            return True
        self.cut = True
        return False


def run_rounds(
    cells: Sequence[Runner],
    grid: Grid,
    group: int,
    journal: Journal,
    budget: Budget,
    progress: Progress = quiet,
) -> None:
    """Sample ``cells`` ``grid.repeats`` times, unsettled ones up to ``grid.max_repeats``.

    Samples already in the journal are not taken again. The order within a round follows from
    ``grid.seed``, the group and the round alone.
    """
    took_s = 0.0
    for number in range(max(grid.repeats, grid.max_repeats)):
        wanted = [
            cell
            for cell in cells
            if number < grid.repeats or not _settled(journal, cell.id, grid.settle)
        ]
        missing = [cell for cell in wanted if not journal.has(cell.id, group, number)]
        if not wanted:
            break
        # The first round is always taken: a cell without any sample says nothing.
        if number and missing and not budget.allows(took_s):
            break
        started = time.monotonic()
        order = np.random.default_rng([grid.seed, group, number]).permutation(len(missing))
        for step, which in enumerate(order):
            cell = missing[which]
            progress(number + step / len(missing), grid.repeats, cell.id)
            journal.add(cell.id, group, number, cell.sample())
        took_s = time.monotonic() - started
        if number == 0:
            took_s *= _WITHOUT_TRIALS


def _settled(journal: Journal, cell: str, tolerance: float) -> bool:
    samples = [sample.gbps for sample in journal.of(cell).values()]
    return len(samples) >= MIN_SETTLED and settled(samples, tolerance)
