"""Separated columns through pyarrow's CSV reader and writer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from harness.trace.formats.base import BadLine

INT = pa.int64()
UINT = pa.uint64()
TEXT = pa.dictionary(pa.int32(), pa.string())
SECONDS = pa.decimal128(38, 9)
"""Decimal seconds, read without rounding to nanoseconds (``nanoseconds``)."""
_FINE_SECONDS = pa.decimal128(38, 18)
_BLANKS = bytes.maketrans(b"\t\r", b"  ")


def parse_columns(
    block: bytes, columns: Mapping[str, pa.DataType], *, separator: str = ","
) -> pa.RecordBatch:
    """``block`` (whole lines) as typed columns in that order; BadLine if a line does not fit."""
    try:
        table = _read(block, columns, separator)
    except pa.ArrowInvalid as error:
        if "data loss" not in str(error):
            raise BadLine(_reason(str(error), list(columns))) from None
        fine = {n: _FINE_SECONDS if kind == SECONDS else kind for n, kind in columns.items()}
        return parse_columns(block, fine, separator=separator)
    table = table.unify_dictionaries().combine_chunks()
    return table.to_batches()[0] if table.num_rows else pa.RecordBatch.from_pylist([], table.schema)


def _read(block: bytes, columns: Mapping[str, pa.DataType], separator: str) -> pa.Table:
    return pacsv.read_csv(
        pa.BufferReader(block),
        read_options=pacsv.ReadOptions(column_names=list(columns)),
        parse_options=pacsv.ParseOptions(delimiter=separator, quote_char=False),
        convert_options=pacsv.ConvertOptions(
            column_types=columns, null_values=[], strings_can_be_null=False
        ),
    )


def _reason(message: str, names: list[str]) -> str:
    count = re.search(r"Expected (\d+) columns, got (\d+)", message)
    if count:
        return f"expected {count[1]} columns, got {count[2]}"
    column = re.search(r"In CSV column #(\d+): (?:Row #\d+: )?(.*)", message, re.DOTALL)
    if column:
        detail = column[2].split("\n")[0].removeprefix("CSV conversion error to ")
        return f"column {names[int(column[1])]}: {detail}"
    return message.split("\n")[0]


def single_spaces(block: bytes) -> bytes:
    """Columns separated by any blanks as columns separated by one space, line for line."""
    if b"\t" in block or b"\r" in block:
        block = block.translate(_BLANKS)
    while b"  " in block:
        block = block.replace(b"  ", b" ")
    return block.replace(b" \n", b"\n").replace(b"\n ", b"\n").removeprefix(b" ")


def nanoseconds(column: pa.Array) -> npt.NDArray[np.int64]:
    """A ``SECONDS`` column as int64 ns (finer digits are cut off)."""
    if column.type != SECONDS:
        column = column.cast(SECONDS, safe=False)
    words = np.frombuffer(column.buffers()[1], np.int64).reshape(-1, 2)
    return words[column.offset : column.offset + len(column), 0].copy()


def seconds_text(ts_ns: npt.NDArray[np.int64]) -> pa.Array:
    """Nanoseconds (not negative) as text ``12.000000345``."""
    whole = pa.array(ts_ns // 1_000_000_000).cast(pa.string())
    fraction = pc.utf8_lpad(pa.array(ts_ns % 1_000_000_000).cast(pa.string()), 9, "0")
    return pc.binary_join_element_wise(whole, fraction, ".")


def decode(column: pa.DictionaryArray, values: Mapping[str, int], what: str) -> npt.NDArray[Any]:
    """Text column -> int64 codes by ``values``, blanks around the text aside."""
    texts = [text.strip() for text in column.dictionary.to_pylist()]
    unknown = [text for text in texts if text not in values]
    if unknown:
        known = ", ".join(values)
        raise BadLine(f"{what} {unknown[0]!r} is none of {known}")
    codes = np.array([values[text] for text in texts], np.int64)
    return codes[column.indices.to_numpy()]


class CsvOut:
    """Write batches of equal columns as separated text, in the order of the schema."""

    def __init__(
        self, path: Path, schema: pa.Schema, *, separator: str = ",", header: bool = True
    ) -> None:
        self._file = path.open("wb")
        self._schema = schema
        self._options = pacsv.WriteOptions(
            include_header=False, delimiter=separator, quoting_style="none", batch_size=65_536
        )
        if header:
            self.line(separator.join(schema.names))

    def __enter__(self) -> CsvOut:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def line(self, text: str) -> None:
        """Append one line as it is."""
        self._file.write(text.encode() + b"\n")

    def lines(self, texts: pa.Array) -> None:
        """Append finished lines, one a text."""
        ended = pc.binary_join_element_wise(texts, "", "\n")
        if len(ended):
            _, offsets, data = ended.buffers()
            bounds = np.frombuffer(offsets, np.int32)
            first, last = bounds[ended.offset], bounds[ended.offset + len(ended)]
            self._file.write(memoryview(data)[first:last])

    def write(self, columns: Sequence[Any]) -> None:
        """Append one batch: an array a column, cast to the schema."""
        arrays = [
            (column if isinstance(column, pa.Array) else pa.array(column)).cast(field.type)
            for column, field in zip(columns, self._schema, strict=True)
        ]
        sink = pa.BufferOutputStream()
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        pacsv.write_csv(batch, sink, self._options)
        self._file.write(sink.getvalue())


def numbers(batch: pa.RecordBatch, *names: str) -> Iterator[npt.NDArray[Any]]:
    """Columns without nulls as numpy arrays."""
    for name in names:
        yield batch.column(name).to_numpy(zero_copy_only=False)
