"""Rungs that need a drive: the model against FEMU live (1), drives against what was sent (3)."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from harness.core.ops import Op
from harness.core.profiles import DeviceProfile
from harness.core.progress import Progress, quiet
from harness.device.counter_reader import read_counters
from harness.device.femu import MAX_COMMAND_BYTES, femu_drive, femu_profile, scale_profile
from harness.device.guard import open_guarded
from harness.device.guest import Guest, NvmeDrive
from harness.device.guest.binary import femu_binary, properties_of
from harness.device.guest.local import LocalDrive
from harness.device.guest.ops import OpsMachine, drive_ops, op_list
from harness.device.guest.trace_ops import trace_ops
from harness.device.info import device_info
from harness.device.smart import data_units
from harness.ftl.workloads import OpList
from harness.trace.parquet import open_trace
from harness.validate.golden import golden_runs, model_counters
from harness.validate.rung import Rung, Verdict, judged, not_run

_STOCK_BYTES = 256 << 20
_KIB = 1024
_END_TAG = 1 << 20


def with_ends(ops: OpList) -> OpList:
    """The list between two SNAPs, so that counters are read before and after."""
    return OpList(
        np.concatenate([[np.uint64(0)], ops.offset, [np.uint64(_END_TAG)]]),
        np.concatenate([[np.uint64(0)], ops.length, [np.uint64(0)]]),
        np.concatenate([[np.uint8(Op.SNAP)], ops.op, [np.uint8(Op.SNAP)]]),
    )


def mixed_ops(size_bytes: int, count: int = 600, seed: int = 5) -> OpList:
    """Writes, reads and discards of 4–256 KiB inside ``size_bytes``; every command whole."""
    rng = np.random.default_rng(seed)
    op = rng.choice([Op.WRITE, Op.READ, Op.DISCARD], count, p=[0.7, 0.25, 0.05])
    length = rng.choice([4, 16, 64, 128, 256], count).astype(np.uint64) * np.uint64(_KIB)
    slots = size_bytes // (256 * _KIB)
    offset = rng.integers(0, slots, count).astype(np.uint64) * np.uint64(256 * _KIB)
    return OpList(offset, length, op.astype(np.uint8))


def drive_counts_what_was_sent(
    name: str, snapshots: Sequence[dict[str, Any]], ops: OpList
) -> list[Rung]:
    """Commands exactly, data units to the rounding of two readings, from the drive's SMART log."""
    before, after = (snapshots[index]["counters"]["smart"] for index in (0, -1))
    first, *_, last = np.flatnonzero(ops.op == Op.SNAP)
    ops = OpList(*(column[first:last] for column in ops))
    sent = {
        "write commands": int((ops.op == Op.WRITE).sum()),
        "read commands": int((ops.op == Op.READ).sum()),
    }
    counted = {
        key: after[f"host_{key.replace(' ', '_')}"] - before[f"host_{key.replace(' ', '_')}"]
        for key in sent
    }
    written = int(ops.length[ops.op == Op.WRITE].sum())
    units = after["data_units_written"] - before["data_units_written"]
    close = abs(units - data_units(written)) <= 1
    return [
        judged(3, f"{name}: commands counted = commands sent", sent, counted),
        Rung(
            3,
            f"{name}: data units written = bytes sent",
            data_units(written),
            units,
            Verdict.AGREES if close else Verdict.DIFFERS,
            "the drive rounds each reading up: one unit either way",
        ),
    ]


def femu_counts_pages(
    name: str, snapshots: Sequence[dict[str, Any]], profile: DeviceProfile, ops: OpList
) -> Rung:
    """The model equals this FEMU, host and GC pages at every snapshot."""
    expected = [list(row) for row in model_counters(profile, ops)]
    measured = [_femu_row(snapshot) for snapshot in snapshots]
    note = f"{len(expected)} snapshots, (tag, host pages, GC pages); the last are shown"
    agrees = expected == measured
    shown = next(
        (pair for pair in zip(expected, measured, strict=False) if pair[0] != pair[1]),
        (expected[-1], measured[-1] if measured else None),
    )
    verdict = Verdict.AGREES if agrees else Verdict.DIFFERS
    return Rung(1, f"FTL model = FEMU, {name}", shown[1], shown[0], verdict, note)


