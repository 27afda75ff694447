"""Every command in the documentation: run where nothing special is needed, else parsed.

A page's blocks run in order, in one empty folder; what the page shows below a command must come
out of it, in that order. Blocks marked ``device`` need a device, root or minutes: their harness
commands are parsed by the command tree itself, their make targets looked up.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from harness.cli.app import app
from tests.docs.pages import DOCS, PAGES, TOP, Block, Step, blocks, quoted_commands

TREE = typer.main.get_command(app)
RUN = [page for page in PAGES if any(not block.device for block in blocks(page))]
PARSED = [
    (page, step) for page in PAGES for block in blocks(page) if block.device for step in block.steps
]
QUOTED = [(page, command) for page in PAGES for command in quoted_commands(page)]


def name(value: Any) -> str | None:
    """A page's path as test id."""
    return str(value.relative_to(TOP)) if isinstance(value, Path) else None


@pytest.mark.parametrize("page", RUN, ids=name)
def test_commands_do_what_the_page_shows(page: Path, tmp_path: Path) -> None:
    shim = tmp_path / "bin" / "harness"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m harness "$@"\n')
    shim.chmod(0o755)
    work = tmp_path / "work"
    work.mkdir()
    path = f"{shim.parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(TOP), "COLUMNS": "100"}
    for block in blocks(page):
        if not block.device:
            for step in block.steps:
                run(step, block, work, environment)


def run(step: Step, block: Block, work: Path, environment: dict[str, str]) -> None:
    """Run one command and compare its exit code and what it printed."""
    done = subprocess.run(
        ["bash", "-c", step.command],
        cwd=work,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == block.exit_code, f"{step.command}\n{done.stdout}"
    rest = plain(done.stdout)
    for line in step.shown:
        for part in filter(None, (plain(piece) for piece in line.split("…"))):
            assert part in rest, f"{step.command}: {part!r} is not in what is left:\n{rest}"
            rest = rest.split(part, 1)[1]


def plain(text: str) -> str:
    """Text with the frames of tables and runs of blanks as one blank."""
    return " ".join(re.sub(r"[┏┳┓┡╇┩│┃└┴┘━─]", " ", text).split())


@pytest.mark.parametrize(("page", "step"), PARSED, ids=name)
def test_commands_for_devices_are_understood(page: Path, step: Step) -> None:
    words = shlex.split(step.command, comments=True)
    while words[0] == "sudo" or re.fullmatch(r"[A-Z_]+=\S+", words[0]):
        words = words[1:]
    if words[0] == "make":
        check_make(words[1:])
    else:
        assert words[0].removeprefix(".venv/bin/") == "harness", f"{page}: {step.command}"
        leaf, rest = resolve(words[1:])
        leaf.make_context(leaf.name, rest)  # UsageError for anything that it does not take


def check_make(words: list[str]) -> None:
    """Targets and variables that the Makefile has."""
    makefile = (TOP / "Makefile").read_text()
    for word in words:
        variable, equals, _ = word.partition("=")
        if equals:
            assert f"$({variable})" in makefile, variable
        else:
            assert re.search(rf"^{re.escape(word)}:", makefile, re.MULTILINE), word


@pytest.mark.parametrize(("page", "command"), QUOTED, ids=name)
def test_commands_in_running_text_exist(page: Path, command: str) -> None:
    node, rest = resolve(command.split()[1:])
    known = {option for parameter in node.params for option in parameter.opts}
    given = {word for word in rest[: [*rest, "--"].index("--")] if word.startswith("--")}
    assert given <= known | {"--help"}, f"{page}: {given - known}"


def resolve(words: list[str]) -> tuple[Any, list[str]]:
    """The command that ``words`` reach, and its arguments."""
    node: Any = TREE
    while hasattr(node, "commands") and words and not words[0].startswith("-"):
        if words[0] not in node.commands and getattr(node, "default", None):
            words = [node.default, *words]
        assert words[0] in node.commands, f"no command {words[0]!r}"
        node, words = node.commands[words[0]], words[1:]
    return node, words


def test_all_pages_are_looked_at() -> None:
    assert DOCS / "getting-started.md" in RUN
    assert len(PARSED) > 5
    assert len(QUOTED) > 5
