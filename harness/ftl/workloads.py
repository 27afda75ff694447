"""Deterministic op lists: the workloads of the golden FEMU runs, generated in bulk.

Random numbers are splitmix64: draw ``i`` (from 1) of seed ``s`` is ``mix(s + i * GAMMA)``, so a
whole sequence is one NumPy expression. ``pick(n)`` is a draw modulo ``n``. All sizes in bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from harness.core.ops import Op

KIB, MIB = 1 << 10, 1 << 20
_GAMMA = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


class OpList(NamedTuple):
    """Commands in order. A SNAP carries its tag in ``offset``."""

    offset: np.ndarray  # uint64[n]
    length: np.ndarray  # uint64[n]
    op: np.ndarray  # uint8[n], codes of Op


class SplitMix64:
    """The generator; draws come in arrays."""

    def __init__(self, seed: int) -> None:
        self._state = seed & _MASK

    def draw(self, count: int) -> np.ndarray:
        """The next ``count`` numbers, uint64."""
        steps = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(_GAMMA)
        z = steps + np.uint64(self._state)
        self._state = (self._state + count * _GAMMA) & _MASK
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(z ^ (z >> np.uint64(31)))

    def picks(self, count: int, below: int) -> np.ndarray:
        """``count`` numbers in [0, below), uint64."""
        return np.asarray(self.draw(count) % np.uint64(below))


def join(parts: Iterable[OpList]) -> OpList:
    """One list after the other."""
    offsets, lengths, ops = zip(*parts, strict=True)
    return OpList(np.concatenate(offsets), np.concatenate(lengths), np.concatenate(ops))


def commands(offset: np.ndarray, length: np.ndarray | int, op: np.ndarray | int) -> OpList:
    """An op list from arrays or from constants for all rows."""
    rows = len(offset)
    return OpList(
        np.asarray(offset, np.uint64),
        np.broadcast_to(np.asarray(length, np.uint64), rows).copy(),
        np.broadcast_to(np.asarray(op, np.uint8), rows).copy(),
    )


def snap(tag: int) -> OpList:
    """ "Record the counters here"."""
    return commands(np.array([tag]), 0, Op.SNAP)


def sequential(start: int, end: int, size: int) -> OpList:
    """Writes of [start, end) in steps of ``size``; the last one may be short."""
    offset = np.arange(start, end, size, dtype=np.uint64)
    return commands(offset, np.minimum(size, np.uint64(end) - offset), Op.WRITE)


def a_seq(cap: int, bs: int = 128 * KIB, passes: int = 4) -> Iterator[OpList]:
    """Sequential passes over the namespace."""
    yield snap(0)
    for done in range(passes):
        yield sequential(0, cap, bs)
        yield snap(done + 1)


def b_rand(
    cap: int,
    bs: int = 4 * KIB,
    mult: float = 3,
    seed: int = 1,
    fill: float = 1.0,
    snaps: int = 6,
    fill_bs: int = 128 * KIB,
) -> Iterator[OpList]:
    """Fill a share sequentially, then write ``mult`` times as much at random inside it."""
    span = int(cap * fill) // fill_bs * fill_bs
    yield from (snap(0), sequential(0, span, fill_bs), snap(1))
    total = int(mult * span) // bs
    offset = SplitMix64(seed).picks(total, span // bs) * np.uint64(bs)
    every = total // snaps
    for start in range(0, total, every):
        yield commands(offset[start : start + every], bs, Op.WRITE)
        if start + every <= total:
            yield snap(2 + start // every)


def e_fifo(
    cap: int,
    bucket: int,
    bs: int = 128 * KIB,
    rounds: int = 4,
    mode: str = "circular",
    seed: int = 1,
    streams: int = 1,
) -> Iterator[OpList]:
    """Fill buckets, then rewrite whole ones: in a circle, at random, or several interleaved."""
    count = cap // bucket
    yield from (snap(0), sequential(0, count * bucket, bs), snap(1))
    if mode == "interleave":
        yield from _interleaved(count, bucket, bs, rounds * count, SplitMix64(seed), streams)
        return
    order = np.arange(count, dtype=np.uint64)
    rng = SplitMix64(seed)
    for done in range(rounds):
        if mode == "random":
            order = rng.picks(count, count)
        steps = np.arange(0, bucket, bs, dtype=np.uint64)
        yield commands((order[:, None] * np.uint64(bucket) + steps).ravel(), bs, Op.WRITE)
        yield snap(2 + done)


def _interleaved(
    count: int, bucket: int, bs: int, total: int, rng: SplitMix64, streams: int
) -> Iterator[OpList]:
    written: dict[int, int] = {}

    def choose() -> int:
        while (chosen := int(rng.picks(1, count)[0])) in written:
            pass
        written[chosen] = 0
        return chosen

    current = [choose() for _ in range(streams)]
    done, offsets = 0, []
    while done < total:
        for stream, chosen in enumerate(current):
            offsets.append(chosen * bucket + written[chosen])
            written[chosen] += bs
            if written[chosen] < bucket:
                continue
            del written[chosen]
            current[stream] = choose()
            done += 1
            if done % count == 0:
                yield from (commands(np.array(offsets), bs, Op.WRITE), snap(1 + done // count))
                offsets = []
            if done >= total:
                break


def f_mix(
    cap: int,
    log_frac: float = 0.75,
    bs_log: int = 64 * KIB,
    bs_rand: int = 4 * KIB,
    mult: float = 3,
    seed: int = 1,
    rand_per_log: int = 4,
) -> Iterator[OpList]:
    """A circular log in most of the space and random small writes in the rest."""
    cut, end = int(cap * log_frac) // MIB * MIB, cap // (128 * KIB) * 128 * KIB
    yield from (snap(0), sequential(0, end, 128 * KIB), snap(1))
    total, each = int(mult * cap), bs_log + rand_per_log * bs_rand
    rounds = -(-total // each)
    picks = SplitMix64(seed).picks(rounds * rand_per_log, (end - cut) // bs_rand)
    offset = np.empty((rounds, 1 + rand_per_log), np.uint64)
    offset[:, 0] = np.arange(rounds, dtype=np.uint64) * np.uint64(bs_log) % np.uint64(cut)
    offset[:, 1:] = cut + picks.reshape(rounds, rand_per_log) * np.uint64(bs_rand)
    length = np.full(offset.shape, bs_rand, np.uint64)
    length[:, 0] = bs_log
    done = tag = 0
    while done < rounds:
        stop = min(rounds, -(-(total // 6 * (tag + 1)) // each))
        yield commands(offset[done:stop].ravel(), length[done:stop].ravel(), Op.WRITE)
        if stop * each >= total // 6 * (tag + 1):
            yield snap(2 + tag)
        done, tag = stop, tag + 1


def g_edge(cap: int, seed: int = 7) -> Iterator[OpList]:
    """Sub-page and unaligned writes, discards of all kinds, reads that trigger collections."""
    rng, cap = SplitMix64(seed), cap // (128 * KIB) * 128 * KIB
    sectors = cap // 512
    yield from (snap(0), sequential(0, cap, 128 * KIB), snap(1))
    draws = rng.draw(10_000).reshape(-1, 2)
    yield commands(draws[:, 0] % (sectors - 64) * 512, 512 * (1 + draws[:, 1] % 40), Op.WRITE)
    yield from (snap(2), commands(rng.picks(2000, sectors) * 512, 512, Op.WRITE), snap(3))
    draws = rng.draw(600).reshape(-1, 3)
    offset = draws[:, 0] % (cap // MIB - 1) * MIB + 512 * (draws[:, 1] % 2048)
    yield commands(offset, 512 * (1 + draws[:, 2] % 2000), Op.DISCARD)
    yield from (snap(4), commands(rng.picks(3000, cap // 4096) * 4096, 4096, Op.READ), snap(5))
    draws = rng.draw(6000).reshape(-1, 2)
    kind = (draws[:, 0] % 10).astype(np.int64)
    codes = np.where(kind < 6, Op.WRITE, np.where(kind < 8, Op.DISCARD, Op.READ))
    yield commands(draws[:, 1] % (cap // 65536) * 65536, 65536, codes)
    yield from (snap(6), commands(np.array([0]), cap, Op.DISCARD), snap(7))
    yield from (sequential(0, cap, 256 * KIB), snap(8))


_GENERATORS: dict[str, Callable[..., Iterator[OpList]]] = {
    "a_seq": a_seq,
    "b_rand": b_rand,
    "e_fifo": e_fifo,
    "f_mix": f_mix,
    "g_edge": g_edge,
}


def golden_ops(generator: str, capacity_bytes: int, args: dict[str, Any]) -> OpList:
    """The op list of one golden run, from the fields of its record in ``counters.json``."""
    return join(_GENERATORS[generator](capacity_bytes, **args))
