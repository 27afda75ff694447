"""Foreign trace formats: one module a format, one registry.

To add a format, write a module with a ``FORMAT`` and list it here.
"""

from __future__ import annotations

from pathlib import Path

from harness.core.errors import UsageError
from harness.trace.formats import (
    alibaba,
    blkparse,
    blktrace,
    bpftrace,
    cheops,
    cloudphysics,
    fio,
    fiu,
    ftrace,
    k5cloud,
    mqsim,
    msr,
    oplist,
    seed,
    tencent,
    vscsi,
)
from harness.trace.formats.base import Format
from harness.trace.formats.streams import read_head

PARQUET = "parquet"
PARQUET_SUFFIX = ".parquet"
_PARQUET_MAGIC = b"PAR1"

FORMATS: dict[str, Format] = {
    module.FORMAT.name: module.FORMAT
    for module in (
        bpftrace,
        seed,
        oplist,
        fio,
        blkparse,
        blktrace,
        ftrace,
        msr,
        alibaba,
        tencent,
        k5cloud,
        fiu,
        mqsim,
        vscsi,
        cloudphysics,
        cheops,
    )
}
"""Every foreign format by name."""


def named(name: str, *, writable: bool = False) -> str:
    """``name`` if it is a format that can be read (or written); UsageError lists them."""
    known = [PARQUET, *(f.name for f in FORMATS.values() if f.write or not writable)]
    if name not in known:
        verb = "written" if writable else "read"
        raise UsageError(f"no trace format {name!r}; {verb} are: {', '.join(sorted(known))}")
    return name


def detect(path: Path) -> str:
    """Name of the format of ``path`` by content, by extension where content fits several.

    UsageError for an empty, absent or unrecognised file.
    """
    if path.is_dir() or (not path.exists() and path.with_name(path.name + ".parts").is_dir()):
        return PARQUET
    head = read_head(path)
    if head.data.startswith(_PARQUET_MAGIC) or path.suffix == PARQUET_SUFFIX:
        return PARQUET
    fits = [each for each in FORMATS.values() if each.detect(head)]
    if len(fits) > 1:
        by_name = [each for each in fits if head.name.endswith(each.extensions)]
        fits = by_name or fits
    if not fits:
        raise UsageError(
            f"{path}: no known trace format", fix="name it with --format; harness trace convert -h"
        )
    if len(fits) > 1:
        names = " or ".join(each.name for each in fits)
        raise UsageError(f"{path} could be {names}", fix="choose one with --format")
    return fits[0].name


def by_extension(path: Path) -> str:
    """Name of the format to write to ``path``; UsageError where its extension says none."""
    if path.suffix == PARQUET_SUFFIX:
        return PARQUET
    for each in FORMATS.values():
        if each.write and path.name.endswith(each.extensions):
            return each.name
    known = {suffix for each in FORMATS.values() if each.write for suffix in each.extensions}
    raise UsageError(
        f"{path}: the extension names no format that can be written "
        f"({', '.join(sorted(known | {PARQUET_SUFFIX}))})",
        fix="choose one with --to",
    )
