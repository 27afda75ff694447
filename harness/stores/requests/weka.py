"""Claude Code sessions in the WEKA form: one JSON object a session.

A file may hold one session (.json), one a line (.jsonl), or be a folder or a tar archive of the
former. Ids are valid inside a session, name full blocks only, and are chained. The times of a
subagent's requests count from its marker in one dialect (kv-cache-tester) and from the session's
start in the other (the SemiAnalysis releases).
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from harness.core.errors import UsageError
from harness.stores.requests.builder import (
    RecordedRequests,
    Row,
    check_blocks,
    to_count,
    to_ids,
    to_time,
)
from harness.stores.requests.form import RequestForm, Tag
from harness.stores.requests.lanes import GAP_CAP_S, RecordedSession, interleave
from harness.stores.requests.text import json_objects, not_json, open_bytes

Dialect = Literal["auto", "relative", "absolute"]
BLOCK = 64


def weka(
    path: Path, *, dialect: Dialect = "auto", lanes: int = 1, gap_cap_s: float = GAP_CAP_S
) -> RecordedRequests:
    """The sessions of ``path``, ``lanes`` of them live at once."""
    form = RequestForm(block_tokens=BLOCK, session_scope=True)

    def rows() -> Iterator[Row]:
        return interleave(_sessions(path, dialect), lanes, gap_cap_s)

    return RecordedRequests(path.name, form, rows)


def _sessions(path: Path, dialect: Dialect) -> Iterator[RecordedSession]:
    for number, (where, data) in enumerate(_objects(path)):
        yield _session(where, data, number, dialect)


def _objects(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(where, session) of every form that a set of sessions comes in."""
    if path.is_dir():
        for file in sorted(path.glob("*.json")):
            yield str(file), _parse(str(file), file.read_bytes())
    elif ".tar" in path.suffixes:
        yield from _members(path)
    elif path.suffix == ".json":
        yield str(path), _parse(str(path), path.read_bytes())
    else:
        yield from json_objects(path)


def _members(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        with open_bytes(path) as file, tarfile.open(fileobj=file, mode="r|") as archive:
            for member in archive:
                content = archive.extractfile(member) if member.isfile() else None
                if content is not None and member.name.endswith(".json"):
                    where = f"{path}:{member.name}"
                    yield where, _parse(where, content.read())
    except (tarfile.TarError, OSError, EOFError) as error:
        raise UsageError(f"{path}: not a whole tar archive: {error}") from error


def _parse(where: str, content: bytes) -> dict[str, Any]:
    try:
        data = json.loads(content)
    except ValueError as error:
        raise not_json(where, error) from error
    if not isinstance(data, dict) or not isinstance(data.get("requests"), list):
        raise UsageError(f"{where}: not a session: no list of requests")
    return data


def _session(where: str, data: dict[str, Any], number: int, dialect: Dialect) -> RecordedSession:
    if data.get("hash_id_scope", "local") != "local":
        raise UsageError(f"{where}: hash_id_scope {data['hash_id_scope']!r} is not understood")
    if data.get("block_size", BLOCK) != BLOCK:
        raise UsageError(f"{where}: block_size {data['block_size']!r}, expected {BLOCK}")
    rows: list[Row] = []
    relative = dialect == "relative" or (dialect == "auto" and _is_relative(data["requests"]))
    last = 0.0
    for place, entry in enumerate(data["requests"]):
        at = f"{where}: requests[{place}]"
        start = to_time(entry, "t", at)
        if start < last:
            raise UsageError(f"{at}: time goes backwards, {start} s after {last} s")
        last = start
        if entry.get("type") == "subagent":
            shift = start if relative else 0.0
            rows += [
                _row(f"{at}.requests[{n}]", inner, number, Tag.SUBAGENT, shift)
                for n, inner in enumerate(entry.get("requests", []))
            ]
        else:
            rows.append(_row(at, entry, number, Tag.MAIN))
    rows.sort(key=lambda row: row.time_s)
    return RecordedSession([row._replace(turn=turn) for turn, row in enumerate(rows)])


def _is_relative(requests: list[dict[str, Any]]) -> bool:
    """Whether subagents' times count from their marker: only then can one lie before it."""
    for entry in requests:
        if entry.get("type") == "subagent" and entry.get("requests"):
            first = entry["requests"][0].get("t", 0)
            if first < entry.get("t", 0):
                return True
    return False


def _row(where: str, data: dict[str, Any], session: int, tag: Tag, shift: float = 0.0) -> Row:
    time_s = to_time(data, "t", where) + shift
    tokens, output = to_count(data, "in", where), to_count(data, "out", where)
    ids = to_ids(data.get("hash_ids"), where)
    return check_blocks(Row(where, time_s, session, -1, tokens, output, ids, tag), BLOCK)
