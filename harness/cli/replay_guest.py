"""The part of ``harness replay`` that runs in a guest (``--femu PROFILE``)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from harness.cli import output
from harness.cli.replay import unfaithful
from harness.core.errors import UsageError

if TYPE_CHECKING:
    from harness.core.runs import RunFolder


class GuestWish(NamedTuple):
    """What the command line asks of a replay in a guest."""

    profile: str
    scale: str
    keep: str
    fills: int
    discard: bool
    timed: bool


def run_in_guest(trace: Path, wish: GuestWish, results: Path, strict: bool, as_json: bool) -> None:
    """Replay in a guest and print what the drive counted; exit 1 if it was not faithful."""
    from harness.core.profiles import load_profile
    from harness.core.runs import RunFolder
    from harness.device.guest.plan import plan_guest
    from harness.device.guest.replaying import replay_in_guest
    from harness.device.guest.timed import replay_timed_in_guest

    if wish.keep not in ("line-size", "line-count"):
        raise UsageError(f"--keep is line-size or line-count, not {wish.keep!r}")
    if wish.fills < 0:
        raise UsageError("--fills must not be negative")
    if wish.fills and wish.timed:
        raise UsageError("--fills goes with --mode flat-out: a WAF is measured there")
    profile = load_profile(wish.profile)
    plan = plan_guest(
        profile,
        scale=wish.scale,
        keep="line-size" if wish.keep == "line-size" else "line-count",
        timing=wish.timed,
    )
    with RunFolder(results, "replay-femu", trace.stem, wish._asdict()) as run:
        with output.progress_bar("guest", enabled=not as_json) as progress:
            common: dict[str, Any] = {
                "discard": wish.discard,
                "console": run.path / "console.log",
                "progress": progress,
            }
            if wish.timed:
                details = replay_timed_in_guest(plan, trace, **common)
            else:
                details = replay_in_guest(plan, trace, fills=wish.fills, **common)
        _keep(run, details, strict)
    _show(details, strict, as_json)


def run_remotely(
    trace: Path,
    where: tuple[str, str, str],
    how: tuple[int, bool],
    results: Path,
    strict: bool,
    as_json: bool,
) -> None:
    """Replay on (host, device, destroy) over SSH with (fills, discard); prints as in a guest."""
    from harness.core.runs import RunFolder
    from harness.device.guest.remote import RemoteDrive
    from harness.device.guest.replaying import replay_remotely
    from harness.device.guest.session import connect_remote

    (host, device, destroy), (fills, discard) = where, how
    if fills < 0:
        raise UsageError("--fills must not be negative")
    session = connect_remote(host)
    config = {"ssh": host, "device": device, "destroy": destroy, "fills": fills}
    try:
        with RunFolder(results, "replay-ssh", trace.stem, config) as run:
            with (
                output.progress_bar("remote", enabled=not as_json) as progress,
                RemoteDrive(session, device, destroy) as machine,
            ):
                details = replay_remotely(
                    machine, trace, fills=fills, discard=discard, progress=progress
                )
            _keep(run, details, strict)
    finally:
        session.close()
    _show(details, strict, as_json)


def _keep(run: RunFolder, details: dict[str, Any], strict: bool) -> None:
    from harness.core.files import write_json

    details["run"] = str(run.final)
    write_json(run.path / "replay-femu.json", details)
    run.add(fidelity=details["fidelity"], waf=details["waf"], emulator=details["emulator"])
    run.exit_code = int(unfaithful(details, strict))


def _show(details: dict[str, Any], strict: bool, as_json: bool) -> None:
    if as_json:
        output.print_json(details)
    else:
        _print(details)
    if unfaithful(details, strict):
        raise typer.Exit(1)


def _print(details: dict[str, Any]) -> None:
    from rich.markup import escape
    from rich.table import Table

    from harness.core.units import format_duration, format_size

    console = output.console()
    fidelity, change = details["fidelity"], details["change"]
    colour = {"FAITHFUL": "green", "LATE": "yellow"}.get(fidelity["verdict"], "red")
    console.print(f"[bold {colour}]{fidelity['verdict']}[/] on {details['emulator']}")
    for reason in fidelity["reasons"]:
        console.print(f"  {escape(reason)}")
    waf = details["waf"]
    table = Table("", "value", show_header=False)
    table.add_row("write amplification", f"{waf:.3f}" if waf is not None else "not measured")
    table.add_row("why", details["why_no_waf"] or f"counted by the drive ({change['source']})")
    table.add_row("requests", f"{details['requests']} as {details['commands']} commands")
    table.add_row("bytes", format_size(details["bytes"]))
    table.add_row("order kept", _share(fidelity["order_kept"]))
    table.add_row("fills before", str(details["fills"]))
    table.add_row("took", format_duration(fidelity["duration_s"]))
    if "guest" in details:
        table.add_row("guest", f"{details['guest']['qemu']}, {details['guest']['accelerator']}")
    console.print(table)
    for note in details["notes"]:
        console.print(f"note: {escape(note)}", soft_wrap=True)
    console.print(f"run folder: {escape(details['run'])}", soft_wrap=True)


def _share(value: float | None) -> str:
    return "not seen (no kernel tracing there)" if value is None else f"{value:.4%}"
