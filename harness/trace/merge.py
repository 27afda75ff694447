"""Several traces - devices or hosts - as one, on one clock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from harness.core.errors import UsageError
from harness.trace.clock import Align, common_offsets
from harness.trace.merging import merge_streams
from harness.trace.schema import OPTIONAL, SCHEMA, TraceMeta, trace_schema
from harness.trace.source import Source

_WORST = ("LOSSLESS", "UNKNOWN", "LOSSY")


class MergedTrace:
    """All rows of ``sources`` in time order; equal times in the order of the sources.

    Where two sources name the same device number, all devices are renumbered: the major number
    is the source's position, the minor counts its devices; the notes say which is which.
    """

    def __init__(self, sources: Sequence[Source], align: Align = "auto") -> None:
        if len(sources) < 2:
            raise UsageError("merging needs two traces or more")
        self.path: Path = sources[0].path
        self._sources = list(sources)
        devices = [_devices(source) for source in sources]
        metas = [source.meta for source in sources]
        self._offsets_ns, clock = common_offsets(metas, align)
        self._numbers = _numbers(devices)
        self.columns: list[str] = _columns(sources)
        self._schema = trace_schema(tuple(name for name in self.columns if name in OPTIONAL))
        notes = _device_notes(sources, self._numbers)
        self.meta: TraceMeta = _merged_meta(metas, self._offsets_ns, clock, notes)

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The merged rows."""
        streams = [self._stream(number) for number in range(len(self._sources))]
        for batch in merge_streams(streams):
            yield batch if columns is None else batch.select(list(columns))

    def _stream(self, number: int) -> Iterator[pa.RecordBatch]:
        source, numbers = self._sources[number], self._numbers[number]
        known = np.array(sorted(numbers), np.uint32)
        new = np.array([numbers[int(dev)] for dev in known], np.uint32)
        for batch in source.batches():
            columns = {name: batch.column(name) for name in batch.schema.names}
            ts_ns = batch.column("ts_ns").to_numpy() + self._offsets_ns[number]
            columns["ts_ns"] = pa.array(ts_ns)
            dev = batch.column("dev").to_numpy()
            columns["dev"] = pa.array(new[np.searchsorted(known, dev)])
            arrays = [
                columns[field.name]
                if field.name in columns
                else pa.nulls(batch.num_rows, field.type)
                for field in self._schema
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _devices(source: Source) -> list[int]:
    """Device numbers of a source; reads it once, which also completes its metadata."""
    found: set[int] = set()
    for batch in source.batches(["dev"]):
        found |= set(np.unique(batch.column("dev").to_numpy()).tolist())
    return sorted(found)


def _numbers(devices: list[list[int]]) -> list[dict[int, int]]:
    """New number of each device of each source; unchanged where no two sources share one."""
    everything = [dev for each in devices for dev in each]
    if len(set(everything)) == len(everything):
        return [{dev: dev for dev in each} for each in devices]
    return [
        {dev: position << 20 | minor for minor, dev in enumerate(each)}
        for position, each in enumerate(devices)
    ]


def _columns(sources: Sequence[Source]) -> list[str]:
    present = {name for source in sources for name in source.columns}
    return [*SCHEMA.names, *(name for name in OPTIONAL if name in present)]


def _device_notes(sources: Sequence[Source], numbers: list[dict[int, int]]) -> list[str]:
    return [
        f"dev {new >> 20}:{new & 0xFFFFF} is {old >> 20}:{old & 0xFFFFF} of {source.path.name}"
        for source, each in zip(sources, numbers, strict=True)
        for old, new in each.items()
        if old != new
    ]


def _merged_meta(
    metas: Sequence[TraceMeta], offsets_ns: Sequence[int], clock: str, notes: list[str]
) -> TraceMeta:
    first = metas[offsets_ns.index(0)]
    verdicts = [meta.verdict for meta in metas]
    hosts = sorted({meta.host for meta in metas if meta.host is not None})
    worst = max((v for v in verdicts if v is not None), key=_WORST.index, default=None)
    if None in verdicts and worst is not None:
        worst = max(worst, "UNKNOWN", key=_WORST.index)
    same_device = all(meta.device == metas[0].device for meta in metas)
    said = [note for meta in metas for note in meta.notes]
    return TraceMeta(
        source="merge",
        device=metas[0].device if same_device else None,
        kernel=metas[0].kernel if len({meta.kernel for meta in metas}) == 1 else None,
        host=", ".join(hosts) or None,
        started=first.started,
        clock_zero_ns=first.clock_zero_ns if len(hosts) == 1 else None,
        events_seen=_sum([meta.events_seen for meta in metas]),
        events_lost=_sum([meta.events_lost for meta in metas]),
        completions_lost=_sum([meta.completions_lost for meta in metas]),
        verdict=worst,
        notes=[*dict.fromkeys(said), *notes],
        history=[
            *dict.fromkeys(step for meta in metas for step in meta.history),
            f"merge of {len(metas)} traces, aligned by: {clock}",
        ],
    )


def _sum(counts: list[int | None]) -> int | None:
    """The sum, unknown as soon as one is."""
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None
