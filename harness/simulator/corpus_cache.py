"""Corpora kept on disk: arrays are read, where a trace has to be parsed."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import numpy as np

from harness.core.caches import cache_home
from harness.core.errors import UsageError
from harness.core.units import format_size
from harness.simulator.corpus_build import build, in_lanes, with_hash
from harness.simulator.corpus_form import Corpus
from harness.stores.names import workload_yaml
from harness.stores.requests.lanes import GAP_CAP_S
from harness.stores.requests.load import detect, open_requests

_VERSION = 2
_META = ("name", "block_tokens", "scope", "content_hash")


def load_corpus(
    requests: str,
    *,
    lanes: int | None = None,
    seed: int | None = None,
    gap_cap_s: float = GAP_CAP_S,
    limit: int | None = None,
    partial: bool = False,
    format_name: str | None = None,
    block_tokens: int | None = None,
    note: Callable[[str], None] | None = None,
) -> Corpus:
    """The corpus of a trace file, a folder of sessions, or traffic of ``workloads/requests``.

    Parameters
    ----------
    lanes, gap_cap_s
        Sessions live at once, and the longest pause inside one (recorded sessions only).
    seed
        Orders recorded sessions at random (None: in their own order); makes synthetic traffic.
    limit
        First requests only; needed for synthetic traffic.
    partial
        Count partly filled last blocks as well.
    note
        Is told when a trace is parsed and how large its cache is.

    Raises
    ------
    UsageError
        What ``open_requests`` and ``build`` raise.
    """
    say = note or (lambda text: print(text, file=sys.stderr))
    path = Path(requests)
    sessions = path.exists() and (format_name or _kind(path)) == "weka"

    def parse() -> Corpus:
        source = open_requests(
            requests, seed=seed or 0, format_name=format_name,
            lanes=1 if sessions else lanes,
            gap_cap_s=float("inf") if sessions else gap_cap_s,
            block_tokens=block_tokens,
        )  # fmt: skip
        return build(source, None if sessions else limit, partial)

    how = ["sessions"] if sessions else [lanes, seed, gap_cap_s, limit]
    corpus = cached(_key(requests, [*how, partial, format_name, block_tokens]), parse, say)
    if not sessions:
        return corpus
    return first_requests(in_lanes(corpus, lanes or 1, gap_cap_s, seed), limit)


def first_requests(corpus: Corpus, limit: int | None) -> Corpus:
    """The corpus cut after ``limit`` requests."""
    if limit is None or limit >= corpus.requests:
        return corpus
    runs = int(corpus.run_of[limit])
    nodes = int(np.searchsorted(corpus.first_request, limit))
    cut = {"run_of": limit + 1, "run_node": runs, "run_length": runs}
    cut |= dict.fromkeys(("parent", "depth", "first_request"), nodes)
    arrays = {name: getattr(corpus, name)[: cut.get(name, limit)] for name in _arrays()}
    return with_hash(Corpus(**{name: getattr(corpus, name) for name in _META}, **arrays))


def _kind(path: Path) -> str:
    return "synthetic" if path.suffix in (".yaml", ".yml") else detect(path)


def _arrays() -> list[str]:
    return [field.name for field in fields(Corpus) if field.name not in _META]


def _key(requests: str, options: list[object]) -> str:
    digest = hashlib.sha256(json.dumps([_VERSION, options]).encode())
    path = Path(requests)
    if not path.exists():
        path = workload_yaml("requests", requests)
    for file in sorted(path.glob("*.json")) if path.is_dir() else [path]:
        with file.open("rb") as content:
            digest.update(hashlib.file_digest(content, "sha256").digest())
    return f"{path.name.split('.')[0]}-{digest.hexdigest()[:16]}"


def _folder() -> Path:
    return cache_home() / "corpora"


def cached(key: str, parse: Callable[[], Corpus], say: Callable[[str], None]) -> Corpus:
    """The corpus kept under ``key``; parsed, and kept, if there is none that is whole."""
    folder = _folder() / key
    if folder.is_dir():
        try:
            return read_corpus(folder)
        except (OSError, ValueError, KeyError, UsageError):
            say(f"the cached corpus {folder} is damaged: it is made again")
            shutil.rmtree(folder, ignore_errors=True)
    corpus = parse()
    try:
        size = write_corpus(corpus, folder)
        say(f"kept {format_size(size)} in {folder}: the next run need not parse the trace")
    except OSError as error:
        say(f"the corpus is not kept: {error}")
    return corpus


def write_corpus(corpus: Corpus, folder: Path) -> int:
    """Write the arrays to a new folder, whole or not at all; bytes written."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".making-") as name:
        aside = Path(name) / "corpus"
        aside.mkdir()
        for field in _arrays():
            np.save(aside / f"{field}.npy", getattr(corpus, field))
        meta = {field: getattr(corpus, field) for field in _META}
        (aside / "corpus.json").write_text(json.dumps(meta))
        size = sum(file.stat().st_size for file in aside.iterdir())
        try:
            aside.rename(folder)
        except OSError:
            if not folder.is_dir():  # another process was faster
                raise
    return size


def read_corpus(folder: Path) -> Corpus:
    """Read what ``write_corpus`` wrote; UsageError if its hash is not that of its arrays."""
    meta = json.loads((folder / "corpus.json").read_text())
    arrays = {name: np.load(folder / f"{name}.npy", allow_pickle=False) for name in _arrays()}
    corpus = Corpus(**{name: meta[name] for name in _META}, **arrays)
    if with_hash(corpus).content_hash != corpus.content_hash:
        raise UsageError(f"{folder}: the arrays are not those that were written")
    return corpus
