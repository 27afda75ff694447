"""Hosts on this machine: sshd instances on loopback ports, each in a mount namespace of its own.

A host has its own home, keys, ``/etc/passwd``, ``/etc/sudoers`` and boot id, and if wanted its own
processes and a small disk beneath ``~/.cache``; kernel and devices are this machine's.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from harness.core.identity import identity
from tests.report.made_run import make_run

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")
TOP = Path(__file__).resolve().parents[2]

# A harness that leaves a run without minutes of measuring; everything around it is real.
_STUB = """#!/bin/sh
[ "$1" = --version ] && {{ echo "harness {identity}"; exit; }}
echo "arguments: $*" >&2
for word; do case $word in --results=*) results=${{word#--results=}};; esac; done
{behaviour}
mkdir -p "$results" && cp -r {made} "$results/20260101T0000-run-$(basename {place})"
"""
_REAL = """#!/bin/sh
[ "$1" = --version ] && {{ echo "harness {identity}"; exit; }}
PYTHONPATH={top} exec {python} -m harness "$@"
"""
_FENCE = """
set -e
mount --bind "$1/boot_id" /proc/sys/kernel/random/boot_id
mount --bind "$1/passwd" /etc/passwd
[ -z "$2" ] || mount -t tmpfs -o "size=$2,mode=777" none "$1/.cache"
[ -z "$3" ] || { [ -e /etc/sudoers ] && mount --bind "$1/sudoers" /etc/sudoers; }
shift 3
exec "$@"
"""


def keygen(path: Path) -> None:
    """A key pair without a passphrase."""
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)]
    subprocess.run(command, check=True)


@dataclass
class Lab:
    """The user's home and the hosts that were started; ``close`` ends them all."""

    folder: Path
    servers: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _commands: dict[str, list[str]] = field(default_factory=dict)
    _ports: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.chmod(0o755)
        (self.folder / "home/.ssh").mkdir(parents=True, mode=0o700)
        keygen(self.folder / "home/.ssh/id_ed25519")
        self.made = make_run(self.folder / "made")

    def host(
        self,
        name: str,
        *,
        known_as: str = "",
        behaviour: str = "",
        trusted: bool = True,
        lets_in: bool = True,
        user: str = "root",
        sudoers: str = "",
        disk: str = "",
        own_processes: bool = False,
        real: bool = False,
    ) -> dict[str, Any]:
        """Start a host; its entry for the inventory.

        ``known_as`` is what its harness calls itself; ``behaviour`` is shell code of the stub;
        ``disk`` is the size of what holds its caches; ``real`` is the harness of this checkout.
        """
        place = self.folder / name
        (place / ".cache").mkdir(parents=True)
        (place / "bin").mkdir()
        keygen(place / "host_key")
        if lets_in:
            shutil.copy(self.folder / "home/.ssh/id_ed25519.pub", place / "authorized")
        (place / "boot_id").write_text(f"{uuid.uuid4()}\n")
        (place / "passwd").write_text(_passwd(place))
        (place / "sudoers").write_text(sudoers)
        (place / "sudoers").chmod(0o440)
        if user != "root":
            for owned in (place, place / ".cache"):
                os.chown(owned, 61234, 61234)
        port = self._ports[name] = _free_port()
        self._configure(place, port)
        fence = ["unshare", "--mount", "--propagation", "private"]
        if own_processes:
            fence += ["--pid", "--fork", "--kill-child", "--mount-proc"]
        assert SSHD is not None
        server = [SSHD, "-D", "-e", "-f", str(place / "sshd_config")]
        enter = ["sh", "-c", _FENCE, "sh", str(place), disk, sudoers and "yes", *server]
        self._commands[name] = [*fence, *enter]
        self.boot(name)
        if trusted:
            kind, key, *_ = (place / "host_key.pub").read_text().split()
            with (self.folder / "home/.ssh/known_hosts").open("a") as known:
                known.write(f"[127.0.0.1]:{port} {kind} {key}\n")
        stub = place / "bin/harness"
        stub.write_text(
            (_REAL if real else _STUB).format(
                identity=known_as or identity(), behaviour=behaviour, made=self.made, place=place,
                top=TOP, python=sys.executable,
            )
        )  # fmt: skip
        stub.chmod(0o755)
        return {"name": name, "address": f"{user}@127.0.0.1:{port}", "harness": str(stub)}

    def boot(self, name: str) -> None:
        """Start the host's sshd."""
        self.servers[name] = subprocess.Popen(self._commands[name], stderr=subprocess.DEVNULL)
        _until_it_listens(self._ports[name])

    def down(self, name: str) -> None:
        """End the host's sshd, and with ``own_processes`` all that runs on it."""
        self.servers[name].kill()
        self.servers[name].wait()

    def cut(self, name: str) -> int:
        """Break the connections that are open; how many there were."""
        port, found = self._ports[name], 0
        listing = subprocess.run(
            ["ss", "-tnpH", "state", "established", f"( sport = :{port} )"],
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
        for pid in {part.split(",")[0] for part in listing.split("pid=")[1:]}:
            os.kill(int(pid), signal.SIGKILL)
            found += 1
        return found

    def close(self) -> None:
        """End all hosts."""
        for name in self.servers:
            self.down(name)

    @staticmethod
    def _configure(place: Path, port: int) -> None:
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        setup = "; ".join(
            [
                f"export PATH={place}/bin:/usr/sbin:/sbin:$PATH",
                f"[ $(id -u) != 0 ] || export XDG_CACHE_HOME={shlex.quote(str(cache))}",
                f"[ ! -e {place}/environment ] || . {place}/environment",
                'exec sh -c "$SSH_ORIGINAL_COMMAND"',
            ]
        )
        (place / "sshd_config").write_text(
            f"Port {port}\nListenAddress 127.0.0.1\nHostKey {place}/host_key\nUsePAM no\n"
            "PidFile none\nPermitRootLogin prohibit-password\nPasswordAuthentication no\n"
            f"StrictModes no\nAuthorizedKeysFile {place}/authorized\nForceCommand {setup}\n"
        )


def _passwd(home: Path) -> str:
    """The machine's users, with ``home`` and a plain shell for root, and a user without rights."""
    users = Path("/etc/passwd").read_text().splitlines()
    others = [line for line in users if not line.startswith("root:")]
    mine = [f"root:x:0:0:root:{home}:/bin/sh", f"lab:*:61234:61234::{home}:/bin/sh"]
    return "\n".join([*mine, *others]) + "\n"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _until_it_listens(port: int) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    pytest.fail(f"sshd does not listen on port {port}")
