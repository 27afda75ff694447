"""What the options of ``harness wear`` say: rates, fills, drives, inputs; and which go together."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from harness.cli.choices import refuse
from harness.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.core.profiles import DeviceProfile
    from harness.endurance.inputs import Input

DEFAULT_ORDERS = 2
_SWEEP = {"sweep", "resume", "results", "as_json"}


@dataclass(frozen=True)
class InputWish:
    """Which input was asked for, and how it is to be repeated."""

    source: Path | None
    store: str | None
    requests: str
    model: str
    seed: int
    utilisation: float
    loop: bool
    repeats: int
    scale: str | None


def refuse_beside_sweep(ctx: typer.Context) -> None:
    """UsageError for what only the grid of a sweep can say."""
    if ctx.params.get("source") is not None:
        raise UsageError("with --sweep, whose grid says all of it, INPUT has no meaning")
    refuse(ctx, set(ctx.params) - _SWEEP - {"source"}, "with --sweep, whose grid says all of it,")


def refuse_ignored(ctx: typer.Context, wish: InputWish, resumed: bool) -> None:
    """UsageError for options that this input would ignore, or for no input or two."""
    if (wish.source is None) == (wish.store is None):
        raise UsageError("give a trace or op list, or a store: INPUT, or --store S --requests T")
    if wish.store is not None:
        refuse(
            ctx, {"loop", "repeats", "scale", "phases"}, "with --store, which goes on by itself,"
        )
        if not 0 < wish.utilisation <= 1:
            raise UsageError(f"--utilisation lies in (0, 1]: {wish.utilisation}")
    else:
        refuse(ctx, {"requests", "model", "utilisation"}, "without --store")
        _refuse_beside_trace(ctx, wish)
    if resumed:
        refuse(ctx, {"precondition"}, "with --resume, whose drive is filled already,")


def _refuse_beside_trace(ctx: typer.Context, wish: InputWish) -> None:
    if wish.scale not in (None, "tile"):
        raise UsageError(
            f"--scale {wish.scale}: only tile; other sizes come from re-emitting the store",
            fix="use --store and --requests, or harness trace scale",
        )
    if wish.scale:
        refuse(ctx, {"loop", "repeats"}, "with --scale tile, which goes on by itself,")
    else:
        refuse(ctx, {"seed"}, "without --store or --scale tile")
        refuse(ctx, {"phases"}, "without --scale tile")
    if wish.loop:
        refuse(ctx, {"repeats"}, "with --loop, which repeats until the WAF is steady,")


def rates_of(texts: list[str]) -> tuple[float, ...]:
    """Bytes a day of ``--writes-per-day``, in the order given."""
    from harness.core.units import parse_size

    rates = tuple(float(parse_size(text)) for text in texts)
    if any(rate <= 0 for rate in rates):
        raise UsageError(f"--writes-per-day must be above 0: {', '.join(texts)}")
    return rates


def fills_of(text: str | None) -> int | None:
    """Fills that ``--precondition`` asks for; None where it was not given."""
    if text is None:
        return None
    if text == "none":
        return 0
    if not (text.isascii() and text.isdigit()):
        raise UsageError(f"--precondition takes a number of fills, or none: {text!r}")
    return int(text)


def perturbations_of(wish: InputWish, asked: int | None) -> int:
    """Orders to measure besides the one that was given.

    A capture that is repeated has a seam that no store wrote: its WAF is given as a range. An op
    list is not a capture.
    """
    if asked is not None:
        return asked
    if wish.source is None or not (wish.loop or wish.repeats > 1):
        return 0
    from harness.endurance.inputs import open_input

    return 0 if open_input(wish.source).kind == "oplist" else DEFAULT_ORDERS


def drives_of(profile: DeviceProfile, policies: list[str]) -> list[DeviceProfile]:
    """The drive under each policy, or as its profile says."""
    from typing import get_args

    from harness.core.profiles import PolicyName

    known: tuple[Any, ...] = get_args(PolicyName)
    for policy in policies:
        if policy not in known:
            raise UsageError(f"unknown policy {policy!r}; known: {', '.join(known)}")
    if len(set(policies)) < len(policies):
        raise UsageError(f"a policy is given twice: {', '.join(policies)}")
    chosen: list[Any] = list(policies)
    return [profile.with_policy(policy) for policy in chosen] or [profile]


def variant_of(wish: InputWish, drive: DeviceProfile) -> Callable[[int], Input]:
    """The input as asked for, in its n-th phase."""
    from harness.endurance.arrange import Looped, Tiled
    from harness.endurance.inputs import open_input
    from harness.endurance.store_input import StoreInput

    if wish.store is not None:
        size = int(drive.namespace_bytes * wish.utilisation)
        made = StoreInput(wish.store, wish.requests, wish.model, size, wish.seed)
        return lambda phase: made
    assert wish.source is not None  # refuse_ignored saw to it
    opened = open_input(wish.source)
    if wish.scale and opened.kind == "oplist":
        raise UsageError("--scale tile is for block traces: the tags of an op list have no place")
    if wish.scale:
        return lambda phase: Tiled(opened, drive.namespace_bytes, wish.seed + phase)
    if wish.loop or wish.repeats > 1:
        return lambda phase: Looped(opened, None if wish.loop else wish.repeats)
    return lambda phase: opened
