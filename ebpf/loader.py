#!/usr/bin/python3
"""Load the probe, then become the pump that forwards its records.

Run by the system's Python with python3-bpfcc and nothing else, as root:

    loader.py --device /dev/nvme0n1 > stream

The stream (frames.py) starts once the probe is attached. It ends when standard input is closed or
says "stop", on SIGINT or SIGTERM, or when nobody reads it any more. On failure the stream is one
ERROR frame.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import attach  # noqa: E402
import filters  # noqa: E402
import frames  # noqa: E402
import headers  # noqa: E402
import sysblock  # noqa: E402
from btf import BtfError  # noqa: E402


def parse_arguments(words: list[str]) -> argparse.Namespace:
    """The command line of the loader."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", action="append", required=True, help="may be repeated")
    parser.add_argument("--ops", default="", help="letters of RWDFZN; default all")
    parser.add_argument("--pid", type=int, action="append", default=[], help="with its children")
    parser.add_argument("--cgroup", help="path of a cgroup v2 folder, with those below it")
    parser.add_argument("--bios", action="store_true", help="also bios, before splitting")
    parser.add_argument("--ring-mib", type=float, default=32, help="of all rings together")
    parser.add_argument("--compress", action="store_true", help="for a stream over a network")
    parser.add_argument("--no-btf", action="store_true", help="tracepoint arguments only")
    parser.add_argument("--cache", help="folder for a header tree")
    return parser.parse_args(words)


def main() -> int:
    """Attach, then exec the pump; returns only on failure."""
    arguments = parse_arguments(sys.argv[1:])
    try:
        devices = [sysblock.resolve(path) for path in arguments.device]
        with _cache_folder(arguments.cache) as cache:
            tree = headers.find_headers(cache)
            if tree:
                os.environ["BCC_KERNEL_SOURCE"] = tree
            state = attach.attach(arguments, devices)
    except (sysblock.DeviceError, filters.FilterError) as error:
        return _fail(str(error), 2)
    except headers.HeadersError as error:
        return _fail(str(error), 3, "apt-get install linux-headers-amd64")
    except (attach.AttachError, BtfError) as error:
        return _fail(str(error), 3, getattr(error, "fix", None))
    os.execv(sys.executable, [sys.executable, os.path.join(HERE, "pump.py"), json.dumps(state)])


@contextlib.contextmanager
def _cache_folder(given: str | None) -> Iterator[str]:
    """Where header trees are kept; a folder for this time only where that cannot be written."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = given or os.path.join(base, "kvflash-harness", "kernel-headers")
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError:
        with tempfile.TemporaryDirectory(prefix="kvflash-headers-") as temporary:
            yield temporary
    else:
        yield folder


def _fail(message: str, code: int, fix: str | None = None) -> int:
    sender = frames.Sender(sys.stdout.fileno())
    sender.message(frames.ERROR, {"message": message, "fix": fix, "code": code})
    return code


if __name__ == "__main__":
    raise SystemExit(main())
