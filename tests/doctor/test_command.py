"""``harness doctor`` as a person and as a script see it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

_DRIVER = (
    "import sys; from harness.cli.app import main; sys.argv = ['harness', 'doctor', *sys.argv[1:]];"
    "main()"
)


def _doctor(*words: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ)
    if path is not None:
        environment["PATH"] = path
    return subprocess.run(
        [sys.executable, "-c", _DRIVER, *words], capture_output=True, text=True, env=environment
    )


def test_json_is_all_there_is_on_stdout(tmp_path: Path) -> None:
    done = _doctor("--json", "--results", str(tmp_path))
    report = json.loads(done.stdout)
    required = [check for check in report["checks"] if check["required"]]
    assert report["ok"] is all(check["ok"] for check in required)
    assert done.returncode == (0 if report["ok"] else 3)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_required_thing_exits_3_and_prints_its_fix() -> None:
    done = _doctor(path="/nonexistent")
    assert done.returncode == 3
    assert "harness run cannot work here" in done.stdout
    assert "fio" in done.stdout
    assert "fix: " in done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.root
def test_an_ordinary_user_is_told_that_root_is_missing() -> None:
    if os.system(f"setpriv --reuid 65534 --clear-groups {sys.executable} -c '' 2>/dev/null") != 0:
        pytest.skip("the interpreter cannot be run by another user here")
    done = subprocess.run(
        ["setpriv", "--reuid", "65534", "--clear-groups",
         sys.executable, "-c", _DRIVER, "--json"],
        capture_output=True, text=True, cwd="/",
    )  # fmt: skip
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert done.returncode == 3
    assert not checks["root"]["ok"]
    assert "sudo" in checks["root"]["fix"]
    assert not checks["loop"]["ok"]
