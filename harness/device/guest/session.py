"""Commands and files on another machine over SSH: a guest of ours, or a user's FEMU host."""

from __future__ import annotations

import logging
import select
import shlex
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import paramiko

from harness.core.errors import HarnessError, MachineError, MeasurementError, UsageError

# Its threads print tracebacks of failed attempts that are reported here as one message.
logging.getLogger("paramiko").addHandler(logging.NullHandler())


@dataclass(frozen=True)
class Completed:
    """A command that ended there."""

    argv: tuple[str, ...]
    returncode: int
    stdout: bytes
    stderr: bytes

    @property
    def text(self) -> str:
        """Standard output as text, without the last newline."""
        return self.stdout.decode(errors="replace").rstrip("\n")


class CommandTimeout(MeasurementError):
    """A command did not end within its limit; it may still be running there."""


class SessionLost(MeasurementError):
    """The connection ended while a command ran: the other side died or the network did."""


class Session:
    """A connected SSH client with the few things the harness needs.

    ``explain`` may turn a lost connection or a timeout into something more telling; it gets the
    error and returns the error to raise.
    """

    def __init__(
        self,
        client: paramiko.SSHClient,
        explain: Callable[[MeasurementError], HarnessError] = lambda error: error,
    ) -> None:
        self._client = client
        self._explain = explain

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float = 120.0,
        check: bool = True,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> Completed:
        """Run ``argv`` there and wait for its end.

        Raises
        ------
        MeasurementError
            With ``check``, a status other than 0: message has its last lines of stderr.
        CommandTimeout, SessionLost
            It did not end in ``timeout_s``, or the connection broke.
        """
        words = ["env", *(f"{key}={value}" for key, value in (env or {}).items()), *argv]
        line = shlex.join(words if env else list(argv))
        if cwd is not None:
            line = f"cd {shlex.quote(cwd)} && exec {line}"
        try:
            done = self._exchange(tuple(argv), line, stdin, time.monotonic() + timeout_s)
        except (CommandTimeout, SessionLost) as error:
            raise self._explain(error) from error
        if check and done.returncode != 0:
            said = (done.stderr or done.stdout).decode(errors="replace").strip()
            tail = "\n".join(said.splitlines()[-8:]) or "it said nothing"
            raise MeasurementError(
                f"`{shlex.join(argv)}` failed there with status {done.returncode}: {tail}"
            )
        return done

    def answers(self, limit_s: float) -> bool:
        """Whether the other side still runs commands."""
        try:
            self._exchange(("true",), "true", b"", time.monotonic() + limit_s)
        except MeasurementError:
            return False
        return True

    def put(self, local: Path, remote: str) -> None:
        """Copy a file there."""
        with self._client.open_sftp() as sftp:
            sftp.put(str(local), remote)

    def get(self, remote: str, local: Path) -> None:
        """Copy a file from there; MeasurementError if it does not exist."""
        with self._client.open_sftp() as sftp:
            try:
                sftp.get(remote, str(local))
            except FileNotFoundError as error:
                local.unlink(missing_ok=True)
                raise MeasurementError(f"no file {remote} there") from error

    def close(self) -> None:
        """End the connection."""
        self._client.close()

    def _exchange(
        self, argv: tuple[str, ...], line: str, stdin: bytes, deadline: float
    ) -> Completed:
        transport = self._client.get_transport()
        try:
            if transport is None or not transport.is_active():
                raise SessionLost(f"the connection was lost before `{shlex.join(argv)}`")
            channel = transport.open_session(timeout=max(0.1, deadline - time.monotonic()))
            channel.exec_command(line)
            channel.sendall(stdin)
            channel.shutdown_write()
        except (paramiko.SSHException, OSError, EOFError) as error:
            if time.monotonic() > deadline:
                raise CommandTimeout(
                    f"`{shlex.join(argv)}` could not be started in time"
                ) from error
            raise SessionLost(f"`{shlex.join(argv)}` could not be started: {error}") from error
        out, err = bytearray(), bytearray()
        with channel:
            while not _finished(channel, out, err):
                if not transport.is_active():
                    raise SessionLost(f"the connection was lost during `{shlex.join(argv)}`")
                if time.monotonic() > deadline:
                    raise CommandTimeout(f"`{shlex.join(argv)}` did not end within its time limit")
                select.select([channel], [], [], 0.2)
            status = channel.recv_exit_status()
        if status < 0:
            raise SessionLost(f"`{shlex.join(argv)}` ended without a status (killed, or the end)")
        return Completed(argv, status, bytes(out), bytes(err))


def _finished(channel: paramiko.Channel, out: bytearray, err: bytearray) -> bool:
    """Move what has arrived into ``out`` and ``err``; whether nothing more can come."""
    ended = channel.exit_status_ready() and bool(channel.eof_received)
    while channel.recv_ready():
        out += channel.recv(1 << 16)
    while channel.recv_stderr_ready():
        err += channel.recv_stderr(1 << 16)
    return ended or bool(channel.closed)


def connect_guest(
    port: int, host_key: paramiko.PKey, user_key: paramiko.PKey, limit_s: float
) -> paramiko.SSHClient:
    """Connect to a guest's sshd on loopback; only ``host_key`` is accepted.

    sshd may need a moment after it says it was started: refused connections are tried again
    until ``limit_s`` has passed.
    """
    deadline = time.monotonic() + limit_s
    while True:
        client = paramiko.SSHClient()
        client.set_missing_host_key_policy(paramiko.RejectPolicy())
        name = f"[127.0.0.1]:{port}"
        client.get_host_keys().add(name, host_key.get_name(), host_key)
        wait_s = max(1.0, deadline - time.monotonic())
        try:
            client.connect(
                "127.0.0.1", port=port, username="root", pkey=user_key, allow_agent=False,
                look_for_keys=False, timeout=wait_s, banner_timeout=wait_s, auth_timeout=wait_s,
            )  # fmt: skip
        except (paramiko.AuthenticationException, paramiko.BadHostKeyException) as error:
            client.close()
            raise MeasurementError(f"the guest's sshd is not ours: {error}") from error
        except (paramiko.SSHException, OSError, EOFError) as error:
            client.close()
            if time.monotonic() > deadline:
                raise SessionLost(f"the guest's sshd does not answer: {error}") from error
            time.sleep(0.2)
        else:
            return client


def connect_remote(where: str) -> Session:
    """A session on ``user@host`` or ``user@host:port``, a user's own machine; known keys only.

    Raises
    ------
    MachineError
        The host is unreachable, refuses our keys, or its host key is unknown or changed.
    """
    user, _, host = where.rpartition("@")
    name, _, digits = host.partition(":")
    if not name or (digits and not digits.isdigit()):
        raise UsageError(f"not a host: {where!r} (user@host or user@host:port)")
    port = int(digits or 22)
    plain = f"-p {port} {where.partition(':')[0]}"
    client = paramiko.SSHClient()
    client.load_system_host_keys()
    client.set_missing_host_key_policy(paramiko.RejectPolicy())
    try:
        client.connect(name, port=port, username=user or None, timeout=20)
    except paramiko.BadHostKeyException as error:
        raise MachineError(f"the host key of {name} has changed: {error}") from error
    except paramiko.AuthenticationException as error:
        raise MachineError(f"{where} refuses our SSH keys", fix=f"ssh-copy-id {plain}") from error
    except (paramiko.SSHException, OSError, socket.gaierror) as error:
        raise MachineError(
            f"cannot connect to {where}: {error}",
            fix=f"check the host, then accept its key once: ssh {plain}",
        ) from error
    return Session(client)
