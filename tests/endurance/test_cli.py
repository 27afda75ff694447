"""``harness wear`` as a user meets it: exit codes, JSON, tables, one clear message."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harness.cli import main
from harness.ftl.workloads import golden_ops
from tests.endurance.inputs import oplist_file
from tests.ftl.golden import GOLDEN, RUNS

LETTERS = "RWDFZN"


@dataclass(frozen=True)
class Done:
    """What a finished command left."""

    returncode: int
    stdout: str
    stderr: str


def harness(*words: object, cwd: Path) -> Done:
    """The command line in this process: starting Python anew takes longer than the work."""
    out, err, before = io.StringIO(), io.StringIO(), os.getcwd()
    handler = signal.getsignal(signal.SIGTERM)
    try:
        os.chdir(cwd)
        with (
            pytest.MonkeyPatch.context() as patch,
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            patch.setattr(sys, "argv", ["harness", *map(str, words)])
            with pytest.raises(SystemExit) as end:
                main()
    finally:
        os.chdir(before)
        signal.signal(signal.SIGTERM, handler)
    return Done(int(end.value.code or 0), out.getvalue(), err.getvalue())


def profile_file(path: Path, geometry: str, **more: object) -> Path:
    keys = {**GOLDEN["geometries"][geometry], **more}
    path.write_text("".join(f"{key}: {value}\n" for key, value in keys.items()))
    return path


def golden_file(path: Path, run: str) -> Path:
    record = RUNS[run]
    ops = golden_ops(record["generator"], record["capacity_used_bytes"], record["args"])
    rows = zip(*(column.tolist() for column in ops), strict=True)
    return oplist_file(path, [(o, n, "SNAP" if c == 6 else LETTERS[c]) for o, n, c in rows])


@pytest.mark.parametrize("run", ["g_edge_O", "m_micro_M"])
def test_the_command_prints_femus_counters(run: str, tmp_path: Path) -> None:
    ops = golden_file(tmp_path / "ops.csv", run)
    profile = profile_file(tmp_path / "p.yaml", RUNS[run]["geometry"])
    done = harness("wear", ops, "--profile", profile, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    names = ("tag", "ops_done", "host_pages", "gc_pages", "erased_lines", "free_lines",
             "foreground_gc", "background_gc")  # fmt: skip
    snaps = [[s[name] for name in names] for s in found["snapshots"] if s["event"] == "snap"]
    expected = [snap for snap in RUNS[run]["snapshots"] if snap[0] != 999_999]
    assert snaps == expected
    assert found["snapshots"][-1]["event"] == "end"
    assert found["snapshots"][-1]["host_pages"] == RUNS[run]["snapshots"][-1][2]
    assert set(found["lifetimes"].values()) == {None}
    folder = Path(found["run"])
    assert json.loads((tmp_path / folder / "wear.json").read_text())["waf"] == found["waf"]
    assert (tmp_path / folder / "report.html").exists()


def test_tables_name_profile_policy_and_fill(tmp_path: Path) -> None:
    ops = golden_file(tmp_path / "ops.csv", "m_micro_M")
    profile = profile_file(tmp_path / "micro.yaml", "M")
    done = harness("wear", ops, "--profile", profile, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    last = " ".join(done.stdout.split())
    assert "WAF 3.000 over all writes, not steady - micro, policy femu, none: the drive" in last
    assert "run folder: results/" in done.stdout


def test_policies_are_compared(tmp_path: Path) -> None:
    ops = golden_file(tmp_path / "ops.csv", "m_micro_M")
    profile = profile_file(tmp_path / "p.yaml", "M")
    words = ("wear", ops, "-p", profile, "--policy", "femu-stock", "--policy", "femu-late")
    done = harness(*words, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    points = json.loads(done.stdout)["points"]
    assert [point["policy"] for point in points] == ["femu-stock", "femu-late"]
    assert points[0]["waf"]["cumulative"] == 3.0 > points[1]["waf"]["cumulative"]


def test_a_users_pe_cycles_give_nand_days(tmp_path: Path) -> None:
    rows = [(at, 4096, "W") for at in range(0, 1 << 20, 4096)]
    ops = oplist_file(tmp_path / "ops.csv", rows)
    more = {"capacity_bytes": "1MiB", "dwpd": 1, "warranty_years": 5, "policy": "femu-stock",
            "devsz_mb": 1}  # fmt: skip
    worn = {**more, "pe_cycles": 3000, "pe_source": "mine, TLC"}
    words = ("--loop", "--writes-per-day", "1GB", "--json")
    with_pe = profile_file(tmp_path / "pe.yaml", "M", **worn)
    found = json.loads(harness("wear", ops, "-p", with_pe, *words, cwd=tmp_path).stdout)
    lives, waf = found["lifetimes"], found["waf"]["steady"]
    raw = GOLDEN["derived"]["M"]["raw_bytes"]
    assert lives["nand_level_days"] == pytest.approx(3000 * raw / (1e9 * waf))
    assert lives["nand_days"] == pytest.approx(
        lives["nand_level_days"] * found["erases"]["levelling"]
    )
    without = profile_file(tmp_path / "none.yaml", "M", **more)
    found = json.loads(harness("wear", ops, "-p", without, *words, cwd=tmp_path).stdout)
    assert found["lifetimes"]["nand_days"] is None
    assert any("no nand_days: the profile has no pe_cycles" in note for note in found["notes"])


def test_an_almost_empty_drive_prints_no_absurd_percentage(tmp_path: Path) -> None:
    ops = oplist_file(tmp_path / "ops.csv", [(0, 4096, "W")])
    done = harness("wear", ops, "-p", profile_file(tmp_path / "p.yaml", "A"), cwd=tmp_path)
    assert "more flash is free than mapped" in done.stdout, done.stderr


CASES: list[tuple[tuple[object, ...], int, str]] = [
    (("wear",), 2, "give a trace or op list, or a store"),
    (("wear", "nowhere.csv"), 2, "no such file: nowhere.csv"),
    (("wear", "ops.csv", "-p", "nosuch"), 2, "unknown name 'nosuch' in femu/devices/"),
    (("wear", "ops.csv", "-p", "bad.yaml"), 2, "bad.yaml: nchz: unknown key"),
    (("wear", "ops.csv", "-p", "p.yaml", "--policy", "best"), 2, "unknown policy 'best'"),
    (("wear", "far.csv", "-p", "p.yaml"), 2, "request 1 (offset 1099511627776"),
    (("wear", "far.csv", "-p", "p.yaml"), 2, "harness trace scale"),
    (("wear", "reads.csv", "-p", "p.yaml"), 2, "reads.csv writes nothing"),
    (("wear", "empty.csv", "-p", "p.yaml"), 2, "empty.csv"),
    (("wear", "garbage.csv", "-p", "p.yaml"), 2, "garbage.csv"),
    (("wear", "ops.csv", "-p", "p.yaml", "--resume", "ops.csv"), 2, "ops.csv is not a saved drive"),
    (("wear", "ops.csv", "-p", "p.yaml", "--whole-life"), 2, "a whole life needs capacity_bytes"),
    (("wear", "ops.csv", "-p", "p.yaml", "--scale", "stretch"), 2, "only tile"),
    (("wear", "ops.csv", "-p", "p.yaml", "--precondition", "half"), 2, "--precondition takes"),
    (("wear", "ops.csv", "-p", "p.yaml", "--writes-per-day", "lots"), 2, "not a size: 'lots'"),
    (("wear", "--store", "nosuch"), 2, "nosuch"),
    (
        ("wear", "--store", "lmcache-raw-block", "--loop"),
        2,
        "with --store, which goes on by itself, these have no meaning: --loop",
    ),
    (("wear", "--store", "lmcache-raw-block", "--phases", "2"), 2, "no meaning: --phases"),
    (
        (
            "wear",
            "ops.csv",
            "--model",
            "llama-3.1-8b",
            "--utilisation",
            "0.5",
            "--requests",
            "chat",
        ),
        2,
        "without --store these have no meaning: --model, --requests, --utilisation",
    ),
    (("wear", "ops.csv", "--seed", "3"), 2, "without --store or --scale tile these have no"),
    (("wear", "ops.csv", "--phases", "3"), 2, "without --scale tile these have no meaning: --ph"),
    (("wear", "ops.csv", "--scale", "tile", "--loop"), 2, "with --scale tile, which goes on"),
    (("wear", "ops.csv", "--loop", "--repeats", "2"), 2, "with --loop, which repeats until"),
    (("wear", "ops.csv", "--resume", "state", "--precondition", "2"), 2, "filled already"),
    (("wear", "ops.csv", "--policy", "drive", "--policy", "drive"), 2, "policy is given twice"),
    (("wear", "ops.csv", "--sweep", "grid.yaml"), 2, "INPUT has no meaning"),
    (
        ("wear", "--sweep", "grid.yaml", "--profile", "p.yaml", "--model", "x"),
        2,
        "no meaning: --model, --profile",
    ),
    (("wear", "--store", "lmcache-raw-block", "--utilisation", "2"), 2, "--utilisation lies in"),
    (("wear", "--sweep", "nosuch"), 2, "unknown name 'nosuch' in workloads/wear/"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("wear")
    profile_file(made / "p.yaml", "M")
    (made / "bad.yaml").write_text("nchz: 8\n")
    oplist_file(made / "ops.csv", [(0, 4096, "W")])
    oplist_file(made / "far.csv", [(0, 4096, "W"), (1 << 40, 4096, "W")])
    oplist_file(made / "reads.csv", [(0, 4096, "R")])
    (made / "empty.csv").write_text("")
    (made / "garbage.csv").write_bytes(bytes(range(256)) * 8)
    return made


@pytest.mark.parametrize(("words", "code", "said"), CASES)
def test_bad_input_gets_one_clear_error(
    words: tuple[object, ...], code: int, said: str, folder: Path
) -> None:
    done = harness(*words, cwd=folder)
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_kept_state_that_was_damaged(folder: Path) -> None:
    first = harness("wear", "ops.csv", "-p", "p.yaml", "--save", "state", cwd=folder)
    assert first.returncode == 0, first.stderr
    good = harness("wear", "ops.csv", "-p", "p.yaml", "--resume", "state", cwd=folder)
    assert good.returncode == 0, good.stderr
    data = bytearray((folder / "state").read_bytes())
    data[-100] ^= 1
    (folder / "state").write_bytes(data)
    bad = harness("wear", "ops.csv", "-p", "p.yaml", "--resume", "state", cwd=folder)
    assert bad.returncode == 2
    assert "state is damaged: its checksum does not fit" in bad.stderr


@pytest.mark.slow
def test_an_interrupted_sweep_can_be_resumed(tmp_path: Path) -> None:
    grid = {
        "profile": "1tb-0.3dwpd", "store": "lmcache-raw-block", "requests": "chat",
        "model": "llama-3.1-8b-tp8", "budget_s": 1,
        "axes": {"namespace_bytes": [4 << 30], "line_bytes": [4 << 20],
                 "over_provisioning": [0.08, 0.1, 0.15, 0.2]},
    }  # fmt: skip
    (tmp_path / "grid.yaml").write_text(json.dumps(grid))  # JSON is YAML
    command = [sys.executable, "-m", "harness", "wear", "--sweep", "grid.yaml", "--json"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        journal = wait_for_journal(tmp_path)
        os.kill(running.pid, signal.SIGINT)
        _, said = running.communicate(timeout=60)
    assert running.returncode == 130, said
    assert "Traceback" not in said
    (partial,) = (tmp_path / "results").glob("*.partial")
    assert journal.parent == partial
    finished = len(journal.read_text().splitlines())
    again = harness("wear", "--sweep", "grid.yaml", "--resume", partial, "--json", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    points: list[dict[str, Any]] = json.loads(again.stdout)["points"]
    assert len(points) == 4 > finished >= 1
    assert all(point["waf"]["cumulative"] >= 1 for point in points)


def wait_for_journal(folder: Path) -> Path:
    """The journal of the running sweep, once it holds a point."""
    until = time.monotonic() + 120
    while time.monotonic() < until:
        for journal in (folder / "results").glob("*.partial/points.jsonl"):
            if journal.read_text().count("\n") >= 1:
                return journal
        time.sleep(0.05)
    raise AssertionError("no point was finished in two minutes")
