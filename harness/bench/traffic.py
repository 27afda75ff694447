"""The requests that bring a store to a stated age and lay the sessions to be read into it.

Others write ``age`` capacities of the store first, sessions of the same length, two at a time.
Then the sessions grow turn by turn, in turns among themselves, and others go on writing between
their turns, so that a slot store finds its free slots where evictions left them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.bench.grid import Placement
from harness.stores.requests.form import Request, RequestForm

OTHERS_AT_ONCE = 2
OTHERS_TURNS = 4
BETWEEN_TURNS_SHARE = 0.02
"""Share of the capacity that others write between two turns of a session."""

CLOCK_SHARE_PER_S = 0.05
"""A store's clock: so much of its capacity is written a second. Stores evict by the second, and
one that is filled within two of its wake-ups would fail instead of evict."""

BLOCK_TOKENS = 256
FIRST_SESSION = 1
_FIRST_OTHER = 1 << 20
_QUIET_S = 120.0


@dataclass
class _Clock:
    """Time that passes with the tokens that are written."""

    now_s: float
    seconds_per_token: float

    def tick(self, tokens: int) -> float:
        self.now_s += max(1e-3, tokens * self.seconds_per_token)
        return self.now_s


class Traffic:
    """Requests for one placement in a store of ``capacity_bytes``.

    Parameters
    ----------
    placement
        Context, turns, sessions and age.
    capacity_bytes, token_bytes
        Of the store, and of the model over all layers.
    seed
        Makes every block id; equal seeds, equal requests.
    sights
        How often each request is made: a store that admits at the second sight needs two.
    tail_bytes
        What others write after the sessions' last turn: a store that gathers objects until a
        bucket is full would hold the end of a session in memory otherwise.
    """

    def __init__(
        self, placement: Placement, capacity_bytes: int, token_bytes: float, seed: int,
        sights: int = 1, tail_bytes: int = 0,
    ) -> None:  # fmt: skip
        self.placement, self._sights = placement, sights
        self._tail_tokens = tail_bytes / token_bytes
        self.capacity_tokens = capacity_bytes / token_bytes
        self.form = RequestForm(block_tokens=BLOCK_TOKENS)
        self._salt = np.uint64(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0])
        self._clock = _Clock(0.0, 1 / (CLOCK_SHARE_PER_S * self.capacity_tokens))
        self._others = self._grow_others()

    @property
    def blocks(self) -> int:
        """Full blocks of a whole session."""
        return self.placement.context_tokens // BLOCK_TOKENS

    def requests(self) -> Iterator[Request]:
        """Everything that is written, in order."""
        yield from self._write_others(self.placement.age * self.capacity_tokens)
        turns = self.placement.turns
        for turn in range(turns):
            if turn:
                yield from self._write_others(BETWEEN_TURNS_SHARE * self.capacity_tokens)
            done, upto = (self.blocks * t // turns for t in (turn, turn + 1))
            for session in self.session_numbers():
                yield from self._seen(session, turn, upto, (upto - done) * BLOCK_TOKENS)
        yield from self._write_others(self._tail_tokens)

    def session_numbers(self) -> range:
        """The sessions that will be read back."""
        return range(FIRST_SESSION, FIRST_SESSION + self.placement.sessions)

    def restore(self, session: int) -> Request:
        """The request that reads back all of ``session``, after the store has come to rest."""
        self._clock.now_s += _QUIET_S
        return self._request(session, self.placement.turns, self.blocks, 0)

    def churn(self) -> Iterator[Request]:
        """Others' requests without end: what a store writes in the background."""
        return self._others

    def _write_others(self, tokens: float) -> Iterator[Request]:
        written = 0
        while written < tokens:
            request = next(self._others)
            written += request.new_tokens
            yield request

    def _grow_others(self) -> Iterator[Request]:
        """Sessions as long as those to be read, a few growing at once, for ever fresh ones."""
        each = max(1, self.blocks // OTHERS_TURNS)
        first = _FIRST_OTHER
        while True:
            for turn in range(OTHERS_TURNS):
                for session in range(first, first + OTHERS_AT_ONCE):
                    upto = (turn + 1) * each
                    yield from self._seen(session, turn, upto, each * BLOCK_TOKENS)
            first += OTHERS_AT_ONCE

    def _seen(self, session: int, turn: int, blocks: int, new_tokens: int) -> Iterator[Request]:
        """A turn, as often as the store must see it; only the last time counts as written."""
        for sight in range(self._sights):
            last = sight == self._sights - 1
            yield self._request(session, turn, blocks, new_tokens if last else 0)

    def _request(self, session: int, turn: int, blocks: int, new_tokens: int) -> Request:
        return Request(
            self.form, self._clock.tick(new_tokens), session, turn, blocks * BLOCK_TOKENS, 0,
            new_tokens, self._ids(session, blocks),
        )  # fmt: skip

    def _ids(self, session: int, blocks: int) -> NDArray[np.uint64]:
        """Distinct ids of a session's first blocks: (session, block) scrambled by the seed."""
        plain = (np.uint64(session) << np.uint64(32)) | np.arange(blocks, dtype=np.uint64)
        # Multiplying by an odd number and xoring are bijections: no two ids can collide.
        return (plain ^ self._salt) * np.uint64(0x9E3779B97F4A7C15)
