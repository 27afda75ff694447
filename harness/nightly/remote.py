"""One host during a night: commands with an end, drives by serial, results by hash."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import paramiko

from harness.capture.ssh import connect, parse_destination
from harness.core.errors import MachineError, MeasurementError
from harness.nightly.inventory import Limits

LOCKED = 75
TIMED_OUT = (124, 137)
_PIECE_BYTES = 1 << 16
_SHORT_S = 60.0
_GRACE_S = 120.0

# The job ends with the connection: its stdin is this channel, and the end of that ends the job.
_SUPERVISE = (
    'exec 3<&0; "$@" </dev/null 3<&- & job=$!; '
    "(cat <&3 >/dev/null; kill -TERM $job) >/dev/null 2>&1 & watch=$!; exec 3<&-; "
    "wait $job; code=$?; kill $watch 2>/dev/null; exit $code"
)
_HASHES = 'cd "$1" 2>/dev/null || exit 0; find . -type f -exec sha256sum {} +'


@dataclass(frozen=True)
class Ended:
    """A remote command that ended by itself."""

    code: int
    stdout: bytes
    stderr: str


@dataclass(frozen=True)
class Health:
    """What the drive says of itself; None where it is no NVMe drive or does not say."""

    temperature_c: int | None
    percentage_used: int | None
    media_errors: int | None

    def beyond(self, limits: Limits) -> list[str]:
        """What is past its limit, in words; a figure that is not known is not past it."""
        pairs = {
            "temperature": (self.temperature_c, limits.temperature_c),
            "percentage used": (self.percentage_used, limits.percentage_used),
            "media errors": (self.media_errors, limits.media_errors),
        }
        return [
            f"{name} {value} is above {most}"
            for name, (value, most) in pairs.items()
            if value is not None and value > most
        ]


class Remote:
    """A connection whose host key is known. Close it, also from another thread, to end its job.

    Errors: those of ``ssh.connect``; MachineError where the connection breaks.
    """

    def __init__(self, destination: str, *, sudo: bool = False) -> None:
        self._client = connect(parse_destination(destination))
        self._sudo = ["sudo", "-n"] if sudo else []

    def close(self) -> None:
        """Disconnect; harmless when done twice."""
        self._client.close()

    def run(
        self, words: Sequence[str], *, log: IO[bytes] | None = None, limit_s: float = _SHORT_S
    ) -> Ended:
        """Run a command to its end; its stderr also goes to ``log`` as it comes."""
        said = bytearray()
        try:
            channel = self._open()
            channel.settimeout(limit_s)
            channel.exec_command(shlex.join([*self._sudo, *words]))
            listener = threading.Thread(target=_listen, args=(channel, said, log), daemon=True)
            listener.start()
            stdout = b"".join(iter(lambda: channel.recv(_PIECE_BYTES), b""))
            listener.join(_SHORT_S)
            ended_at = time.monotonic() + _SHORT_S
            while not channel.exit_status_ready() and time.monotonic() < ended_at:
                time.sleep(0.02)
            code = channel.recv_exit_status() if channel.exit_status_ready() else -1
            channel.close()
        except (OSError, EOFError, paramiko.SSHException) as error:
            raise MachineError(f"the connection broke: {error or type(error).__name__}") from error
        if code < 0:
            raise MachineError("the connection broke, or the command was killed")
        return Ended(code, stdout, said.decode("utf-8", "replace"))

    def job(self, words: Sequence[str], lock: str, minutes: float, log: IO[bytes]) -> Ended:
        """Run a job under its lock and its time; it ends when the connection does.

        ``LOCKED`` and ``TIMED_OUT`` are its codes for these two.
        """
        digest = hashlib.sha256(lock.encode()).hexdigest()[:16]
        guarded = [
            "flock", "--no-fork", "-n", "-E", str(LOCKED), f"/run/lock/kvflash-{digest}.lock",
            "timeout", "-k", "30", f"{max(1.0, 60 * minutes):.1f}", *words,
        ]  # fmt: skip
        limit_s = 60 * minutes + _GRACE_S
        return self.run(["sh", "-c", _SUPERVISE, "sh", *guarded], log=log, limit_s=limit_s)

    def version(self, harness: str) -> str:
        """The version of the harness there; MachineError where it does not start."""
        ended = self.run([harness, "--version"])
        if ended.code != 0:
            raise MachineError(
                f"{harness} does not start there: {last_line(ended.stderr)}",
                fix="install it there, or give its path as harness: in the inventory",
            )
        return ended.stdout.decode().strip().removeprefix("harness ")

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
        if len(found) != 1:
            what = "no device has" if not found else f"{', '.join(found)} all have"
            raise MachineError(f"{what} the serial {serial}")
        return found[0]

    def health(self, path: str) -> Health:
        """SMART of an NVMe drive; MachineError where it cannot be read."""
        if not path.startswith("/dev/nvme"):
            return Health(None, None, None)
        ended = self.run(["nvme", "smart-log", "-o", "json", path])
        if ended.code != 0:
            raise MachineError(f"the health of {path} cannot be read: {last_line(ended.stderr)}")
        return parse_health(ended.stdout)

    def fetch(self, folder: str, into: Path) -> None:
        """Copy all files below ``folder``; those that are here and whole are not sent again.

        MeasurementError where a file's hash differs from that on the host.
        """
        ended = self.run(["sh", "-c", _HASHES, "sh", folder], limit_s=10 * _SHORT_S)
        if ended.code != 0:
            raise MachineError(f"results cannot be read there: {last_line(ended.stderr)}")
        for digest, name in _files(ended.stdout.decode()):
            target = into / name
            if target.is_file() and _sha256(target) == digest:
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            self._copy(f"{folder}/{name}", target)
            if _sha256(target) != digest:
                raise MeasurementError(f"{name} changed on its way: its hash differs")

    def remove(self, folder: str) -> None:
        """Remove results that were fetched."""
        self.run(["rm", "-rf", "--", folder])

    def _copy(self, source: str, target: Path) -> None:
        """Through ``cat``, because sftp has no sudo."""
        try:
            channel = self._open()
            channel.settimeout(_SHORT_S)
            channel.exec_command(shlex.join([*self._sudo, "cat", "--", source]))
            with target.open("wb") as file:
                for piece in iter(lambda: channel.recv(_PIECE_BYTES), b""):
                    file.write(piece)
            channel.close()
        except (TimeoutError, EOFError, paramiko.SSHException) as error:
            raise MachineError(f"the connection broke: {error or type(error).__name__}") from error

    def _open(self) -> paramiko.Channel:
        transport = self._client.get_transport()
        if transport is None or not transport.is_active():
            raise MachineError("the connection broke")
        return transport.open_session(timeout=_SHORT_S)

    def _table(self, words: list[str], name: str) -> list[dict[str, Any]]:
        ended = self.run(words)
        if ended.code != 0:
            raise MachineError(f"{words[0]}: {last_line(ended.stderr)}")
        rows: list[dict[str, Any]] = json.loads(ended.stdout or b"{}").get(name, [])
        return rows


def parse_health(text: bytes) -> Health:
    """``nvme smart-log -o json``: kelvin, percent, a count."""
    try:
        data = json.loads(text)
    except ValueError as error:
        raise MachineError("nvme smart-log printed no JSON") from error

    def known(*names: str) -> int | None:
        return next((int(data[name]) for name in names if name in data), None)

    kelvin = known("temperature")
    return Health(
        None if kelvin is None else kelvin - 273,
        known("percent_used", "percentage_used"),
        known("media_errors"),
    )


def last_line(text: str) -> str:
    """What a command said last."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it said nothing"


def _listen(channel: paramiko.Channel, said: bytearray, log: IO[bytes] | None) -> None:
    try:
        while piece := channel.recv_stderr(_PIECE_BYTES):
            said += piece
            del said[: -(1 << 16)]
            if log is not None:
                log.write(piece)
                log.flush()
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
