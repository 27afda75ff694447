"""Small benchmark and wear results from which tests make calibration files."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.bench.results import BenchResult, Cell, Comparison
from harness.bench.stats import Interval, estimate

STARTED = datetime(2026, 11, 1, 12, tzinfo=UTC)

NVME = {
    "name": "nvme0n1", "path": "/dev/nvme0n1", "model": "ACME Flash 1", "serial": "S123",
    "wwid": None, "firmware": "F1", "size_bytes": 10**12, "logical_block": 512,
    "physical_block": 4096, "max_sectors_kb": 128, "max_segments": 33, "scheduler": "none",
}  # fmt: skip


def layout_cell(
    store: str, context: int, gbps: float, *, access: str = "layers", size: float = 1 << 20,
    **changes: Any,
) -> Cell:  # fmt: skip
    samples = [gbps * f for f in (0.98, 1.0, 1.01, 1.0, 0.99)]
    facts: dict[str, Any] = {
        "id": f"{store}/{context}/{access}", "pattern": "layout", "direction": "read",
        "layout": store, "model": "llama-3.1-8b", "context_tokens": context, "turns": 1,
        "sessions": 1, "age": 1.0, "chunk_tokens": 256, "access": access,
        "transport": "posix-direct", "queue_depth": 32, "engine": "fio/io_uring",
        "request_bytes": size, "commands": 100, "wanted_bytes": 100 << 20,
        "read_bytes": 100 << 20, "amplification": 1.0,
        "gbps": estimate(samples), "samples_gbps": samples, "spread": 0.03, "settled": True,
    }  # fmt: skip
    return Cell(**{**facts, **changes})


def reference_cell(size: int, depth: int, gbps: float, **changes: Any) -> Cell:
    facts = {
        "id": f"sequential/read/{size}/qd{depth}", "pattern": "sequential", "layout": None,
        "model": None, "context_tokens": None, "turns": None, "sessions": None, "age": None,
        "chunk_tokens": None,
        "access": None, "queue_depth": depth, **changes,
    }  # fmt: skip
    return layout_cell("none", 0, gbps, size=size, **facts)


def comparison(layout: str, context: int, slowdown: float) -> Comparison:
    return Comparison(
        layout=layout, model="llama-3.1-8b", context_tokens=context, turns=1, sessions=1, age=1.0,
        chunk_tokens=256, access="layers", queue_depth=32, threads=1, task_bytes=None,
        transport="posix-direct",
        engine="fio/io_uring",
        background_writes=False, request_bytes=65536, contiguous_request_bytes=1 << 20,
        slowdown=Interval(median=slowdown, low=slowdown * 0.95, high=slowdown * 1.05, n=5),
    )  # fmt: skip


def bench(cells: list[Cell], comparisons: list[Comparison], **changes: Any) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "grid": "test", "seed": 1, "repeats": 5, "settle_rule": "rule", "precondition": "filled",
        "started": STARTED, "duration_s": 10.0, "host": {}, "device": NVME,
        "fio_version": "fio-3.33", "best_sequential": {}, "cells": cells,
        "comparisons": comparisons, "load": [], "skipped": [], "not_measured": {},
    }  # fmt: skip
    return BenchResult(**{**facts, **changes}).model_dump(mode="json")


def wear(**changes: Any) -> dict[str, Any]:
    return {
        "profile": "1tb-0.3dwpd",
        "policy": "drive",
        "waf": {"first": 1.1, "cumulative": 1.9, "steady": 2.0, "low": 1.8, "high": 2.2},
        "store": "lmcache-raw-block",
        "utilisation": 0.9,
        "over_provisioning": 0.07,
        "line_bytes": 1 << 30,
        "chunk_bytes": 32 << 20,
        "rate_source": "given",
        "required_dwpd": 2.0,
        "writes_per_day_bytes": 2e12,
        "lifetimes": {
            "paper_days": 547.5 / 2 / 2.0,
            "waf1_days": 547.5 / 2,
            "nand_days": None,
            "jedec_days": None,
        },
        **changes,
    }


def run_folder(results: Path, name: str = "20261101T120000.000000Z-run-test", **files: Any) -> Path:
    """A finished run folder; ``files`` maps a stem (bench, wear, wear_captured) to its result."""
    folder = results / name
    folder.mkdir(parents=True)
    record = {
        "schema_version": 1, "command": "run", "name": "test", "started": STARTED.isoformat(),
        "duration_s": 60.0, "state": "done",
        "host": {
            "host": "lab1", "kernel": "6.1.0", "arch": "x86_64", "cpu": "A CPU", "cpus": 8,
            "memory_bytes": 2**34, "harness_version": "0.1.0", "harness_commit": "abc",
        },
    }  # fmt: skip
    record["host"].update(files.pop("host", {}))
    (folder / "run.json").write_text(json.dumps(record))
    for stem, data in files.items():
        (folder / f"{stem.replace('_', '-')}.json").write_text(json.dumps(data))
    return folder


def typical_bench() -> dict[str, Any]:
    """Two layouts at two contexts, and sequential reads by size and depth."""
    cells = [
        layout_cell("session-contiguous", 16384, 6.0),
        layout_cell("session-contiguous", 65536, 6.2),
        layout_cell("lmcache-raw-block", 16384, 6.0, size=65536),
        layout_cell("lmcache-raw-block", 65536, 3.44, size=65536),
        *(
            reference_cell(size, depth, min(depth * size / (80e-6 + size / 2e9) / 1e9, 6.5))
            for size in (4096, 65536, 1 << 20, 4 << 20)
            for depth in (1, 8, 32)
        ),
    ]
    pairs = [
        comparison("lmcache-raw-block", 16384, 1.0),
        comparison("lmcache-raw-block", 65536, 1.8),
    ]
    return bench(cells, pairs)
