"""blktrace binaries, checked against the real blkparse where it is installed."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from harness.core.errors import UsageError
from harness.trace.formats import detect
from harness.trace.formats.blktrace import cpu_files
from harness.trace.source import open_source
from tests.trace.helpers import rows_of, table_of
from tests.trace.samples import MIB, D, F, R, W

READ, WRITE, FLUSH, SYNC, NOTIFY, AHEAD, META, DISCARD, FUA = 0, 1, 2, 3, 10, 11, 12, 13, 15
QUEUE, ISSUE, COMPLETE, PLUG = 1, 7, 8, 9
DEV = 8 << 20 | 1


def record(
    time_ns: int,
    action: int,
    categories: tuple[int, ...],
    sector: int = 0,
    size: int = 0,
    *,
    pid: int = 697,
    error: int = 0,
    pdu: bytes = b"",
    order: str = "<",
    cpu: int = 0,
) -> bytes:
    bits = action | sum(1 << (16 + bit) for bit in categories)
    header = (0x65617407, 1, time_ns, sector, size, bits, pid, DEV, cpu, error, len(pdu))
    return struct.pack(f"{order}IIQQIIIIIHH", *header) + pdu


def recording(order: str = "<") -> bytes:
    def made(*given, **named) -> bytes:  # type: ignore[no-untyped-def]
        return record(*given, order=order, **named)

    return b"".join(
        (
            made(0, 0, (NOTIFY,), pdu=b"fio\0"),
            made(1000, QUEUE, (WRITE, SYNC), 223490, 4096),
            made(1100, PLUG, ()),
            made(2000, ISSUE, (WRITE, SYNC), 223490, 4096),
            made(9000, COMPLETE, (WRITE, SYNC), 223490, 4096, pid=0),
            made(10_000, ISSUE, (FLUSH,), pdu=b"\1\2\3\4\5\6\7\x08"),
            made(11_000, ISSUE, (READ, AHEAD), 8, 4096, pid=12),
            made(12_000, COMPLETE, (READ,), 8, 4096, pid=0, error=65531),
            made(13_000, ISSUE, (DISCARD,), 16, MIB),
            made(13_500, ISSUE, (WRITE, SYNC, META, FUA, FLUSH), 8, MIB),
            made(14_000, COMPLETE, (FLUSH,), pid=0),
        )
    )


EXPECTED = [
    (0, W, 223490, 4096, 7000, DEV),
    (8000, F, 0, 0, 4000, DEV),
    (9000, R, 8, 4096, 1000, DEV),
    (11_000, D, 16, MIB, None, DEV),
    (11_500, W, 8, MIB, None, DEV),
]


@pytest.mark.parametrize("order", ["<", ">"])
def test_both_byte_orders(tmp_path: Path, order: str) -> None:
    path = tmp_path / "sda1.blktrace.0"
    path.write_bytes(recording(order))
    assert detect(path) == "blktrace"
    table = table_of(open_source(path))
    assert rows_of(table) == EXPECTED
    assert table["comm"].to_pylist() == ["fio", "fio", None, "fio", "fio"]
    assert table["pid"].to_pylist() == [697, 697, 12, 697, 697]
    assert table["error"].to_pylist() == [0, 0, -5, 0, 0]
    assert table["flags"].to_pylist() == [1, 32, 8, 0, 1 | 2 | 4 | 32]


@pytest.mark.skipif(shutil.which("blkparse") is None, reason="blkparse is not installed")
def test_binary_equals_what_blkparse_prints(tmp_path: Path) -> None:
    (tmp_path / "sda1.blktrace.0").write_bytes(recording())
    printed = subprocess.run(
        ["blkparse", "-i", "sda1"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    (tmp_path / "text").write_text(printed.stdout)
    binary = table_of(open_source(tmp_path / "sda1.blktrace.0"))
    text = table_of(open_source(tmp_path / "text"))
    assert rows_of(text) == rows_of(binary)
    for name in ("flags", "pid", "error"):
        assert text[name].to_pylist() == binary[name].to_pylist(), name


def test_cpu_files_are_merged_by_time(tmp_path: Path) -> None:
    issues = [record(i * 10, ISSUE, (WRITE,), i * 8, 4096, cpu=i % 3) for i in range(90)]
    ends = [record(i * 10 + 505, COMPLETE, (WRITE,), i * 8, 4096, cpu=0) for i in range(90)]
    for cpu in range(3):
        mine = issues[cpu::3]
        if cpu == 0:
            mine = sorted(mine + ends, key=lambda raw: struct.unpack_from("<Q", raw, 8)[0])
        (tmp_path / f"d.blktrace.{cpu}").write_bytes(b"".join(mine))
    (tmp_path / "d.blktrace.10").write_bytes(b"")
    (tmp_path / "d.blktrace.notes").write_bytes(b"not a part")
    names = [path.name for path in cpu_files(tmp_path / "d.blktrace.1")]
    assert names == ["d.blktrace.0", "d.blktrace.1", "d.blktrace.2", "d.blktrace.10"]
    source = open_source(tmp_path / "d.blktrace.1")
    assert rows_of(table_of(source)) == [(i * 10, W, i * 8, 4096, 505, DEV) for i in range(90)]
    assert source.meta.notes == ["merged 3 per-CPU files"]


def test_queue_events_stand_in_for_issues(tmp_path: Path) -> None:
    path = tmp_path / "d"
    path.write_bytes(record(5, QUEUE, (READ,), 8, 4096) + record(9, COMPLETE, (READ,), 8, 4096))
    source = open_source(path)
    assert rows_of(table_of(source)) == [(0, R, 8, 4096, 4, DEV)]
    assert source.meta.notes[0].startswith("no D events")


def test_damage_is_one_error(tmp_path: Path) -> None:
    path = tmp_path / "d.blktrace.0"
    path.write_bytes(recording()[:-7])
    with pytest.raises(UsageError, match="ends inside a record at byte"):
        table_of(open_source(path))
    whole = bytearray(recording())
    whole[52 + 48] = 0xFF  # the magic of the third record
    path.write_bytes(whole)
    with pytest.raises(UsageError, match="no record magic at byte 100"):
        table_of(open_source(path))
    path.write_bytes(b"not a trace at all, but long enough to hold a record of 48 bytes")
    with pytest.raises(UsageError, match="not a blktrace file"):
        table_of(open_source(path, form="blktrace"))


def test_blocks_may_cut_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "d.blktrace.0"
    path.write_bytes(recording())
    monkeypatch.setattr("harness.trace.formats.streams.byte_blocks.__defaults__", (_quiet, 450))
    assert rows_of(table_of(open_source(path))) == EXPECTED


def _quiet(done: float, total: float | None, note: str = "") -> None:
    pass
