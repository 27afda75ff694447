"""The ``harness`` command: parse, call, print.

One module a group of commands. They import only typer and the core at module level, so that
``--help`` answers at once; what a command needs is imported when it runs.
"""

from __future__ import annotations

from harness.cli.app import main

__all__ = ["main"]
