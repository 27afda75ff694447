"""Links lead somewhere, every page can be reached, and quoted errors are those of the source."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, PAGES, TOP, links

_HOLE = "\0"
_ROW = re.compile(r"^\| `([^`]+)` \|", re.MULTILINE)
MESSAGES = _ROW.findall((DOCS / "errors.md").read_text())


@pytest.mark.parametrize(
    "page", [TOP / "README.md", *PAGES], ids=lambda page: str(page.relative_to(TOP))
)
def test_links_resolve(page: Path) -> None:
    for link in links(page):
        if link.startswith(("http://", "https://")):
            continue
        target, _, anchor = link.partition("#")
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), f"{page.name} -> {link}"
        assert file.is_relative_to(TOP), f"{page.name} leaves the repository: {link}"
        if anchor:
            assert anchor in anchors(file), f"{page.name} -> {link}"


def anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings}


def test_every_page_is_reached_from_the_index() -> None:
    seen, ahead = set(), [DOCS / "README.md"]
    while ahead:
        page = ahead.pop()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        ahead += [
            (page.parent / link.partition("#")[0]).resolve()
            for link in links(page)
            if not link.startswith(("http", "#"))
        ]
    assert set(PAGES) <= seen


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_files_named_in_text_exist(page: Path) -> None:
    for name in re.findall(r"`((?:ebpf|femu|harness|tests|workloads)/[\w./-]*)`", page.read_text()):
        assert (TOP / name).exists(), f"{page.name}: {name}"


def test_the_architecture_names_the_parts_that_exist() -> None:
    text = (DOCS / "architecture.md").read_text()
    named = set(re.findall(r"^\| \d+ \| `(\w+)` \|", text, re.MULTILINE))
    parts = {path.parent.name for path in (TOP / "harness").glob("*/__init__.py")}
    assert named <= parts
    assert len(named) >= 15


@cache
def source_texts() -> tuple[str, ...]:
    """Every string of the source; what an f-string fills in is a hole."""
    found: list[str] = []
    for folder in ("harness", "ebpf"):
        for file in sorted((TOP / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.JoinedStr):
                    found.append("".join(map(_piece, node.values)))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.append(node.value)
    return tuple(found)


def _piece(value: ast.expr) -> str:
    return value.value if isinstance(value, ast.Constant) else _HOLE  # type: ignore[return-value]


def is_in_source(message: str) -> bool:
    """Whether one string of the source is the message, its … standing for anything."""
    pattern = re.compile(".*?".join(re.escape(part) for part in message.split("…")), re.DOTALL)
    return any(pattern.fullmatch(text) for text in source_texts())


@pytest.mark.parametrize("message", MESSAGES)
def test_a_quoted_error_is_in_the_source(message: str) -> None:
    assert len(message.replace("…", "").strip()) >= 10, "too little to be recognised by"
    assert is_in_source(message)


def test_errors_are_quoted_once_and_compared_in_earnest() -> None:
    assert len(MESSAGES) > 40
    assert len(set(MESSAGES)) == len(MESSAGES)
    assert not is_in_source("… is mounted: /dev/… under …")
