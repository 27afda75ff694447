"""``harness trace``: look at block traces, convert and transform them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli import output
from harness.cli.output import JsonFlag
from harness.core.errors import UsageError

if TYPE_CHECKING:
    from harness.trace.source import Source

group = typer.Typer(help="Look at block traces, convert and transform them.", no_args_is_help=True)

FormatOption = Annotated[
    str | None,
    typer.Option("--format", help="Format of the input; otherwise told by its content."),
]
ToOption = Annotated[
    str | None,
    typer.Option("--to", help="Format of the output; otherwise told by its extension."),
]
SkipBad = Annotated[
    int, typer.Option("--skip-bad", min=0, metavar="N", help="Tolerate up to N malformed lines.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace the output if it exists.")]
InPath = Annotated[Path, typer.Argument(metavar="TRACE", help="A trace in any readable format.")]
OutPath = Annotated[Path, typer.Argument(metavar="OUT", help="The file to write.")]


def register(app: typer.Typer) -> None:
    """Add the group to ``app``."""
    for function in (info, stats, convert, scale, merge, recover):
        group.command()(function)
    group.command("slice")(slice_)
    app.add_typer(group, name="trace")


def info(
    trace: InPath, form: FormatOption = None, skip_bad: SkipBad = 0, as_json: JsonFlag = False
) -> None:
    """Show what a trace says of itself: device, host, events lost, verdict, transforms.

    A foreign format is read to its end for that.

    Example: harness trace info trace.parquet
    """
    from harness.trace.source import open_source
    from harness.trace.summary import rows_of, summarise

    with output.progress_bar("reading") as progress:
        source = open_source(trace, form=form, skip_bad=skip_bad, progress=progress)
        data = summarise(source)
    if as_json:
        output.print_json(data)
        return
    console = output.console()
    for label, value in rows_of(data):
        console.print(f"[bold]{label:<18}[/bold] ", end="")
        console.print(value, markup=False, soft_wrap=True)


def stats(
    trace: InPath,
    form: FormatOption = None,
    skip_bad: SkipBad = 0,
    plots: Annotated[
        Path | None, typer.Option("--plots", metavar="DIR", help="Draw plots into this folder.")
    ] = None,
    plot_format: Annotated[str, typer.Option("--plot-format", help="svg or png.")] = "svg",
    as_json: JsonFlag = False,
) -> None:
    """Say what a trace holds: operations, sizes, locality, mix, depth, latency, rewrites.

    Memory does not grow with the trace.

    Example: harness trace stats trace.parquet --plots plots
    """
    from harness.trace.source import open_source
    from harness.trace.stats import collect
    from harness.trace.stats.plots import FORMATS, write_plots
    from harness.trace.stats.tables import headline, tables

    if plot_format not in FORMATS:
        raise UsageError(f"no plot format {plot_format!r}; there are: {', '.join(FORMATS)}")
    with output.progress_bar("reading") as progress:
        source = open_source(trace, form=form, skip_bad=skip_bad, progress=progress)
        found = collect(source, progress)
    drawn = write_plots(found, plots, plot_format) if plots is not None else []
    if as_json:
        output.print_json({**found.data, "plots": [str(path) for path in drawn]})
        return
    console = output.console()
    console.print(headline(found.data), soft_wrap=True)
    for table in tables(found.data):
        console.print(table)
    for note in found.data["meta"]["notes"]:
        console.print(f"note: {note}", markup=False, soft_wrap=True)
    for path in drawn:
        console.print(f"drawn: {path}", markup=False, soft_wrap=True)


def convert(
    trace: InPath,
    out: OutPath,
    form: FormatOption = None,
    to: ToOption = None,
    skip_bad: SkipBad = 0,
    force: Force = False,
    as_json: JsonFlag = False,
) -> None:
    """Convert a trace to another format, sorted by time.

    Read: parquet, csv (timestamp,operation,LBA,size,pages), oplist, fio (iolog 2 and 3),
    blkparse, blktrace, ftrace (also perf script), bpftrace, cheops, msr, alibaba, tencent,
    k5cloud, fiu, mqsim, vscsi, cloudphysics (vscsi as CSV); also compressed by gzip, zstd, bzip2
    or xz. Written: parquet, csv, oplist, fio (iolog 3), blkparse, mqsim.

    Example: harness trace convert capture.csv.gz trace.parquet
    """
    from harness.trace.convert import convert as run

    with output.progress_bar("converting") as progress:
        done = run(
            trace,
            out,
            form=form,
            to=to,
            skip_bad=skip_bad,
            overwrite=force,
            progress=progress,
        )
    _report(done.to_json(), f"{done.rows:,} requests from {done.source} to {done.target}", as_json)


def scale(
    trace: InPath,
    out: OutPath,
    time: Annotated[
        float, typer.Option("--time", help="Factor on all issue times; 0.5 is twice as fast.")
    ] = 1.0,
    size: Annotated[
        str | None, typer.Option("--size", help="Size of the new device, such as 64GiB or 1TB.")
    ] = None,
    mode: Annotated[
        str,
        typer.Option(
            "--mode",
            help="keep addresses; compact (drop untouched pages); stretch; fold (modulo); "
            "auto keeps what fits and compacts what does not.",
        ),
    ] = "auto",
    align: Annotated[
        str, typer.Option("--align", help="Widen requests to multiples of this, such as 4KiB.")
    ] = "512",
    granule: Annotated[
        str, typer.Option("--granule", help="What stretch moves as one; requests are cut there.")
    ] = "1MiB",
    allow_alias: Annotated[
        bool,
        typer.Option("--allow-alias", help="Accept that distinct blocks share a place."),
    ] = False,
    form: FormatOption = None,
    to: ToOption = None,
    force: Force = False,
    as_json: JsonFlag = False,
) -> None:
    """Change a trace's speed, device size or alignment; distinct blocks stay distinct.

    A stretched or folded trace is marked: its write amplification would mean nothing.

    Example: harness trace scale trace.parquet small.parquet --size 4GiB --time 0.5
    """
    from harness.core.units import parse_size
    from harness.trace.scale import MODES, ScaledTrace, Scaling
    from harness.trace.source import open_source

    if mode not in MODES:
        raise UsageError(f"no mode {mode!r}; there are: {', '.join(MODES)}")
    scaling = Scaling(
        time=time,
        size_bytes=None if size is None else parse_size(size),
        mode=mode,  # type: ignore[arg-type]
        align=parse_size(align),
        granule_bytes=parse_size(granule),
        allow_alias=allow_alias,
    )
    scaled = ScaledTrace(open_source(trace, form=form), scaling)
    rows = _write(scaled, out, to, force, trace)
    report = scaled.report
    text = (
        f"{rows:,} requests, {report.mode}: {report.aliased_pages:,} distinct 4 KiB pages aliased, "
        f"{report.cut_requests:,} cuts, {report.widened_requests:,} requests widened"
    )
    data = {"path": str(out), "rows": rows, **report.to_json()}
    _report(data | {"notes": scaled.meta.history}, text, as_json)


def merge(
    out: OutPath,
    traces: Annotated[list[Path], typer.Argument(metavar="TRACE...", help="Two traces or more.")],
    align: Annotated[
        str,
        typer.Option(
            "--align",
            help="clock (of one host), started (wall clock), start (all together) or auto.",
        ),
    ] = "auto",
    to: ToOption = None,
    force: Force = False,
    as_json: JsonFlag = False,
) -> None:
    """Merge the traces of several devices or hosts into one, on one clock.

    Example: harness trace merge both.parquet nvme0.parquet nvme1.parquet
    """
    from harness.trace.merge import MergedTrace
    from harness.trace.source import open_source

    if align not in ("auto", "clock", "started", "start"):
        raise UsageError(f"no alignment {align!r}; there are: auto, clock, started, start")
    merged = MergedTrace([open_source(path) for path in traces], align)  # type: ignore[arg-type]
    rows = _write(merged, out, to, force, *traces)
    data = {"path": str(out), "rows": rows, "notes": merged.meta.notes}
    _report(data, f"{rows:,} requests of {len(traces)} traces", as_json)


def slice_(
    trace: InPath,
    out: OutPath,
    start: Annotated[
        float | None, typer.Option("--from", help="Seconds since the trace's start.")
    ] = None,
    end: Annotated[float | None, typer.Option("--until", help="Seconds, not included.")] = None,
    ops: Annotated[
        str | None, typer.Option("--ops", help="Operations to keep, such as RW; of RWDFZN.")
    ] = None,
    dev: Annotated[
        list[str] | None, typer.Option("--dev", help="MAJOR:MINOR to keep; may be repeated.")
    ] = None,
    low: Annotated[
        str | None, typer.Option("--low", help="Lowest byte address, such as 64MiB.")
    ] = None,
    high: Annotated[str | None, typer.Option("--high", help="Address not included.")] = None,
    first: Annotated[
        int | None, typer.Option("--first", min=1, help="Keep only the first N requests.")
    ] = None,
    form: FormatOption = None,
    to: ToOption = None,
    force: Force = False,
    as_json: JsonFlag = False,
) -> None:
    """Cut a part out of a trace: a time, operations, devices, addresses, the first requests.

    Example: harness trace slice trace.parquet burst.parquet --from 10 --until 20 --ops W
    """
    from harness.core.units import parse_size
    from harness.trace.slicing import Cut, SlicedTrace, device_number
    from harness.trace.source import open_source

    cut = Cut(
        from_ns=None if start is None else round(start * 1e9),
        to_ns=None if end is None else round(end * 1e9),
        ops=ops,
        devices=tuple(device_number(text) for text in dev) if dev else None,
        low=None if low is None else parse_size(low),
        high=None if high is None else parse_size(high),
        first=first,
    )
    sliced = SlicedTrace(open_source(trace, form=form), cut)
    rows = _write(sliced, out, to, force, trace)
    _report({"path": str(out), "rows": rows, "notes": []}, f"{rows:,} requests", as_json)


def recover(
    parts: Annotated[
        Path, typer.Argument(metavar="PARTS", help="The folder FILE.parts of a killed recorder.")
    ],
    out: OutPath,
    force: Force = False,
    as_json: JsonFlag = False,
) -> None:
    """Make a trace of what a killed recorder left: finished segments, and records after them.

    The folder stays; remove it when the trace is as you want it.

    Example: harness trace recover kv.parquet.parts kv.parquet
    """
    from harness.capture.recover import recover as write_trace
    from harness.trace.convert import check_target

    if not parts.is_dir():
        raise UsageError(f"no folder {parts}", fix="name the folder FILE.parts beside the trace")
    check_target(out, force, parts)
    out.parent.mkdir(parents=True, exist_ok=True)
    with output.progress_bar("recovering"):
        trace = write_trace(parts, out)
    data = {"path": str(out), "rows": trace.rows, "verdict": trace.meta.verdict,
            "notes": trace.meta.notes}  # fmt: skip
    _report(data, f"{trace.rows:,} requests, {trace.meta.verdict}", as_json)


def _write(source: Source, out: Path, to: str | None, force: bool, *inputs: Path) -> int:
    from harness.trace.convert import check_target, write_source
    from harness.trace.formats import by_extension, named

    check_target(out, force, *inputs)
    name = named(to, writable=True) if to else by_extension(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    with output.progress_bar("writing") as progress:
        rows, _ = write_source(source, out, name, progress)
    return rows


def _report(data: dict[str, Any], text: str, as_json: bool) -> None:
    if as_json:
        output.print_json(data)
        return
    console = output.console()
    console.print(f"{text}: {data['path']}", markup=False, soft_wrap=True)
    if data.get("bad_lines"):
        console.print(f"{data['bad_lines']:,} malformed lines skipped", markup=False)
    for note in data["notes"]:
        console.print(f"note: {note}", markup=False, soft_wrap=True)
