"""Several runs become one calibration file, with the origin of every figure."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from harness.bench.results import BenchResult
from harness.calibrate import bandwidth, wear
from harness.calibrate.constants import CAPTURED_NOTE, constants
from harness.calibrate.counters import REPLAY_FILES, counter_sample
from harness.calibrate.model import (
    KIND,
    VERSION,
    BandwidthSample,
    CalibrationFile,
    Device,
    EnduranceTerm,
    NotMeasured,
    Provenance,
    RunUsed,
    TraceUsed,
    WafSample,
)
from harness.calibrate.sources import (
    BENCH_FILES,
    WEAR_FILES,
    Source,
    device_kind,
    one_device,
    one_host,
    parse_time,
    read_source,
)
from harness.core.config import validate
from harness.core.errors import UsageError


def export(
    runs: Sequence[Path], *, unfinished: bool = False, now: datetime | None = None
) -> CalibrationFile:
    """The calibration file of some run folders.

    Parameters
    ----------
    runs
        Run folders with ``bench.json``, ``gds.json``, ``wear.json`` or ``wear-captured.json``.
    unfinished
        Accept folders of runs that are still going on (a run that calibrates itself).

    Raises
    ------
    UsageError
        No runs, a run without results, a result that is cut off, or runs from different hosts or
        devices.
    """
    if not runs:
        raise UsageError("no runs to export from", fix="name run folders: --from RUN")
    sources = [read_source(Path(run), unfinished=unfinished) for run in runs]
    host, device = one_host(sources), one_device(sources)
    results = _benchmarks(sources)
    found = [sample for name, result in results for sample in bandwidth.samples(result, name)]
    pairs = [pair for _, result in results for pair in result.comparisons]
    waf, drives = _wear(sources)
    counted, uncounted = _counted(sources)
    waf += counted
    hops = bandwidth.hop_terms(found)
    return CalibrationFile(
        kind=KIND,
        schema_version=VERSION,
        created=now or datetime.now(UTC),
        provenance=_provenance(sources, host, device, results),
        constants=constants(found, hops, waf),
        bandwidth=found,
        bandwidth_terms=bandwidth.bandwidth_terms(found),
        layout_terms=bandwidth.layout_terms(found, pairs),
        hop_terms=hops,
        waf=waf,
        waf_terms=wear.waf_terms(waf),
        waf_layouts=wear.waf_layouts(waf),
        endurance=drives,
        not_measured=_not_measured(results, found, waf, drives, uncounted),
    )


def _benchmarks(sources: Sequence[Source]) -> list[tuple[str, BenchResult]]:
    return [
        (source.name, validate(source.results[name], BenchResult, f"{source.path / name}"))
        for source in sources
        for name in BENCH_FILES
        if name in source.results
    ]


def _wear(sources: Sequence[Source]) -> tuple[list[WafSample], list[EnduranceTerm]]:
    samples: list[WafSample] = []
    drives: list[EnduranceTerm] = []
    for source in sources:
        for name in WEAR_FILES:
            result = source.results.get(name)
            if result is None:
                continue
            captured = name == "wear-captured.json"
            samples += wear.waf_samples(result, source.name, CAPTURED_NOTE if captured else None)
            if not captured:
                drives += wear.endurance(result, source.name)
    return samples, drives


def _counted(sources: Sequence[Source]) -> tuple[list[WafSample], dict[str, str]]:
    """WAF from counters around replays, and why there is none where a drive has counters."""
    samples: list[WafSample] = []
    missing: dict[str, str] = {}
    for source in sources:
        for name in REPLAY_FILES:
            found = counter_sample(source.results.get(name, {}), source.name, name)
            if isinstance(found, str):
                missing[f"{source.name}: WAF of the drive over {name}"] = found
            elif found is not None:
                samples.append(found)
    return samples, missing


def _provenance(
    sources: Sequence[Source],
    host: dict[str, Any],
    device: dict[str, Any] | None,
    results: Sequence[tuple[str, BenchResult]],
) -> Provenance:
    versions = sorted({result.fio_version for _, result in results if result.fio_version})
    ends = [
        source.started + timedelta(seconds=float(source.record["duration_s"])) for source in sources
    ]
    return Provenance(
        host=host["host"],
        kernel=host["kernel"],
        arch=host["arch"],
        cpu=host["cpu"],
        cpus=host["cpus"],
        memory_bytes=host["memory_bytes"],
        device=_device(device) if device else None,
        fio_version=", ".join(versions) or None,
        harness_version=host["harness_version"],
        harness_commit=host["harness_commit"],
        measured_from=min(source.started for source in sources),
        measured_to=max(ends),
        traces=_traces(sources),
        runs=[
            RunUsed(
                name=source.name,
                command=source.record["command"],
                started=parse_time(source.record["started"]),
                files=source.hashes,
            )
            for source in sources
        ],
        stand_ins=sorted({r.stand_in for _, r in results if r.stand_in}),
    )


def _device(facts: dict[str, Any]) -> Device:
    serial = facts.get("serial") or facts.get("wwid")
    return Device(
        kind=device_kind(facts),
        model=facts.get("model"),
        firmware=facts.get("firmware"),
        serial_sha256=hashlib.sha256(serial.encode()).hexdigest() if serial else None,
        size_bytes=facts["size_bytes"],
        logical_block=facts.get("logical_block"),
        physical_block=facts.get("physical_block"),
        max_sectors_kb=facts.get("max_sectors_kb"),
        max_segments=facts.get("max_segments"),
        scheduler=facts.get("scheduler"),
    )


def _traces(sources: Sequence[Source]) -> list[TraceUsed]:
    """The block traces of the runs, hashed where they still are."""
    found = []
    for source in sources:
        trace = source.path / "trace.parquet"
        if trace.is_file():
            with trace.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            verdict = source.results.get("capture.json", {}).get("verdict")
            found.append(
                TraceUsed(name=f"{source.name}/{trace.name}", sha256=digest, verdict=verdict)
            )
    return found


def _not_measured(
    results: Sequence[tuple[str, BenchResult]],
    found: Sequence[BandwidthSample],
    waf: Sequence[WafSample],
    drives: Sequence[EnduranceTerm],
    uncounted: dict[str, str],
) -> list[NotMeasured]:
    """Everything a reader may look for and will not find."""
    missing = uncounted | {
        f"{name}: {what}": reason
        for name, result in results
        for what, reason in result.not_measured.items()
    }
    for name, result in results:
        for cell in result.skipped:
            missing[f"{name}: {cell.id}"] = cell.reason
    for hop, how in (
        ("ssd-to-dram", "bench layout"), ("dram-to-ssd", "bench layout with write cells"),
        ("dram-to-gpu", "bench gds"), ("ssd-to-gpu", "bench gds"),
    ):  # fmt: skip
        if not any(sample.hop == hop for sample in found):
            missing[f"hop {hop}"] = f"no run measured it ({how} does)"
    if not waf:
        missing["WAF"] = "no run holds a wear result (wear makes one)"
    elif not any(sample.source == "device-counters" for sample in waf):
        missing["WAF of a real drive"] = "no device with NAND write counters was measured"
    if waf and not any(sample.source == "femu" for sample in waf):
        missing["WAF of real FEMU"] = "no FEMU guest was measured"
    for sample in waf:
        if sample.steady is None:
            what = f"steady WAF of {sample.profile}, policy {sample.policy}"
            if sample.point is not None:
                what += f", {', '.join(f'{key} {value}' for key, value in sample.point.items())}"
            missing[what] = f"{sample.run}: the run ended before it was steady"
    if not any(drive.paper_days for drive in drives):
        missing["lifetime in days"] = "no run gave writes a day (a request trace's clock, or given)"
    missing["R_prefill"] = "a property of model and GPU: imported, never measured here"
    return [NotMeasured(what=what, reason=reason) for what, reason in missing.items()]
