"""The harness comes to a host that has none: once, by its hash, and without any network."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from harness.core.errors import MachineError, UsageError
from harness.core.identity import code, identity, package_files
from harness.nightly.environment import Sender, harness_on
from harness.nightly.inventory import Host
from harness.nightly.remote import Remote
from harness.nightly.wheel import build_wheel
from tests.nightly.hosts import Lab


@pytest.fixture(autouse=True)
def fresh() -> None:
    """The code as it is now: a checkout may be edited while its tests run."""
    code.cache_clear()


def test_the_wheel_is_the_same_each_time_and_holds_what_runs_here(tmp_path: Path) -> None:
    (tmp_path / "again").mkdir()
    made, again = build_wheel(tmp_path), build_wheel(tmp_path / "again")
    assert made.read_bytes() == again.read_bytes()
    with zipfile.ZipFile(made) as archive:
        assert archive.testzip() is None
        names = set(archive.namelist())
    assert {"harness/cli/app.py", "harness/_assets/ebpf/probe.bpf.c"} <= names
    assert len([n for n in names if n.startswith("harness/")]) == len(package_files())
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    target = tmp_path / "installed"
    subprocess.run([*pip, "--no-deps", "--no-index", "--target", str(target), made], check=True)
    command = [sys.executable, "-m", "harness", "--version"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": str(target)},
    )  # fmt: skip
    assert done.stdout.strip() == f"harness {identity()}"


def test_a_folder_without_wheels_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no wheels in"):
        Sender(tmp_path).others()
    assert Sender().others() == []


@pytest.fixture
def bare(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A host without a harness, whose Python has the dependencies; no package index is asked."""
    monkeypatch.setattr("harness.nightly.environment._warm", lambda *_: None)  # takes minutes
    entry = lab.host("a")
    (lab.folder / "a/bin/harness").unlink()
    packages = lab.folder / "a/packages"
    packages.mkdir()
    for path in Path(sysconfig.get_paths()["purelib"]).iterdir():
        if not path.name.startswith(("kvflash", "__editable__", "pip", "setuptools", "_kvflash")):
            (packages / path.name).symlink_to(path)
    (lab.folder / "a/environment").write_text(f"export PYTHONPATH={packages}\n")
    monkeypatch.setenv("HOME", str(lab.folder / "home"))
    del entry["harness"]
    return {**entry, "python": sys.executable}


def wheels(folder: Path) -> Path:
    """A folder with one wheel of nothing."""
    folder.mkdir()
    info = "demo-1.0.dist-info"
    with zipfile.ZipFile(folder / "demo-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return folder


@pytest.mark.root
@pytest.mark.slow
def test_a_host_without_a_harness_is_sent_one_once(lab: Lab, bare: dict[str, Any]) -> None:
    sender, host = Sender(wheels(lab.folder / "wheels")), Host.model_validate(bare)
    said: list[str] = []

    def command() -> tuple[str, str]:
        remote = Remote(host.destination)
        try:
            found = harness_on(remote, host, sender, said.append)
            return found, remote.run([found, "--version"]).stdout.decode().strip()
        finally:
            remote.close()

    with ThreadPoolExecutor(2) as pool:  # two nights want it at once
        first, second = [future.result() for future in [pool.submit(command) for _ in range(2)]]
    base = lab.folder / "a/.cache/kvflash-nightly"
    assert first == second
    assert first[1] == f"harness {identity()}"
    assert first[0].startswith(f"{base}/env-")
    assert [p.name for p in (base / "wheels").iterdir()] == ["demo-1.0-py3-none-any.whl"]
    made = (base / "wheels/demo-1.0-py3-none-any.whl").stat().st_mtime_ns
    said.clear()
    assert command() == first  # made already: nothing is sent
    assert said == []
    assert (base / "wheels/demo-1.0-py3-none-any.whl").stat().st_mtime_ns == made


@pytest.mark.root
def test_where_no_environment_can_be_made_the_reason_is_said(
    lab: Lab, bare: dict[str, Any]
) -> None:
    host = Host.model_validate({**bare, "python": "/no/such/python3"})
    remote = Remote(host.destination)
    try:
        with pytest.raises(MachineError, match=r"no environment .* /no/such/python3") as caught:
            harness_on(remote, host, Sender(wheels(lab.folder / "wheels")), lambda _: None)
    finally:
        remote.close()
    assert "wheels: in the inventory" in (caught.value.fix or "")


@pytest.mark.root
def test_an_installed_harness_is_used_where_it_is_the_same(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = lab.host("a")
    del entry["harness"]  # found in the host's PATH
    monkeypatch.setenv("HOME", str(lab.folder / "home"))
    host = Host.model_validate(entry)
    remote = Remote(host.destination)
    try:
        assert harness_on(remote, host, Sender(), lambda _: None) == "harness"
    finally:
        remote.close()
    assert not (lab.folder / "a/.cache/kvflash-nightly").exists()
