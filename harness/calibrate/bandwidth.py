"""From benchmark cells to bandwidth samples, fitted terms, layout terms and hops."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from harness.bench.gpumodes import GPU_TRANSPORTS
from harness.bench.results import BenchResult, Cell, Comparison
from harness.calibrate.fits import LEAST_POINTS, fit_bandwidth
from harness.calibrate.model import (
    BandwidthSample,
    BandwidthTerm,
    Hop,
    HopTerm,
    LayoutPoint,
    LayoutTerm,
    Range,
    Residuals,
)

_LAYOUT_KEY = (
    "layout", "model", "access", "transport", "engine", "queue_depth", "threads", "task_bytes",
    "turns", "sessions", "age",
    "chunk_tokens", "background_writes",
)  # fmt: skip


def samples(result: BenchResult, run: str) -> list[BandwidthSample]:
    """Every cell of a benchmark."""
    return [
        BandwidthSample(
            hop=_hop(cell),
            direction=cell.direction,
            pattern=cell.pattern,
            layout=cell.layout,
            access=cell.access,
            model=cell.model,
            context_tokens=cell.context_tokens,
            turns=cell.turns,
            sessions=cell.sessions,
            age=cell.age,
            chunk_tokens=cell.chunk_tokens,
            background_writes=cell.background_writes,
            request_bytes=cell.request_bytes,
            queue_depth=cell.queue_depth,
            threads=cell.threads,
            task_bytes=cell.task_bytes,
            engine=cell.engine,
            transport=cell.transport,
            gbps=cell.gbps,
            spread=cell.spread,
            commands=cell.commands,
            amplification=cell.amplification,
            latency_us=cell.latency_us,
            settled=cell.settled,
            source=f"{run}: {cell.id}",
        )
        for cell in result.cells
    ]


def _hop(cell: Cell) -> Hop:
    if cell.pattern == "copy":
        return "dram-to-gpu"
    if cell.transport in GPU_TRANSPORTS:
        return "ssd-to-gpu"
    return "dram-to-ssd" if cell.direction == "write" else "ssd-to-dram"


def bandwidth_terms(found: Sequence[BandwidthSample]) -> list[BandwidthTerm]:
    """A fit for every kind of cell that has enough different sizes and depths.

    Layout cells are fitted too, over the mean size of their commands: that is the price of
    fragments; all layouts together, and each by itself. Cells with background writes are left out.
    """
    kinds: dict[_Kind, list[BandwidthSample]] = defaultdict(list)
    for sample in found:
        if sample.background_writes:
            continue
        kind = _Kind(
            sample.hop, sample.direction, sample.pattern, sample.engine, sample.transport,
            sample.access, None,
        )  # fmt: skip
        kinds[kind].append(sample)
        if sample.layout is not None:
            kinds[kind._replace(layout=sample.layout)].append(sample)
    ordered = sorted(kinds.items(), key=lambda item: [str(part) for part in item[0]])
    return [term for kind, members in ordered if (term := _term(kind, members)) is not None]


class _Kind(NamedTuple):
    """What samples of one fit have in common."""

    hop: Hop
    direction: Literal["read", "write", "mixed"]
    pattern: str
    engine: str
    transport: str
    access: str | None
    layout: str | None


def _term(kind: _Kind, members: list[BandwidthSample]) -> BandwidthTerm | None:
    size = np.array([issued_bytes(sample) for sample in members])
    depth = np.array([float(sample.queue_depth * sample.threads) for sample in members])
    if _distinct(size, depth) < min(LEAST_POINTS.values()):
        return None
    # What the device gave; a layout delivers that over its read amplification.
    gbps = np.array([sample.gbps.median * (sample.amplification or 1.0) for sample in members])
    fitted, rejected = fit_bandwidth(size, depth, gbps)
    threads = [float(sample.threads) for sample in members]
    return BandwidthTerm(
        **kind._asdict(),
        form=fitted.form,
        rejected=rejected,
        error=fitted.error,
        t0_us=fitted.parameters.get("t0_us"),
        b1_gbps=fitted.parameters.get("b1_gbps"),
        b_max_gbps=fitted.parameters["b_max_gbps"],
        half_bytes=fitted.parameters.get("half_bytes"),
        residuals=Residuals(rms=fitted.rms, worst=fitted.worst),
        n=len(members),
        valid={
            "request_bytes": Range(low=float(size.min()), high=float(size.max())),
            "commands_in_flight": Range(low=float(depth.min()), high=float(depth.max())),
            "threads": Range(low=min(threads), high=max(threads)),
        },
    )


def issued_bytes(sample: BandwidthSample) -> float:
    """Bytes of a request as it reaches the device: readers cut longer ones into tasks."""
    return min(sample.request_bytes, sample.task_bytes or sample.request_bytes)


def _distinct(size: NDArray[np.float64], depth: NDArray[np.float64]) -> int:
    """Points that differ by a tenth of an octave or more: nearer ones tell nothing new."""
    places = zip(np.round(10 * np.log2(size)).tolist(), depth.tolist(), strict=True)
    return len(set(places))


def layout_terms(
    found: Sequence[BandwidthSample], comparisons: Iterable[Comparison]
) -> list[LayoutTerm]:
    """Delivered bandwidth by context length for every layout and way of reading it."""
    slow = {(_key(pair), pair.context_tokens): pair.slowdown for pair in comparisons}
    groups: dict[tuple[Any, ...], dict[int, BandwidthSample]] = defaultdict(dict)
    for sample in found:
        if sample.layout is not None and sample.context_tokens is not None:
            groups[_key(sample)].setdefault(sample.context_tokens, sample)
    return [
        LayoutTerm(
            **dict(zip(_LAYOUT_KEY, key, strict=True)),
            points=[
                LayoutPoint(
                    context_tokens=context,
                    request_bytes=sample.request_bytes,
                    gbps=sample.gbps,
                    slowdown=slow.get((key, context)),
                )
                for context, sample in sorted(members.items())
            ],
        )
        for key, members in groups.items()
    ]


def _key(record: BandwidthSample | Comparison) -> tuple[Any, ...]:
    return tuple(getattr(record, name) for name in _LAYOUT_KEY)


def hop_terms(found: Sequence[BandwidthSample]) -> list[HopTerm]:
    """The best quiet bandwidth of every hop and direction."""
    best: dict[tuple[str, str], BandwidthSample] = {}
    for sample in found:
        key = (sample.hop, sample.direction)
        known = best.get(key)
        quiet = not sample.background_writes
        if quiet and (known is None or sample.gbps.median > known.gbps.median):
            best[key] = sample
    return [
        HopTerm(
            hop=sample.hop,
            direction=sample.direction,
            gbps=sample.gbps,
            conditions=f"{sample.layout or sample.pattern}, {sample.request_bytes / 1024:.0f} KiB "
            f"a command, depth {sample.queue_depth}, {sample.threads} threads, {sample.engine}, "
            f"{sample.transport}",
        )
        for sample in best.values()
    ]
