"""Hosts on this machine: sshd instances on loopback ports, each with its own home and keys."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from harness import __version__

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")
_TOP = Path(__file__).resolve().parents[2]

# A harness that makes a run without minutes of measuring; everything around it is real.
_STUB = """#!{python}
import pathlib, sys, time
sys.path.insert(0, {top!r})
if "--version" in sys.argv:
    print("harness {version}")
    raise SystemExit
print("arguments:", *sys.argv[1:], file=sys.stderr, flush=True)
{behaviour}
from tests.report.made_run import make_run
results = next(a.partition("=")[2] for a in sys.argv if a.startswith("--results="))
made = make_run(pathlib.Path(results))
made.rename(made.with_name("20260101T0000-run-{name}"))
print("{{}}")
"""


def keygen(path: Path) -> None:
    """A key pair without a passphrase."""
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)]
    subprocess.run(command, check=True)


@dataclass
class Lab:
    """The user's home and the hosts that were started; ``close`` ends them all."""

    folder: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        (self.folder / "home/.ssh").mkdir(parents=True, mode=0o700)
        keygen(self.folder / "home/.ssh/id_ed25519")

    def host(
        self,
        name: str,
        *,
        version: str = __version__,
        behaviour: str = "",
        trusted: bool = True,
        lets_in: bool = True,
    ) -> dict[str, object]:
        """Start a host; its entry for the inventory."""
        place = self.folder / name
        place.mkdir()
        keygen(place / "host_key")
        if lets_in:
            shutil.copy(self.folder / "home/.ssh/id_ed25519.pub", place / "authorized")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        (place / "sshd_config").write_text(
            f"Port {port}\nListenAddress 127.0.0.1\nHostKey {place}/host_key\nUsePAM no\n"
            "PidFile none\nPermitRootLogin prohibit-password\nPasswordAuthentication no\n"
            f"StrictModes no\nAuthorizedKeysFile {place}/authorized\n"
            f'ForceCommand cd {place} && sh -c "$SSH_ORIGINAL_COMMAND"\n'
        )
        assert SSHD is not None
        server = [SSHD, "-D", "-e", "-f", str(place / "sshd_config")]
        self.processes.append(subprocess.Popen(server, stderr=subprocess.DEVNULL))
        _until_it_listens(port)
        if trusted:
            kind, key, *_ = (place / "host_key.pub").read_text().split()
            with (self.folder / "home/.ssh/known_hosts").open("a") as known:
                known.write(f"[127.0.0.1]:{port} {kind} {key}\n")
        stub = place / "harness"
        stub.write_text(
            _STUB.format(
                python=sys.executable,
                top=str(_TOP),
                version=version,
                behaviour=behaviour,
                name=name,
            )
        )
        stub.chmod(0o755)
        return {"name": name, "address": f"root@127.0.0.1:{port}", "harness": str(stub)}

    def close(self) -> None:
        for process in self.processes:
            process.terminate()
            process.wait()


def _until_it_listens(port: int) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    pytest.fail(f"sshd does not listen on port {port}")
