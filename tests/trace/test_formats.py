"""Every format reads what its layout says, is recognised, and names the line that is wrong."""

from __future__ import annotations

import bz2
import gzip
import lzma
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from harness.core.errors import UsageError
from harness.trace.convert import convert
from harness.trace.formats import FORMATS, by_extension, detect
from harness.trace.formats.oplist import read_oplist
from harness.trace.formats.streams import BLOCK_BYTES
from harness.trace.schema import FLAG_META, FLAG_READAHEAD, FLAG_SYNC
from harness.trace.source import ForeignTrace, open_source
from tests.trace.helpers import read_rows, rows_of, table_of
from tests.trace.samples import SAMPLES, Sample, W

IDS = [f"{sample.format}-{number}" for number, sample in enumerate(SAMPLES)]
BINARY = {"blktrace", "vscsi"}


def sample_file(folder: Path, sample: Sample) -> Path:
    path = folder / "input"
    path.write_text(sample.text)
    return path


def by_name(name: str) -> Sample:
    return next(sample for sample in SAMPLES if sample.format == name)


def test_every_text_format_has_a_sample() -> None:
    assert {sample.format for sample in SAMPLES} | BINARY == set(FORMATS)


@pytest.mark.parametrize("sample", SAMPLES, ids=IDS)
def test_a_format_is_recognised_and_read(tmp_path: Path, sample: Sample) -> None:
    path = sample_file(tmp_path, sample)
    assert detect(path) == sample.format
    assert rows_of(table_of(open_source(path))) == list(sample.rows)


@pytest.mark.parametrize("sample", SAMPLES, ids=IDS)
def test_windows_line_ends_and_a_missing_last_one(tmp_path: Path, sample: Sample) -> None:
    path = tmp_path / "input"
    path.write_bytes(sample.text.replace("\n", "\r\n").rstrip().encode())
    assert rows_of(table_of(open_source(path, form=sample.format))) == list(sample.rows)


@pytest.mark.parametrize("sample", SAMPLES, ids=IDS)
def test_a_malformed_line_is_named_or_skipped(tmp_path: Path, sample: Sample) -> None:
    lines = sample.text.splitlines()
    if sample.format == "blkparse":
        lines = lines[:9]  # behind the summary nothing is read
    # Lines that look like the format from afar: a bad number where one is expected.
    broken = {
        "blkparse": "  8,0    3       xx     0.1   697  D   W 1 + 8 [a]",
        "ftrace": " f-1 [001] ..... 1.0: block_rq_issue: 7,x R 16384 () 3936 + 32 [fio]",
    }.get(sample.format, "what is this")
    lines.insert(len(lines) - 1, broken)
    path = tmp_path / "input"
    path.write_text("\n".join(lines) + "\n")
    source = open_source(path, form=sample.format)
    with pytest.raises(UsageError) as caught:
        table_of(source)
    assert f"{path}:{len(lines) - 1}: " in str(caught.value)
    tolerant = open_source(path, form=sample.format, skip_bad=1)
    assert rows_of(table_of(tolerant)) == list(sample.rows)
    assert isinstance(tolerant, ForeignTrace)
    assert tolerant.bad_lines == 1
    assert "1 malformed lines skipped" in tolerant.meta.notes


