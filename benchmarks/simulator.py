"""How fast the cache simulator is, on the Claude Code corpus in 20 lanes, and beside libCacheSim.

Goals: LRU by segments within 50 ms a run after loading; the block engine at 20 million references
a second; Gandalf within a second. libCacheSim (GPL-3.0, never part of the project) is run in a
virtual environment that is thrown away, on one-tier LRU over the same references; it knows no
prefix tree, so it looks at each of them, and no request, so it may evict what the request that it
is in the middle of needs: its hit ratio is a little lower.

    python benchmarks/simulator.py TRACE [--lanes 20] [--rounds 5] [--libcachesim PYTHON]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from harness.simulator.corpus import Corpus, first_requests, load_corpus
from harness.simulator.point import Point, trace_id
from harness.simulator.run import Run, simulate
from harness.stores.requests.oracle import RECORD

MODEL = "kimi-k3"
REFERENCES = 10_000_000
"""Of which libCacheSim is given the requests: its records take 24 bytes each."""

THEIRS = """
import sys, time
import libcachesim as lcs
reader = lcs.TraceReader(trace=sys.argv[1], trace_type=lcs.TraceType.ORACLE_GENERAL_TRACE,
                         reader_init_params=lcs.ReaderInitParam(ignore_obj_size=True))
cache = lcs.LRU(cache_size=int(sys.argv[2]))
start = time.process_time()
miss, _ = cache.process_trace(reader)
print(time.process_time() - start, miss)
"""


def point_of(corpus: Corpus, **options: Any) -> Point:
    """100 GB of DRAM and 1 TB of SSD, unless said."""
    given: dict[str, Any] = {"model": MODEL, "dram_bytes": "100GB", "ssd_bytes": "1TB"}
    return Point(
        trace=trace_id(corpus.name, corpus.content_hash), block_tokens=corpus.block_tokens,
        **(given | options),
    )  # fmt: skip


def fastest(corpus: Corpus, point: Point, rounds: int, **how: Any) -> tuple[float, Run]:
    """CPU seconds of the fastest of some runs, compiling left out."""
    times = []
    for _ in range(rounds + 1):
        start = time.process_time()
        run = simulate(corpus, point, **how)
        times.append(time.process_time() - start)
    return min(times[1:]), run


def one_tier(corpus: Corpus, chunks: int, **options: Any) -> Point:
    """LRU over single blocks, DRAM alone."""
    sizes = {"chunk_bytes": 1, "state_bytes": 0, "model": ""}
    return point_of(corpus, **sizes, dram_bytes=chunks, ssd_bytes=0, **options)


def theirs(corpus: Corpus, chunks: int, python: str) -> tuple[float, float]:
    """CPU seconds and miss ratio of libCacheSim's LRU over the same references."""
    records = np.zeros(corpus.references, RECORD)
    records["object"] = corpus.references_of() + 1
    records["size"] = 1
    records["next"] = -1
    # Deepest first, as our order within a request is: a chain then loses its end.
    ends = np.concatenate(([0], np.cumsum(corpus.chunks())))
    for first, last in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
        records["object"][first:last] = records["object"][first:last][::-1].copy()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "references.oracleGeneral"
        records.tofile(path)
        told = subprocess.run(
            [python, "-c", THEIRS, str(path), str(chunks)],
            capture_output=True, text=True, check=True,
        ).stdout.split()  # fmt: skip
    return float(told[0]), float(told[1])


def with_libcachesim(folder: str) -> str:
    """A Python that has libCacheSim, in a fresh virtual environment."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = str(Path(folder) / "bin" / "python")
    quiet = ["--quiet", "--disable-pip-version-check"]
    subprocess.run([python, "-m", "pip", "install", *quiet, "libcachesim"], check=True)
    return python


def compare(corpus: Corpus, chunks: int, rounds: int, python: str) -> None:
    """Print our rates beside libCacheSim's."""
    ends = np.cumsum(corpus.chunks())
    part = first_requests(corpus, int(np.searchsorted(ends, REFERENCES)))
    seconds, miss = theirs(part, chunks, python)
    their_rate = part.references / seconds
    print(f"libCacheSim, LRU of {chunks} blocks, {part.references / 1e6:.1f} M references: "
          f"{seconds:.2f} s, {their_rate / 1e6:.1f} M/s, hit {1 - miss:.6f}")  # fmt: skip
    for engine in ("block", "segment"):
        ours, run = fastest(part, one_tier(part, chunks), rounds, engine=engine)
        rate = part.references / ours
        print(f"  {engine} engine: {ours:.3f} s, {rate / 1e6:.0f} M/s, "
              f"{rate / their_rate:.1f} times as fast, hit {1 - run.outcome.miss:.6f}")  # fmt: skip


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("trace", help="the Claude Code sessions")
    parser.add_argument("--lanes", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--chunks", type=int, default=50_000, help="blocks of the one-tier cache")
    parser.add_argument("--libcachesim", help="a Python that has it; else it is installed aside")
    given = parser.parse_args()
    start = time.perf_counter()
    corpus = load_corpus(given.trace, lanes=given.lanes, seed=1)
    print(f"loading and interleaving: {time.perf_counter() - start:.1f} s; {corpus.requests:,} "
          f"requests, {corpus.references:,} references, {corpus.nodes:,} nodes")  # fmt: skip
    for what, point, engine in (
        ("LRU by segments, one tier", one_tier(corpus, given.chunks), "segment"),
        ("LRU by segments", point_of(corpus), "segment"),
        ("LRU by blocks", point_of(corpus), "block"),
        ("LRU by blocks, structure free", point_of(corpus, structure="free"), "block"),
        ("Gandalf", point_of(corpus, policy="gandalf"), "auto"),
    ):
        seconds, run = fastest(corpus, point, given.rounds, engine=engine)
        rate = corpus.references / seconds / 1e6
        print(f"{what}: {seconds:.3f} s, {rate:.0f} M references/s, miss {run.outcome.miss:.6f}")
    try:
        with tempfile.TemporaryDirectory() as folder:
            python = given.libcachesim or with_libcachesim(folder)
            compare(corpus, given.chunks, given.rounds, python)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"libCacheSim: skipped, it cannot be had here: {error}")


if __name__ == "__main__":
    main()
