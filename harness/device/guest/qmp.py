"""QEMU's control socket (QMP): one JSON object a line, commands answered in order."""

from __future__ import annotations

import json
import socket
import time
from typing import Any

from harness.core.errors import MeasurementError


class QmpError(MeasurementError):
    """QEMU refused a command, or closed the control socket."""


class Qmp:
    """Commands to one QEMU over a connected socket; call it like ``qmp("device_del", id="d0")``."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._buffer = b""
        self.events: list[dict[str, Any]] = []

    def handshake(self, limit_s: float = 60.0) -> None:
        """Wait for QEMU's greeting and agree on capabilities."""
        greeting = self._message(time.monotonic() + limit_s)
        if "QMP" not in greeting:
            raise QmpError(f"QEMU's control socket does not speak QMP: {greeting}")
        self("qmp_capabilities")

    def __call__(self, command: str, *, limit_s: float = 30.0, **arguments: Any) -> Any:
        """Execute ``command``; its ``return`` value. QmpError if QEMU refuses or is gone."""
        line = json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n"
        try:
            self._sock.sendall(line)
        except OSError as error:
            raise QmpError("QEMU closed its control socket") from error
        deadline = time.monotonic() + limit_s
        while True:
            message = self._message(deadline)
            if "error" in message:
                raise QmpError(f"QEMU refused {command}: {message['error'].get('desc')}")
            if "return" in message:
                return message["return"]
            self.events.append(message)

    def wait_event(self, name: str, limit_s: float = 30.0) -> dict[str, Any]:
        """The next event ``name`` (``DEVICE_DELETED``), also if it came in before."""
        deadline = time.monotonic() + limit_s
        while True:
            for event in self.events:
                if event.get("event") == name:
                    self.events.remove(event)
                    return event
            self.events.append(self._message(deadline))

    def close(self) -> None:
        """Close the socket; QEMU goes on."""
        self._sock.close()

    def _message(self, deadline: float) -> dict[str, Any]:
        while b"\n" not in self._buffer:
            self._sock.settimeout(max(0.01, deadline - time.monotonic()))
            try:
                data = self._sock.recv(65536)
            except TimeoutError as error:
                raise QmpError("QEMU does not answer on its control socket") from error
            except OSError as error:
                raise QmpError("QEMU closed its control socket") from error
            if not data:
                raise QmpError("QEMU closed its control socket")
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message
