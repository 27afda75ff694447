"""What to trace: the one set of options that the command line, the session and the loader share."""

from __future__ import annotations

from dataclasses import dataclass

from harness.core.errors import UsageError
from harness.core.ops import OP_LETTERS


@dataclass(frozen=True)
class TraceOptions:
    """Which devices and which of their requests to trace.

    Parameters
    ----------
    devices
        Paths of block devices; a partition means the requests inside it.
    operations
        Letters of "RWDFZN"; empty for all.
    pids
        Processes, with the children they have and will have.
    cgroup
        Path of a cgroup v2 folder, with those below it.
    bios
        Record bios too, before splitting and merging, in a second trace ``OUT.bios.parquet``.
    btf
        Without it the probe does as on a kernel that has no type information.
    ring_mib
        Size of the probe's rings together; what does not fit while the reader is slow is lost and
        counted.
    segment_s
        A finished segment of the trace is written at least this often: what a kill -9 of the
        recorder can cost.
    """

    devices: tuple[str, ...]
    operations: str = ""
    pids: tuple[int, ...] = ()
    cgroup: str | None = None
    bios: bool = False
    btf: bool = True
    ring_mib: float = 32.0
    segment_s: float = 10.0

    def __post_init__(self) -> None:
        if not self.devices:
            raise UsageError("no device to trace")
        if len(set(self.devices)) != len(self.devices):
            raise UsageError("a device is named twice")
        unknown = set(self.operations) - set(OP_LETTERS)
        if unknown:
            raise UsageError(
                f"unknown operations {''.join(sorted(unknown))!r}; known: {OP_LETTERS}"
            )
        if not 0.004 <= self.ring_mib <= 128:
            raise UsageError("the rings must be between 0.004 and 128 MiB")

    def loader_words(self) -> list[str]:
        """The loader's command line for these options."""
        words = ["--ring-mib", str(self.ring_mib)]
        for device in self.devices:
            words += ["--device", device]
        for pid in self.pids:
            words += ["--pid", str(pid)]
        if self.operations:
            words += ["--ops", self.operations]
        words += ["--bios"] if self.bios else []
        words += [] if self.btf else ["--no-btf"]
        if self.cgroup:
            words += ["--cgroup", self.cgroup]
        return words
