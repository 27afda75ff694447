"""Tracepoint formats, for kernels without BTF. tracefs is mounted only while it is needed."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Iterator

_PLACES = ("/sys/kernel/tracing", "/sys/kernel/debug/tracing")


class TracefsError(Exception):
    """tracefs cannot be mounted, or has no such tracepoint."""


@contextlib.contextmanager
def mounted() -> Iterator[str]:
    """The folder of tracefs; mounted at its place for the time of the block if it was not."""
    for place in _PLACES:
        if os.path.isdir(f"{place}/events/block"):
            yield place
            return
    place = _PLACES[0]
    done = subprocess.run(
        ["mount", "-t", "tracefs", "tracefs", place], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise TracefsError(f"cannot mount tracefs: {done.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], capture_output=True, check=False)


def field_offsets(folder: str, tracepoint: str) -> dict[str, int]:
    """{"SECTOR": 16, ...}: byte offsets of a block tracepoint's arguments, by upper-case name."""
    try:
        with open(f"{folder}/events/block/{tracepoint}/format") as file:
            text = file.read()
    except OSError as error:
        raise TracefsError(f"no tracepoint block:{tracepoint}: {error.strerror}") from error
    found = re.findall(r"field:[^;]*?(\w+)(?:\[\d+\])?;\s*offset:(\d+);", text)
    return {name.upper(): int(offset) for name, offset in found}
