"""How fast the stores and the request tools are: extents and requests a second of CPU time.

Run: python benchmarks/stores.py [--requests N] [--capacity 1TB] [--trace FILE]
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable

from harness.core.units import parse_size
from harness.stores.base import op_stream
from harness.stores.names import workload_names
from harness.stores.registry import make_store
from harness.stores.requests.load import open_requests
from harness.stores.requests.stats import request_stats


def measured(work: Callable[[], int]) -> tuple[int, float]:
    """Result and CPU seconds of ``work``."""
    begin = time.process_time()
    count = work()
    return count, time.process_time() - begin


def extents(name: str, capacity: int, model: str, requests: int, *, reads: bool) -> int:
    """Ops of a store that serves so many chat requests."""
    store = make_store(name, capacity, model)
    traffic = open_requests("chat", seed=1)
    return sum(len(ops) for ops in op_stream(store, traffic, limit=requests, reads=reads))


def load_trace(path: str) -> None:
    """Read a recorded trace whole; CPU seconds and peak memory."""
    references, seconds = measured(
        lambda: sum(len(batch.ids) for batch in open_requests(path).batches())
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)
    print(f"{references:,} references in {seconds:.1f} s of CPU, peak memory {peak:.2f} GiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=20000)
    parser.add_argument("--capacity", default="1TB")
    parser.add_argument("--model", default="llama-3.1-8b")
    parser.add_argument("--trace", help="only load this recorded trace; the goal is 60 s")
    arguments = parser.parse_args()
    if arguments.trace:
        load_trace(arguments.trace)
        return
    capacity = parse_size(arguments.capacity)
    print(f"{'store':28} {'extents':>12} {'M/s':>7} {'writes only M/s':>16}")
    for name in workload_names("stores"):
        extents(name, capacity, arguments.model, 10, reads=True)  # compile
        rates = []
        for reads in (True, False):
            count, seconds = measured(
                lambda reads=reads, name=name: extents(
                    name, capacity, arguments.model, arguments.requests, reads=reads
                )
            )
            rates.append((count, count / seconds / 1e6))
        print(f"{name:28} {rates[0][0]:12,} {rates[0][1]:7.2f} {rates[1][1]:16.2f}")
    print(f"\n{'traffic':28} {'references':>12} {'M/s':>7}   (with its statistics)")
    for name in workload_names("requests"):
        source = open_requests(name, seed=1)
        request_stats(source, limit=10)  # compile
        stats = [None]

        def read(source=source, stats=stats) -> int:  # type: ignore[no-untyped-def]
            stats[0] = request_stats(source, limit=arguments.requests)
            return stats[0].references  # type: ignore[attr-defined]

        count, seconds = measured(read)
        print(f"{name:28} {count:12,} {count / seconds / 1e6:7.2f}")


if __name__ == "__main__":
    main()
