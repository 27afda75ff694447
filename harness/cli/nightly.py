"""``harness nightly``: the history of runs, and what got worse in it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli import nightly_run
from harness.cli.output import JsonFlag, console, print_json
from harness.core.errors import UsageError

if TYPE_CHECKING:
    from harness.nightly.nights import Night

app = typer.Typer(no_args_is_help=True, help="The same runs night after night, and what changed.")

HistoryOption = Annotated[
    Path, typer.Option("--history", help="Folder of the history's Parquet segments.")
]
HISTORY = Path("results/history")


def register(root: typer.Typer) -> None:
    """Add the group to the command tree."""
    for command in (nightly_run.run, nightly_run.install):
        app.command()(command)
    root.add_typer(app, name="nightly")


@app.command()
def record(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Finished run folders.")],
    folder: HistoryOption = HISTORY,
    as_json: JsonFlag = False,
) -> None:
    """Add finished runs to the history; a run that is already there is left as it is.

    Several of these may run at once. The history is only ever added to.

    Example: harness nightly record results/20261129T101500.000000Z-bench-quick
    """
    from harness.nightly.history import History
    from harness.nightly.nights import night_of

    nights = [night_of(run) for run in runs]
    history = History(folder)
    added = [(night, history.append(night)) for night in nights]
    if as_json:
        print_json([{"run": n.run, "figures": len(n.metrics), "added": new} for n, new in added])
        return
    for night, new in added:
        said = f"{len(night.metrics)} figures" if new else "was there already"
        typer.echo(f"{night.run}: {said}")


@app.command()
def history(
    folder: HistoryOption = HISTORY,
    host: Annotated[str | None, typer.Option("--host", help="Only this host.")] = None,
    device: Annotated[
        str | None, typer.Option("--device", help="Only this device, by its serial.")
    ] = None,
    last: Annotated[
        int, typer.Option("--last", min=0, help="Only the newest so many nights; 0 is all.")
    ] = 30,
    target: Annotated[
        Path | None,
        typer.Option("--export", help="Write all figures there too, as .csv or .parquet."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """List the nights of the history, the newest last.

    Example: harness nightly history --last 14

    Example: harness nightly history --last 0 --export history.csv
    """
    from harness.nightly import facts
    from harness.nightly.history import History, export

    opened = History(_there(folder))
    nights = [n for n in opened.nights() if host in (None, n.host) and device in (None, n.device)]
    shown = nights[-last:] if last else nights
    if target is not None:
        kept = {(n.run, n.host) for n in shown}
        export(opened.table_of(kept), target)
    if as_json:
        print_json([facts.night_line(n) for n in shown])
        return
    _print_nights(shown)
    if target is not None:
        typer.echo(f"exported: {target}")


@app.command()
def show(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Name of a run, or its beginning.")],
    folder: HistoryOption = HISTORY,
    as_json: JsonFlag = False,
) -> None:
    """Show all figures of one night.

    Example: harness nightly show 20261129T101500
    """
    from harness.nightly import facts
    from harness.nightly.history import History

    night = History(_there(folder)).night(run)
    if as_json:
        print_json(facts.night_facts(night))
        return
    _print_night(night)


@app.command()
def report(
    folder: HistoryOption = HISTORY,
    tolerance: Annotated[
        float,
        typer.Option("--tolerance", min=0, max=1, help="Share by which a figure may move."),
    ] = 0.05,
    recent: Annotated[
        int, typer.Option("--recent", min=1, help="Newest nights that are judged.")
    ] = 3,
    baseline: Annotated[
        int, typer.Option("--baseline", min=6, help="Good nights before them to compare with.")
    ] = 40,
    q: Annotated[
        float, typer.Option("--q", min=0, max=0.5, help="False discovery rate of the report.")
    ] = 0.05,
    every: Annotated[
        bool, typer.Option("--all", help="List every change of level, old ones too.")
    ] = False,
    html: Annotated[
        Path | None,
        typer.Option("--html", help="Write the dashboard, one page of everything, there too."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Say what got worse or better; exits with 1 if something got worse.

    Each figure of each host, device and job is compared with its own past: the newest nights
    against the good nights before (Mann-Whitney), and the whole series for changes of level
    (rank CUSUM by permutations), over all figures together (Benjamini-Hochberg). A newest
    night that failed also counts as worse.

    Example: harness nightly report --tolerance 0.03

    Example: harness nightly report --html results/history/dashboard.html
    """
    from harness.nightly import facts
    from harness.nightly.history import History
    from harness.nightly.regressions import Options, judge, past_changes

    nights = History(_there(folder)).nights()
    options = Options(recent=recent, baseline=baseline, tolerance=tolerance, q=q)
    judgement = judge(nights, options)
    data = {**facts.judgement_facts(judgement), "nights": len(nights)}
    if every:
        data["changes"] = facts.change_facts(past_changes(nights, q))
    if html is not None:
        from harness.nightly.dashboard import write_dashboard

        write_dashboard(nights, options, html, results=folder.parent)
        data["page"] = str(html)
    if as_json:
        print_json(data)
    else:
        print_judgement(data)
        if html is not None:
            typer.echo(f"page: {html}")
    if judgement.regressed:
        raise typer.Exit(1)


