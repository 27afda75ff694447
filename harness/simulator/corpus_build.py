"""Building a corpus from a request trace, and ordering recorded sessions in lanes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.core.errors import UsageError
from harness.simulator.corpus_form import Corpus
from harness.simulator.corpus_kernel import FINE, grow
from harness.stores.index import index_arrays
from harness.stores.requests.builder import Row
from harness.stores.requests.form import RequestBatch, RequestSource, take
from harness.stores.requests.lanes import RecordedSession, interleave
from harness.stores.requests.marks import longer, with_room

_COLUMNS = ("time_s", "session", "turn", "input_tokens", "output_tokens", "tag")


def build(source: RequestSource, requests: int | None = None, partial: bool = False) -> Corpus:
    """The prefix tree of a trace, or of its first ``requests``.

    ``partial`` counts the last, partly filled block of a prompt as a block, where the trace names
    it. UsageError for traces without ids or requests, endless ones without a number of requests,
    and ids that follow more than one prefix.
    """
    if not source.form.has_ids:
        raise UsageError(
            f"{source.name}: a trace of lengths only, it does not say which prefixes are shared",
            fix="use a trace with block ids (Mooncake, Bailian, WEKA, AIPerf) or synthetic traffic",
        )
    if source.endless and requests is None:
        raise UsageError(f"{source.name} is endless", fix="say how many requests are wanted")
    tree = _Tree(source)
    for batch in take(source.batches(), requests):
        tree.add(batch, partial)
    if not tree.rows:
        raise UsageError(f"{source.name}: no request is in it, or none of them is wanted")
    return tree.corpus()


class _Tree:
    """The arrays of a corpus while they grow."""

    def __init__(self, source: RequestSource) -> None:
        self._source = source
        self._keys, self._values = index_arrays(1 << 16)
        self._node_key = np.zeros(1 << 16, np.uint64)
        self._parent = np.zeros(1 << 16, np.int32)
        self._depth = np.zeros(1 << 16, np.int32)
        self._first = np.zeros(1 << 16, np.uint32)
        self._known = 0
        self.rows = 0
        """Requests so far."""
        self._columns: dict[str, list[Any]] = {name: [] for name in _COLUMNS}
        self._runs: list[tuple[NDArray[np.int64], NDArray[np.uint32], NDArray[np.uint32]]] = []

    def add(self, batch: RequestBatch, partial: bool) -> None:
        """Grow by the requests of a batch."""
        form = batch.form
        blocks = np.diff(batch.starts)
        if not partial:
            blocks = np.minimum(blocks, batch.input_tokens.astype(np.int64) // form.block_tokens)
        self._make_room(len(batch.ids))
        run_of = np.empty(len(batch) + 1, np.int64)
        run_node, run_length = np.empty((2, len(batch.ids)), np.uint32)
        self._known, bad = grow(
            self._keys, self._values, self._node_key, self._parent, self._depth, self._first,
            batch.starts, batch.ids, blocks, batch.session, form.session_scope, self._known,
            self.rows, run_of, run_node, run_length,
        )  # fmt: skip
        if bad != FINE:
            raise UsageError(
                f"{self._source.name}: request {self.rows + bad}: an id follows two different "
                "prefixes; ids must be chained, and unique over sessions",
                fix="if the ids hold inside a session only, the trace must say so "
                '(WEKA: "hash_id_scope": "local")',
            )
        runs = int(run_of[-1])
        self._runs.append((run_of, run_node[:runs].copy(), run_length[:runs].copy()))
        for name in _COLUMNS:
            self._columns[name].append(getattr(batch, name).copy())
        self.rows += len(batch)

    def _make_room(self, new: int) -> None:
        wanted = self._known + new
        if wanted > len(self._parent):
            for name in ("_node_key", "_parent", "_depth", "_first"):
                setattr(self, name, longer(getattr(self, name), 2 * wanted))
        self._keys, self._values = with_room(self._keys, self._values, wanted)

    def corpus(self) -> Corpus:
        """The finished tree."""
        counts = np.concatenate([np.diff(run_of) for run_of, _, _ in self._runs])
        known = self._known
        form = self._source.form
        return with_hash(
            Corpus(
                name=self._source.name,
                block_tokens=form.block_tokens,
                scope="session" if form.session_scope else "trace",
                content_hash="",
                **{name: np.concatenate(parts) for name, parts in self._columns.items()},
                run_of=np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
                run_node=np.concatenate([nodes for _, nodes, _ in self._runs]),
                run_length=np.concatenate([lengths for _, _, lengths in self._runs]),
                parent=self._parent[:known].copy(),
                depth=self._depth[:known].copy(),
                first_request=self._first[:known].copy(),
            )
        )


def with_hash(corpus: Corpus) -> Corpus:
    """The corpus with the hash of its arrays as its content hash."""
    digest = hashlib.blake2b(f"{corpus.block_tokens} {corpus.scope}".encode(), digest_size=8)
    for field in fields(corpus):
        value = getattr(corpus, field.name)
        if isinstance(value, np.ndarray):
            digest.update(np.ascontiguousarray(value).data)
    return replace(corpus, content_hash=digest.hexdigest())


def in_lanes(corpus: Corpus, lanes: int, gap_cap_s: float, seed: int | None) -> Corpus:
    """Sessions played ``lanes`` at a time, in their order or in a random one by ``seed``.

    For a corpus whose sessions share no node. See ``harness.stores.requests.lanes``.
    """
    sessions = _sessions(corpus)
    if seed is not None:
        order = np.random.default_rng(seed).permutation(len(sessions))
        sessions = [sessions[at] for at in order]
    rows = list(interleave((_recorded(corpus, rows) for rows in sessions), lanes, gap_cap_s))
    order = np.array([row.input_tokens for row in rows], np.int64)
    times = np.array([row.time_s for row in rows], np.float64)
    return with_hash(replace(_reordered(corpus, order), time_s=times))


def _sessions(corpus: Corpus) -> list[NDArray[np.int64]]:
    """Requests of each session, in order."""
    order = np.argsort(corpus.session, kind="stable")
    cuts = np.flatnonzero(np.diff(corpus.session[order])) + 1
    return np.split(order, cuts)


def _recorded(corpus: Corpus, rows: Iterable[int]) -> RecordedSession:
    """A session whose rows carry their place in the corpus as their number of tokens."""
    none = np.empty(0, np.uint64)
    return RecordedSession([Row("", float(corpus.time_s[r]), 0, 0, int(r), 0, none) for r in rows])


def _reordered(corpus: Corpus, order: NDArray[np.int64]) -> Corpus:
    """The corpus with its requests in another order that keeps each node's first request first."""
    new = np.bincount(corpus.first_request, minlength=corpus.requests)
    old_start = np.concatenate(([0], np.cumsum(new)[:-1]))
    new_start = np.empty_like(old_start)
    new_start[order] = np.concatenate(([0], np.cumsum(new[order])[:-1]))
    first = corpus.first_request
    moved = new_start[first] + np.arange(corpus.nodes) - old_start[first]
    place = np.empty(corpus.requests, np.int64)
    place[order] = np.arange(len(order))
    runs = np.diff(corpus.run_of)[order]
    run_of = np.concatenate(([0], np.cumsum(runs)))
    picked = np.repeat(corpus.run_of[order] - run_of[:-1], runs) + np.arange(run_of[-1])
    parent, depth, first_request = np.empty((3, corpus.nodes), np.int64)
    parent[moved] = np.where(corpus.parent < 0, -1, moved[corpus.parent])
    depth[moved] = corpus.depth
    first_request[moved] = place[first]
    return replace(
        corpus,
        **{name: getattr(corpus, name)[order] for name in _COLUMNS},
        run_of=run_of,
        run_node=moved[corpus.run_node[picked]].astype(np.uint32),
        run_length=corpus.run_length[picked],
        parent=parent.astype(np.int32),
        depth=depth.astype(np.int32),
        first_request=first_request.astype(np.uint32),
    )


