"""How long work reports progress without knowing who is looking.

Parts take a ``Progress``; the command line passes one that draws a bar on a terminal, and
``quiet`` is the default everywhere else.
"""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Called with work done and total in the same unit; ``note`` says what is going on."""

    def __call__(self, done: float, total: float | None, note: str = "") -> None: ...


def quiet(done: float, total: float | None, note: str = "") -> None:
    """Report to nobody."""
