"""What the documentation consists of: pages, their console blocks, links and quoted commands."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
DOCS = TOP / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), TOP / "CONTRIBUTING.md", TOP / "CHANGELOG.md"])

_BLOCK = re.compile(r"^```console *([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
_INLINE = re.compile(r"`(harness [^`]+)`")


@dataclass(frozen=True)
class Step:
    """One command of a block and the lines that the page shows below it."""

    command: str
    shown: tuple[str, ...]


@dataclass(frozen=True)
class Block:
    """A console block. ``device``: it needs a device, root or minutes, and is only parsed."""

    steps: tuple[Step, ...]
    device: bool
    exit_code: int


def blocks(page: Path) -> list[Block]:
    """The console blocks of a page, in order."""
    return [_block(tags.split(), body) for tags, body in _BLOCK.findall(page.read_text())]


def _block(tags: list[str], body: str) -> Block:
    unknown = [tag for tag in tags if tag != "device" and not re.fullmatch(r"exits-\d+", tag)]
    if unknown:
        raise ValueError(f"unknown tags of a console block: {unknown}")
    codes = [int(tag.removeprefix("exits-")) for tag in tags if tag != "device"]
    steps: list[Step] = []
    command = ""
    shown: list[str] = []
    for line in body.splitlines():
        if line.startswith("$ "):
            if command:
                steps.append(Step(command, tuple(shown)))
            command, shown = line[2:], []
        elif line.startswith("> ") or line == ">":  # the shell's second prompt: it goes on
            command += "\n" + line[2:]
        else:
            shown.append(line)
    if not command:
        raise ValueError(f"a console block without a command: {body!r}")
    steps.append(Step(command, tuple(shown)))
    return Block(tuple(steps), "device" in tags, codes[0] if codes else 0)


def links(page: Path) -> list[str]:
    """Targets of the links of a page, code blocks aside."""
    return _LINK.findall(_FENCED.sub("", page.read_text()))


def quoted_commands(page: Path) -> list[str]:
    """Harness commands quoted in running text."""
    return _INLINE.findall(_FENCED.sub("", page.read_text()))