def repeated(corpus: Corpus, times: int) -> Corpus:
    """The trace played ``times`` over with fresh keys: no pass finds anything of another one."""
    if times == 1:
        return corpus
    nodes, requests = corpus.nodes, corpus.requests
    sessions = int(corpus.session.max(initial=0)) + 1
    length_s = float(corpus.time_s[-1] - corpus.time_s[0])

    def shifted(array: Any, step: float) -> Any:
        return np.concatenate([array + array.dtype.type(step * k) for k in range(times)])

    runs = int(corpus.run_of[-1])
    parents = [np.where(corpus.parent < 0, -1, corpus.parent + k * nodes) for k in range(times)]
    tiled: dict[str, Any] = {
        name: np.tile(getattr(corpus, name), times)
        for name in ("turn", "input_tokens", "output_tokens", "tag", "run_length", "depth")
    }
    return with_hash(
        replace(
            corpus,
            **tiled,
            time_s=shifted(corpus.time_s, length_s),
            session=shifted(corpus.session, sessions),
            run_of=np.concatenate(
                [corpus.run_of[:-1] + k * runs for k in range(times)] + [[times * runs]]
            ),
            run_node=shifted(corpus.run_node, nodes),
            parent=np.concatenate(parents).astype(np.int32),
            first_request=shifted(corpus.first_request, requests),
        )
    )
