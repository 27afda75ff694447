"""What a drive counted: the host's work, and the media's where it tells.

Pure data: every source (see ``counter_logs`` and ``counter_vendors``) is turned into a
``MediaTotals``; ``counter_reader`` fetches them from a drive. "No media counters" is a result
of its own, with the reason.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from harness.core.errors import MeasurementError
from harness.device.smart import DATA_UNIT_BYTES, Controller, SmartLog


@dataclass(frozen=True)
class MediaTotals:
    """Cumulative writes to the flash, and the host writes they are to be compared with.

    ``unit_bytes`` is the size of one unit, or None where the source counts NAND pages whose
    size it does not tell. ``host_units`` is None where the source has no count of its own:
    the host's side is then the SMART log's data units.
    """

    source: str
    media_units: int
    host_units: int | None
    unit_bytes: int | None
    erased_bytes: int | None = None


@dataclass(frozen=True)
class Counters:
    """One reading. ``smart`` and ``controller`` are None where the device is no NVMe drive;
    ``why_no_media`` says why ``media`` is None."""

    controller: Controller | None = None
    smart: SmartLog | None = None
    media: MediaTotals | None = None
    why_no_media: str | None = None

    @property
    def source(self) -> str:
        """Where the media counters came from, ``none`` without any."""
        return self.media.source if self.media else "none"

    def to_json(self) -> dict[str, Any]:
        """Plain data; absent parts are null, and ``source`` is always there."""
        return {"source": self.source, **asdict(self)}


@dataclass(frozen=True)
class CounterDelta:
    """What happened between two readings; None where it was not measured."""

    source: str
    host_written_bytes: int | None
    host_read_bytes: int | None
    write_commands: int | None
    read_commands: int | None
    host_units: int | None
    media_units: int | None
    unit_bytes: int | None
    erased_bytes: int | None
    waf: float | None
    why_no_waf: str | None

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def delta(before: Counters, after: Counters) -> CounterDelta:
    """Difference of two readings of one drive.

    Raises
    ------
    MeasurementError
        The two are of different drives or sources, or a counter ran backwards (a new FEMU
        process starts from zero).
    """
    if before.controller != after.controller or before.source != after.source:
        raise MeasurementError("counters before and after are not of the same drive and source")
    host = _smart_delta(before.smart, after.smart)
    media = _media_delta(before.media, after.media)
    waf, why = _waf(before, after, host, media)
    return CounterDelta(
        source=after.source,
        **host,
        **media,
        unit_bytes=after.media.unit_bytes if after.media else None,
        waf=waf,
        why_no_waf=why,
    )


def _smart_delta(before: SmartLog | None, after: SmartLog | None) -> dict[str, int | None]:
    if before is None or after is None:
        return dict.fromkeys(
            ("host_written_bytes", "host_read_bytes", "write_commands", "read_commands")
        )
    written = _grown("data units written", before.data_units_written, after.data_units_written)
    read = _grown("data units read", before.data_units_read, after.data_units_read)
    return {
        "host_written_bytes": written * DATA_UNIT_BYTES,
        "host_read_bytes": read * DATA_UNIT_BYTES,
        "write_commands": _grown(
            "write commands", before.host_write_commands, after.host_write_commands
        ),
        "read_commands": _grown(
            "read commands", before.host_read_commands, after.host_read_commands
        ),
    }


def _media_delta(before: MediaTotals | None, after: MediaTotals | None) -> dict[str, int | None]:
    if before is None or after is None:
        return dict.fromkeys(("host_units", "media_units", "erased_bytes"))
    return {
        "media_units": _grown("media writes", before.media_units, after.media_units),
        "host_units": _grown_or_none("host writes", before.host_units, after.host_units),
        "erased_bytes": _grown_or_none("erased bytes", before.erased_bytes, after.erased_bytes),
    }


def _waf(
    before: Counters,
    after: Counters,
    host: dict[str, int | None],
    media: dict[str, int | None],
) -> tuple[float | None, str | None]:
    if after.media is None or media["media_units"] is None:
        return None, after.why_no_media or "the drive has no media counters"
    host_units = media["host_units"]
    if host_units is None and after.media.unit_bytes and host["host_written_bytes"] is not None:
        host_units = host["host_written_bytes"] // after.media.unit_bytes
    if not host_units:
        return None, "the host wrote nothing that the drive counted"
    return media["media_units"] / host_units, None


def _grown(what: str, before: int, after: int) -> int:
    if after < before:
        raise MeasurementError(f"{what} ran backwards: {before} before, {after} after")
    return after - before


def _grown_or_none(what: str, before: int | None, after: int | None) -> int | None:
    if before is None or after is None:
        return None
    return _grown(what, before, after)
