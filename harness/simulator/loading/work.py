"""What each request asks of SSD, PCIe and GPU, read off a simulated run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.simulator.requestlog import RequestLog, StateFrom
from harness.simulator.sizes import ObjectSizes

F64 = NDArray[np.float64]


@dataclass(frozen=True)
class Work:
    """Arrays of one value a request, in request order; the times do not decrease.

    arrival_s: on the trace's clock. ssd_bytes, dram_bytes: KV and state that the request uses and
    where they lie. hit_tokens: tokens of its usable chunks, of which ssd_tokens are lost with what
    lies on the SSD. missed_tokens: to be recomputed, the partial last block included.
    context_tokens: the prompt. written_bytes: that the SSD was made to write meanwhile.
    """

    arrival_s: F64
    ssd_bytes: F64
    dram_bytes: F64
    hit_tokens: F64
    ssd_tokens: F64
    missed_tokens: F64
    context_tokens: F64
    written_bytes: F64

    def __len__(self) -> int:
        return len(self.arrival_s)

    @property
    def cached_bytes(self) -> F64:
        """All that comes from the cache, whatever the tier."""
        return self.ssd_bytes + self.dram_bytes

    @property
    def rate(self) -> float:
        """Requests a second of the trace's clock; 0 where all arrive at once."""
        span_s = float(self.arrival_s[-1] - self.arrival_s[0]) if len(self) else 0.0
        return (len(self) - 1) / span_s if span_s > 0 else 0.0


def work_of(log: RequestLog, sizes: ObjectSizes) -> Work:
    """The work of every request of ``log`` for objects of ``sizes``.

    A state on the SSD takes the whole hit with it if it is not read, because a request continues
    from it; chunks on the SSD take themselves and what follows them. Where in the prefix the SSD's
    chunks lie is not in the log: they are taken to be its root side, where policies that keep
    residency closed under prefixes move them, so that all hits depend on them.
    """
    hit, hit_ssd = log["hit"].astype(np.float64), log["hit_ssd"].astype(np.float64)
    state = log["state_from"]
    state_ssd = np.where(state == StateFrom.SSD, float(sizes.state_bytes), 0.0)
    state_dram = np.where(state == StateFrom.DRAM, float(sizes.state_bytes), 0.0)
    hit_tokens = hit * sizes.block_tokens
    ssd_bytes = hit_ssd * sizes.chunk_bytes + state_ssd
    input_tokens = log["input_tokens"].astype(np.float64)
    return Work(
        arrival_s=log["time_s"].astype(np.float64),
        ssd_bytes=ssd_bytes,
        dram_bytes=(hit - hit_ssd) * sizes.chunk_bytes + state_dram,
        hit_tokens=hit_tokens,
        ssd_tokens=np.where(ssd_bytes > 0, hit_tokens, 0.0),
        missed_tokens=np.maximum(input_tokens - hit_tokens, 0.0),
        context_tokens=input_tokens,
        written_bytes=log["written_full"].astype(np.float64) * sizes.chunk_bytes
        + log["written_state"].astype(np.float64) * sizes.state_bytes,
    )
