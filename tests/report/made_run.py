"""A run folder made up for tests: the shapes are those of the commands, the figures are not.

Nothing here was measured. The page says so too: the run's name and its first caveat.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from harness.report.wear_tables import CONVENTIONS
from harness.trace.parquet import TraceWriter
from harness.trace.schema import DeviceMeta, TraceMeta

MADE_UP = "Made up for a test: no figure on this page was measured."
GIB = 1 << 30


def write_trace(path: Path, rows: int = 20_000, seed: int = 1) -> None:
    """Slots of header and payload written in rounds and read back, with plausible latencies."""
    random = np.random.default_rng(seed)
    slots = rows // 4
    slot = np.repeat(random.permutation(slots * 2)[:slots] % (slots // 2), 4)
    part = np.tile(np.arange(4), slots)
    read = np.repeat(random.random(slots) < 0.45, 4)
    size = np.where(part == 0, 4096, 262_144).astype(np.uint64)
    lba = (slot * (4096 + 3 * 262_144) + np.where(part == 0, 0, 4096 + (part - 1) * 262_144)) // 512
    ts_ns = np.cumsum(random.exponential(450_000, rows)).astype(np.int64)
    latency = (random.lognormal(0, 0.5, rows) * np.where(read, 180_000, 320_000)).astype(np.int64)
    latency[random.random(rows) < 0.0005] = -1
    meta = TraceMeta(
        device=DeviceMeta(name="loop7", model="test loop", size_bytes=2 * GIB, logical_block=512,
                          max_sectors_kb=1280, scheduler="none"),
        kernel="6.18.0", host="nowhere", command="harness emit", events_seen=2 * rows,
        events_lost=0, completions_lost=int((latency < 0).sum()), verdict="LOSSLESS",
        notes=[MADE_UP],
    )  # fmt: skip
    with TraceWriter(path, meta, optional=["object_class"]) as writer:
        writer.write({
            "ts_ns": ts_ns, "op": np.where(read, 0, 1).astype(np.uint8),
            "lba": lba.astype(np.uint64),
            "bytes": size, "latency_ns": latency,
            "object_class": np.where(part == 0, "header", "full-attention"),
        })  # fmt: skip


def _replay(verdict: str, seconds: float, lag: float) -> dict[str, Any]:
    return {
        "fidelity": {
            "verdict": verdict, "order_kept": 1.0, "duration_s": seconds, "end_drift_ns": 310_000,
            "lag_ns": {"p50": lag, "p90": 3 * lag, "p99": 9 * lag, "p999": 40 * lag,
                       "max": 70 * lag},
            "lag_floor_ns": {"p50": 0, "p90": 0, "p99": lag, "p999": 30 * lag, "max": 60 * lag},
            "lag_p99_allowed_ns": lag + 1e6, "end_drift_allowed_ns": 1_900_000, "reasons": [],
            "requests": {"asked": 20_000, "done": 20_000},
        },
        "requests": 20_000, "bytes": 3_953_000_448, "errors": 0,
        "device": {"name": "loop7", "size_bytes": 2 * GIB}, "errors_by_kind": {},
        "latency_ns": {"R": _summary(171_000, 9_000), "W": _summary(320_000, 11_000)},
        "recorded_latency_ns": {"R": _summary(169_000, 9_000), "W": _summary(331_000, 11_000)},
        "notes": [],
    }  # fmt: skip


def _summary(median: int, count: int) -> dict[str, int]:
    return {"n": count, "mean": median, "p50": median, "p90": 2 * median, "p99": 4 * median,
            "p999": 9 * median, "max": 20 * median}  # fmt: skip


def _wear(steady: float | None) -> dict[str, Any]:
    pages, host, moved, windows, snapshots = 244_140_625, 0, 0, [], []
    for window in range(24):
        copied = int(pages * 1.6031 * (1 - 0.7**window))
        host, moved = host + pages, moved + copied
        windows.append({"host_bytes": 4096 * pages, "host_pages": pages, "gc_pages": copied,
                        "erased_lines": 900, "waf": (pages + copied) / pages})  # fmt: skip
        snapshots.append({"event": "window", "ops_done": 40_000 * (window + 1), "host_pages": host,
                          "gc_pages": moved, "erased_lines": 900, "free_lines": 9})  # fmt: skip
    rate = None if steady is None else 1.9e12
    days: dict[str, float | None] = dict.fromkeys(CONVENTIONS)
    if steady is not None:
        days |= {"paper_days": 547.5e12 / (1.9e12 * steady), "waf1_days": 547.5 / 1.9}
        days |= {"nand_days": 612.0, "nand_level_days": 901.0}
    return {
        "source": "ftl-model", "input": "lmcache-raw-block / chat", "input_kind": "store",
        "snapshots": snapshots, "windows": windows, "counted_from": "after the fill",
        "waf": {"first": 1.0, "cumulative": 2.4043, "steady": steady, "low": 2.31, "high": 2.74,
                "band": "swapped neighbours", "band_asked": 2, "band_done": 2},
        "profile": {"name": "1tb-0.3dwpd", "warranty_years": 5.0, "capacity_bytes": 10**12},
        "policy": "drive", "thresholds": {"victim": "greedy", "streams": "none"},
        "stopped": "steady" if steady else "time budget",
        "host_bytes": 4096 * host, "gc_bytes": 4096 * moved, "nand_bytes": 4096 * (host + moved),
        "page_bytes": 4096, "namespace_pages": pages, "namespace_writes": 24.0,
        "line_bytes": GIB, "chunk_bytes": 4 << 20, "chunk_per_line": 0.0039,
        "over_provisioning": 0.0994, "utilisation": 0.95, "append_streams": 6.2, "discards": 0,
        "fill": "2 sequential fills; 100.0 % of the namespace mapped at the end",
        "erases": {"min": 3, "mean": 9.7, "max": 17, "levelling": 9.7 / 17,
                   "histogram": {"edges": [n - 0.5 for n in range(3, 19)],
                                 "counts": [int(900 * np.exp(-((n - 9.7) ** 2) / 8))
                                            for n in range(3, 18)]}},
        "by_class": [{"class": "full-attention", "host_bytes": 4096 * host, "waf": 2.4,
                      "gc_bytes": 4096 * moved}],
        "writes_per_day_bytes": rate, "required_dwpd": rate and 1.9, "rates": [],
        "rate_source": rate and "clock of the requests chat",
        "affordable_bytes_per_day": rate and 1.15e11, "bytes_per_new_token": 16_431.8,
        "hdd_days_without_reads": rate and 1447.4,
        "lifetimes_from": rate and "steady WAF (last 5 windows)", "lifetimes": days,
        "notes": [] if steady else ["not steady after 24 windows: no lifetime is extrapolated"],
    }  # fmt: skip


def _bench(scale: float) -> dict[str, Any]:
    cells = []
    for tokens, fast, slow in ((16_384, 1.31, 1.28), (65_536, 1.62, 0.93), (224_256, 1.7, 0.71)):
        for layout, gbps, commands in (
            ("session-contiguous", fast * scale, 80),
            ("lmcache-raw-block", slow * scale, tokens // 128),
        ):
            cells.append({
                "layout": layout, "context_tokens": tokens, "model": "llama-3.1-8b", "turns": 8,
                "queue_depth": 8, "engine": "fio/io_uring", "transport": "posix-direct",
                "gbps": {"median": gbps, "low": gbps * 0.96, "high": gbps * 1.05, "n": 5},
                "commands": commands, "amplification": 1.0, "settled": tokens != 224_256,
            })  # fmt: skip
    return {
        "cells": cells, "shortened": "three context lengths", "not_measured": {"gds": "no GPU"},
        "stand_in": "a loop device stood in for a drive",
        "skipped": [{"id": "mooncake-219K", "reason": "device too small", "needed_bytes": 9 * GIB}],
        "comparisons": [
            {"layout": "lmcache-raw-block", "context_tokens": tokens, "model": "llama-3.1-8b",
             "request_bytes": 262_144.0, "contiguous_request_bytes": 1_048_576.0,
             "slowdown": {"median": m, "low": 0.97 * m, "high": 1.04 * m, "n": 5}}
            for tokens, m in ((16_384, 1.02), (65_536, 1.74), (224_256, 2.39))
        ],
    }  # fmt: skip


def _calibration() -> dict[str, Any]:
    value = {"median": 1.62, "low": 1.555, "high": 1.7, "n": 5}
    return {
        "constants": [
            {"name": "B_ssd", "unit": "GB/s", "seed": 10.0, "status": "measured", "value": value,
             "conditions": "loop device, contiguous, 64K tokens"},
            {"name": "WAF", "unit": "", "seed": 1.0, "status": "modelled",
             "value": {"median": 2.6031, "low": 2.41, "high": 2.74, "n": 5},
             "conditions": "FTL model, policy drive"},
            {"name": "R_prefill", "unit": "tokens/s", "seed": 60000.0, "status": "imported",
             "value": None, "conditions": "a property of model and GPU"},
            {"name": "B_pcie", "unit": "GB/s", "seed": 50.0, "status": "not-measured",
             "value": None, "conditions": "no GPU"},
        ],
        "bandwidth": [
            {"hop": "ssd-to-dram", "pattern": "sequential", "direction": "read",
             "request_bytes": size, "queue_depth": 1, "threads": 1,
             "gbps": {"median": rate, "low": rate * 0.95, "high": rate * 1.04, "n": 5}}
            for size, rate in ((4096, 0.2), (65536, 1.0), (1 << 20, 1.6), (4 << 20, 1.66))
        ],
        "bandwidth_terms": [
            {"hop": "ssd-to-dram", "direction": "read", "pattern": "sequential",
             "form": "latency", "t0_us": 17.2, "b1_gbps": 1.9, "b_max_gbps": 1.68,
             "residuals": {"rms": 0.021, "worst": 0.047}, "n": 4,
             "valid": {"request_bytes": {"low": 4096, "high": 4 << 20},
                       "commands_in_flight": {"low": 1, "high": 1}}}],
        "hop_terms": [{"hop": "ssd-to-dram", "direction": "read", "gbps": value,
                       "conditions": "contiguous"}],
        "waf": [{"source": "ftl-model", "profile": "1tb-0.3dwpd", "policy": "drive",
                 "store": "lmcache-raw-block", "cumulative": 2.4043, "steady": 2.6031}],
        "not_measured": [{"what": "ssd-to-gpu", "reason": "no GPU"}],
        "provenance": {"stand_ins": ["a loop device stood in for an NVMe drive"]},
    }  # fmt: skip


def make_run(results: Path, name: str = "made-up", *, seed: int = 1, scale: float = 1.0) -> Path:
    """A finished run folder with every file, in ``results``."""
    path = results / f"20260101T00000{seed}.000000Z-run-{name}"
    path.mkdir(parents=True)
    files = {
        "run": {
            "schema_version": 1, "command": "run", "name": name, "state": "done", "exit_code": 0,
            "command_line": ["harness", "run"], "started": f"2026-01-01T00:00:0{seed}+00:00",
            "duration_s": 141.5 * scale, "config": {"seed": seed, "store": "lmcache-raw-block"},
            "host": {"host": "nowhere", "kernel": "6.18.0", "cpu": "made up", "cpus": 2,
                     "memory_bytes": 24 * GIB, "harness_version": "0.1.0",
                     "harness_commit": f"{seed:040x}"},
            "caveats": [MADE_UP], "skipped": {"bench-gds": "no GPU"},
        },
        "capture": {"verdict": "LOSSLESS", "requests": 20_000, "events": 40_000, "lost": 0,
                    "completions_lost": 9, "trace": "trace.parquet", "duration_s": 9.1},
        "emit": {"store": "lmcache-raw-block", "requests": 512, "bytes_written": 2_147_483_648,
                 "bytes_read": 1_806_000_128, "bytes_verified": 1_806_000_128, "verify_errors": 0,
                 "bytes_written_per_new_token": 131_072.0, "duration_s": 9.0,
                 "stopped_by": "requests",
                 "store_report": {"evictions": 77, "writes": {"ops": 11_056, "bytes": 2_147_483_648,
                 "by_class": {"header": {"ops": 2764, "bytes": 11_321_344}}}}},
        "replay-timed": _replay("FAITHFUL", 9.02, 21_000.0 * scale),
        "replay-flat-out": _replay("FAITHFUL", 3.3, 0.0),
        "wear": _wear(2.6031 * scale),
        "wear-captured": _wear(None),
        "bench": _bench(scale),
        "calibration": _calibration(),
    }  # fmt: skip
    for stem, data in files.items():
        (path / f"{stem}.json").write_text(json.dumps(data, allow_nan=False))
    write_trace(path / "trace.parquet", seed=seed)
    return path
