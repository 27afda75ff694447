"""The commands of ``harness simulate`` as a user runs them, and what they refuse."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.core.errors import UsageError

ENVIRONMENT = dict(os.environ)


def harness(*words: str, **changes: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "harness", "simulate", *words], capture_output=True, text=True,
        check=False, env={**ENVIRONMENT, **changes},
    )  # fmt: skip


TIERS = (
    "--model",
    "qwen3.5-27b",
    "--dram",
    "5GB",
    "--ssd",
    "20GB",
    "--limit",
    "100",
    "--seed",
    "0",
)


def test_a_trace_first_is_a_run(tmp_path: Path) -> None:
    done = harness("chat", *TIERS, "--constants", "seed", "--results", str(tmp_path), "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["point"]["policy"] == "lru" and found["requests"] == 100
    assert found["constants"]["B_ssd"] == "seed"
    assert any("--profile" in reason for reason in found["absent"])
    assert json.loads((Path(found["run"]) / "simulate.json").read_text()) == found


def test_compare_makes_a_table_and_a_page(tmp_path: Path) -> None:
    done = harness("compare", "chat", *TIERS, "--policy", "lru", "--policy", "lru-k:k=3",
                   "--constants", "seed", "--results", str(tmp_path), COLUMNS="200")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "lru-k" in done.stdout and "report:" in done.stdout
    (page,) = tmp_path.glob("*/report.html")
    text = page.read_text()
    assert "Cache policies" in text and "lru-k (k 3)" in text and "<svg" in text


def test_sweep_then_figures(tmp_path: Path) -> None:
    grid = tmp_path / "grid.yaml"
    grid.write_text(
        "traces: [{requests: chat, limit: 100, seeds: [0]}]\nmodels: [qwen3.5-27b]\n"
        "tiers: [{dram: 5GB, ssd: 20GB}]\n"
        "policies: [{name: lru}, {name: lru-k, parameters: {k: [2, 3]}}]\n"
    )
    done = harness("sweep", str(grid), "--workers", "1", "--results", str(tmp_path), "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["points"] == 3 and found["failed"] == []
    assert sum(row["on_frontier"] for row in found["frontier"]) >= 1
    done = harness("figures", found["run"], "--profile", "1tb-0.3dwpd", "--json")
    assert done.returncode == 0, done.stderr
    drawn = json.loads(done.stdout)
    names = [figure["file"] for figure in drawn["figures"]]
    assert "01-frontier.svg" in names and len(names) >= 3
    folder = Path(drawn["page"]).parent
    assert all((folder / name).read_text().startswith("<svg") for name in names)
    assert all("digits may not" in figure["note"] for figure in drawn["figures"])
    assert Path(drawn["page"]).read_text().count("<figure") == len(names)
    assert not any("state-uses" in name for name in names)
    uses = ("figures", found["run"], "--trace", "chat", "--out", str(tmp_path / "uses"), "--json")
    done = harness(*uses, "--limit", "100")
    assert done.returncode == 0, done.stderr
    assert "state-uses" in json.loads(done.stdout)["figures"][-1]["file"]
    done = harness(*uses, "--limit", "99")
    assert done.returncode == 2 and "is not what the sweep played" in done.stderr


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_loads_are_compared_as_they_rise(tmp_path: Path) -> None:
    done = harness("loads", "chat", *TIERS, "--constants", "seed", "--load", "5", "--load", "0.5",
                   "--staging", "1GB", "--results", str(tmp_path), "--json")  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert json.loads((Path(found["run"]) / "loads.json").read_text()) == found
    flat = found["servers"][0]
    assert [round(at["requests_per_s"], 6) for at in flat["loads"]] == [0.5, 5]
    assert all(at["delivered"] == at["ceiling"] for at in flat["loads"])
    assert "1GB" in found["staged"]
    page = (Path(found["run"]) / "figures" / "figures.html").read_text()
    assert page.count("<figure") == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("loads", "chat", "--limit", "5"), "--constants seed"),
        (("chat", "--limit", "5"), "--constants seed"),
        (("chat", "--limit", "5", "--constants", "seed", "--policy", "gandlaf"), "gandalf"),
        (("chat", "--limit", "5", "--constants", "seed", "--model", "kimi-k4"), "kimi-k3"),
        (("chat", "--limit", "5", "--constants", "seed", "--dram", "0"), "DRAM tier of zero"),
        (("chat", "--limit", "5", "--constants", "seed", "--model", "kimi-k3", "--dram", "100MB"),
         "one state of this model is"),
        (("chat", "--limit", "5", "--constants", "seed", "--param", "k"), "NAME=VALUE"),
        (("chat", "--limit", "5", "--constants", "sed"), "calibration, filled or seed"),
        (("chat", "--limit", "5", "--constants", "seed", "--scheduler", "x"), "scheduler"),
        (("reproduce", "trace-a", "--file", "chat", "--limit", "5"), "blocks of"),
        (("sweep", "no-such-grid"), "no-such-grid"),
    ],
)  # fmt: skip
def test_mistakes_are_one_clear_error(words: tuple[str, ...], said: str) -> None:
    done = harness(*words)
    assert done.returncode == 2, done.stdout
    assert done.stderr.count("error:") == 1 and said in done.stderr
    assert "Traceback" not in done.stderr


def test_policies_are_listed_with_their_knobs() -> None:
    found = json.loads(harness("policies", "--json").stdout)
    assert found["lru-k"]["parameters"]["k"] == 2
    assert all(entry["description"] for entry in found.values())


def test_a_named_policy_is_split_from_its_parameters() -> None:
    from harness.cli.simulate_many import named_policy

    assert named_policy("lru") == ("lru", {})
    assert named_policy("gandalf:alpha=0.5,gate=cross") == (
        "gandalf", {"alpha": 0.5, "gate": "cross"},
    )  # fmt: skip
    with pytest.raises(UsageError, match="NAME=VALUE"):
        named_policy("gandalf:alpha")