def test_only_so_many_bad_lines_are_tolerated(tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_text("".join(f"{i} 0 8 8 0\n" + "bad\n" * (i % 3 == 0) for i in range(100)))
    assert open_source(path, skip_bad=34).path == path
    assert len(rows_of(table_of(open_source(path, skip_bad=34)))) == 100
    with pytest.raises(UsageError, match=r":134: .*after 33 skipped"):
        table_of(open_source(path, skip_bad=33))


@pytest.mark.parametrize(
    ("name", "line", "reason"),
    [
        ("csv", "1,R,8,4096", "expected 5 columns, got 4"),
        ("csv", "1,X,8,4096,1", "operation 'X' is none of"),
        ("csv", "1,R,-8,4096,1", "column LBA"),
        ("oplist", "0,4096,Q", "op 'Q' is none of W, R, D, SNAP"),
        ("oplist", "0,9999999999999999,W", "length beyond 1 PiB"),
        ("bpftrace", "1,I,QQ,0,512", "not a request flag string: 'QQ'"),
        ("bpftrace", "1,X,R,0,512", "event 'X'"),
        ("cheops", "1, R, 512, 0, 2", "bytes and nr_sector disagree"),
        ("msr", "128166372003061629,a,0,Read,x,1,1", "column Offset"),
        ("alibaba", "5000000000,R,0,1,1577808000000046", "device_id needs more than 32 bits"),
        ("tencent", "1538323200,1,1,2,7", "IOType is neither 0"),
        ("mqsim", "1 0 8 8 2", "type is neither 0"),
        ("fiu", "1 1 a 1 1 W 9999 0 m", "major or minor number"),
        ("k5cloud", "1,abc,R,0,512", "column Timestamp"),
    ],
)
def test_the_reason_is_said(tmp_path: Path, name: str, line: str, reason: str) -> None:
    path = tmp_path / "input"
    path.write_text(by_name(name).text + line + "\n")
    lines = by_name(name).text.count("\n") + 1
    with pytest.raises(UsageError, match=f":{lines}: .*{reason}"):
        table_of(open_source(path, form=name))


def test_a_bad_line_far_down_is_found_exactly(tmp_path: Path) -> None:
    lines = [f"{i},R,{8 * i},4096,1" for i in range(400_000)]
    lines[377_777] = "377777,R,oops,4096,1"
    path = tmp_path / "input.csv"
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(UsageError, match=r"input\.csv:377778: column LBA.*'oops'"):
        table_of(open_source(path))


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst"])
def test_compressed_files_are_read(tmp_path: Path, suffix: str) -> None:
    sample = by_name("msr")
    data = sample.text.encode()
    packed = {
        ".gz": gzip.compress,
        ".bz2": bz2.compress,
        ".xz": lzma.compress,
        ".zst": lambda raw: pa.compress(raw, codec="zstd", asbytes=True),
    }[suffix](data)
    path = tmp_path / f"input.csv{suffix}"
    path.write_bytes(packed)
    assert rows_of(table_of(open_source(path))) == list(sample.rows)


def test_a_truncated_archive_is_one_error(tmp_path: Path) -> None:
    lines = "".join(f"{i} 0 {i * 7919 % 100_000} 8 0\n" for i in range(100_000))
    path = tmp_path / "input.gz"
    path.write_bytes(gzip.compress(lines.encode())[:-2000])
    with pytest.raises(UsageError, match="damaged or truncated"):
        table_of(open_source(path))


def test_files_that_are_no_trace(tmp_path: Path) -> None:
    for name, content, message in (
        ("empty", b"", "is empty"),
        ("prose", b"Dear reader,\nthis is no trace.\n", "no known trace format"),
        ("noise", bytes(range(256)) * 10, "no known trace format"),
        ("header.csv", b"timestamp,operation,LBA,size,pages\n", "holds no request"),
    ):
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(UsageError, match=message):
            table_of(open_source(path))
    with pytest.raises(UsageError, match="No such file"):
        open_source(tmp_path / "absent")
    with pytest.raises(UsageError, match="no trace format 'xyz'; read are: alibaba"):
        open_source(tmp_path / "prose", form="xyz")


def test_the_wrong_format_by_force_is_a_line_error(tmp_path: Path) -> None:
    path = sample_file(tmp_path, by_name("msr"))
    with pytest.raises(UsageError, match="input:1: expected 5 columns, got 7"):
        table_of(open_source(path, form="alibaba"))


def test_flags_issuer_and_error_come_along(tmp_path: Path) -> None:
    table = table_of(open_source(sample_file(tmp_path, by_name("blkparse"))))
    assert table["comm"].to_pylist() == ["kjournald", "fio", "my proc"]
    assert table["pid"].to_pylist() == [697, 700, 700]
    assert table["flags"].to_pylist()[2] == FLAG_READAHEAD
    assert table["error"].to_pylist() == [0, 0, -5]
    table = table_of(open_source(sample_file(tmp_path, by_name("bpftrace"))))
    assert table["flags"].to_pylist() == [FLAG_SYNC, 0, 32, FLAG_READAHEAD | FLAG_META]
    perf = next(s for s in SAMPLES if "block:block" in s.text)
    table = table_of(open_source(sample_file(tmp_path, perf)))
    assert (table["pid"].to_pylist(), table["error"].to_pylist()) == ([44], [-5])
    assert table["comm"].to_pylist() == ["kworker/1:1H"]


def test_what_the_source_does_not_know_is_null(tmp_path: Path) -> None:
    table = table_of(open_source(sample_file(tmp_path, by_name("msr"))))
    assert table["pid"].null_count == table["comm"].null_count == 2


def test_clocks_of_the_sources(tmp_path: Path) -> None:
    def meta(name: str):  # type: ignore[no-untyped-def]
        source = open_source(sample_file(tmp_path, by_name(name)))
        table_of(source)
        return source.meta

    assert meta("msr").started == "2007-02-22T17:00:00.306162900Z"
    assert meta("msr").host == "hm"
    assert meta("alibaba").started == "2019-12-31T16:00:00.000046000Z"
    assert meta("bpftrace").started is None
    assert meta("bpftrace").clock_zero_ns == 1000
    assert not meta("oplist").has_clock
    assert meta("ftrace").completions_lost == 1


def test_lost_events_of_ftrace_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_text(by_name("ftrace").text + "CPU:1 [LOST 17 EVENTS]\n")
    source = open_source(path)
    table_of(source)
    assert source.meta.events_lost == 17


def test_blkparse_without_issues_uses_queue_events(tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_text(
        "  8,0    3        1     0.5   697  Q   W 8 + 8 [a]\n"
        "  8,0    3        2     0.75     0  C   W 8 + 8 [0]\n"
    )
    source = open_source(path)
    assert rows_of(table_of(source)) == [(0, W, 8, 4096, 250_000_000, 8 << 20)]
    assert source.meta.notes[0].startswith("no D events")
    path.write_text("  8,0    3        2     0.75     0  C   W 8 + 8 [0]\n")
    assert rows_of(table_of(open_source(path))) == [(0, W, 8, 4096, None, 8 << 20)]
    path.write_text("  8,0    3        2     0.75     0  G   W 8 + 8 [x]\n")
    with pytest.raises(UsageError, match="no D, Q or C events"):
        table_of(open_source(path))


def test_unaligned_extents_are_widened_and_said(tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_text("100,1000,W\n512,512,R\n")
    source = open_source(path)
    assert rows_of(table_of(source)) == [(0, W, 0, 1536, None, 0), (1, 0, 1, 512, None, 0)]
    assert "1 requests were widened to whole 512-byte sectors" in source.meta.notes


def test_read_oplist_keeps_snaps_and_bytes(tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_text("offset,length,op\n3,0,SNAP\n100,1000,W\n0,4096,D\n")
    offset, length, op = next(iter(read_oplist(path)))
    assert (offset.tolist(), length.tolist(), op.tolist()) == (
        [3, 100, 0],
        [0, 1000, 4096],
        [6, 1, 2],
    )
    assert (str(offset.dtype), str(length.dtype), str(op.dtype)) == ("uint64", "uint64", "uint8")


def test_several_hosts_of_msr_become_major_numbers(tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_text("128166372003061629,a,1,Read,0,512,1\n128166372003061630,b,1,Read,0,512,1\n")
    source = open_source(path)
    assert table_of(source)["dev"].to_pylist() == [1, 1 << 20 | 1]
    assert source.meta.notes == ["the major number of dev is the host: 0 a, 1 b"]


def vscsi(records: list[tuple[int, int, int, int]]) -> bytes:
    return b"".join(
        struct.pack("<IIIHHQQ", number, size, 1, command, 256, lbn, time_us)
        for number, (time_us, command, lbn, size) in enumerate(records)
    )


def test_vscsi_records(tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_bytes(vscsi([(5, 0x2A, 8, 4096), (9, 0x28, 0, 512), (12, 0x35, 0, 0)]))
    assert detect(path) == "vscsi"
    assert rows_of(table_of(open_source(path))) == [
        (0, 1, 8, 4096, None, 0),
        (4000, 0, 0, 512, None, 0),
        (7000, 3, 0, 0, None, 0),
    ]
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(UsageError, match="ends inside record 2: truncated"):
        table_of(open_source(path))


def test_vscsi_records_of_version_2_have_latencies(tmp_path: Path) -> None:
    path = tmp_path / "input"
    records = [(5, 0x2A, 8, 4096, 150), (9, 0x88, 0, 512, 80)]
    path.write_bytes(
        b"".join(
            struct.pack("<HHIIIQQQ", command, 2 << 8, number, size, 1, lbn, time_us, response_us)
            for number, (time_us, command, lbn, size, response_us) in enumerate(records)
        )
    )
    assert detect(path) == "vscsi"
    assert rows_of(table_of(open_source(path))) == [
        (0, 1, 8, 4096, 150_000, 0),
        (4000, 0, 0, 512, 80_000, 0),
    ]
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(UsageError, match="ends inside record 1: truncated, records are 40 bytes"):
        table_of(open_source(path))


def test_vscsi_records_of_no_known_version_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_bytes(struct.pack("<IIIHHQQ", 0, 512, 1, 0x28, 3 << 8, 0, 5))
    with pytest.raises(UsageError, match="no version 1 or 2"):
        table_of(open_source(path, form="vscsi"))


def test_vscsi_blocks_hold_whole_records(tmp_path: Path) -> None:
    count = BLOCK_BYTES // 40 + 3
    records = np.zeros(count, "<u2,<u2,<u4,<u4,<u4,<u8,<u8,<u8")
    records["f0"], records["f1"], records["f3"] = 0x28, 2 << 8, 512
    records["f5"] = records["f6"] = np.arange(count)
    path = tmp_path / "input"
    path.write_bytes(records.tobytes())
    table = table_of(open_source(path))
    assert table["lba"].to_pylist() == list(range(count))


def test_formats_to_write_are_told_by_extension() -> None:
    told = {name: by_extension(Path(f"x{name}")) for name in (".parquet", ".csv", ".iolog")}
    assert told == {".parquet": "parquet", ".csv": "csv", ".iolog": "fio"}
    assert by_extension(Path("a.trace")) == "mqsim"
    with pytest.raises(UsageError, match=r"\.blkparse, \.csv"):
        by_extension(Path("x.unknown"))


def test_a_failed_conversion_leaves_nothing(tmp_path: Path) -> None:
    path = sample_file(tmp_path, by_name("msr"))
    path.write_text(path.read_text() + "bad\n")
    for target in ("out.parquet", "out.csv", "out.blkparse"):
        with pytest.raises(UsageError, match="input:3"):
            convert(path, tmp_path / target, form="msr")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["input"]


def test_outputs_are_not_overwritten_unasked(tmp_path: Path) -> None:
    path = sample_file(tmp_path, by_name("msr"))
    target = tmp_path / "out.parquet"
    convert(path, target)
    before = read_rows(target)
    with pytest.raises(UsageError, match="exists"):
        convert(path, target)
    with pytest.raises(UsageError, match="both input and output"):
        convert(target, target, overwrite=True)
    convert(path, target, overwrite=True)
    assert read_rows(target) == before
