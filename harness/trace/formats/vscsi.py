"""CloudPhysics vscsi, versions 1 and 2: little-endian records of SCSI commands, 32 or 40 bytes.

Version 1 is ``<IIIHHQQ``: serial, bytes, segments, SCSI command, version, LBN (512 B), time in us.
Version 2 begins with command and version and ends with the response time, taken as us like the
time: ``<HHIIIQQQ``. The upper byte of the version field is the number of the version.
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
from harness.trace.formats.streams import BLOCK_BYTES, Head, byte_blocks, open_bytes

LAYOUT = (
    "<IIIHHQQ (serial, bytes, segments, command, version, LBN, time us), or version 2: "
    "<HHIIIQQQ (command, version, serial, bytes, segments, LBN, time us, response us)"
)
_COMMAND = [("command", "<u2"), ("version", "<u2")]
_SIZE = [("serial", "<u4"), ("bytes", "<u4"), ("segments", "<u4")]
_PLACE = [("lbn", "<u8"), ("time_us", "<u8")]
_RECORDS = {
    1: np.dtype([*_SIZE, *_COMMAND, *_PLACE]),
    2: np.dtype([*_COMMAND, *_SIZE, *_PLACE, ("response_us", "<u8")]),
}
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


def _version(data: bytes) -> int | None:
    """The version whose records these bytes begin with, by each one's own version field."""
    for number, record in _RECORDS.items():
        whole = min(len(data) // record.itemsize, 64)
        versions = np.frombuffer(data, record, count=whole)["version"]
        if whole and (versions >> 8 == number).all():
            return number
    return None


def _detect(head: Head) -> bool:
    version = _version(head.data) if b"\0" in head.data else None
    if version is None:
        return False
    record = _RECORDS[version]
    records = np.frombuffer(head.data, record, count=len(head.data) // record.itemsize)[:64]
    return bool(
        np.isin(records["command"], list(COMMANDS)).all()
        and (records["bytes"] % 512 == 0).all()
        and (np.diff(records["time_us"].astype(np.int64)) > -60_000_000).all()
    )


def _read(reading: Reading) -> Iterator[pa.RecordBatch]:
    with open_bytes(reading.path) as stream:
        version = _version(stream.read(64 * 40))
    if version is None:
        raise UsageError(f"{reading.path}: no version 1 or 2 in the records of vscsi")
    record, done = _RECORDS[version], 0
    size = BLOCK_BYTES // record.itemsize * record.itemsize
    for block in byte_blocks(reading.path, reading.progress, size):
        if len(block) % record.itemsize:
            raise UsageError(
                f"{reading.path}: ends inside record {done + len(block) // record.itemsize}: "
                f"truncated, records are {record.itemsize} bytes"
            )
        records = np.frombuffer(block, record)
        yield _rows(records, done, reading)
        done += len(records)


def _rows(records: npt.NDArray[np.void], done: int, reading: Reading) -> pa.RecordBatch:
    command = records["command"]
    if np.any(command > 0xFF):
        row = done + int(np.argmax(command > 0xFF))
        raise UsageError(f"{reading.path}: record {row}: no SCSI command: {int(command.max()):#x}")
    columns = {
        "ts_ns": records["time_us"].astype(np.int64) * 1000,
        "op": operations(command),
        "lba": records["lbn"].astype(np.uint64),
        "bytes": records["bytes"].astype(np.uint64),
    }
    if "response_us" in (records.dtype.names or ()):
        columns["latency_ns"] = records["response_us"].astype(np.int64) * 1000
    return rows(**columns)


FORMAT = Format(
    name="vscsi",
    title="CloudPhysics vscsi v1 and v2",
    layout=LAYOUT,
    detect=_detect,
    read=_read,
    extensions=(".vscsi",),
)
