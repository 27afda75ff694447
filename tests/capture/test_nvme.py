"""Addresses and placement of NVMe commands."""

from __future__ import annotations

import numpy as np

from harness.capture.nvme import NvmeCommands, placements, rewritten
from harness.capture.records import KIND_SHIFT, SECTOR_MASK, SLOT_DTYPE, Decoder, Kind
from harness.core.ops import Op

_DRV_IN, _DRV_OUT = 34, 35
_DECODER = Decoder.from_meaning(
    {
        "ops": {"0": "R", "1": "W", "9": "Z"},
        "flags": dict.fromkeys(("sync", "meta", "fua", "preflush", "readahead", "background"), 20),
        "status": "blk",
    }
)
_DEV = 259 << 20


def _event(
    kind: Kind, key: int, cmd_flags: int, sector: int = 0, size: int = 0, pid: int = 0
) -> np.ndarray:
    slot = np.zeros(1, SLOT_DTYPE)
    slot["key"], slot["dev"], slot["cmd_flags"], slot["bytes"] = key, _DEV, cmd_flags, size
    slot["kind_sector"], slot["pid"] = int(kind) << 56 | sector, pid
    return slot


def _applied(*batches: list[np.ndarray]) -> np.ndarray:
    commands = NvmeCommands(_DECODER, {_DEV: 4096})
    return np.concatenate([commands.apply(np.concatenate(batch)) for batch in batches])


def test_a_passthrough_write_gets_address_operation_and_placement() -> None:
    events = _applied(
        [
            _event(Kind.NVME_COMMAND, 64, 0x01, sector=10, size=7, pid=2 << 16 | 5),
            _event(Kind.ISSUE, 64, _DRV_OUT, size=32768),
            _event(Kind.COMPLETE, 64, _DRV_OUT, size=32768),
        ]
    )
    issue = events[:1]
    assert len(events) == 2
    assert int(issue["kind_sector"][0] & SECTOR_MASK) == 80
    assert int(issue["bytes"][0]) == 8 * 4096
    assert _DECODER.ops(issue["cmd_flags"]).tolist() == [Op.WRITE]
    header = events["header"].astype(np.uint32)
    assert placements(header).tolist() == [5, -1]
    assert rewritten(header).tolist() == [True, False]


def test_an_ordinary_write_keeps_its_address_and_gains_its_placement() -> None:
    (issue,) = _applied(
        [_event(Kind.NVME_COMMAND, 64, 0x01, sector=99, size=0, pid=2 << 16),
         _event(Kind.ISSUE, 64, 1, sector=8, size=4096)]
    )  # fmt: skip
    assert int(issue["kind_sector"] & SECTOR_MASK) == 8
    header = np.array([issue["header"]], np.uint32)
    assert (placements(header).tolist(), rewritten(header).tolist()) == ([0], [False])


def test_a_command_waits_for_its_issue_across_batches_and_keys() -> None:
    events = _applied(
        [_event(Kind.NVME_COMMAND, 64, 0x02, sector=3),
         _event(Kind.NVME_COMMAND, 128, 0x02, sector=4), _event(Kind.ISSUE, 128, _DRV_IN)],
        [_event(Kind.ISSUE, 192, _DRV_IN), _event(Kind.ISSUE, 64, _DRV_IN)],
    )  # fmt: skip
    assert (events["kind_sector"] & SECTOR_MASK).tolist() == [32, 0, 24]
    assert rewritten(events["header"].astype(np.uint32)).tolist() == [True, False, True]


def test_commands_without_a_range_stay_what_they_are() -> None:
    (issue,) = _applied(
        [_event(Kind.NVME_COMMAND, 64, 0x09, sector=3), _event(Kind.ISSUE, 64, _DRV_OUT, size=16)]
    )
    assert int(issue["bytes"]) == 16
    assert _DECODER.ops(np.array([issue["cmd_flags"]])).tolist() == [Op.OTHER]
    assert int(issue["kind_sector"] >> KIND_SHIFT) == Kind.ISSUE
