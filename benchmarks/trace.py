"""How fast traces are read, converted and written, on one core.

Goals: at least 1 million rows/s from text and 1.5 million rows/s into Parquet. A row of text is
a line: blkparse text has two for a request, which are paired on the way. Run:

    python benchmarks/trace.py [--rows N] [--cores all]
    python benchmarks/trace.py --large 100000000

The second form converts one long text to Parquet with the command line, and a text of a tenth of
that for comparison: CPU time, and whether memory grew with the trace.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

FROM_TEXT_GOAL = 1.0e6
INTO_PARQUET_GOAL = 1.5e6
BATCH_ROWS = 65_536


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--cores", choices=["one", "all"], default="one")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--large", type=int, metavar="ROWS")
    arguments = parser.parse_args()
    if arguments.cores == "one":
        one_core()
    if arguments.large:
        convert_large(arguments.large)
        return
    with tempfile.TemporaryDirectory(prefix="trace-bench-") as folder:
        results = measure(Path(folder), arguments.rows)
    if arguments.json:
        print(json.dumps(results, indent=2))
        return
    print(f"{arguments.rows:,} rows, {arguments.cores} core(s); million rows/s")
    for name, speed in results["from_text"].items():
        print(f"  {name:<10} text -> rows    {speed / 1e6:6.2f}   goal {FROM_TEXT_GOAL / 1e6}")
    for name, speed in results["text_to_parquet"].items():
        print(f"  {name:<10} text -> Parquet {speed / 1e6:6.2f}")
    print(
        f"  {'rows':<10} -> Parquet      {results['into_parquet'] / 1e6:6.2f}   "
        f"goal {INTO_PARQUET_GOAL / 1e6}"
    )
    print(f"  {'rows':<10} -> segments     {results['into_segments'] / 1e6:6.2f}")
    print(f"  {'Parquet':<10} -> rows         {results['from_parquet'] / 1e6:6.2f}")
    print(f"  {'Parquet':<10} -> statistics   {results['statistics'] / 1e6:6.2f}")
    print(f"  peak memory {results['peak_rss_bytes'] / 2**20:.0f} MiB")


def one_core() -> None:
    """Everything on one core, libraries' threads included."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    import pyarrow as pa

    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)


