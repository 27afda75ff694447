"""Between numpy arrays and the columns of a trace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from harness.core.ops import PAGE_BYTES, SECTOR_BYTES
from harness.trace.schema import OP_DICTIONARY, trace_schema

_SECTORS_PER_PAGE = np.uint64(PAGE_BYTES // SECTOR_BYTES)
_ONE = np.uint64(1)

REQUIRED_INPUTS = ("ts_ns", "op", "lba", "bytes")


def pages_touched(lba: npt.NDArray[np.uint64], size: npt.NDArray[np.uint64]) -> npt.NDArray[Any]:
    """4 KiB pages (uint32) that requests touch: ``lba`` in sectors, ``size`` in bytes."""
    sectors = (size + np.uint64(SECTOR_BYTES - 1)) // np.uint64(SECTOR_BYTES)
    last = (lba + np.maximum(sectors, _ONE) - _ONE) // _SECTORS_PER_PAGE
    pages = last - lba // _SECTORS_PER_PAGE + _ONE
    return np.where(size == 0, np.uint64(0), pages).astype(np.uint32)


def op_column(codes: npt.NDArray[Any]) -> pa.DictionaryArray:
    """``Op`` codes (any integer dtype, 0-5) as the trace's operation column."""
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int8)), OP_DICTIONARY)


def op_codes(column: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.uint8]:
    """The operation column of a batch or table as ``Op`` codes (uint8)."""
    if isinstance(column, pa.ChunkedArray):
        parts = [op_codes(chunk) for chunk in column.chunks]
        return np.concatenate(parts) if parts else np.empty(0, np.uint8)
    if column.dictionary.equals(OP_DICTIONARY):
        return column.indices.to_numpy(zero_copy_only=False).astype(np.uint8)
    codes = pa.compute.index_in(column.cast(pa.string()), OP_DICTIONARY)
    return codes.to_numpy(zero_copy_only=False).astype(np.uint8)


def latencies(column: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """A latency column as int64 nanoseconds, -1 where no completion was seen."""
    return np.asarray(column.fill_null(-1).to_numpy(zero_copy_only=False), dtype=np.int64)


def batch_from_arrays(arrays: Mapping[str, Any], optional: tuple[str, ...] = ()) -> pa.RecordBatch:
    """A record batch of the trace schema from numpy (or arrow) arrays of one length.

    Needs ``ts_ns``, ``op`` (``Op`` codes), ``lba`` and ``bytes``; ``pages`` is computed where
    absent, a negative ``latency_ns`` means none, and every other absent column is 0 or null.
    ValueError for a column that the schema does not have.
    """
    missing = [name for name in REQUIRED_INPUTS if name not in arrays]
    if missing:
        raise ValueError(f"a trace batch needs {', '.join(missing)}")
    schema = trace_schema(optional)
    unknown = [name for name in arrays if name not in schema.names]
    if unknown:
        raise ValueError(f"not a column of this trace: {', '.join(unknown)}")
    rows = len(arrays["ts_ns"])
    return pa.RecordBatch.from_arrays(
        [_column(field, arrays, rows) for field in schema], schema=schema
    )


def _column(field: pa.Field, arrays: Mapping[str, Any], rows: int) -> pa.Array:
    values = arrays.get(field.name)
    if values is None:
        return _absent(field, arrays, rows)
    if isinstance(values, pa.Array):
        return values.cast(field.type)
    if field.name == "op":
        return op_column(values)
    if field.name == "latency_ns":
        return pa.array(values, pa.int64(), mask=np.asarray(values) < 0)
    if pa.types.is_dictionary(field.type):
        return pa.array(values, pa.string()).dictionary_encode().cast(field.type)
    return pa.array(np.asarray(values).astype(field.type.to_pandas_dtype(), copy=False), field.type)


def _absent(field: pa.Field, arrays: Mapping[str, Any], rows: int) -> pa.Array:
    if field.name == "pages":
        lba, size = (np.asarray(arrays[name], dtype=np.uint64) for name in ("lba", "bytes"))
        return pa.array(pages_touched(lba, size))
    if field.nullable:
        return pa.nulls(rows, field.type)
    return pa.array(np.zeros(rows, dtype=field.type.to_pandas_dtype()), field.type)
