"""``harness validate``: how far can the numbers be trusted, rung by rung?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli.output import JsonFlag, console, print_json, progress_bar
from harness.core.errors import UsageError

if TYPE_CHECKING:
    from harness.validate.ladder import Ladder
    from harness.validate.rung import Rung


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("validate")(validate)


def validate(
    rung: Annotated[
        list[int] | None, typer.Option("--rung", help="Only this rung (1–4); may be repeated.")
    ] = None,
    profile: Annotated[str, typer.Option(help="Drive of rungs 2 and 4.")] = "1tb-0.3dwpd",
    policy: Annotated[
        str | None, typer.Option(help="femu, femu-stock, femu-late or drive instead of its own.")
    ] = None,
    store: Annotated[str, typer.Option(help="Store of rungs 2 and 4.")] = "lmcache-raw-block",
    requests: Annotated[str, typer.Option(help="Request trace or synthetic mix.")] = "chat",
    model: Annotated[str, typer.Option(help="Model whose KV is stored.")] = "llama-3.1-8b-tp8",
    utilisation: Annotated[float, typer.Option(help="Store's share of the namespace.")] = 1.0,
    scale: Annotated[
        list[str] | None,
        typer.Option("--scale", help="Small sizes of rung 2.", show_default="1/8, 1/64"),
    ] = None,
    budget: Annotated[
        float, typer.Option(help="Seconds for each wear measurement; not steady by then is said.")
    ] = 60.0,
    trace: Annotated[
        Path | None,
        typer.Option(help="Rung 1 on FEMU also with this block trace, on the drive of --profile."),
    ] = None,
    trace_scale: Annotated[
        str, typer.Option("--trace-scale", help="Size of that drive: FEMU keeps it in memory.")
    ] = "1/256",
    device: Annotated[
        str | None, typer.Option("--device", "-d", help="Rung 3 also on this NVMe drive.")
    ] = None,
    destroy: Annotated[
        str | None, typer.Option(help="Its serial, WWID or size: its data are overwritten.")
    ] = None,
    perturb: Annotated[int, typer.Option(help="Perturbed orders for the band of rung 2.")] = 2,
    seed: Annotated[int, typer.Option(help="Of a synthetic request mix.")] = 0,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit 1 for any row that does not agree or run.")
    ] = False,
    results: Annotated[Path, typer.Option("--results", help="Folder for run folders.")] = Path(
        "results"
    ),
    as_json: JsonFlag = False,
) -> None:
    """Climb the ladder of trust and print what agrees, what differs and what could not run.

    1: the FTL model equals FEMU, page for page. 2: a small drive equals the full one, the store
    re-emitted. 3: drives count what they were sent. 4: life at WAF 1 against measured WAF.
    Exit 1 when an equality (1 or 3) fails. Root: guests see this host's files.

    Example: harness validate --rung 1 --rung 3

    Example: harness validate --rung 3 --device /dev/nvme0n1 --destroy S4EWNX0R123456
    """
    from harness.core.files import write_json
    from harness.core.runs import RunFolder
    from harness.device.femu import parse_scale
    from harness.validate.ladder import climb, failed, to_json

    wanted = tuple(sorted(set(rung or (1, 2, 3, 4))))
    if not set(wanted) <= {1, 2, 3, 4}:
        raise UsageError("rungs are 1, 2, 3 and 4")
    if (device is None) != (destroy is None):
        raise UsageError("--device and --destroy go together: the drive is named twice")
    ladder = replace(
        _ladder(profile, policy, (store, requests, model, utilisation, seed), scale),
        rungs=wanted,
        budget_s=budget,
        perturb=perturb,
        trace=trace,
        trace_scale=parse_scale(trace_scale),
        drive=(device, destroy) if device and destroy else None,
    )
    if budget <= 0 or perturb < 0:
        raise UsageError("--budget must be positive, --perturb not negative")
    with RunFolder(results, "validate", ladder.profile.name, {"rungs": list(wanted)}) as run:
        with progress_bar("validate", enabled=not as_json) as progress:
            rows = climb(ladder, run.path, progress)
        record = {**to_json(rows, ladder), "run": str(run.final)}
        write_json(run.path / "validate.json", record)
        bad = failed(rows, strict=strict)
        run.exit_code = int(bad)
    if as_json:
        print_json(record)
    else:
        _print(rows)
        console().print(f"run folder: {run.final}", soft_wrap=True)
    if bad:
        raise typer.Exit(1)


def _ladder(
    profile: str,
    policy: str | None,
    traffic: tuple[str, str, str, float, int],
    scales: list[str] | None,
) -> Ladder:
    from harness.core.profiles import load_profile
    from harness.device.femu import parse_scale
    from harness.validate.ladder import Ladder
    from harness.validate.scaling import Traffic

    drive = load_profile(profile)
    if policy is not None:
        drive = drive.changed(policy=policy)
    if not 0 < traffic[3] <= 1:
        raise UsageError(f"--utilisation lies in (0, 1]: {traffic[3]}")
    sizes = tuple(parse_scale(text) for text in scales or ["1/8", "1/64"])
    return Ladder(drive, Traffic(*traffic), scales=sizes)


_STYLES = {"AGREES": "green", "DIFFERS": "red", "NOT RUN": "yellow"}


def _print(rows: list[Rung]) -> None:
    from rich.markup import escape
    from rich.table import Table

    table = Table("rung", "compared", "expected", "measured", "verdict", title="Ladder of trust")
    for row in rows:
        style = _STYLES[row.verdict.value]
        table.add_row(
            str(row.rung),
            escape(row.compared),
            escape(_short(row.expected)),
            escape(_short(row.measured)),
            f"[{style}]{row.verdict.value}[/]",
        )
    out = console()
    out.print(table)
    for row in rows:
        if row.note:
            out.print(f"{row.rung}: {escape(row.compared)}: {escape(row.note)}", soft_wrap=True)


def _short(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, dict):
        return "\n".join(f"{key}: {_short(item)}" for key, item in value.items())
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)
