"""Columns of kernel flag strings as operations and flag bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from harness.core.ops import Op
from harness.trace.formats.base import BadLine
from harness.trace.formats.scan import unpack
from harness.trace.rwbs import parse_rwbs
from harness.trace.schema import FLAG_PREFLUSH

OpsAndFlags = tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint16]]


def decode_rwbs(column: pa.DictionaryArray, size_bytes: npt.NDArray[Any]) -> OpsAndFlags:
    """(uint8 ``Op`` codes, uint16 flags) of a dictionary column; BadLine for another string."""
    texts = [text.strip() for text in column.dictionary.to_pylist()]
    return _decode(texts, column.indices.to_numpy(), size_bytes)


def decode_packed(words: npt.NDArray[np.uint64], size_bytes: npt.NDArray[Any]) -> OpsAndFlags:
    """The same for strings packed into uint64 by ``scan.packed``."""
    index, distinct = pd.factorize(words)
    return _decode([unpack(word) for word in distinct], index, size_bytes)


def _decode(texts: list[str], index: npt.NDArray[Any], size_bytes: npt.NDArray[Any]) -> OpsAndFlags:
    try:
        parsed = [parse_rwbs(text) for text in texts]
    except ValueError as error:
        raise BadLine(str(error)) from None
    ops = np.array([op for op, _ in parsed], np.uint8)[index]
    flags = np.array([bits for _, bits in parsed], np.uint16)[index]
    return without_carriers(ops, flags, size_bytes), flags


def without_carriers(
    ops: npt.NDArray[np.uint8], flags: npt.NDArray[np.uint16], size_bytes: npt.NDArray[Any]
) -> npt.NDArray[np.uint8]:
    """Operations with empty pre-flush requests (FW, FN: carriers of a flush) as flushes."""
    carrier = (size_bytes == 0) & (flags & FLAG_PREFLUSH != 0)
    return np.where(carrier, np.uint8(Op.FLUSH), ops)
