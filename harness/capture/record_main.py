"""The recorder process: ``python -m harness.capture.record_main --out FILE < stream``.

Prints JSON lines: ``{"ready": HELLO}`` once the probe is attached, then ``{"result": ...}``, or
``{"error": ..., "fix": ..., "code": ...}``.
"""

from __future__ import annotations

import argparse
import importlib.abc
import json
import os
import stat
import sys
from pathlib import Path
from typing import Any


class _NoPandas(importlib.abc.MetaPathFinder):
    """pyarrow imports pandas when it first makes an array, if it can: 46 MiB and a second."""

    def find_spec(self, name: str, path: object, target: object = None) -> None:
        if name == "pandas":
            raise ImportError("not wanted here")


sys.meta_path.insert(0, _NoPandas())

from harness.capture import stream  # noqa: E402
from harness.capture.backlog import Backlog  # noqa: E402
from harness.capture.pressure import Pressure  # noqa: E402
from harness.capture.recorder import Recorder  # noqa: E402
from harness.core.errors import HarnessError, MachineError, MeasurementError  # noqa: E402
from harness.trace.segments import parts_folder  # noqa: E402


def main() -> int:
    """Record standard input until it ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--command", default="")
    parser.add_argument("--bios", action="store_true")
    parser.add_argument("--segment-s", type=float, default=10.0)
    arguments = parser.parse_args()
    try:
        _say({"result": record(sys.stdin.fileno(), arguments)})
    except OSError as error:
        _say(_failure(MachineError(f"{error.strerror}: {error.filename or arguments.out}")))
        return MachineError.exit_code
    except HarnessError as error:
        _say(_failure(error))
        return error.exit_code
    return 0


def record(fd: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """The result of the recording that arrives on ``fd``."""
    reader = stream.FrameReader(fd)
    first = next((f for f in reader.frames() if f[0] != stream.QUIET), (stream.QUIET, b"{}"))
    kind, hello = first[0], json.loads(bytes(first[1]))
    if kind == stream.ERROR:
        raise _as_error(hello)
    if kind != stream.HELLO:
        raise MeasurementError("the probe ended before it was attached")
    with Recorder(
        hello,
        arguments.out,
        arguments.command,
        bios=arguments.bios,
        segment_s=arguments.segment_s,
    ) as recorder:
        _say({"ready": hello})
        source: stream.FrameSource = reader
        if not stat.S_ISREG(os.fstat(fd).st_mode):  # a file does not fill up
            folder = parts_folder(arguments.out)
            source = Backlog(reader.frames(), folder, first, Pressure().high)
        for kind, content in stream.batches(source, hello["rings"]):
            recorder.take(kind, content)
        result = recorder.finish()
    if isinstance(source, Backlog):
        result["deferred"] = {
            "peak_bytes": source.peak_bytes,
            "seconds_after_end": source.seconds_after_end,
        }
    return result


def _as_error(content: dict[str, Any]) -> HarnessError:
    error = HarnessError(content["message"], fix=content["fix"])
    error.exit_code = content["code"]
    return error


def _failure(error: HarnessError) -> dict[str, Any]:
    return {"error": str(error), "fix": error.fix, "code": error.exit_code}


def _say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
