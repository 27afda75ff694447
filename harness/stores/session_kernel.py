"""The session-contiguous store's life, compiled.

One pre-allocated extent a session; each turn appends a segment in which all blocks of a layer are
one contiguous range, and behind it the fixed states, if the model has any. A session that outgrows
its extent chains another. Above the watermark the session that was idle longest goes as a whole.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from harness.core.ops import Op
from harness.stores.front import add_op, leading, state_key
from harness.stores.index import (
    ABSENT,
    index_get,
    index_put,
    index_remove,
    recency_add,
    recency_oldest,
    recency_remove,
    recency_touch,
)
from harness.stores.jit import inner_kernel, kernel
from harness.stores.ops import ALL_LAYERS, ObjectClass, OpArray
from harness.stores.session_state import S, SessionParams, SessionState

_READ, _WRITE = int(Op.READ), int(Op.WRITE)
_KV, _STATE = int(ObjectClass.FULL_ATTENTION), int(ObjectClass.FIXED_STATE)
_OPS, _EXTENT_HEAD, _EXTENTS = int(S.OPS), int(S.FREE_EXTENT_HEAD), int(S.FREE_EXTENTS)
_ROWS, _SESSIONS = int(S.FREE_ROWS), int(S.FREE_SESSIONS)
_REQUESTS, _WANTED, _HIT = int(S.REQUESTS), int(S.CHUNKS_WANTED), int(S.CHUNKS_HIT)
_CUT, _WRITTEN = int(S.CUT_BY_STATE), int(S.CHUNKS_WRITTEN)
_STATES_WRITTEN, _STATES_READ = int(S.STATES_WRITTEN), int(S.STATES_READ)
_RECLAIMED, _RECLAIMED_CHUNKS = int(S.RECLAIMED_SESSIONS), int(S.RECLAIMED_CHUNKS)
_FAILED, _CHAINED, _SEGMENTS = int(S.FAILED_PUTS), int(S.CHAINED_EXTENTS), int(S.SEGMENTS)
_GROUP, _GROUP_SIZE = int(S.GROUP), int(S.GROUP_SIZE)
_NONE = -1
_WRITES_LAST = np.int64(1) << np.int64(38)


@inner_kernel
def _round(p: SessionParams, size: int) -> int:
    return -(-size // p.page_bytes) * p.page_bytes


@kernel
def segment_bytes(p: SessionParams, chunks: int) -> int:
    """Bytes of the layer ranges of a segment, each padded to a page."""
    total = 0
    for layer in range(len(p.layer_bytes)):
        total += _round(p, chunks * p.layer_bytes[layer])
    return total


@inner_kernel
def _emit(
    s: SessionState, ops: OpArray, order: NDArray[np.int64], op: int, offset: int, length: int,
    cls: int, stream: int, session: int, turn: int, layer: int, key: np.uint64, step: int,
) -> None:  # fmt: skip
    """Add an op; ``order`` interleaves the writes of a group of requests, after their reads."""
    at = s.ints[_OPS]
    s.ints[_OPS] = add_op(ops, at, op, offset, length, cls, stream, session, turn, layer, key)
    rank = s.ints[_GROUP] << np.int64(39)
    if op == _WRITE:
        rank += _WRITES_LAST + step * 64 + s.ints[_GROUP_SIZE] % 64
    order[at] = rank


@inner_kernel
def forget_session(p: SessionParams, s: SessionState, who: int) -> None:
    """Reclaim a session as a whole: its keys, chunk rows and extents."""
    row = s.session_rows[who]
    while row != _NONE:
        index_remove(s.keys, s.values, s.row_key[row])
        s.free_rows[s.ints[_ROWS]] = row
        s.ints[_ROWS] += 1
        s.ints[_RECLAIMED_CHUNKS] += 1
        row = s.row_next[row]
    extent = s.session_extent[who]
    while extent != _NONE:
        tail = (s.ints[_EXTENT_HEAD] + s.ints[_EXTENTS]) % p.extents
        s.free_extents[tail] = extent
        s.ints[_EXTENTS] += 1
        extent = s.extent_before[extent]
    recency_remove(s.nxt, s.prv, who)
    index_remove(s.session_keys, s.session_values, np.uint64(s.session_number[who]))
    s.free_sessions[s.ints[_SESSIONS]] = who
    s.ints[_SESSIONS] += 1
    s.ints[_RECLAIMED] += 1


@inner_kernel
def _reclaim(p: SessionParams, s: SessionState) -> None:
    """Free the longest idle sessions until one more extent stays under the watermark."""
    while p.extents - s.ints[_EXTENTS] >= p.watermark_extents:
        oldest = recency_oldest(s.nxt, s.prv)
        if oldest < 0 or s.session_group[oldest] == s.ints[_GROUP]:
            return
        forget_session(p, s, oldest)


@inner_kernel
def _take_extent(p: SessionParams, s: SessionState) -> int:
    """The extent that has been free longest, or -1."""
    _reclaim(p, s)
    if s.ints[_EXTENTS] == 0:
        return _NONE
    extent = s.free_extents[s.ints[_EXTENT_HEAD]]
    s.ints[_EXTENT_HEAD] = (s.ints[_EXTENT_HEAD] + 1) % p.extents
    s.ints[_EXTENTS] -= 1
    s.extent_before[extent] = _NONE
    return extent


@inner_kernel
def open_session(p: SessionParams, s: SessionState, number: int) -> int:
    """The live session ``number``, made with an extent of its own if need be; -1 without room."""
    who = index_get(s.session_keys, s.session_values, np.uint64(number))
    if who != ABSENT:
        return who
    extent = _take_extent(p, s)
    if extent < 0:
        return _NONE
    s.ints[_SESSIONS] -= 1
    who = s.free_sessions[s.ints[_SESSIONS]]
    s.session_number[who] = number
    s.session_extent[who] = extent
    s.session_used[who] = 0
    s.session_rows[who] = _NONE
    s.session_group[who] = s.ints[_GROUP]
    index_put(s.session_keys, s.session_values, np.uint64(number), who)
    recency_add(s.nxt, s.prv, who)
    return who


@inner_kernel
def _fit(p: SessionParams, s: SessionState, who: int, chunks: int) -> int:
    """How many of ``chunks`` (and a state) fit what is left of the session's extent."""
    left = p.extent_bytes - s.session_used[who] - _round(p, p.state_bytes)
    while chunks > 0 and segment_bytes(p, chunks) > left:
        whole = segment_bytes(p, chunks)
        chunks = min(chunks - 1, max(0, chunks * left // whole))
    return chunks


@inner_kernel
def _chain(p: SessionParams, s: SessionState, who: int) -> bool:
    """Give a session that is full another extent."""
    extent = _take_extent(p, s)
    if extent < 0:
        return False
    s.extent_before[extent] = s.session_extent[who]
    s.session_extent[who] = extent
    s.session_used[who] = 0
    s.ints[_CHAINED] += 1
    return True


@inner_kernel
def _row(s: SessionState, who: int, key: np.uint64) -> int:
    """A new row for ``key`` in the session ``who``."""
    s.ints[_ROWS] -= 1
    row = s.free_rows[s.ints[_ROWS]]
    s.row_key[row] = key
    s.row_owner[row] = who
    s.row_next[row] = s.session_rows[who]
    s.session_rows[who] = row
    index_put(s.keys, s.values, key, row)
    return row


@inner_kernel
def _segment(
    p: SessionParams, s: SessionState, ops: OpArray, order: NDArray[np.int64], who: int,
    missing: NDArray[np.uint64], first: int, count: int, session: int, turn: int, step: int,
) -> int:  # fmt: skip
    """Append ``count`` chunks as one segment; the next step of the request."""
    base = s.session_extent[who] * p.extent_bytes + s.session_used[who]
    head = _NONE
    for c in range(count):
        row = _row(s, who, missing[first + c])
        head = row if c == 0 else head
        s.row_segment[row] = head
        s.row_place[row] = c
    s.segment_base[head] = base
    s.segment_chunks[head] = count
    stream = who % p.append_streams
    key = missing[first + count - 1]
    at = base
    for layer in range(len(p.layer_bytes)):
        size = _round(p, count * p.layer_bytes[layer])
        _emit(s, ops, order, _WRITE, at, size, _KV, stream, session, turn, layer, key, step)
        at += size
        step += 1
    s.session_used[who] += at - base
    s.ints[_WRITTEN] += count
    s.ints[_SEGMENTS] += 1
    return step


@inner_kernel
def append_state(
    p: SessionParams, s: SessionState, ops: OpArray, order: NDArray[np.int64], who: int,
    key: np.uint64, session: int, turn: int, step: int,
) -> None:  # fmt: skip
    """Append the states of all layers at the end of the chunk that ``key`` belongs to."""
    size = _round(p, p.state_bytes)
    if p.extent_bytes - s.session_used[who] < size and not _chain(p, s, who):
        s.ints[_FAILED] += 1
        return
    at = s.session_extent[who] * p.extent_bytes + s.session_used[who]
    row = _row(s, who, key)
    s.row_segment[row] = row
    s.segment_base[row] = at
    stream = who % p.append_streams
    _emit(s, ops, order, _WRITE, at, size, _STATE, stream, session, turn, ALL_LAYERS, key, step)
    s.session_used[who] += size
    s.ints[_STATES_WRITTEN] += 1


@inner_kernel
def append_chunks(
    p: SessionParams, s: SessionState, ops: OpArray, order: NDArray[np.int64], who: int,
    missing: NDArray[np.uint64], count: int, session: int, turn: int,
) -> int:  # fmt: skip
    """Append chunks in as few segments as extents allow; the next step, -1 without room."""
    done = step = 0
    while done < count:
        fit = _fit(p, s, who, count - done)
        if fit == 0:
            if not _chain(p, s, who):
                s.ints[_FAILED] += count - done
                return _NONE
            continue
        step = _segment(p, s, ops, order, who, missing, done, fit, session, turn, step)
        done += fit
    return step


@inner_kernel
def _store(
    p: SessionParams, s: SessionState, ops: OpArray, order: NDArray[np.int64],
    missing: NDArray[np.uint64], count: int, last: np.uint64, session: int, turn: int,
) -> None:  # fmt: skip
    """Append the missing chunks of a request, and the state after its ``last`` chunk."""
    state = state_key(last)
    wants_state = p.state_bytes > 0 and index_get(s.keys, s.values, state) == ABSENT
    if count == 0 and not wants_state:
        return
    who = open_session(p, s, session)
    if who < 0:
        s.ints[_FAILED] += count
        return
    s.session_group[who] = s.ints[_GROUP]
    recency_touch(s.nxt, s.prv, who)
    step = append_chunks(p, s, ops, order, who, missing, count, session, turn)
    if wants_state and step != _NONE:
        append_state(p, s, ops, order, who, state, session, turn, step)


@inner_kernel
def _load(
    p: SessionParams, s: SessionState, ops: OpArray, order: NDArray[np.int64],
    keys: NDArray[np.uint64], first: int, hit: int, session: int, turn: int,
) -> None:  # fmt: skip
    """Layer by layer, read the range of every run of neighbouring chunks; then the state."""
    offset = np.zeros(hit + 1, np.int64)
    place = 0
    for layer in range(len(p.layer_bytes)):
        c = 0
        while c < hit:
            row = index_get(s.keys, s.values, keys[first + c])
            head, start = s.row_segment[row], s.row_place[row]
            run = 1
            while c + run < hit:
                after = index_get(s.keys, s.values, keys[first + c + run])
                if s.row_segment[after] != head or s.row_place[after] != start + run:
                    break
                run += 1
            at = s.segment_base[head] + offset[c] + start * p.layer_bytes[layer]
            low = at // p.page_bytes * p.page_bytes
            high = _round(p, at + run * p.layer_bytes[layer])
            stream = p.append_streams + place % p.read_streams
            key = keys[first + c + run - 1]
            _emit(s, ops, order, _READ, low, high - low, _KV, stream, session, turn, layer, key, 0)
            offset[c] += _round(p, s.segment_chunks[head] * p.layer_bytes[layer])
            place += 1
            c += run
    if hit > 0 and p.state_bytes > 0:
        key = state_key(keys[first + hit - 1])
        at = s.segment_base[index_get(s.keys, s.values, key)]
        size = _round(p, p.state_bytes)
        stream = p.append_streams + place % p.read_streams
        _emit(
            s, ops, order, _READ, at, size, _STATE, stream, session, turn, ALL_LAYERS, key, 0
        )  # fmt: skip
        s.ints[_STATES_READ] += 1


@inner_kernel
def _join_group(
    p: SessionParams, s: SessionState, keys: NDArray[np.uint64], first: int, hit: int, session: int
) -> None:
    """Put the request into the open group, or open the next: a group never reads its own writes."""
    fits = s.ints[_GROUP_SIZE] < p.append_streams
    who = index_get(s.session_keys, s.session_values, np.uint64(session))
    if who != ABSENT and s.session_group[who] == s.ints[_GROUP]:
        fits = False
    for c in range(hit):
        owner = s.row_owner[index_get(s.keys, s.values, keys[first + c])]
        if s.session_group[owner] == s.ints[_GROUP]:
            fits = False
            break
    if not fits:
        s.ints[_GROUP] += 1
        s.ints[_GROUP_SIZE] = 0
    s.ints[_GROUP_SIZE] += 1


@kernel
def serve(
    p: SessionParams, s: SessionState, ops: OpArray, order: NDArray[np.int64],
    sessions: NDArray[np.uint32], turns: NDArray[np.uint32], starts: NDArray[np.int64],
    keys: NDArray[np.uint64], wanted: bool,
) -> None:  # fmt: skip
    """Serve requests in turn; ``ops`` has room for all that they can cause."""
    for r in range(len(sessions)):
        first, last = starts[r], starts[r + 1]
        session, turn = int(sessions[r]), int(turns[r])
        hit, found = leading(s.keys, s.values, keys, first, last, p.state_bytes > 0)
        s.ints[_CUT] += found - hit
        _join_group(p, s, keys, first, hit, session)
        s.ints[_REQUESTS] += 1
        s.ints[_WANTED] += last - first
        s.ints[_HIT] += hit
        for c in range(hit):
            owner = s.row_owner[index_get(s.keys, s.values, keys[first + c])]
            if c == 0 or s.session_group[owner] != s.ints[_GROUP]:
                s.session_group[owner] = s.ints[_GROUP]
                recency_touch(s.nxt, s.prv, owner)
        if wanted:
            _load(p, s, ops, order, keys, first, hit, session, turn)
        missing = np.empty(last - first - hit, np.uint64)
        count = 0
        for c in range(first + hit, last):
            if index_get(s.keys, s.values, keys[c]) == ABSENT:
                missing[count] = keys[c]
                count += 1
        if last > first:
            _store(p, s, ops, order, missing, count, keys[last - 1], session, turn)
