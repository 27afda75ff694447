"""The loader on another host, over SSH. It needs nothing there but bcc and root."""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import tarfile
import threading
from pathlib import Path
from typing import IO

import paramiko

from harness.capture.options import TraceOptions
from harness.capture.ssh import connect, parse_destination
from harness.core.assets import asset_dir

_PIECE_BYTES = 1 << 18
_END_TIMEOUT_S = 30.0


class RemoteProbe:
    """A loader on ``host`` ("user@host"). ``stdout`` carries its stream, compressed on the way.

    The other host's copy of the loader is removed when it ends, also if the connection breaks.
    Errors: those of ``ssh.connect``.
    """

    def __init__(self, options: TraceOptions, host: str) -> None:
        self._client = connect(parse_destination(host))
        self._said = bytearray()
        read_end, self._write_end = os.pipe()
        self._stdout = os.fdopen(read_end, "rb")
        try:
            transport = self._client.get_transport()
            assert transport is not None
            self._channel = transport.open_session()
            self._channel.exec_command(_remote_command(options))
            archive = _archive(asset_dir("ebpf"))
            self._channel.sendall(len(archive).to_bytes(8, "little") + archive)
        except BaseException:
            self._client.close()
            os.close(self._write_end)
            self._stdout.close()
            raise
        self._threads = [
            threading.Thread(target=work, daemon=True) for work in (self._copy, self._listen)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def stdout(self) -> IO[bytes]:
        """The stream's end; close it once another process has it."""
        return self._stdout

    def _copy(self) -> None:
        """From the channel to the pipe until either ends."""
        with contextlib.suppress(OSError, EOFError), os.fdopen(self._write_end, "wb", 0) as pipe:
            while piece := self._channel.recv(_PIECE_BYTES):
                view = memoryview(piece)
                while view:
                    view = view[pipe.write(view) :]
        self._channel.close()  # a reader that has gone must not leave the loader waiting

    def _listen(self) -> None:
        with contextlib.suppress(OSError, EOFError):
            while piece := self._channel.recv_stderr(_PIECE_BYTES):
                self._said += piece

    def stop(self) -> None:
        """Ask the loader to stop; harmless when it or the connection has ended."""
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            self._channel.shutdown_write()

    def messages(self) -> str:
        """The end of what was said on the other host's stderr."""
        self._threads[1].join(_END_TIMEOUT_S)
        return bytes(self._said).decode("utf-8", "replace")[-2000:].strip()

    def close(self) -> None:
        """Stop, wait, disconnect."""
        self.stop()
        for thread in self._threads:
            thread.join(_END_TIMEOUT_S)
        self._client.close()
        self._stdout.close()


def _remote_command(options: TraceOptions) -> str:
    bootstrap = (asset_dir("ebpf") / "bootstrap.py").read_text()
    words = ["/usr/bin/python3", "-c", bootstrap, "--compress", *options.loader_words()]
    return shlex.join(words)


def _archive(folder: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for path in sorted(folder.iterdir()):
            if path.suffix in (".py", ".c", ".h"):
                tar.add(path, path.name)
    return buffer.getvalue()
