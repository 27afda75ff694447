"""Every command explains itself, prints JSON when asked, and answers ``--help`` at once."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from harness.cli.app import app

HEAVY = {"numpy", "pyarrow", "pandas", "numba", "pydantic", "scipy", "matplotlib", "paramiko"}


def commands(node: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every leaf of the command tree with the words that reach it."""
    children = getattr(node, "commands", None)
    if children is None:
        yield path, node
        return
    for name, child in children.items():
        yield from commands(child, (*path, name))


LEAVES = list(commands(typer.main.get_command(app)))


@pytest.mark.parametrize(("words", "command"), LEAVES, ids=[" ".join(w) for w, _ in LEAVES])
def test_a_command_has_help_with_an_example_and_json(words: tuple[str, ...], command: Any) -> None:
    assert "Example" in command.help
    assert f"harness {' '.join(words)}" in command.help
    assert "--json" in {option for param in command.params for option in param.opts}
    for param in command.params:
        if param.param_type_name == "option":
            assert param.help, f"{param.name} has no help"
            assert "[default" not in param.help, f"{param.name}: rich takes brackets for markup"


def test_help_imports_nothing_heavy() -> None:
    code = "import harness.cli, json, sys; print(json.dumps(sorted(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not HEAVY & set(json.loads(out.stdout))


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "harness", *words], capture_output=True, text=True, check=False
    )


def test_usage_mistakes_exit_with_2() -> None:
    wrong = run("no-such-command")
    assert wrong.returncode == 2
    assert "no-such-command" in wrong.stderr
    assert run("--no-such-option").returncode == 2


def test_version() -> None:
    out = run("--version")
    assert (out.returncode, out.stdout.split()[0]) == (0, "harness")
