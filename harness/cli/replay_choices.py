"""Which options of ``harness replay`` go together: one that would be ignored is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from harness.cli.choices import refuse

if TYPE_CHECKING:
    from harness.replay.options import ReplayOptions

_ELSEWHERE = {
    "--femu": {"femu", "scale", "keep", "fills", "mode", "discard"},
    "--ssh": {"ssh", "device", "destroy", "fills", "mode", "discard"},
}
"""Options that mean something when the replay runs elsewhere, besides those of every run."""
_EVERYWHERE = {"trace", "strict", "results", "as_json"}


def refuse_unused(ctx: typer.Context, place: str) -> None:
    """UsageError for options that a replay elsewhere would ignore."""
    refuse(ctx, set(ctx.params) - _ELSEWHERE[place] - _EVERYWHERE, f"with {place}")


def refuse_ignored(ctx: typer.Context, options: ReplayOptions, *, on_loop: bool) -> None:
    """UsageError for options that a replay on this machine would ignore."""
    refuse(ctx, {"scale", "keep", "fills"}, "without --femu or --ssh")
    if on_loop:
        refuse(ctx, {"destroy"}, "with --loop, whose device is made for the replay,")
    else:
        refuse(ctx, {"loop_dir"}, "without --loop")
    if options.until_bytes is not None:
        refuse(ctx, {"repeat"}, "with --until, which repeats as often as needed,")
    if options.mode == "flat-out":
        refuse(ctx, {"speed", "realtime"}, "flat out, where there are no times to keep,")
    if options.zero:
        refuse(ctx, {"seed"}, "with --zero")
    if options.engine == "fio":
        refuse(ctx, {"seed", "realtime"}, "with the engine fio")
