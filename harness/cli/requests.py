"""``harness requests``: look at request traces before choosing a store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli import output
from harness.cli.output import JsonFlag
from harness.cli.stores import BlockOption, LanesOption

if TYPE_CHECKING:
    from rich.table import Table


def register(app: typer.Typer) -> None:
    """Add the command group to ``app``."""
    group = typer.Typer(no_args_is_help=True, help="Request traces: what they share, and when.")
    group.command("stats")(stats)
    app.add_typer(group, name="requests")


def stats(
    file: Annotated[
        str, typer.Argument(help="A request trace, or traffic of workloads/requests by name.")
    ],
    model: Annotated[
        str | None, typer.Option(help="Say footprints in bytes of this model too.")
    ] = None,
    format_name: Annotated[
        str | None, typer.Option("--format", help="Format of the file, if not to be guessed.")
    ] = None,
    dialect: Annotated[
        str, typer.Option(help="Of Claude Code sessions: auto, relative or absolute.")
    ] = "auto",
    lanes: LanesOption = None,
    gap_cap: Annotated[
        float, typer.Option(min=0, help="Longest pause inside a played session, seconds.")
    ] = 300.0,
    block_tokens: BlockOption = None,
    full_blocks: Annotated[
        bool, typer.Option("--full-blocks", help="Leave out ids of partial last blocks.")
    ] = False,
    capacity: Annotated[
        list[int] | None, typer.Option(min=1, help="LRU capacity in blocks; may be repeated.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Read only so many requests.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of synthetic traffic.")] = 0,
    plot: Annotated[
        Path | None, typer.Option(help="Write the plots to this file (.svg, .png, .pdf).")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Say how much of a request trace is reused, how soon, by how large sessions.

    Formats: Mooncake, Qwen Bailian, Claude Code (WEKA), AIPerf, Azure and BurstGPT lengths,
    libCacheSim oracleGeneral.

    Example: harness requests stats conversation_trace.jsonl --model qwen3.5-27b --plot reuse.svg
    """
    from harness.core.errors import UsageError
    from harness.stores.models import load_model
    from harness.stores.requests.load import open_requests
    from harness.stores.requests.stats import request_stats

    source = open_requests(
        file, seed=seed, format_name=format_name, dialect=dialect, lanes=lanes,
        gap_cap_s=gap_cap, block_tokens=block_tokens,
    )  # fmt: skip
    if source.endless and limit is None:
        raise UsageError(f"{source.name} never ends: say how many requests to read (--limit)")
    kv = load_model(model) if model else None
    with output.progress_bar("reading") as progress:
        result = request_stats(source, limit=limit, full_blocks_only=full_blocks, progress=progress)
    data = result.as_json(capacity or (), kv)
    if plot is not None:
        from harness.stores.requests.plots import plot_stats

        data["plot"] = str(plot_stats(result, plot, kv))
    if as_json:
        output.print_json(data)
    else:
        _print(data)


def _print(data: dict[str, Any]) -> None:
    console = output.console()
    console.print(_table(data))
    if data["lru_hit"]:
        console.print(_hits(data))
    if data.get("plot"):
        console.print(f"plots: {data['plot']}")


def _table(data: dict[str, Any]) -> Table:
    from rich.table import Table

    from harness.core.units import format_duration, format_size

    table = Table(box=None, show_header=False, pad_edge=False)
    rows = [
        ("requests", f"{data['requests']:,} in {data['sessions']:,} sessions"),
        ("span", format_duration(data["duration_s"])),
        ("context", f"{data['mean_context_tokens']:,.0f} tokens in the mean"),
        ("output", f"{data['mean_output_tokens']:,.0f} tokens in the mean"),
    ]
    if not data["has_ids"]:
        rows.append(("reuse", "unknown: the trace says lengths, not prefixes"))
    else:
        gap, seconds = data["reuse_gap_requests"], data["reuse_gap_s"]
        rows += [
            ("references", f"{data['references']:,} of blocks of {data['block_tokens']} tokens"),
            ("distinct", f"{data['distinct_blocks']:,} blocks, ids {data['id_scope']}"),
            ("used once", f"{data['one_shot_share']:.2%} of the blocks"),
            ("ideal hit", f"{data['ideal_prefix_hit']:.2%} of the references"),
            ("gap, requests", _quantiles(gap, "{:,.0f}")),
            ("gap, seconds", _quantiles(seconds, "{:,.1f}")),
            ("new blocks", _quantiles(data["new_blocks_per_request"], "{:,.0f}") + " a request"),
            ("session", _quantiles(data["session_blocks"], "{:,.0f}") + " blocks"),
        ]
        states = data["state_reuse"]
        if states:
            shares = ", ".join(f"{name} {share:.1%}" for name, share in states.items())
            rows.append(("states read", shares))
    if data["model"]:
        sizes = data["model"]["session_bytes"]
        size = sizes["p50"], sizes["max"]
        shown = " median, ".join(format_size(value or 0) for value in size)
        rows.append((f"session of {data['model']['name']}", f"{shown} at most"))
    for row in rows:
        table.add_row(*row)
    return table


def _quantiles(values: dict[str, float | None], pattern: str) -> str:
    shown = [
        f"{name} {'-' if values[name] is None else pattern.format(values[name])}"
        for name in ("p50", "p90", "p99")
    ]
    return ", ".join(shown)


def _hits(data: dict[str, Any]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, title="plain LRU", title_justify="left")
    table.add_column("blocks", justify="right")
    table.add_column("hit", justify="right")
    for point in data["lru_hit"]:
        table.add_row(f"{point['blocks']:,}", f"{point['hit']:.2%}")
    return table