def _femu_row(snapshot: dict[str, Any]) -> list[int | None]:
    media = snapshot["counters"]["media"]
    if media is None:
        return [snapshot["tag"], None, None]
    host = media["host_units"]
    return [snapshot["tag"], host, media["media_units"] - host]


def stock_rungs(console: Path | None = None, progress: Progress = quiet) -> list[Rung]:
    """Rung 3 on stock QEMU: host-side accounting of a guest's drive."""
    progress(0, 2, "starting a guest with stock QEMU")
    drive = NvmeDrive(_STOCK_BYTES, options={"mdts": "6"})
    with Guest([drive], console=console) as guest:
        progress(1, 2, "sending commands")
        return counting_rungs(guest)


def counting_rungs(guest: Guest) -> list[Rung]:
    """Mixed commands to the guest's first drive, and what that counted."""
    name = f"stock QEMU NVMe ({guest.facts()['accelerator']})"
    return _count_mixed(guest, guest.drives[0].size_bytes, name)


def drive_rungs(device: str, destroy: str) -> list[Rung]:
    """Rung 3 on a real NVMe drive of this machine; its first 256 MiB are overwritten.

    Raises
    ------
    UsageError
        The guard refuses the drive.
    MeasurementError
        The commands could not be sent.
    """
    with open_guarded(device, destroy=destroy):
        target = device_info(device)
    name = target.model or device
    if read_counters(device).smart is None:
        return [not_run(3, f"{name}: counters = commands sent", f"{device} counts nothing")]
    if target.max_sectors_kb * _KIB < MAX_COMMAND_BYTES:
        why = f"it takes at most {target.max_sectors_kb} KiB a command, and 256 KiB are sent"
        return [not_run(3, f"{name}: counters = commands sent", why)]
    with LocalDrive(device, destroy) as machine:
        return _count_mixed(machine, target.size_bytes, name)


def _count_mixed(machine: OpsMachine, size_bytes: int, name: str) -> list[Rung]:
    ops = with_ends(mixed_ops(min(size_bytes, _STOCK_BYTES)))
    result = drive_ops(machine, op_list(*ops))
    return drive_counts_what_was_sent(name, result["snapshots"], ops)


def femu_rungs(
    cases: Sequence[tuple[str, DeviceProfile, OpList]],
    console_dir: Path | None = None,
    progress: Progress = quiet,
) -> list[Rung]:
    """Rungs 1 and 3 on real FEMU, a fresh drive for every case (name, drive, op list)."""
    binary = femu_binary()
    assert binary is not None, "ask femu_binary() first"
    known = properties_of(binary, "femu")
    rungs: list[Rung] = []
    for number, (name, profile, ops) in enumerate(cases):
        progress(number, len(cases), f"FEMU: {name}")
        console = console_dir / f"console-femu-{name}.log" if console_dir else None
        with Guest([femu_drive(profile, known=known)], binary=binary, console=console) as guest:
            result = drive_ops(guest, op_list(*ops), timeout_s=1800.0)
        rungs.append(femu_counts_pages(name, result["snapshots"], profile, ops))
        rungs += drive_counts_what_was_sent(f"FEMU {name}", result["snapshots"], ops)
    return rungs


def trace_case(
    trace_path: Path, profile: DeviceProfile, factor: Fraction
) -> tuple[str, DeviceProfile, OpList]:
    """A block trace on the profile's drive as FEMU can be it at ``factor`` of its size.

    UsageError if the trace does not fit that drive.
    """
    profile, _ = femu_profile(profile)
    if factor != 1:
        profile = scale_profile(profile, factor).profile
    ops = trace_ops(open_trace(trace_path), profile.namespace_bytes).ops
    return trace_path.stem, profile, with_ends(OpList(ops["offset"], ops["length"], ops["op"]))


def quick_femu_cases() -> list[tuple[str, DeviceProfile, OpList]]:
    """The shortest golden runs and one of mixed commands, minutes even when emulated."""
    runs = [run for run in golden_runs() if run.record["records"] < 5000]
    cases = [(run.name, run.profile, run.ops()) for run in runs]
    mixed = next(run.profile for run in golden_runs() if run.record["geometry"] == "AL")
    size = mixed.namespace_bytes // (256 * _KIB) * (256 * _KIB)
    return [*cases, ("mixed", mixed, with_ends(mixed_ops(size, 3000)))]
