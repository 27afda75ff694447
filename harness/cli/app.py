"""The command tree and the one place where errors become exit codes."""

from __future__ import annotations

import errno
import signal
import sys
from types import FrameType, ModuleType
from typing import Annotated

import typer

from harness.cli import (
    bench,
    calibrate,
    capture,
    doctor,
    emit,
    nightly,
    replay,
    report,
    requests,
    run,
    simulate,
    stores,
    trace,
    validate,
    wear,
)
from harness.core.errors import HarnessError, Interrupted, MachineError, UsageError
from harness.core.ownership import keep_caches_apart

GROUPS: tuple[ModuleType, ...] = (
    doctor,
    run,
    capture,
    emit,
    trace,
    requests,
    stores,
    replay,
    wear,
    bench,
    validate,
    calibrate,
    simulate,
    report,
    nightly,
)
"""The command modules along the path of the data; each has ``register(app)``."""

_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS}
_NO_SUCH_PLACE = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EACCES, errno.EPERM}

app = typer.Typer(
    name="harness",
    help="Measure how KV-cache offloading wears and reads flash.",
    epilog="Start with: harness doctor, then harness run",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def _version(wanted: bool) -> None:
    if wanted:
        from harness.core.identity import identity

        typer.echo(f"harness {identity()}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


for _group in GROUPS:
    _group.register(app)


def _on_signal(number: int, frame: FrameType | None) -> None:
    raise Interrupted(f"terminated ({signal.Signals(number).name})")


def main() -> None:
    """Run the command line; every HarnessError is one message and its exit code."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup
            signal.signal(number, _on_signal)
    keep_caches_apart()
    try:
        app()
    except HarnessError as error:
        print(f"error: {error}", file=sys.stderr)
        if error.fix:
            print(f"  fix: {error.fix}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None
    except SystemExit as ended:
        if ended.code == Interrupted.exit_code:  # typer turns Ctrl-C into this, silently
            print("interrupted", file=sys.stderr)
        raise
    except OSError as error:
        if error.errno in _NO_SPACE:
            code, fix = MachineError.exit_code, "free some space, or give another folder"
        elif error.errno in _NO_SUCH_PLACE and error.filename:
            code, fix = UsageError.exit_code, "give a path that exists and that you may use"
        else:
            raise
        print(f"error: {error.strerror}: {error.filename or 'while writing'}", file=sys.stderr)
        print(f"  fix: {fix}", file=sys.stderr)
        raise SystemExit(code) from None
