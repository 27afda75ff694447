"""Real FEMU in a guest, where HARNESS_FEMU names it: its counters and its known way to die."""

from __future__ import annotations

import os

import numpy as np
import pytest

from harness.core.ops import Op
from harness.device.counter_reader import read_counters
from harness.device.counters import MediaTotals
from harness.device.guest import FemuDrive, Guest, GuestError
from harness.device.guest.ops import drive_ops, op_list

pytestmark = [
    pytest.mark.guest,
    pytest.mark.slow,
    pytest.mark.root,
    pytest.mark.skipif(
        not os.environ.get("HARNESS_FEMU"),
        reason="FEMU is not installed (HARNESS_FEMU names no qemu-system-x86_64)",
    ),
]

MIB = 1 << 20


def without_spare() -> FemuDrive:
    """A namespace as large as the flash: 16 lines of 1 MiB and not one to spare."""
    geometry = {"nchs": 4, "luns_per_ch": 4, "pgs_per_blk": 16, "blks_per_pl": 16}
    latencies = {"pg_rd_lat": 0, "pg_wr_lat": 0, "blk_er_lat": 0}
    properties = {"femu_mode": 1, **geometry, "devsz_mb": 16, "queues": 1, **latencies}
    return FemuDrive(properties, 16 * MIB, 16 * MIB, 4096)


@pytest.mark.timeout(600)
def test_counters_and_the_abort_without_free_lines() -> None:
    with Guest([without_spare()]) as guest:
        fresh = read_counters(guest.device, guest.runner)
        assert fresh.media == MediaTotals("femu-smart", 0, 0, None)
        assert fresh.controller is not None
        assert fresh.controller.model == "FEMU BlackBox-SSD Controller"
        offset = np.arange(0, 16 * MIB, 128 << 10)
        fill = op_list(offset, np.full(len(offset), 128 << 10), np.full(len(offset), Op.WRITE))
        with pytest.raises(GuestError, match="ran out of free lines and aborted") as caught:
            drive_ops(guest, fill, timeout_s=240)
        assert caught.value.fix is not None and "over-provisioning" in caught.value.fix
        assert not guest.alive
