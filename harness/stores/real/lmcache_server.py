"""``lmcache server`` with a log of its calls on the device: a program for LMCache's own Python.

Run as ``PYTHON lmcache_server.py LOG.npz RESULT.json ARGUMENTS...`` by ``vllm_store``; ends on
SIGINT. Payloads are compared with what was last written to their slot, by checksum. Written for
LMCache 0.5.6, whose ``RawBlockCore`` opens the device in ``_rawdev``.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ["LMCACHE_TRACK_USAGE"] = "false"
sys.path.append(str(Path(__file__).parent))

from lmcache.cli.main import main as lmcache
from lmcache.v1.storage_backend.raw_block.core import RawBlockCore
from logged_device import LoggedDevice, Place, write_log  # type: ignore[import-not-found]


def main() -> None:
    log, result, *arguments = sys.argv[1:]
    devices: list[LoggedDevice] = []
    cores: list[Any] = []
    open_device = RawBlockCore._rawdev

    def logged(core: Any) -> Any:
        fresh = core._raw is None
        device = open_device(core)
        if fresh:
            device = core._raw = LoggedDevice(
                device, core.meta_total_bytes, core.slot_bytes, Place()
            )
            devices.append(device)
            cores.append(core)
        return device

    RawBlockCore._rawdev = logged
    sys.argv = ["lmcache", "server", *arguments]
    with contextlib.suppress(KeyboardInterrupt, SystemExit):
        lmcache()
    write_log(Path(log), [row for device in devices for row in device.rows])
    status = cores[0].report_status() if cores else {}
    plain = {k: v for k, v in status.items() if isinstance(v, int | float | str | None)}
    counted = {
        "bytes_verified": sum(device.bytes_checked for device in devices),
        "wrong_payloads": sum(device.wrong_payloads for device in devices),
        "lmcache": version("lmcache"),
        "status": plain,
    }
    Path(result).write_text(json.dumps(counted))


if __name__ == "__main__":
    main()
