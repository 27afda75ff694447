"""What a run counted, the ratios made of it, and the sums that must add up."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from harness.core.config import Strict


class Traffic(Strict):
    """Counts of objects of one class; bytes are counts times the size of the class.

    ``created``: made by computation, not resident before; ``refused`` of them were not kept.
    ``dram_in``: put into DRAM, made there, copied or moved there (``promoted``) from the SSD;
    they leave it moved to the SSD, ``released`` (a copy is there already) or ``dropped``.
    ``written``: to the SSD, of which ``first_written`` for the first time, ``direct`` without a
    stay in DRAM, ``copied`` while staying there, ``moved`` on leaving. What lies on the SSD
    leaves it ``evicted``, or ``invalidated`` by a move to DRAM. Of the written: ``useful`` were
    hit there before they left, ``used_before`` had been used since they were made,
    ``never_again`` are asked for by no later request, ``superseded`` had a successor.
    ``resident_dram``, ``resident_ssd``: at the end.
    """

    size_bytes: int
    hits_dram: int
    hits_ssd: int
    created: int
    refused: int
    dram_in: int
    promoted: int
    moved: int
    released: int
    dropped: int
    written: int
    first_written: int
    direct: int
    copied: int
    evicted: int
    invalidated: int
    useful: int
    used_before: int
    never_again: int
    superseded: int
    resident_dram: int
    resident_ssd: int

    @property
    def written_bytes(self) -> int:
        """Bytes written to the SSD."""
        return self.written * self.size_bytes

    def imbalance(self) -> dict[str, int]:
        """What the sums of a whole run leave over, by name; all 0 if nothing was lost."""
        return {
            "made": self.created + self.promoted - self.refused - self.direct - self.dram_in,
            "dram": self.dram_in - self.moved - self.released - self.dropped - self.resident_dram,
            "written": self.written - self.direct - self.copied - self.moved,
            "ssd": self.written - self.evicted - self.invalidated - self.resident_ssd,
        }


class Outcome(Strict):
    """Counters of a run, or of the part after its warm-up.

    ``zero_requests``: without any usable chunk. ``request_misses``: sum over the requests that
    have chunks of the share missed.
    """

    requests: int
    requests_with_chunks: int
    zero_requests: int
    request_misses: float
    references: int
    hits: int
    stranded: int
    input_tokens: int
    block_tokens: int
    full: Traffic
    state: Traffic
    seconds: float = Field(description="simulated time, first to last request")

    @property
    def miss(self) -> float:
        """Full-attention chunks that had to be recomputed, over all of the prompts'."""
        return 1 - self.hits / self.references if self.references else 0.0

    @property
    def miss_token(self) -> float:
        """Prompt tokens outside usable chunks, over all prompt tokens."""
        return 1 - self.hits * self.block_tokens / self.input_tokens if self.input_tokens else 0.0

    @property
    def miss_request(self) -> float:
        """Mean over requests of the share of their chunks that missed."""
        return self.request_misses / max(self.requests_with_chunks, 1)

    @property
    def miss_zero(self) -> float:
        """Share of the requests that could use nothing."""
        return self.zero_requests / max(self.requests, 1)

    def summary(self) -> dict[str, Any]:
        """The names that ``--json`` promises."""
        return {
            "miss": self.miss,
            "references": self.references,
            "stranded": self.stranded,
            "written_bytes": {"full": self.full.written_bytes, "state": self.state.written_bytes},
            "hits": {
                "dram": {"full": self.full.hits_dram, "state": self.state.hits_dram},
                "ssd": {"full": self.full.hits_ssd, "state": self.state.hits_ssd},
            },
        }
