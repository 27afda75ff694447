"""Opening a request trace: synthetic traffic by name, or a file by its content."""

from __future__ import annotations

import difflib
import json
from pathlib import Path
from typing import get_args

from harness.core.config import load_yaml
from harness.core.errors import UsageError
from harness.stores.names import workload_names, workload_yaml
from harness.stores.requests.aiperf import aiperf
from harness.stores.requests.chats import BAILIAN_BLOCK, MOONCAKE_BLOCK, bailian, mooncake
from harness.stores.requests.form import RequestSource
from harness.stores.requests.lanes import GAP_CAP_S
from harness.stores.requests.lengths import lengths
from harness.stores.requests.oracle import oracle_general
from harness.stores.requests.synthetic import SyntheticRequests, SyntheticSpec
from harness.stores.requests.text import lines, not_json
from harness.stores.requests.weka import Dialect, weka

FORMATS = (
    "mooncake", "bailian", "weka", "aiperf", "aiperf-delta", "azure", "burstgpt", "oracle-general",
)  # fmt: skip


def open_requests(
    name_or_path: str,
    *,
    seed: int = 0,
    format_name: str | None = None,
    dialect: str = "auto",
    lanes: int | None = None,
    gap_cap_s: float = GAP_CAP_S,
    block_tokens: int | None = None,
) -> RequestSource:
    """Traffic of ``workloads/requests`` by name, a YAML file like those, or a recorded trace.

    Parameters
    ----------
    seed
        Makes synthetic traffic; recorded traces have none.
    format_name
        One of ``FORMATS``; None decides by name and content.
    dialect
        Of WEKA sessions: auto, relative or absolute times of subagents.
    lanes, gap_cap_s
        Play recorded sessions in a closed loop (see ``lanes``); WEKA sessions always are, one at a
        time unless told otherwise.
    block_tokens
        Tokens an id stands for, where the format leaves it open.

    Raises
    ------
    UsageError
        An unknown name (the nearest are offered), format or dialect, or an unreadable file.
    """
    path = Path(name_or_path)
    if path.suffix in (".yaml", ".yml") or not path.exists():
        found = workload_yaml("requests", name_or_path)
        return SyntheticRequests(load_yaml(found, SyntheticSpec), seed, name=found.stem)
    kind = format_name or detect(path)
    if kind not in FORMATS:
        near = difflib.get_close_matches(kind, FORMATS, n=2, cutoff=0.4)
        raise UsageError(
            f"unknown request format {kind!r}{'; did you mean ' + ', '.join(near) if near else ''}",
            fix=f"known: {', '.join(FORMATS)}",
        )
    if dialect not in get_args(Dialect):
        raise UsageError(f"unknown dialect {dialect!r}: auto, relative or absolute")
    if kind == "weka":
        return weka(path, dialect=dialect, lanes=lanes or 1, gap_cap_s=gap_cap_s)  # type: ignore[arg-type]
    if kind in ("aiperf", "aiperf-delta"):
        delta = True if kind == "aiperf-delta" else None
        size = block_tokens or MOONCAKE_BLOCK
        return aiperf(path, delta=delta, block_tokens=size, lanes=lanes, gap_cap_s=gap_cap_s)
    if kind == "mooncake":
        return mooncake(path, block_tokens or MOONCAKE_BLOCK)
    if kind == "bailian":
        return bailian(path, block_tokens or BAILIAN_BLOCK)
    if kind == "oracle-general":
        return oracle_general(path, *([block_tokens] if block_tokens else []))
    return lengths(path, kind, *([block_tokens] if block_tokens else []))


def describe_traffic(name: str) -> str:
    """What a YAML file of ``workloads/requests`` says of itself."""
    return load_yaml(workload_yaml("requests", name), SyntheticSpec).description


def detect(path: Path) -> str:
    """The format of a file, by its name and its first line; UsageError if none fits."""
    names = [suffix.lower() for suffix in path.suffixes]
    if path.is_dir() or ".tar" in names or names[-1:] == [".json"]:
        return "weka"
    if any("oraclegeneral" in name for name in names):
        return "oracle-general"
    where, first = next(lines(path), (f"{path}:1", ""))
    if not first:
        raise UsageError(f"{where}: the file is empty", fix="give a file that holds requests")
    if not first.startswith("{"):
        return _by_header(path, first)
    try:
        keys = set(json.loads(first))
    except ValueError as error:
        raise not_json(where, error) from error
    if "requests" in keys:
        return "weka"
    if "chat_id" in keys:
        return "bailian"
    if "session_id" in keys:
        return "aiperf"
    if {"timestamp", "hash_ids"} <= keys:
        return "mooncake"
    raise UsageError(
        f"{where}: no known request format has the keys {', '.join(sorted(keys))}",
        fix=f"name it with --format: {', '.join(FORMATS)}",
    )


def _by_header(path: Path, first: str) -> str:
    if "ContextTokens" in first:
        return "azure"
    if "Request tokens" in first:
        return "burstgpt"
    known = ", ".join(workload_names("requests"))
    raise UsageError(
        f"{path}: not a request trace that is known",
        fix=f"name its format with --format ({', '.join(FORMATS)}), or use one of: {known}",
    )
