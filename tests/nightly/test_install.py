"""What nightly install prints is taken by the programs it is for."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from datetime import time
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from harness.cli.app import app
from harness.core.assets import asset_dir
from harness.nightly import install

ODD = ["/bin/echo", "100 % of $HOME", 'say "no"']


def test_install_prints_files_for_the_window_of_the_inventory(tmp_path: Path) -> None:
    example = asset_dir("workloads") / "nightly/example.yaml"
    words = ["nightly", "install", str(example), "--results", str(tmp_path)]
    result = CliRunner().invoke(app, [*words, "--json"])
    files = json.loads(result.stdout)
    assert "OnCalendar=*-*-* 22:00:00 UTC" in files["kvflash-nightly.timer"]
    assert files["crontab"].startswith("0 22 * * * ")
    assert str(example) in files["kvflash-nightly.service"]
    printed = CliRunner().invoke(app, [*words, "--print"]).stdout
    assert all(text in printed for text in files.values())


def test_the_workflow_is_yaml_and_runs_the_command() -> None:
    data = yaml.safe_load(install.workflow(ODD, time(1, 30)))
    step = data["jobs"]["nightly"]["steps"][0]["run"]
    assert shlex.split(step) == ODD
    assert data[True]["schedule"] == [{"cron": "30 1 * * *"}]  # YAML 1.1 reads on: as true


def test_the_crontab_line_survives_percent_signs() -> None:
    command = install.crontab(ODD, time(1, 30)).split(" ", 5)[5].replace("\\%", "%")
    assert shlex.split(command) == ODD


def test_systemd_takes_the_units(tmp_path: Path) -> None:
    tool = shutil.which("systemd-analyze")
    if tool is None:
        pytest.skip("systemd-analyze is not installed")
    service, timer = tmp_path / "kvflash-nightly.service", tmp_path / "kvflash-nightly.timer"
    service.write_text(install.service(ODD))
    timer.write_text(install.timer(time(1, 30)))
    verify = [tool, "verify", "--man=no", str(service), str(timer)]
    environment = {**os.environ, "SYSTEMD_LOG_LEVEL": "warning"}
    done = subprocess.run(verify, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert "kvflash-nightly" not in done.stderr
    service.write_text(install.service(ODD).replace("Type=oneshot", "Type=none-such"))
    wrong = subprocess.run(verify, capture_output=True, text=True, env=environment, check=False)
    assert "none-such" in wrong.stderr
