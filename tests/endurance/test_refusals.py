"""What wear refuses, at once and in one message."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

GEOMETRY = "nchs: 2\nluns_per_ch: 1\npgs_per_blk: 8\nblks_per_pl: 256\ndevsz_mb: 12\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "small.yaml").write_text(GEOMETRY)
    (tmp_path / "writes.csv").write_text("offset,length,op\n0,4096,W\n4096,4096,W\n")
    (tmp_path / "reads.csv").write_text("offset,length,op\n0,4096,R\n")
    (tmp_path / "grid.yaml").write_text(
        "profile: small.yaml\nstore: nonsense\nrequests: chat\nmodel: llama-3.1-8b-tp8\n"
        "axes:\n  utilisation: [0.9]\n"
    )
    return tmp_path


def wear(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "harness", "wear", *words],
        cwd=folder, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["."], "no such trace"),
        (["writes.csv", "-p", "small.yaml", "--writes-per-day", "0"], "must be above 0"),
        (["writes.csv", "-p", "small.yaml", "--precondition", "²"], "number of fills"),
        (["writes.csv", "-p", "small.yaml", "--scale", "tile"], "block traces"),
        (["reads.csv", "-p", "small.yaml", "--loop"], "writes nothing"),
        (["--sweep", "grid.yaml"], "nonsense"),
        (["--sweep", "grid.yaml", "--store", "kvbm"], "grid says"),
    ],
)
def test_refused_in_one_message(folder: Path, words: list[str], said: str) -> None:
    out = wear(folder, *words)
    assert out.returncode == 2, out.stderr
    assert said in out.stderr
    assert "Traceback" not in out.stderr


def test_an_op_list_repeated_without_end_ends_when_it_is_steady(folder: Path) -> None:
    out = wear(folder, "writes.csv", "-p", "small.yaml", "--loop", "--json")
    assert out.returncode == 0, out.stderr
    assert '"stopped": "steady"' in out.stdout
