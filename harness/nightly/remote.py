"""One host during a night: commands, files in both directions, drives by serial."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paramiko

from harness.capture.ssh import connect, parse_destination
from harness.core.errors import MachineError, MeasurementError
from harness.nightly.health import Health, parse_health

_PIECE_BYTES = 1 << 16
_SHORT_S = 60.0
_LONG_S = 600.0
_SILENT_MS = 60_000
_KEPT_BYTES = 1 << 16

_HASHES = 'cd "$1" 2>/dev/null || exit 0; find . -type f -exec sha256sum {} +'
_TAKE = 'cat > "$1.$$" && mv "$1.$$" "$1"'
_BROKEN = (OSError, EOFError, paramiko.SSHException)


class BrokenConnection(MachineError):
    """The host cannot be heard any more; what runs there may go on."""


@dataclass(frozen=True)
class Ended:
    """A remote command that ended by itself."""

    code: int
    stdout: bytes
    stderr: str


class Remote:
    """A connection to a host whose key is known. Closing it ends no job.

    ``home`` is the folder in which commands start. With ``sudo`` they run as root.
    Errors: those of ``ssh.connect``; BrokenConnection wherever the connection breaks.
    """

    def __init__(self, destination: str, *, sudo: bool = False) -> None:
        self._client = connect(parse_destination(destination))
        self._sudo = ["sudo", "-n"] if sudo else []
        try:
            transport = self._client.get_transport()
            assert transport is not None
            if isinstance(transport.sock, socket.socket):  # a host that lost power says nothing
                transport.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _SILENT_MS)
            self.home = self.run(["pwd"], sudo=False).stdout.decode().rstrip("\n")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Disconnect; harmless when done twice."""
        self._client.close()

    def run(
        self,
        words: Sequence[str],
        *,
        sudo: bool = True,
        given: Path | bytes = b"",
        limit_s: float = _SHORT_S,
    ) -> Ended:
        """Run a command to its end, with ``given`` as its input; ``sudo=False``: not as root."""
        said = bytearray()
        try:
            channel = self._start(words, sudo)
            channel.settimeout(limit_s)
            listener = threading.Thread(target=_listen, args=(channel, said), daemon=True)
            listener.start()
            for piece in _pieces(given):
                channel.sendall(piece)
            channel.shutdown_write()
            stdout = b"".join(iter(lambda: channel.recv(_PIECE_BYTES), b""))
            listener.join(_SHORT_S)
            code = _exit_code(channel)
        except _BROKEN as error:
            raise _broken(error) from error
        return Ended(code, stdout, said.decode("utf-8", "replace"))

    def must(
        self, words: Sequence[str], what: str, *, sudo: bool = True, limit_s: float = _SHORT_S
    ) -> bytes:
        """The output of a command that has to succeed; MachineError says ``what`` failed."""
        ended = self.run(words, sudo=sudo, limit_s=limit_s)
        if ended.code != 0:
            raise MachineError(f"{what}: {last_line(ended.stderr)}")
        return ended.stdout

    def stream(self, words: Sequence[str]) -> Iterator[bytes]:
        """The output of a command as it comes; b"" wherever a second passes without any."""
        try:
            channel = self._start(words, sudo=True)
            channel.settimeout(1.0)
            while True:
                try:
                    piece = channel.recv(_PIECE_BYTES)
                except TimeoutError:
                    yield b""
                    continue
                if not piece:
                    break
                yield piece
            _exit_code(channel)
        except _BROKEN as error:
            raise _broken(error) from error

    def send(self, source: Path | bytes, target: str) -> None:
        """Write a file of the user's there, whole or not at all; MachineError when it is full."""
        ended = self.run(
            ["sh", "-c", _TAKE, "sh", target], sudo=False, given=source, limit_s=_LONG_S
        )
        if ended.code != 0:
            raise MachineError(f"{target} cannot be written there: {last_line(ended.stderr)}")

    def find_device(self, serial: str) -> str:
        """The path of the drive with that serial (or loop device with that backing file)."""
        found = [
            str(row["path"])
            for row in self._table(["lsblk", "-J", "-d", "-o", "PATH,SERIAL"], "blockdevices")
            if str(row.get("serial") or "").strip() == serial
        ] or [
            str(row["name"])
            for row in self._table(["losetup", "-J", "-l", "-O", "NAME,BACK-FILE"], "loopdevices")
            if row.get("back-file") == serial
        ]
        if not found:
            raise MachineError(f"no device of the host has the serial {serial}")
        if len(found) > 1:
            raise MachineError(f"{', '.join(found)} all have the serial {serial}")
        return found[0]

    def health(self, path: str) -> Health:
        """SMART of an NVMe drive; MachineError where it cannot be read."""
        if not path.startswith("/dev/nvme"):
            return Health()
        words = ["nvme", "smart-log", "-o", "json", path]
        return parse_health(self.must(words, f"the health of {path} cannot be read"))

    def fetch(self, folder: str, into: Path) -> None:
        """Copy all files below ``folder``; what is here already is not sent again.

        MeasurementError where a file's hash differs from that on the host.
        """
        words = ["sh", "-c", _HASHES, "sh", folder]
        listing = self.must(words, "results cannot be read there", limit_s=_LONG_S)
        for digest, name in _files(listing.decode()):
            target = into / name
            target.parent.mkdir(parents=True, exist_ok=True)
            for start in (target.stat().st_size if target.is_file() else 0, 0):
                if target.is_file() and _sha256(target) == digest:
                    break
                self._copy(f"{folder}/{name}", target, start)
            if _sha256(target) != digest:
                raise MeasurementError(f"{name} changed on its way: its hash differs")

    def remove(self, folder: str) -> None:
        """Remove a folder there, whoever owns what is in it."""
        self.run(["rm", "-rf", "--", folder])

    def _copy(self, source: str, target: Path, start: int) -> None:
        """From byte ``start`` on; through ``tail``, because sftp has no sudo."""
        try:
            channel = self._start(["tail", "-c", f"+{start + 1}", "--", source], sudo=True)
            channel.settimeout(_SHORT_S)
            with target.open("ab" if start else "wb") as file:
                for piece in iter(lambda: channel.recv(_PIECE_BYTES), b""):
                    file.write(piece)
            _exit_code(channel)
        except (TimeoutError, EOFError, paramiko.SSHException) as error:
            raise _broken(error) from error

    def _start(self, words: Sequence[str], sudo: bool) -> paramiko.Channel:
        transport = self._client.get_transport()
        if transport is None or not transport.is_active():
            raise BrokenConnection("the connection broke")
        channel = transport.open_session(timeout=_SHORT_S)
        channel.exec_command(shlex.join([*(self._sudo if sudo else ()), *words]))
        return channel

    def _table(self, words: list[str], name: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = json.loads(self.must(words, words[0]) or b"{}").get(name, [])
        return rows


def last_line(text: str) -> str:
    """What a command said last; of an error with its fix, the error."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines[-3:] if line.startswith("error: ")]
    said = [*lines[-1:], *errors]
    return said[-1].removeprefix("error: ")[:300] if said else "it said nothing"


def _exit_code(channel: paramiko.Channel) -> int:
    """Of a command whose output has ended; BrokenConnection where none comes."""
    ended_at = time.monotonic() + _SHORT_S
    while not channel.exit_status_ready() and time.monotonic() < ended_at:
        time.sleep(0.02)
    code = channel.recv_exit_status() if channel.exit_status_ready() else -1
    channel.close()
    if code < 0:
        raise BrokenConnection("the connection broke, or the command was killed")
    return code


def _broken(error: BaseException) -> BrokenConnection:
    return BrokenConnection(f"the connection broke: {error or type(error).__name__}")


def _pieces(given: Path | bytes) -> Iterator[bytes]:
    if isinstance(given, bytes):
        yield from [given] if given else []
        return
    with given.open("rb") as file:
        yield from iter(lambda: file.read(_PIECE_BYTES), b"")


def _listen(channel: paramiko.Channel, said: bytearray) -> None:
    try:
        while piece := channel.recv_stderr(_PIECE_BYTES):
            said += piece
            del said[:-_KEPT_BYTES]
    except (OSError, EOFError, ValueError):
        return  # the reader of stdout says what broke


def _files(listing: str) -> Iterator[tuple[str, str]]:
    for line in listing.splitlines():
        match = re.fullmatch(r"([0-9a-f]{64})  \./([^\x00-\x1f\\]+)", line)
        if match is None or ".." in match[2].split("/"):
            raise MeasurementError(f"the host lists a file of an odd name: {line[:200]!r}")
        yield match[1], match[2]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
