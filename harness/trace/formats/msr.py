"""MSR Cambridge (SNIA 388): ``Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime``.

Time and response time in 100 ns (Windows file time), offset and size in bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from harness.core.ops import Op
from harness.trace.formats import csvtext
from harness.trace.formats.base import BadLine, Format, Reading, check_extents, rows, whole_sectors
from harness.trace.formats.lines import parse_lines
from harness.trace.formats.streams import Head

LAYOUT = "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime"
_COLUMNS = {
    "Timestamp": csvtext.INT,
    "Hostname": csvtext.TEXT,
    "DiskNumber": csvtext.UINT,
    "Type": csvtext.TEXT,
    "Offset": csvtext.UINT,
    "Size": csvtext.UINT,
    "ResponseTime": csvtext.UINT,
}
_OPS = {"Read": Op.READ, "Write": Op.WRITE}
_EPOCH_TICKS = 116_444_736_000_000_000
"""1970 in 100 ns since 1601."""
_MAX_DISKS = 1 << 20


def _detect(head: Head) -> bool:
    return head.mostly_match(r"\d+,[^,]+,\d+,(Read|Write),\d+,\d+,\d+", header=LAYOUT)


def _parse(block: bytes) -> pa.RecordBatch:
    batch = csvtext.parse_columns(block, _COLUMNS)
    op = csvtext.decode(batch.column("Type"), _OPS, "Type")
    if np.any(batch.column("DiskNumber").to_numpy() >= _MAX_DISKS):
        raise BadLine(f"DiskNumber is not below {_MAX_DISKS}")
    check_extents(
        batch.column("Offset").to_numpy() // np.uint64(512), batch.column("Size").to_numpy()
    )
    return batch.append_column("op", pa.array(op))


def _read(reading: Reading) -> Iterator[pa.RecordBatch]:
    hosts: dict[str, int] = {}
    header = LAYOUT.encode().lower()
    for batch in parse_lines(reading, _parse, LAYOUT, header=lambda line: line.lower() == header):
        ticks, disk, offset, size, response, op = csvtext.numbers(
            batch, "Timestamp", "DiskNumber", "Offset", "Size", "ResponseTime", "op"
        )
        reading.epoch_clock = bool(len(ticks)) and int(ticks[0]) > _EPOCH_TICKS
        lba, size = whole_sectors(reading, offset, size)
        yield rows(
            ts_ns=(ticks - (_EPOCH_TICKS if reading.epoch_clock else 0)) * 100,
            op=op,
            lba=lba,
            bytes=size,
            latency_ns=(response * np.uint64(100)).astype(np.int64),
            dev=_devices(batch.column("Hostname"), disk, hosts, reading),
        )


def _devices(
    names: pa.DictionaryArray, disk: npt.NDArray[np.uint64], hosts: dict[str, int], reading: Reading
) -> npt.NDArray[Any]:
    """Disk number, with the host's number above it where the file mixes hosts."""
    for name in names.dictionary.to_pylist():
        hosts.setdefault(name, len(hosts))
    reading.host = next(iter(hosts)) if len(hosts) == 1 else None
    if len(hosts) > 1:
        listed = ", ".join(f"{number} {name}" for name, number in hosts.items())
        reading.notes[:] = [f"the major number of dev is the host: {listed}"]
    number = np.array([hosts[name] for name in names.dictionary.to_pylist()], np.uint32)
    return (number[names.indices.to_numpy()] << np.uint32(20)) | disk.astype(np.uint32)


FORMAT = Format(
    name="msr",
    title="MSR Cambridge CSV",
    layout=LAYOUT,
    detect=_detect,
    read=_read,
)
