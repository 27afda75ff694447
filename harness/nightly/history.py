"""The history: Parquet segments in one folder, one a night, whole or not there.

Several processes may append, read and pack at once without a lock, because no file is ever
changed: a night is written beside its final name, flushed, and linked to it, which fails where
the name exists. Packing writes the union of small segments first and removes them afterwards;
a crash in between leaves nights twice, and readers take each night once. DuckDB reads the
folder as ``'results/history/*.parquet'``; its own file would refuse a second process.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from harness.core.errors import MachineError, UsageError
from harness.core.files import whole_file
from harness.nightly.nights import SOFTWARE, Metric, Night

SCHEMA = pa.schema(
    [
        ("started", pa.timestamp("us", "UTC")),
        ("run", pa.string()),
        ("host", pa.string()),
        ("job", pa.string()),
        ("device", pa.string()),
        ("good", pa.bool_()),
        *((name, pa.string()) for name in SOFTWARE),
        ("metric", pa.string()),
        ("value", pa.float64()),
        ("unit", pa.string()),
        ("better", pa.int8()),
    ],
    metadata={"kvflash_history": "1"},
)
"""One row a figure; a night without figures is one row whose ``metric`` is null."""

PACK_SEGMENTS = 32
"""As many one-night segments are joined into one: 2,000 small files would be slow to open."""

_ATTEMPTS = 20


class History:
    """The segments in ``folder``, which need not exist before the first night."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def append(self, night: Night) -> bool:
        """Add a night; False if that run of that host is already there. MachineError when full."""
        table = _rows(night)
        final = self.folder / f"night-{_segment_name(night)}.parquet"
        if self._holds(night):
            return False
        try:
            added = _write(table, final)
        except OSError as error:
            raise MachineError(f"cannot write {final}: {error.strerror}") from error
        loose = self._segments("night-")
        if len(loose) >= PACK_SEGMENTS:
            self._pack(loose)
        return added

    def table(self) -> pa.Table:
        """All rows by time, each night once; UsageError names a segment that is not one."""
        for _ in range(_ATTEMPTS):
            with suppress(FileNotFoundError):  # packed away between the listing and the reading
                return self._read()
        raise MachineError(f"{self.folder} changes faster than it can be read")

    def nights(self) -> list[Night]:
        """All nights, the oldest first."""
        return _nights(self.table())

    def table_of(self, kept: set[tuple[str, str]]) -> pa.Table:
        """The rows of those (run, host)."""
        table = self.table()
        pairs = zip(table["run"].to_pylist(), table["host"].to_pylist(), strict=True)
        return table.filter(pa.array([pair in kept for pair in pairs], pa.bool_()))

    def night(self, run: str) -> Night:
        """The night of run ``run`` (or the only one that begins so); UsageError otherwise."""
        table = self.table()
        names = pc.unique(table["run"]).to_pylist()
        found = [run] if run in names else [name for name in names if name.startswith(run)]
        if len(found) != 1:
            what = "is in no night" if not found else f"fits {len(found)} nights"
            raise UsageError(f"run {run!r} {what} of {self.folder}", fix="harness nightly history")
        nights = _nights(table.filter(pc.equal(table["run"], found[0])))
        if len(nights) != 1:
            raise UsageError(f"run {run!r} was recorded from {len(nights)} hosts")
        return nights[0]

    def _segments(self, prefix: str = "") -> list[Path]:
        return sorted(self.folder.glob(f"{prefix or '[np]'}*.parquet"))

    def _read(self) -> pa.Table:
        parts = [_read_segment(path) for path in self._segments()]
        if not parts:
            return SCHEMA.empty_table()
        return _once(pa.concat_tables(parts))

    def _holds(self, night: Night) -> bool:
        table = self.table()
        same = pc.and_(pc.equal(table["run"], night.run), pc.equal(table["host"], night.host))
        return bool(pc.any(same).as_py())

    def _pack(self, loose: list[Path]) -> None:
        try:
            joined = _once(pa.concat_tables([_read_segment(path) for path in loose]))
        except FileNotFoundError:
            return  # somebody else is packing them
        digest = hashlib.sha256("\n".join(path.name for path in loose).encode()).hexdigest()[:16]
        _write(joined, self.folder / f"pack-{loose[0].stem[6:29]}-{digest}.parquet")
        for path in loose:
            path.unlink(missing_ok=True)


