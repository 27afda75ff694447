"""One capture from start to verdict: what to trace, while what, into which file or folder."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from harness.capture.command import run_command, wait_for
from harness.capture.options import TraceOptions
from harness.capture.session import Capture, CaptureResult
from harness.core.errors import Interrupted, UsageError
from harness.core.files import write_json
from harness.core.progress import Progress, quiet
from harness.core.runs import RunFolder
from harness.stores.emit import EmitResult


@dataclass(frozen=True)
class CaptureJob:
    """What to trace while what. With no devices the embedded store runs on a loop device.

    ``command`` ends the capture when it ends, else ``seconds`` do, else the end of the options'
    processes, else Ctrl-C. ``store``, ``requests`` and ``seed`` are those of the embedded store.
    The devices are those of ``host`` ("user@host"), if given; the command runs here all the same.
    With ``keep_stdout_free`` the command's standard output goes to ours of errors.
    """

    options: TraceOptions | None
    command: tuple[str, ...] = ()
    seconds: float | None = None
    seed: int = 1
    host: str | None = None
    store: str | None = None
    requests: str | None = None
    strict: bool = False
    keep_stdout_free: bool = False

    @property
    def name(self) -> str:
        """A word for the run folder."""
        if self.options is None:
            return "store"
        return (self.command or self.options.devices)[0].rpartition("/")[2]

    @property
    def open_ended(self) -> bool:
        """Whether Ctrl-C is the way to end it, not a way to interrupt it."""
        return self.options is not None and not self.command and self.seconds is None


@dataclass(frozen=True)
class Traced:
    """``stopped`` is the Ctrl-C or SIGTERM that ended the work early; the trace is whole up to it.

    ``status`` is the exit status of the traced command, None if it has none. ``details`` is what
    ``harness capture --json`` prints.
    """

    result: CaptureResult
    status: int | None
    stopped: BaseException | None
    details: dict[str, Any]

    def failed(self, strict: bool) -> bool:
        """Whether the exit code is 1; ``strict`` counts the verdict UNKNOWN as a failure."""
        bad = {"LOSSY", "UNKNOWN"} if strict else {"LOSSY"}
        return bool(self.status) or self.result.verdict in bad or not self.details["complete"]


def capture_to(job: CaptureJob, out: Path, progress: Progress = quiet) -> Traced:
    """Trace into the file ``out``; UsageError if it exists."""
    if out.exists():
        raise UsageError(f"{out} exists already", fix="remove it, or name another file")
    if job.options is None:
        return _trace_embedded(job, out, progress)
    _make_folder(out.parent)
    capture = Capture(job.options, out, command=shlex.join(job.command), host=job.host)
    return _trace(capture, lambda: _work(job, capture, progress), job.open_ended)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make the folder {folder}: {error.strerror}") from error


def capture_in_folder(job: CaptureJob, results: Path, progress: Progress = quiet) -> Traced:
    """Trace into a new run folder; it stays ``.partial`` where the work was stopped early.

    The folder holds ``trace.parquet`` and ``capture.json``; the latter's content is also in
    ``run.json``.
    """
    traced: Traced | None = None
    try:
        with RunFolder(results, "capture", job.name, asdict(job)) as run:
            traced = capture_to(job, run.path / "trace.parquet", progress)
            place = run.path if traced.stopped else run.final
            details = {**traced.details, "trace": str(place / "trace.parquet")}
            traced = replace(traced, details=details)
            write_json(run.path / "capture.json", details)
            run.add(capture=details)
            run.exit_code = int(traced.failed(job.strict))
            if traced.stopped is not None:
                raise traced.stopped  # so that the folder says that it was
    except (KeyboardInterrupt, Interrupted):
        if traced is None:
            raise
    return traced


def _work(job: CaptureJob, capture: Capture, progress: Progress) -> int | None:
    if job.command:
        return run_command(job.command, quiet_stdout=job.keep_stdout_free)
    assert job.options is not None

    def report(waited_s: float) -> None:
        progress(waited_s, job.seconds, f"{waited_s:.0f} s")

    here = () if job.host else job.options.pids  # another host's processes are not ours to see
    wait_for(job.seconds, here, capture.alive, report)
    return None


def _trace_embedded(job: CaptureJob, out: Path, progress: Progress) -> Traced:
    from harness.capture import embedded

    wanted = embedded.embedded(job.store, job.requests, job.seconds, job.seed)
    # What a real store leaves lies beside its trace; a modelled one can be run again.
    folder = out.parent / f"{out.stem}-store" if wanted.real else None
    emitted: list[EmitResult] = []
    _make_folder(out.parent)
    with embedded.loop_device(wanted, out.parent) as loop:
        options = TraceOptions((loop.path,))
        name = f"{'real' if wanted.real else 'embedded'} store {wanted.store}"
        capture = Capture(options, out, command=f"{name}, requests {wanted.requests}")

        def work() -> None:
            emitted.append(embedded.run_store(wanted, loop, folder, progress))

        traced = _trace(capture, work, open_ended=False)
    if folder and emitted:
        store = {**emitted[0].as_json(), "objects": f"{folder.name}/objects.parquet"}
        return replace(traced, details={**traced.details, "store": store})
    return traced


def _trace(capture: Capture, work: Callable[[], int | None], open_ended: bool) -> Traced:
    """Run ``work`` inside ``capture``; an interruption is kept, other exceptions pass."""
    status: int | None = None
    stopped: BaseException | None = None
    try:
        with capture:
            status = work()
    except (KeyboardInterrupt, Interrupted) as interruption:
        stopped = interruption
    if capture.result is None:
        assert stopped is not None
        raise stopped
    if open_ended:
        stopped = None
    details = {**capture.result.to_dict(), "command_status": status}
    return Traced(capture.result, status, stopped, details)