def _there(folder: Path) -> Path:
    if not folder.is_dir():
        raise UsageError(
            f"no history in {folder}", fix="start one with: harness nightly record RUN"
        )
    return folder


def _print_nights(nights: list[Night]) -> None:
    from rich.table import Table

    table = Table("started (UTC)", "run", "host", "device", "job", "figures", "judged itself")
    for n in nights:
        word = "good" if n.good else "[bold]BAD[/bold]"
        when = f"{n.started:%Y-%m-%d %H:%M}"
        table.add_row(when, n.run, n.host, n.device, n.job, str(len(n.metrics)), word)
    console().print(table)


def _print_night(night: Night) -> None:
    from rich.table import Table

    out = console()
    word = "good" if night.good else "BAD"
    out.print(f"{night.run} on {night.host}, device {night.device}: {word}", markup=False)
    for name, version in night.software.items():
        out.print(f"  {name}: {version or 'not recorded'}", markup=False)
    table = Table("figure", "value", "unit", "better")
    for m in night.metrics:
        way = {1: "more", -1: "less", 0: ""}[m.better]
        table.add_row(m.name, f"{m.value:.6g}", m.unit, way)
    out.print(table)


def print_judgement(data: dict[str, Any]) -> None:
    """A report for people, from its ``--json``."""
    out = console()
    out.print(f"[bold]{data['verdict']}[/bold]: {data['judged']} series judged", end="")
    out.print(f", {data['too_short']} have too few nights yet" if data["too_short"] else "")
    for night in data["bad_nights"]:
        out.print(f"failed: {night['job']} on {night['host']}, {night['run']}", markup=False)
    if data["findings"]:
        out.print(_change_table(data["findings"]))
    for found in data["findings"]:
        for change in found["beside"]:
            out.print(f"beside {found['metric']}: {change}", markup=False)
    if data.get("changes"):
        out.print("\nevery change of level:")
        out.print(_change_table(data["changes"]))


def _change_table(changes: list[dict[str, Any]]) -> Any:
    from rich.markup import escape
    from rich.table import Table

    table = Table("", "figure", "device", "job", "before", "after", "unit", "since", "q or p")
    for c in changes:
        table.add_row(
            c.get("kind", "change"),
            *(escape(c[key]) for key in ("metric", "device", "job")),
            f"{c['before']:.4g}",
            f"{c['after']:.4g}",
            c["unit"],
            c["since"][:10],
            f"{c['q'] if 'q' in c else c['p']:.2g}",
        )
    return table
