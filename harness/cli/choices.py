"""Options that would be ignored are refused, not swallowed."""

from __future__ import annotations

from collections.abc import Iterable

import typer

from harness.core.errors import UsageError


def refuse(ctx: typer.Context, names: Iterable[str], where: str) -> None:
    """UsageError for those of the parameters ``names`` that were given: ``where`` they are idle.

    ``where`` begins the message: "without --loop", "with --sweep, whose grid says it,".
    """
    given = [
        f"--{name.replace('_', '-')}"
        for name in sorted(names)
        if (source := ctx.get_parameter_source(name)) and source.name == "COMMANDLINE"
    ]
    if given:
        raise UsageError(f"{where} these have no meaning: {', '.join(given)}")
