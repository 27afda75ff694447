"""CloudPhysics vscsi version 1: 32-byte little-endian records of SCSI commands.

Fields ``<IIIHHQQ``: serial, bytes, segments, SCSI command, version, LBN (512 B), time in us.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from harness.core.errors import UsageError
from harness.core.ops import Op
from harness.trace.formats.base import Format, Reading, rows
from harness.trace.formats.streams import Head, byte_blocks

LAYOUT = "<IIIHHQQ (serial, bytes, segments, command, version, LBN, time us)"
_RECORD = np.dtype(
    [
        ("serial", "<u4"),
        ("bytes", "<u4"),
        ("segments", "<u4"),
        ("command", "<u2"),
        ("version", "<u2"),
        ("lbn", "<u8"),
        ("time_us", "<u8"),
    ]
)
COMMANDS = {
    0x08: Op.READ,
    0x28: Op.READ,
    0x88: Op.READ,
    0xA8: Op.READ,
    0x0A: Op.WRITE,
    0x2A: Op.WRITE,
    0x8A: Op.WRITE,
    0xAA: Op.WRITE,
    0x2E: Op.WRITE,
    0x42: Op.DISCARD,
    0x35: Op.FLUSH,
    0x91: Op.FLUSH,
    0x41: Op.WRITE_ZEROES,
    0x93: Op.WRITE_ZEROES,
}
"""What a SCSI command does; others have no address of interest."""
_CODES = np.full(256, Op.OTHER, np.uint8)
for _command, _op in COMMANDS.items():
    _CODES[_command] = _op


def operations(command: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """``Op`` codes of SCSI commands, each below 256."""
    return _CODES[command]


def _detect(head: Head) -> bool:
    whole = len(head.data) // _RECORD.itemsize
    if whole == 0 or b"\0" not in head.data:
        return False
    records = np.frombuffer(head.data, _RECORD, count=whole)[:64]
    known = np.isin(records["command"], list(COMMANDS))
    return bool(
        known.all()
        and (records["version"] == records["version"][0]).all()
        and (records["bytes"] % 512 == 0).all()
        and (np.diff(records["time_us"].astype(np.int64)) > -60_000_000).all()
    )


def _read(reading: Reading) -> Iterator[pa.RecordBatch]:
    done = 0
    for block in byte_blocks(reading.path, reading.progress):
        if len(block) % _RECORD.itemsize:
            raise UsageError(
                f"{reading.path}: ends inside record {done + len(block) // _RECORD.itemsize}: "
                f"truncated, records are {_RECORD.itemsize} bytes"
            )
        records = np.frombuffer(block, _RECORD)
        yield _rows(records, done, reading)
        done += len(records)


def _rows(records: npt.NDArray[np.void], done: int, reading: Reading) -> pa.RecordBatch:
    command = records["command"]
    if np.any(command > 0xFF):
        row = done + int(np.argmax(command > 0xFF))
        raise UsageError(f"{reading.path}: record {row}: no SCSI command: {int(command.max()):#x}")
    op = operations(command)
    return rows(
        ts_ns=records["time_us"].astype(np.int64) * 1000,
        op=op,
        lba=records["lbn"].astype(np.uint64),
        bytes=records["bytes"].astype(np.uint64),
    )


FORMAT = Format(
    name="vscsi",
    title="CloudPhysics vscsi v1",
    layout=LAYOUT,
    detect=_detect,
    read=_read,
    extensions=(".vscsi",),
)
