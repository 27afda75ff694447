"""How long a benchmark will take and what it needs, said before it starts."""

from __future__ import annotations

import math
from dataclasses import dataclass

from harness.bench.cells import PlanCell
from harness.bench.grid import Grid, Group, Placement, gds_placements, groups
from harness.bench.loadsweep import PATIENCE_DEADLINES, placements, points_of
from harness.bench.placed import needed_bytes, session_bytes
from harness.core.units import format_duration, format_size
from harness.stores.models import load_model

WRITE_GBPS, READ_GBPS = 1.0, 2.0
"""What a modest drive does; the outlook says that it assumes so."""

START_S = 1.0
"""fio's start, its look at the log and its end, and what lies between two samples."""


@dataclass(frozen=True)
class Outlook:
    """Cells that fit a device of ``device_bytes``, what they write, and how long that takes.

    ``low_s``: every cell settles within the repeats asked for; ``high_s``: none does. A time
    limit of the grid ends repeats earlier.
    """

    cells: int
    too_large: int
    load_points: int
    device_bytes: int
    write_bytes: float
    low_s: float
    high_s: float
    budget_s: float | None

    def text(self) -> str:
        """One sentence for people."""
        what = f"{self.cells} cells"
        if self.load_points:
            what += f", {self.load_points} points of a load sweep"
        if self.too_large:
            what += f" ({self.too_large} more are too large for the device)"
        long = format_duration(self.low_s)
        if self.high_s > self.low_s:
            long += f", up to {format_duration(self.high_s)} if nothing settles"
        text = (
            f"{what} on {format_size(self.device_bytes)}, {format_size(self.write_bytes)} to "
            f"write: about {long} (assuming {WRITE_GBPS:g} GB/s written and {READ_GBPS:g} GB/s "
            "read)"
        )
        if self.budget_s is not None:
            text += f"; no further repeats after {format_duration(self.budget_s)}"
        return text


def outlook(grid: Grid, device_bytes: int) -> Outlook:
    """The outlook of a grid's layout, reference and load parts on a device."""
    room = device_bytes - grid.reference_bytes
    written = float(grid.fills * device_bytes + grid.reference_bytes)
    cells = too_large = 0
    once_s = trial_s = 0.0
    for group in groups(grid):
        sizes = {place: size_of(grid, place) for place in group.placements}
        count = len(group.placements) * len(group.reads)
        if sum(sizes.values()) > room:
            too_large += count
            continue
        written += sum(_written(place, size) for place, size in sizes.items())
        cells += count
        first = group.placements[0]
        pass_s = session_bytes(first, load_model(first.model)) / READ_GBPS / 1e9
        samples = _samples(grid, group)
        once_s += samples * (max(grid.sample_seconds, pass_s) + START_S)
        trial_s += samples * (pass_s + START_S)
    plain = sum(
        len(part.block_bytes) * len(part.queue_depth) * len(part.threads) for part in grid.reference
    )
    once_s += plain * (grid.sample_seconds + START_S)
    points, first_s, again_s, load_written = _load(grid, room)
    fixed_s = (written + load_written) / WRITE_GBPS / 1e9 + trial_s + first_s
    low_s, high_s = _between(grid, fixed_s, once_s, again_s)
    return Outlook(
        cells=cells + plain,
        too_large=too_large,
        load_points=points,
        device_bytes=device_bytes,
        write_bytes=written + load_written,
        low_s=low_s,
        high_s=high_s,
        budget_s=grid.budget_s,
    )


def gds_outlook(grid: Grid) -> Outlook:
    """The outlook of a grid's gds parts, as if every mode could be measured."""
    cells, once_s, trial_s, size, written = 0, 0.0, 0.0, 0, 0.0
    for part in grid.gds:
        ways = len(part.threads) * len(part.task_bytes) * (len(part.host) + len(part.modes))
        for place in gds_placements(part):
            pass_s = session_bytes(place, load_model(place.model)) / READ_GBPS / 1e9
            cells += ways
            once_s += ways * max(grid.sample_seconds, pass_s)
            trial_s += ways * pass_s
            size += needed_bytes(place)
            written += _written(place, needed_bytes(place))
        cells += len(part.copy_bytes)
    low_s, high_s = _between(grid, written / WRITE_GBPS / 1e9 + trial_s, once_s)
    return Outlook(
        cells=cells,
        too_large=0,
        load_points=0,
        device_bytes=size,
        write_bytes=written,
        low_s=low_s,
        high_s=high_s,
        budget_s=grid.budget_s,
    )


def _between(
    grid: Grid, fixed_s: float, once_s: float, again_s: float = 0.0
) -> tuple[float, float]:
    """Seconds if every cell settles within its repeats, and if none does, within the limit."""
    # The first round is always taken, whatever the time limit.
    limit_s = math.inf if grid.budget_s is None else max(grid.budget_s, fixed_s + once_s)
    most = max(grid.repeats, grid.max_repeats)
    low_s, high_s = (fixed_s + again_s + rounds * once_s for rounds in (grid.repeats, most))
    return min(limit_s, low_s), min(limit_s, high_s)


def size_of(grid: Grid, placement: Placement) -> int:
    """Capacity of a placement's store in a grid."""
    return grid.region_bytes or needed_bytes(placement)


def _samples(grid: Grid, group: Group) -> int:
    """Samples of one round: the cells, a second engine where asked for, the anchors."""
    by_fio = sum(PlanCell.by_fio(read) for read in group.reads)
    stores = len(group.placements)
    both = stores if grid.compare_engines and by_fio else 0
    engines = bool(by_fio) + (grid.compare_engines or by_fio < len(group.reads))
    return stores * len(group.reads) + both + engines * len(grid.anchor_bytes)


def _written(placement: Placement, size_bytes: int) -> float:
    return placement.age * size_bytes + session_bytes(placement, load_model(placement.model))


def _load(grid: Grid, room_bytes: int) -> tuple[int, float, float, float]:
    """Points, seconds of their first and of further repeats, and bytes written, of what fits."""
    points, first_s, again_s, written = 0, 0.0, 0.0, 0.0
    for part in grid.load:
        sizes = {place: size_of(grid, place) for place in placements(part)}
        if sum(sizes.values()) > room_bytes:
            continue
        count = points_of(part)
        points += count
        once_s = count * (part.seconds + part.deadline_s * (1 + PATIENCE_DEADLINES) / 2)
        first_s += once_s
        again_s += (part.repeats - 1) * once_s
        written += sum(_written(place, size) for place, size in sizes.items())
    return points, first_s, again_s, written
