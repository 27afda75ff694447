"""Capture on "another" host: a real sshd on loopback, with keys of its own."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.capture.options import TraceOptions
from harness.capture.remote import _archive
from harness.capture.session import Capture
from harness.capture.ssh import Destination, parse_destination
from harness.core.assets import asset_dir
from harness.core.errors import MachineError, UsageError
from harness.device.loop import LoopDevice
from harness.trace.parquet import open_trace
from tests.capture.test_faults import until
from tests.capture.test_probe import write_direct

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")


@dataclass
class Server:
    """An sshd, and the home folder of a user who may come in."""

    port: int
    process: subprocess.Popen[bytes]
    home: Path

    @property
    def destination(self) -> str:
        return f"root@127.0.0.1:{self.port}"

    def trust(self) -> None:
        key = (self.home.parent / "host_key.pub").read_text().split()
        line = f"[127.0.0.1]:{self.port} {key[0]} {key[1]}\n"
        (self.home / ".ssh/known_hosts").write_text(line)


def _keygen(path: Path) -> None:
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)]
    subprocess.run(command, check=True)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    if SSHD is None:
        pytest.skip("openssh-server is not installed")
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True, mode=0o700)
    _keygen(home / ".ssh/id_ed25519")
    shutil.copy(home / ".ssh/id_ed25519.pub", tmp_path / "authorized")
    _keygen(tmp_path / "host_key")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = tmp_path / "sshd_config"
    config.write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {tmp_path}/host_key\nUsePAM no\n"
        f"PidFile none\nPermitRootLogin prohibit-password\nPasswordAuthentication no\n"
        f"StrictModes no\nAuthorizedKeysFile {tmp_path}/authorized\n"
    )
    made = not Path("/run/sshd").exists()
    if made:
        Path("/run/sshd").mkdir(mode=0o755)
    process = subprocess.Popen([SSHD, "-D", "-e", "-f", config], stderr=subprocess.DEVNULL)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)

    def listens() -> bool:
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", port)) == 0

    try:
        until(listens)
        yield Server(port, process, home)
    finally:
        process.terminate()
        process.wait()
        if made:
            Path("/run/sshd").rmdir()


def leftovers() -> list[Path]:
    return list(Path("/tmp").glob("kvflash-probe-*"))


@pytest.mark.root
def test_a_remote_device_is_traced_and_nothing_stays_there(
    server: Server, loop: LoopDevice, tmp_path: Path
) -> None:
    server.trust()
    before = leftovers()
    with Capture(loop.path, tmp_path / "t.parquet", host=server.destination) as capture:
        assert len(leftovers()) == len(before) + 1
        write_direct(loop.path, 3, 5)
    assert capture.result is not None
    assert (capture.result.verdict, capture.result.requests) == ("LOSSLESS", 2)
    assert open_trace(capture.result.trace).table(["lba"])["lba"].to_pylist() == [24, 40]
    assert leftovers() == before


@pytest.mark.root
def test_a_broken_connection_keeps_the_trace_and_cleans_up(
    server: Server, loop: LoopDevice, tmp_path: Path
) -> None:
    server.trust()
    before = leftovers()
    with Capture(loop.path, tmp_path / "t.parquet", host=server.destination) as capture:
        write_direct(loop.path, 3)
        time.sleep(0.5)
        for child in _sessions(server.process.pid):
            os.kill(child, signal.SIGKILL)
        until(lambda: not capture.alive())
    assert capture.result is not None
    assert capture.result.verdict == "UNKNOWN"
    assert capture.result.details["complete"] is False
    assert open_trace(capture.result.trace).rows == 1
    until(lambda: leftovers() == before)


def _sessions(pid: int) -> list[int]:
    """The processes of an sshd that serve connections."""
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


@pytest.mark.root
def test_an_unknown_host_key_is_refused_with_its_fingerprint(
    server: Server, loop: LoopDevice, tmp_path: Path
) -> None:
    public = server.home.parent / "host_key.pub"
    shown = subprocess.run(["ssh-keygen", "-lf", public], capture_output=True, text=True).stdout
    with (
        pytest.raises(UsageError, match=re.escape(shown.split()[1])) as error,
        Capture(loop.path, tmp_path / "t.parquet", host=server.destination),
    ):
        pass
    fix = error.value.fix or ""
    assert f"ssh-keyscan -p {server.port}" in fix
    # The advice works: what it prints makes the key known.
    keyscan = fix.partition(": ")[2].partition(" >>")[0].split()
    known = subprocess.run(keyscan, capture_output=True, text=True, check=True).stdout
    (server.home / ".ssh/known_hosts").write_text(known)
    with Capture(loop.path, tmp_path / "t.parquet", host=server.destination):
        pass


@pytest.mark.root
def test_a_changed_host_key_is_refused(server: Server, loop: LoopDevice, tmp_path: Path) -> None:
    _keygen(tmp_path / "other_key")
    key = (tmp_path / "other_key.pub").read_text().split()
    line = f"[127.0.0.1]:{server.port} {key[0]} {key[1]}\n"
    (server.home / ".ssh/known_hosts").write_text(line)
    with (
        pytest.raises(UsageError, match="CHANGED"),
        Capture(loop.path, tmp_path / "t.parquet", host=server.destination),
    ):
        pass


@pytest.mark.root
def test_a_key_that_is_not_let_in_says_so(server: Server, loop: LoopDevice, tmp_path: Path) -> None:
    server.trust()
    (server.home / ".ssh/id_ed25519").unlink()
    _keygen(server.home / ".ssh/id_ed25519")
    with (
        pytest.raises(MachineError, match="does not let root in"),
        Capture(loop.path, tmp_path / "t.parquet", host=server.destination),
    ):
        pass


@pytest.mark.root
def test_an_error_of_the_loader_there_arrives_here(server: Server, tmp_path: Path) -> None:
    server.trust()
    from harness.core.errors import HarnessError

    before = leftovers()
    options = TraceOptions(("/dev/no-such-device",))
    with (
        pytest.raises(HarnessError, match="No such file") as error,
        Capture(options, tmp_path / "t.parquet", host=server.destination),
    ):
        pass
    assert error.value.exit_code == UsageError.exit_code
    until(lambda: leftovers() == before)


def test_a_host_that_does_not_answer_is_a_machine_error(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        host = f"root@127.0.0.1:{taken.getsockname()[1]}"
        with (
            pytest.raises(MachineError, match="cannot connect"),
            Capture("/dev/null", tmp_path / "t.parquet", host=host),
        ):
            pass


@pytest.mark.root
def test_without_sudo_the_other_host_refuses() -> None:
    archive = _archive(asset_dir("ebpf"))
    done = subprocess.run(
        [sys.executable, "-c", (asset_dir("ebpf") / "bootstrap.py").read_text(), "--device", "x"],
        executable="/usr/bin/python3", user=65534, cwd="/", env={"PATH": "/nonexistent"},
        input=len(archive).to_bytes(8, "little") + archive, capture_output=True, timeout=30,
    )  # fmt: skip
    assert done.returncode == MachineError.exit_code
    assert done.stderr.startswith(b"sudo:")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("me@host", Destination("host", "me", 22, ())),
        ("host:2222", Destination("host", None, 2222, ())),
        ("me@[::1]:22", Destination("::1", "me", 22, ())),
    ],
)
def test_destinations(
    text: str, expected: Destination, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert parse_destination(text) == expected


def test_the_users_ssh_configuration_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/config").write_text("Host lab\n HostName 10.0.0.7\n User root\n Port 99\n")
    assert parse_destination("lab") == Destination("10.0.0.7", "root", 99, ())
    assert parse_destination("me@lab:5").user == "me"


@pytest.mark.parametrize("text", ["", "a b", "-oProxyCommand=x", "me@", "a@b@c", "host:port"])
def test_what_is_no_destination(text: str) -> None:
    with pytest.raises(UsageError):
        parse_destination(text)
