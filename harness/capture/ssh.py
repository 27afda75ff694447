"""A connection to another host that trusts nobody it has not met."""

from __future__ import annotations

import base64
import hashlib
import logging
import re
import socket
from dataclasses import dataclass
from pathlib import Path

import paramiko

from harness.core.errors import MachineError, UsageError

# Its threads print tracebacks of failed attempts that are reported here as one message.
logging.getLogger("paramiko").addHandler(logging.NullHandler())

_TIMEOUT_S = 15.0
_KEEPALIVE_S = 10


@dataclass(frozen=True)
class Destination:
    """Where to connect, after ``~/.ssh/config``; None where ssh would use its default."""

    host: str
    user: str | None
    port: int
    identity: tuple[str, ...]


def parse_destination(text: str) -> Destination:
    """``[user@]host[:port]`` (IPv6 in brackets), completed from ``~/.ssh/config``; UsageError."""
    match = re.fullmatch(r"(?:([^@\s]+)@)?(\[[0-9a-fA-F:]+\]|[^@:\s\[\]]+)(?::(\d+))?", text)
    if match is None or text.startswith("-"):
        raise UsageError(f"not a host: {text!r} (expected user@host or user@host:port)")
    user, host, port = match[1], match[2].strip("[]"), match[3]
    known = _config(host)
    return Destination(
        host=str(known.get("hostname", host)),
        user=user or known.get("user"),
        port=int(port or known.get("port", 22)),
        identity=tuple(known.get("identityfile", ())),
    )


def _config(host: str) -> paramiko.SSHConfigDict:
    path = Path("~/.ssh/config").expanduser()
    if not path.is_file():
        return paramiko.SSHConfigDict()
    try:
        return paramiko.SSHConfig.from_path(str(path)).lookup(host)
    except (OSError, paramiko.SSHException) as error:
        raise UsageError(f"{path}: {error}") from error


class _RefuseStranger(paramiko.MissingHostKeyPolicy):
    def __init__(self, port: int) -> None:
        self._port = port

    def missing_host_key(
        self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey
    ) -> None:
        host = hostname.partition("]")[0].strip("[") if hostname.startswith("[") else hostname
        raise UsageError(
            f"the host key of {host} is not known: {key.get_name()} {fingerprint(key)}",
            fix=f"if its owner confirms that fingerprint: ssh-keyscan -p {self._port} "
            f"-t {key.get_name()} {host} >> ~/.ssh/known_hosts",
        )


def fingerprint(key: paramiko.PKey) -> str:
    """The form that ssh prints: ``SHA256:...``."""
    digest = hashlib.sha256(key.asbytes()).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def connect(destination: Destination) -> paramiko.SSHClient:
    """An authenticated connection whose host key is in ``~/.ssh/known_hosts``.

    Errors: UsageError for an unknown or changed host key, MachineError where the host cannot be
    reached or lets nobody in.
    """
    client = paramiko.SSHClient()
    client.load_system_host_keys()
    client.set_missing_host_key_policy(_RefuseStranger(destination.port))
    where = f"{destination.host}:{destination.port}"
    try:
        client.connect(
            destination.host,
            port=destination.port,
            username=destination.user,
            key_filename=list(destination.identity),  # type: ignore[arg-type] # takes several
            timeout=_TIMEOUT_S,
            banner_timeout=_TIMEOUT_S,
            auth_timeout=_TIMEOUT_S,
        )
    except UsageError:
        client.close()
        raise
    except paramiko.BadHostKeyException as error:
        client.close()
        raise UsageError(
            f"the host key of {where} has CHANGED: it is now {fingerprint(error.key)}, "
            f"expected {fingerprint(error.expected_key)}",
            fix="find out why before you trust it; to forget the old key: "
            f"ssh-keygen -R '[{destination.host}]:{destination.port}'",
        ) from error
    except paramiko.AuthenticationException as error:
        client.close()
        raise MachineError(
            f"{where} does not let {destination.user or 'this user'} in: {error}",
            fix="install your public key there (ssh-copy-id); passwords are not used",
        ) from error
    except (OSError, socket.gaierror, paramiko.SSHException) as error:
        client.close()
        raise MachineError(f"cannot connect to {where}: {error}") from error
    transport = client.get_transport()
    assert transport is not None
    transport.set_keepalive(_KEEPALIVE_S)
    return client
