"""Compiled helpers for texts whose columns no CSV reader can split.

All work on a block of bytes (uint8 array). Positions are indices into it; -1 means that what
was looked for is not there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from harness.trace.jit import kernel

SPACE, TAB, RETURN, NEWLINE = 32, 9, 13, 10
_FNV_OFFSET = np.uint64(0xCBF29CE484222325)
_FNV_PRIME = np.uint64(0x100000001B3)


@kernel
def skip_blanks(text: Any, at: int, end: int) -> int:
    """Position of the first byte from ``at`` that is no blank, ``end`` if all are."""
    while at < end and (text[at] == SPACE or text[at] == TAB or text[at] == RETURN):
        at += 1
    return at


@kernel
def skip_word(text: Any, at: int, end: int) -> int:
    """Position after the word that starts at ``at``."""
    while at < end and not (text[at] == SPACE or text[at] == TAB or text[at] == RETURN):
        at += 1
    return at


@kernel
def number(text: Any, at: int, end: int) -> tuple[Any, int]:
    """(decimal number at ``at`` as uint64, position after it), position -1 without a digit."""
    value = np.uint64(0)
    start = at
    while at < end and 48 <= text[at] <= 57:
        value = value * np.uint64(10) + np.uint64(text[at] - 48)
        at += 1
    return value, (at if start < at <= start + 20 else -1)


@kernel
def seconds(text: Any, at: int, end: int) -> tuple[Any, int]:
    """(decimal seconds at ``at`` as int64 ns, position after them), position -1 if none."""
    whole, at = number(text, at, end)
    if at < 0 or at >= end or text[at] != 46:
        return 0, -1
    at += 1
    start, fraction, scale = at, 0, 100_000_000
    while at < end and 48 <= text[at] <= 57:
        fraction += (text[at] - 48) * scale
        scale //= 10
        at += 1
    return np.int64(whole) * 1_000_000_000 + fraction, (at if at > start else -1)


@kernel
def packed(text: Any, start: int, end: int) -> Any:
    """Up to eight bytes as one uint64, 0 for longer or empty words."""
    if end - start > 8:
        return np.uint64(0)
    value = np.uint64(0)
    for at in range(start, end):
        value |= np.uint64(text[at]) << np.uint64(8 * (at - start))
    return value


@kernel
def hashed(text: Any, start: int, end: int) -> Any:
    """64-bit FNV-1a hash of a word."""
    value = _FNV_OFFSET
    for at in range(start, end):
        value = (value ^ np.uint64(text[at])) * _FNV_PRIME
    return value


@kernel
def line_end(text: Any, at: int) -> int:
    """Position of the newline at or after ``at`` (blocks end with one)."""
    while text[at] != NEWLINE:
        at += 1
    return at


def unpack(word: Any) -> str:
    """Inverse of ``packed``."""
    return int(word).to_bytes(8, "little").rstrip(b"\0").decode("utf-8", errors="replace")


def words_column(
    block: bytes,
    hashes: npt.NDArray[np.uint64],
    start: npt.NDArray[np.int64],
    end: npt.NDArray[np.int64],
) -> pa.DictionaryArray:
    """Words of ``block`` at [start, end) as a dictionary column, by their hashes (one each).

    An empty word is null.
    """
    codes, _ = pd.factorize(hashes)
    example = np.zeros(int(codes.max(initial=-1)) + 1, np.int64)
    example[codes[::-1]] = np.arange(len(codes))[::-1]
    words = [block[start[i] : end[i]].decode("utf-8", errors="replace") for i in example]
    empty = start == end
    indices = pa.array(codes, pa.int32(), mask=empty)
    return pa.DictionaryArray.from_arrays(indices, pa.array(words, pa.string()))
