"""Hosts for a test, and a night over them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from harness.cli.app import app
from tests.nightly.hosts import SSHD, Lab

JOB = {"name": "whole", "kind": "run", "minutes": 5}


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """No hosts yet; the user's home is the lab's."""
    if SSHD is None:
        pytest.skip("openssh-server is not installed")
    made = not Path("/run/sshd").exists()
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    for folder in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        folder.chmod(0o755)  # pytest's folders are closed to others, and hosts have other users
    found = Lab(tmp_path)
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    try:
        yield found
    finally:
        found.close()
        if made:
            Path("/run/sshd").rmdir()


def inventory(lab: Lab, hosts: list[dict[str, Any]], *jobs: dict[str, Any], **more: Any) -> Path:
    """The file ``nightly.yaml`` of the lab."""
    path = lab.folder / "nightly.yaml"
    path.write_text(yaml.safe_dump({"hosts": hosts, "jobs": list(jobs) or [JOB], **more}))
    return path


def night(
    lab: Lab, hosts: list[dict[str, Any]], *jobs: dict[str, Any], **more: Any
) -> tuple[int, Any]:
    """A night with ``jobs``; its exit code and ``--json``."""
    path = inventory(lab, hosts, *jobs, **more)
    words = ["nightly", "run", str(path), "--results", str(lab.folder / "results"), "--json"]
    with pytest.MonkeyPatch.context() as patch:  # after the hosts have read the real one
        patch.setenv("HOME", str(lab.folder / "home"))
        result = CliRunner().invoke(app, words)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    data = json.loads(result.stdout)
    print(*(f"{task['task']}: {task['state']}, {task['why']}" for task in data["tasks"]), sep="\n")
    return result.exit_code, data
