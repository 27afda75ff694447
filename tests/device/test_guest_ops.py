"""Op lists in a guest: the drive counts exactly what was sent (stock QEMU)."""

from __future__ import annotations

import numpy as np
import pytest

from harness.core.errors import MeasurementError
from harness.core.ops import Op
from harness.device.counter_reader import read_counters
from harness.device.counters import delta
from harness.device.guest import Guest
from harness.device.guest.ops import drive_ops, op_list
from harness.device.smart import data_units

pytestmark = [pytest.mark.guest, pytest.mark.slow, pytest.mark.root]

KIB = 1024


def mixed_ops() -> np.ndarray:
    """400 writes, 100 reads and 20 discards of several sizes between two snapshots."""
    rng = np.random.default_rng(3)
    count = 520
    op = np.full(count, Op.WRITE, np.uint8)
    op[400:500], op[500:] = Op.READ, Op.DISCARD
    rng.shuffle(op)
    length = rng.choice([4, 16, 64, 128, 256], count) * KIB
    offset = rng.integers(0, 1024, count) * 256 * KIB
    snaps = np.array([7, 8], np.uint64)
    return op_list(
        np.concatenate([snaps[:1], offset, snaps[1:]]),
        np.concatenate([[0], length, [0]]),
        np.concatenate([[Op.SNAP], op, [Op.SNAP]]),
    )


def smart_of(snapshot: dict) -> dict:
    """The SMART part of a snapshot."""
    found: dict = snapshot["counters"]["smart"]
    return found


def test_commands_and_data_units_are_what_was_sent(guest: Guest) -> None:
    ops = mixed_ops()
    result = drive_ops(guest, ops)
    first, last = result["snapshots"]
    assert (first["tag"], last["tag"], last["ops_done"]) == (7, 8, len(ops) - 1)
    before, after = smart_of(first), smart_of(last)
    assert after["host_write_commands"] - before["host_write_commands"] == 400
    assert after["host_read_commands"] - before["host_read_commands"] == 100
    written = int(ops["length"][ops["op"] == Op.WRITE].sum())
    assert result["bytes"]["write"] == written
    assert (result["commands"], result["in_order"]) == (520, 520)
    units = after["data_units_written"] - before["data_units_written"]
    # Each reading is rounded up, so a difference may be one unit off.
    assert abs(units - data_units(written)) <= 1


def test_stock_qemu_measures_no_waf_and_says_so(guest: Guest) -> None:
    count = 30
    ops = op_list(np.zeros(count), np.full(count, 4 * KIB), np.full(count, Op.WRITE))
    before = read_counters(guest.device, guest.runner)
    drive_ops(guest, ops)
    change = delta(before, read_counters(guest.device, guest.runner))
    assert change.write_commands == count
    assert change.waf is None
    assert change.why_no_waf == "QEMU NVMe Ctrl exposes no NAND writes: no WAF can be measured"


def test_operations_outside_the_drive_are_reported(guest: Guest) -> None:
    beyond = op_list(np.array([0, 1 << 40]), np.full(2, 4096), np.full(2, Op.WRITE))
    with pytest.raises(
        MeasurementError, match=r"1 of 2 operations failed there, first number 1 with"
    ):
        drive_ops(guest, beyond)


def test_commands_the_kernel_would_split_are_refused(guest: Guest) -> None:
    large = op_list(np.zeros(1), np.array([512 * KIB]), np.array([Op.WRITE]))
    with pytest.raises(MeasurementError, match="longer than 262144"):
        drive_ops(guest, large)
