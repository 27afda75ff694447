"""Reading text files line by line, compressed or not, with the line's number for errors."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa

from harness.core.errors import UsageError


def open_bytes(path: Path) -> BinaryIO:
    """The file's content, unpacked if its name ends in .gz or .zst."""
    try:
        if path.suffix == ".gz":
            return cast(BinaryIO, gzip.open(path, "rb"))
        if path.suffix == ".zst":
            return cast(
                BinaryIO, io.BufferedReader(pa.CompressedInputStream(pa.OSFile(str(path)), "zstd"))
            )
        return path.open("rb")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error


def lines(path: Path) -> Iterator[tuple[str, str]]:
    """("file:line", text without its end) for each line that is not empty."""
    with open_bytes(path) as file:
        number = 0
        try:
            for raw in file:
                number += 1
                text = raw.decode("utf-8").strip()
                if text:
                    yield f"{path}:{number}", text
        except (OSError, EOFError) as error:
            raise UsageError(f"{path}:{number + 1}: cannot be unpacked: {error}") from error
        except UnicodeDecodeError as error:
            raise UsageError(f"{path}:{number}: not UTF-8 text") from error


def not_json(where: str, error: ValueError) -> UsageError:
    """The error that text is no JSON, at a file's line or so."""
    return UsageError(
        f"{where}: truncated or not JSON: {error}",
        fix="copy the file again, or remove what was cut off",
    )


def json_objects(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """("file:line", object) for each line of a JSONL file; UsageError names the line."""
    for where, text in lines(path):
        try:
            data = json.loads(text)
        except ValueError as error:
            raise not_json(where, error) from error
        if not isinstance(data, dict):
            raise UsageError(f"{where}: expected an object, got {type(data).__name__}")
        yield where, data
