"""Opening foreign trace files: compression, the first lines, blocks of whole lines."""

from __future__ import annotations

import lzma
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from harness.core.errors import UsageError
from harness.core.progress import Progress, quiet

HEAD_BYTES = 65_536
BLOCK_BYTES = 8 << 20

_MAGICS = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bz2", b"\xfd7zXZ\x00": "xz"}
_COMPRESSED_SUFFIXES = {".gz", ".zst", ".bz2", ".xz"}


@dataclass(frozen=True)
class Head:
    """The beginning of a file, decompressed: what formats are recognised by."""

    path: Path
    data: bytes
    size_bytes: int
    """Size on disk, compressed or not."""

    @property
    def name(self) -> str:
        """File name in lower case without a compression suffix."""
        plain = self.path.with_suffix("") if self.path.suffix in _COMPRESSED_SUFFIXES else self.path
        return plain.name.lower()

    @cached_property
    def lines(self) -> list[str]:
        """The first lines that are not blank, without their ends; empty for a binary file."""
        if b"\0" in self.data:
            return []
        text = self.data.decode("utf-8", errors="replace")
        lines = text.splitlines()
        if len(self.data) == HEAD_BYTES:
            lines = lines[:-1]
        return [line for line in lines if line.strip()][:50]

    def mostly(self, test: Callable[[str], bool], *, header: str | None = None) -> bool:
        """Whether more than half of the first lines pass, a first one like ``header`` aside."""
        lines = [line.strip() for line in self.lines]
        if lines and header is not None and re.fullmatch(header, lines[0], re.IGNORECASE):
            return len(lines) == 1 or self._passing(lines[1:], test)
        return self._passing(lines, test)

    def mostly_match(self, pattern: str, *, header: str | None = None) -> bool:
        """``mostly`` by a regular expression for a whole line."""
        compiled = re.compile(pattern)
        return self.mostly(lambda line: compiled.fullmatch(line) is not None, header=header)

    @staticmethod
    def _passing(lines: list[str], test: Callable[[str], bool]) -> bool:
        return 2 * sum(map(test, lines)) > len(lines)


def read_head(path: Path) -> Head:
    """The head of ``path``; UsageError when it is absent, empty or not readable."""
    with open_bytes(path) as stream:
        data = _read_up_to(stream, HEAD_BYTES, path)
    if not data:
        raise UsageError(f"{path} is empty")
    return Head(path, data, path.stat().st_size)


@contextmanager
def open_bytes(path: Path, progress: Progress = quiet) -> Iterator[IO[bytes]]:
    """``path`` decompressed as its first bytes say; progress counts bytes of the file on disk."""
    try:
        raw = path.open("rb")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    with raw:
        magic = raw.read(6)
        raw.seek(0)
        kind = next((name for start, name in _MAGICS.items() if magic.startswith(start)), None)
        counted: Any = _Counted(raw, os.fstat(raw.fileno()).st_size, progress)
        if kind is None:
            yield counted
        elif kind == "xz":
            with lzma.open(counted) as stream:
                yield stream
        else:
            with pa.CompressedInputStream(pa.PythonFile(counted, mode="r"), kind) as stream:
                yield stream


class _Counted:
    """A binary file that reports how far it has been read."""

    closed = False

    def __init__(self, raw: IO[bytes], size_bytes: int, progress: Progress) -> None:
        self._raw, self._size_bytes, self._progress = raw, size_bytes, progress

    def read(self, size: int = -1) -> bytes:
        data = self._raw.read(size)
        self._progress(self._raw.tell(), self._size_bytes)
        return data

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        self.closed = True


def _read_up_to(stream: IO[bytes], size: int, path: Path) -> bytes:
    """``size`` bytes, fewer only at the end of the file; a damaged archive is a UsageError."""
    parts = []
    try:
        while size > 0 and (part := stream.read(size)):
            parts.append(part)
            size -= len(part)
    except (OSError, EOFError, lzma.LZMAError, pa.ArrowException) as error:
        raise UsageError(f"{path}: damaged or truncated compressed data: {error}") from error
    return b"".join(parts)


def byte_blocks(path: Path, progress: Progress = quiet, size: int = BLOCK_BYTES) -> Iterator[bytes]:
    """The decompressed file in blocks of ``size`` bytes, the last one shorter."""
    with open_bytes(path, progress) as stream:
        while block := _read_up_to(stream, size, path):
            yield block


def line_blocks(path: Path, progress: Progress = quiet) -> Iterator[tuple[int, bytes]]:
    """Blocks of whole lines, each with the number (from 1) of its first line."""
    rest, line = b"", 1
    for block in byte_blocks(path, progress):
        cut = block.rfind(b"\n") + 1
        if cut == 0:
            rest += block
            if len(rest) > 2 * BLOCK_BYTES:
                raise UsageError(f"{path}:{line}: no line end within {len(rest)} bytes: not text")
            continue
        whole, rest = rest + block[:cut], block[cut:]
        yield line, whole
        line += whole.count(b"\n")
    if rest:
        yield line, rest + b"\n"
