"""What to know of a request trace before choosing a store: reuse, gaps, footprints, LRU hits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.core.progress import Progress, quiet
from harness.stores.models import ModelKv
from harness.stores.requests.form import RequestBatch, RequestForm, RequestSource, take
from harness.stores.requests.histogram import percentiles
from harness.stores.requests.reuse import NO_CHECKPOINT, R, Reuse, add_batch, new_reuse

_GRID = tuple(base * 10**power for power in range(2, 9) for base in (1, 2, 3, 5))


@dataclass(frozen=True)
class RequestStats:
    """Counters of a whole trace, and the figures that follow from them."""

    name: str
    form: RequestForm
    reuse: Reuse
    output_tokens: int
    input_tokens: int
    new_tokens: int
    duration_s: float
    sessions: int

    @property
    def requests(self) -> int:
        """Requests read."""
        return int(self.reuse.ints[R.REQUESTS])

    @property
    def references(self) -> int:
        """Block references."""
        return int(self.reuse.ints[R.REFERENCES])

    @property
    def distinct_blocks(self) -> int:
        """Blocks with an id of their own."""
        return int(self.reuse.ints[R.BLOCKS])

    @property
    def accesses(self) -> NDArray[np.int64]:
        """How often each block was accessed, int64[distinct_blocks]."""
        return self.reuse.accesses[: self.distinct_blocks]

    @property
    def one_shot_share(self) -> float:
        """Share of blocks that were accessed once."""
        return float(np.mean(self.accesses == 1)) if self.distinct_blocks else 0.0

    @property
    def ideal_prefix_hit(self) -> float:
        """Leading ids that were seen before, over all references: a cache without limits."""
        return int(self.reuse.ints[R.LEADING_HITS]) / max(1, self.references)

    def lru_hit(self, blocks: int) -> float:
        """Hit rate of plain LRU over ``blocks`` blocks."""
        return int(self.reuse.distances[:blocks].sum()) / max(1, self.references)

    def state_reuse(self) -> dict[str, float] | None:
        """How often the state at a prompt's last full block was read; None without any."""
        reads = self.reuse.checkpoint_reads[: self.distinct_blocks]
        reads = reads[reads != NO_CHECKPOINT]
        if not len(reads):
            return None
        return {
            "never": float(np.mean(reads == 0)),
            "once": float(np.mean(reads == 1)),
            "twice": float(np.mean(reads == 2)),
            "more": float(np.mean(reads > 2)),
        }

    def as_json(
        self, capacities: Sequence[int] = (), model: ModelKv | None = None
    ) -> dict[str, Any]:
        """Plain data. Without prefix ids the figures that need them are null."""
        known = self.form.has_ids
        figures = {
            "distinct_blocks": self.distinct_blocks,
            "one_shot_share": self.one_shot_share,
            "ideal_prefix_hit": self.ideal_prefix_hit,
            "accesses_per_block": self.references / max(1, self.distinct_blocks),
            "state_reuse": self.state_reuse(),
            "reuse_gap_requests": _quantiles(self.reuse.gap_requests),
            "reuse_gap_s": _quantiles(self.reuse.gap_ms, 1e-3),
            "new_blocks_per_request": _quantiles(self.reuse.new_blocks),
            "session_blocks": self._session_quantiles(),
            "lru_hit": [
                {"blocks": blocks, "hit": self.lru_hit(blocks)} for blocks in self._grid(capacities)
            ],
        }
        rows = max(1, self.requests)
        return {
            "name": self.name,
            "block_tokens": self.form.block_tokens,
            "id_scope": "session" if self.form.session_scope else "global",
            "partial_tail": self.form.partial_tail,
            "has_ids": known,
            "requests": self.requests,
            "references": self.references,
            "sessions": self.sessions,
            "duration_s": self.duration_s,
            "mean_context_tokens": self.input_tokens / rows,
            "context_tokens": _quantiles(self.reuse.context),
            "mean_output_tokens": self.output_tokens / rows,
            "new_tokens": self.new_tokens,
            **(figures if known else dict.fromkeys(figures)),
            "model": self._for_model(model) if model and known else None,
        }

    def _grid(self, capacities: Sequence[int]) -> list[int]:
        most = 2 * self.distinct_blocks
        return sorted({*(size for size in _GRID if size <= most), *capacities})

    def _session_quantiles(self) -> dict[str, float | None]:
        blocks = self.reuse.session_blocks[self.reuse.session_requests > 0]
        if not len(blocks):
            return dict.fromkeys(("p50", "p90", "p99", "mean", "max"))
        found = np.percentile(blocks, (50, 90, 99))
        return {
            "p50": float(found[0]),
            "p90": float(found[1]),
            "p99": float(found[2]),
            "mean": float(blocks.mean()),
            "max": float(blocks.max()),
        }

    def _for_model(self, model: ModelKv) -> dict[str, Any]:
        """Footprints in bytes: KV of the session's distinct blocks, and one state."""
        block = float(model.token_bytes * self.form.block_tokens)
        quantiles = self._session_quantiles()
        return {
            "name": model.name,
            "block_bytes": block,
            "state_bytes": model.state_bytes,
            "distinct_bytes": block * self.distinct_blocks,
            "session_bytes": {
                key: None if blocks is None else block * blocks + model.state_bytes
                for key, blocks in quantiles.items()
            },
        }


def request_stats(
    requests: RequestSource,
    *,
    limit: int | None = None,
    full_blocks_only: bool = False,
    progress: Progress = quiet,
) -> RequestStats:
    """Read a trace once. ``full_blocks_only`` leaves out ids that stand for a partial block."""
    reuse = new_reuse()
    inputs = outputs = new = done = 0
    first: float | None = None
    last, sessions = 0.0, 0
    batches: Iterable[RequestBatch] = take(requests.batches(), limit)
    for batch in batches:
        used = without_partial(batch) if full_blocks_only else batch
        reuse = add_batch(reuse, used)
        inputs += int(batch.input_tokens.sum(dtype=np.int64))
        outputs += int(batch.output_tokens.sum(dtype=np.int64))
        new += int(batch.new_tokens.sum(dtype=np.int64))
        first = float(batch.time_s[0]) if first is None else first
        last = float(batch.time_s[-1])
        done += len(batch)
        progress(done, limit, f"{done} requests")
    sessions = int(np.count_nonzero(reuse.session_requests))
    return RequestStats(
        requests.name, requests.form, reuse, outputs, inputs, new, last - (first or 0.0), sessions
    )


def without_partial(batch: RequestBatch) -> RequestBatch:
    """The batch without ids that stand for less than a whole block."""
    held, full = np.diff(batch.starts), batch.full_blocks()
    keep = np.arange(len(batch.ids)) - np.repeat(batch.starts[:-1], held) < np.repeat(full, held)
    starts = np.concatenate(([0], np.cumsum(full))).astype(np.int64)
    return replace(batch, starts=starts, ids=batch.ids[keep])


def _quantiles(histogram: NDArray[np.int64], scale: float = 1.0) -> dict[str, float | None]:
    found = percentiles(histogram, (0.5, 0.9, 0.99))
    return {
        name: None if value is None else value * scale
        for name, value in zip(("p50", "p90", "p99"), found, strict=True)
    }