def export(table: pa.Table, path: Path) -> None:
    """Write a history as CSV or Parquet, by the ending of ``path``; UsageError for another."""
    if path.suffix == ".csv":
        from pyarrow.csv import write_csv

        with whole_file(path) as temporary:
            write_csv(table, temporary)
    elif path.suffix == ".parquet":
        with whole_file(path) as temporary:
            pq.write_table(table, temporary, compression="zstd")
    else:
        raise UsageError(f"cannot export to {path}: expected a name in .csv or .parquet")


def _segment_name(night: Night) -> str:
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{night.run}@{night.host}")[:160]
    digest = hashlib.sha256(f"{night.run}\0{night.host}".encode()).hexdigest()[:12]
    return f"{night.started:%Y%m%dT%H%M%S.%f}Z-{readable}-{digest}"


def _write(table: pa.Table, final: Path) -> bool:
    """Write ``final`` whole and durably; False if it was there."""
    final.parent.mkdir(parents=True, exist_ok=True)
    temporary = final.parent / f".{os.getpid()}-{os.urandom(6).hex()}.tmp"
    try:
        pq.write_table(table, temporary, compression="zstd")
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        try:
            os.link(temporary, final)
        except FileExistsError:
            return False
    finally:
        temporary.unlink(missing_ok=True)
    folder = os.open(final.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return True


def _read_segment(path: Path) -> pa.Table:
    try:
        with pq.ParquetFile(path) as file:
            table = file.read()
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise UsageError(f"{path} is not a segment of a history: {error}") from error
    if not table.schema.equals(SCHEMA):
        raise UsageError(f"{path} is not a segment of a history: its columns differ")
    return table.replace_schema_metadata(None)


def _once(table: pa.Table) -> pa.Table:
    """Rows by time, run, host and metric, each once."""
    keys = [(name, "ascending") for name in ("started", "run", "host", "metric")]
    table = table.sort_by(keys)
    if len(table) < 2:
        return table
    same = pa.array([True] * (len(table) - 1))
    for name, _ in keys:
        column = table[name].combine_chunks()
        before, after = column.slice(0, len(column) - 1), column.slice(1)
        equal = pc.fill_null(pc.equal(before, after), False)
        both_null = pc.and_(pc.is_null(before), pc.is_null(after))
        same = pc.and_(same, pc.or_(equal, both_null))
    first = pa.array([True])
    kept = pa.chunked_array([first, pc.invert(same)]).combine_chunks()
    return table.filter(kept)


def _rows(night: Night) -> pa.Table:
    fixed = {
        "started": night.started, "run": night.run, "host": night.host, "job": night.job,
        "device": night.device, "good": night.good, **night.software,
    }  # fmt: skip
    figures: Iterable[dict[str, object]] = [
        {"metric": m.name, "value": m.value, "unit": m.unit, "better": m.better}
        for m in night.metrics
    ] or [{"metric": None, "value": None, "unit": None, "better": None}]
    return pa.Table.from_pylist([{**fixed, **figure} for figure in figures], SCHEMA)


def _nights(table: pa.Table) -> list[Night]:
    columns = {name: table[name].to_pylist() for name in table.column_names if name != "started"}
    started = pc.cast(table["started"], pa.int64()).to_pylist()
    figures: dict[tuple[str, str], list[Metric]] = {}
    firsts: dict[tuple[str, str], int] = {}
    for row, key in enumerate(zip(columns["run"], columns["host"], strict=True)):
        firsts.setdefault(key, row)
        found = figures.setdefault(key, [])
        if columns["metric"][row] is not None:
            found.append(
                Metric(*(columns[name][row] for name in ("metric", "value", "unit", "better")))
            )
    return [
        Night(
            run=key[0],
            host=key[1],
            started=datetime.fromtimestamp(started[row] / 1e6, UTC),
            job=columns["job"][row],
            device=columns["device"][row],
            good=columns["good"][row],
            software={name: columns[name][row] for name in SOFTWARE},
            metrics=tuple(figures[key]),
        )
        for key, row in firsts.items()
    ]
