"""A drive on another machine over SSH: a real sshd on loopback, a loop device as the drive."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from harness.core.errors import MachineError, UsageError
from harness.core.ops import Op
from harness.device.guard import identify
from harness.device.guest.session import connect_remote
from harness.trace.parquet import TraceWriter
from harness.trace.schema import TraceMeta

SSHD = shutil.which("sshd", path="/usr/sbin")
pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(SSHD is None, reason="no sshd (apt-get install openssh-server)"),
]


@dataclass
class Server:
    """An sshd and the home of a user whom it lets in."""

    home: Path
    port: int

    @property
    def where(self) -> str:
        return f"root@127.0.0.1:{self.port}"

    def trust(self) -> None:
        """Put the host key where ssh keeps the known ones."""
        kind, key, *_ = (self.home / "host.pub").read_text().split()
        known = self.home / ".ssh" / "known_hosts"
        known.write_text(f"[127.0.0.1]:{self.port} {kind} {key}\n")


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True, mode=0o700)
    for path in (home / "host", home / ".ssh" / "id_ed25519"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # There, `python3` is this environment's: it has numpy.
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    (home / "config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {home}/host\nUsePAM no\nPidFile none\n"
        f"StrictModes no\nAuthorizedKeysFile {home}/.ssh/id_ed25519.pub\nSetEnv PATH={path}\n"
        "PasswordAuthentication no\nSubsystem sftp internal-sftp\n"
    )
    assert SSHD is not None
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    process = subprocess.Popen([SSHD, "-D", "-f", f"{home}/config"], stderr=subprocess.DEVNULL)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    try:
        deadline = time.monotonic() + 20
        while True:
            with socket.socket() as client:
                if client.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield Server(home, port)
    finally:
        process.terminate()
        process.wait()


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[str]:
    """A loop device that no process holds open, as the guard there insists."""
    backing = tmp_path / "drive.img"
    backing.touch()
    os.truncate(backing, 16 << 20)
    argv = ["losetup", "--find", "--show", str(backing)]
    path = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()
    try:
        yield path
    finally:
        subprocess.run(["losetup", "-d", path], check=True)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    count = 200
    op = np.where(np.arange(count) % 4 == 3, Op.READ, Op.WRITE).astype(np.uint8)
    path = tmp_path / "kv.parquet"
    with TraceWriter(path, TraceMeta(source="test")) as writer:
        writer.write(
            {"ts_ns": np.arange(count), "op": op, "bytes": np.full(count, 65536, np.uint64),
             "lba": (np.arange(count, dtype=np.uint64) % 100) * 128}
        )  # fmt: skip
    return path


def replay(trace: Path, server: Server, results: Path, device: str, destroy: str) -> (
    subprocess.CompletedProcess[str]
):  # fmt: skip
    """``harness replay --ssh`` as a user runs it."""
    argv = [sys.executable, "-m", "harness", "replay", str(trace), "--ssh", server.where]
    argv += ["--device", device, "--destroy", destroy, "--results", str(results), "--json"]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def leftovers() -> set[Path]:
    return set(Path("/tmp").glob("harness-drive-*"))


def test_a_remote_drive_gets_the_trace_and_nothing_stays(
    server: Server, trace: Path, loop: str, tmp_path: Path
) -> None:
    server.trust()
    before = leftovers()
    done = replay(trace, server, tmp_path / "r", loop, identify(loop).value)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["fidelity"]["verdict"] == "FAITHFUL"
    assert (found["commands"], found["bytes"]) == (200, 200 * 65536)
    assert found["waf"] is None and "is no NVMe drive" in found["why_no_waf"]
    with open(loop, "rb") as written:
        assert any(written.read(4096))
    refused = replay(trace, server, tmp_path / "r", loop, "another-serial")
    assert refused.returncode == 1
    assert "another-serial" in refused.stderr
    assert leftovers() == before


def test_an_unknown_host_key_is_refused(server: Server) -> None:
    with pytest.raises(MachineError, match="not found in known_hosts") as caught:
        connect_remote(server.where)
    assert caught.value.fix is not None and f"ssh -p {server.port}" in caught.value.fix


@pytest.mark.parametrize("where", ["", "root@", "root@host:x"])
def test_what_is_no_host(where: str) -> None:
    with pytest.raises(UsageError, match="not a host"):
        connect_remote(where)


def test_a_host_that_is_not_there(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        with pytest.raises(MachineError, match="cannot connect"):
            connect_remote(f"root@127.0.0.1:{probe.getsockname()[1]}")