def measure(folder: Path, rows: int) -> dict:
    """All speeds in rows/s."""
    from harness.trace.convert import convert
    from harness.trace.formats.streams import byte_blocks
    from harness.trace.parquet import TraceWriter, open_trace
    from harness.trace.schema import TraceMeta
    from harness.trace.source import open_source
    from harness.trace.stats import collect

    batches = list(synthetic(rows))
    results: dict = {"rows": rows, "from_text": {}, "text_to_parquet": {}}

    def write(path: Path, durable: bool) -> Callable[[], None]:
        def run() -> None:
            with TraceWriter(path, TraceMeta(source="benchmark"), durable=durable) as writer:
                for batch in batches:
                    writer.write(batch)

        return run

    trace = folder / "t.parquet"
    results["into_parquet"] = speed(rows, write(trace, durable=False))
    results["into_segments"] = speed(rows, write(folder / "s.parquet", durable=True))
    batches.clear()
    results["from_parquet"] = speed(rows, lambda: drain(open_trace(trace).batches()))
    for name, path in texts(folder, trace).items():
        warm_up(folder, name, path)
        text_rows = sum(block.count(b"\n") for block in byte_blocks(path))
        results["from_text"][name] = speed(
            text_rows, lambda name=name, path=path: drain(open_source(path, form=name).batches())
        )
        results["text_to_parquet"][name] = speed(
            text_rows,
            lambda name=name, path=path: convert(
                path, folder / "out.parquet", form=name, overwrite=True
            ),
        )
        path.unlink()
    warm_up_statistics(folder)
    results["statistics"] = speed(rows, lambda: collect(open_trace(trace)))
    results["peak_rss_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return results


class Synthetic:
    """``synthetic`` rows as a source of traces, made as they are read."""

    def __init__(self, rows: int) -> None:
        from harness.trace.schema import SCHEMA, TraceMeta

        self.path = Path("synthetic")
        self.meta = TraceMeta(source="benchmark")
        self.columns = SCHEMA.names
        self._rows = rows

    def batches(self, columns: object = None) -> Iterator:
        """All columns."""
        from harness.trace.columns import batch_from_arrays

        for arrays in synthetic(self._rows):
            yield batch_from_arrays(arrays)


def convert_large(rows: int) -> None:
    """Text of ``rows`` lines, and of a tenth, to Parquet, each in a process of its own."""
    from harness.trace.convert import write_source

    with tempfile.TemporaryDirectory(prefix="trace-bench-") as folder:
        text, out = Path(folder) / "t.csv", Path(folder) / "t.parquet"
        for count in (rows // 10, rows):
            write_source(Synthetic(count), text, "csv")
            words = [sys.executable, "-m", "harness", "trace", "convert", text, out, "--force"]
            child = subprocess.Popen(words, stdout=subprocess.DEVNULL)
            _, status, usage = os.wait4(child.pid, 0)
            if status:
                raise SystemExit(f"the conversion failed: {status}")
            cpu_s = usage.ru_utime + usage.ru_stime
            print(
                f"{count:,} lines of csv ({text.stat().st_size / 2**30:.1f} GiB) to Parquet: "
                f"{count / cpu_s / 1e6:.2f} million rows/s of CPU time, "
                f"peak memory {usage.ru_maxrss / 1024:.0f} MiB"
            )


def speed(rows: int, work: Callable[[], object]) -> float:
    """Rows a second of CPU-bound ``work`` (CPU time: other processes share the machine)."""
    start = time.process_time()
    work()
    return rows / (time.process_time() - start)


def drain(batches: Iterator) -> None:
    for _ in batches:
        pass


def synthetic(rows: int) -> Iterator[dict]:
    """A store's requests: runs of large sequential requests at random slots."""
    import numpy as np

    rng = np.random.default_rng(1)
    for first in range(0, rows, BATCH_ROWS):
        count = min(BATCH_ROWS, rows - first)
        number = np.arange(first, first + count)
        slot = rng.integers(0, 4096, count // 8 + 1).repeat(8)[:count]
        yield {
            "ts_ns": number * 4000 + rng.integers(0, 3000, count),
            "op": rng.integers(0, 2, count).astype(np.uint8),
            "lba": (slot * 8192 + number % 8 * 1024).astype(np.uint64),
            "bytes": rng.choice([4096, 131072, 524288], count).astype(np.uint64),
            "latency_ns": rng.integers(50_000, 5_000_000, count),
            "dev": np.full(count, 7 << 20, np.uint32),
            "pid": np.full(count, 1234, np.int32),
        }


def texts(folder: Path, trace: Path) -> dict[str, Path]:
    """The trace in every text format that can be written, and MSR and Alibaba by hand."""
    from harness.trace.convert import convert
    from harness.trace.parquet import open_trace

    made = {}
    for name in ("csv", "oplist", "fio", "blkparse", "mqsim"):
        made[name] = folder / f"t.{name}"
        convert(trace, made[name], to=name)
    for name, line in (
        ("msr", "{t},host,0,{word},{offset},{size},{latency}\n"),
        ("alibaba", "7,{letter},{offset},{size},{us}\n"),
        ("bpftrace", "{ns},I,{letter}S,{lba},{size}\n"),
    ):
        made[name] = folder / f"t.{name}"
        with made[name].open("w") as out:
            for batch in open_trace(trace).batches():
                out.writelines(lines(batch, line))
    return made


def lines(batch, line: str) -> Iterator[str]:
    columns = [batch.column(name).to_pylist() for name in ("ts_ns", "op", "lba", "bytes")]
    for ts_ns, op, lba, size in zip(*columns, strict=True):
        yield line.format(
            t=128166372003061629 + ts_ns // 100,
            us=1577808000000046 + ts_ns // 1000,
            ns=ts_ns,
            word="Read" if op == "R" else "Write",
            letter=op,
            lba=lba,
            offset=lba * 512,
            size=size,
            latency=100,
        )


def warm_up(folder: Path, name: str, path: Path) -> None:
    """Compile what the reader of ``name`` compiles."""
    from harness.trace.source import open_source

    short = folder / "short"
    with path.open() as source, short.open("w") as out:
        out.writelines(line for _, line in zip(range(100), source, strict=False))
    drain(open_source(short, form=name).batches())


def warm_up_statistics(folder: Path) -> None:
    from harness.trace.parquet import TraceWriter, open_trace
    from harness.trace.schema import TraceMeta
    from harness.trace.stats import collect

    with TraceWriter(folder / "short.parquet", TraceMeta()) as writer:
        for batch in synthetic(1000):
            writer.write(batch)
    collect(open_trace(folder / "short.parquet"))


if __name__ == "__main__":
    main()
