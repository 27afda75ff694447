"""What may stand in nightly.yaml, what may not, and what a night makes of it."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from harness.cli.app import app
from harness.core.assets import asset_dir
from harness.core.errors import UsageError
from harness.nightly.inventory import Window, load_inventory
from harness.nightly.jobs import script
from harness.nightly.kinds import CAPTURED
from harness.nightly.plan import plan

GOOD: dict[str, Any] = {
    "hosts": [
        {"name": "a", "devices": [{"serial": "S1"}, {"serial": "S2"}]},
        {"name": "b", "address": "u@b:2222", "sudo": True, "devices": [{"serial": "S3"}]},
    ],
    "jobs": [
        {"name": "layouts", "kind": "bench", "devices": ["S1", "S2", "S3"]},
        {"name": "model", "kind": "wear", "store": "lmcache-raw-block", "hosts": ["b"]},
    ],
}


ON = {"devices": ["S1"]}
KINDS: list[dict[str, Any]] = [
    {"kind": "bench", **ON},
    {"kind": "gds", **ON},
    {"kind": "replay", "trace": "kv.parquet", "speed": 2, **ON},
    {"kind": "capture-replay", "seconds": 5, "mode": "flat-out", **ON},
    {"kind": "wear", "store": "lmcache-raw-block", "policies": ["drive"], "budget_s": 5},
    {"kind": "validate", "rungs": [2, 4], "budget_s": 5},
    {"kind": "run"},
]


def write(path: Path, data: Any) -> Path:
    path.write_text(yaml.safe_dump(data))
    return path


def changed(path: Path, where: tuple[Any, ...], value: Any) -> Path:
    """``GOOD`` with one value changed."""
    data = yaml.safe_load(yaml.safe_dump(GOOD))
    place = data
    for key in where[:-1]:
        place = place[key]
    place[where[-1]] = value
    return write(path, data)


def test_the_plan_has_each_job_on_each_of_its_devices(tmp_path: Path) -> None:
    tasks = plan(load_inventory(write(tmp_path / "n.yaml", GOOD)))
    names = {host: [task.name for task in found] for host, found in tasks.items()}
    assert names == {"a": ["a-layouts-S1", "a-layouts-S2"], "b": ["b-layouts-S3", "b-model"]}
    assert tasks["a"][1].steps("harness", "out", "/dev/nvme1n1") == [[
        "harness", "bench", "layout", "--grid=quick", "--results=out", "--json",
        "--device=/dev/nvme1n1", "--destroy=S2",
    ]]  # fmt: skip
    assert "--device" not in " ".join(tasks["b"][1].steps("harness", "out", None)[0])


def parsed(words: list[str]) -> None:
    """The command tree itself takes ``words``; a wrong option is a UsageError of click's."""
    node: Any = typer.main.get_command(app)
    rest = words[1:]
    while hasattr(node, "commands"):
        node, rest = node.commands[rest[0]], rest[1:]
    node.make_context(node.name, rest)


@pytest.mark.parametrize("job", KINDS, ids=lambda job: str(job["kind"]))
def test_each_kind_of_job_is_made_of_commands_that_exist(tmp_path: Path, job: Any) -> None:
    host = {"name": "a", "devices": [{"serial": "S1"}]}
    path = write(tmp_path / "n.yaml", {"hosts": [host], "jobs": [{"name": "x", **job}]})
    (task,) = plan(load_inventory(path))["a"]
    assert (task.device is not None) == ("devices" in job)
    for words in task.steps("harness", "out", "/dev/nvme1n1" if task.device else None):
        parsed(words)
        if "--" in words:
            parsed(words[words.index("--") + 1 :])
        if task.device:
            assert words[-2:] == ["--device=/dev/nvme1n1", "--destroy=S1"]
    assert {job["kind"] for job in KINDS} == {
        "bench", "gds", "replay", "capture-replay", "wear", "validate", "run",
    }  # fmt: skip


def test_the_script_of_two_steps_hands_the_trace_on_and_stops_at_a_failure(tmp_path: Path) -> None:
    results = tmp_path / "with blank"
    steps = [
        ["mkdir", "-p", f"{results}/1-capture-x"],
        ["touch", f"{results}/1-capture-x/trace.parquet"],
        ["cp", CAPTURED, f"{tmp_path}/it's here"],
        ["false"],
        ["touch", f"{tmp_path}/never"],
    ]
    done = subprocess.run(["sh", "-c", script(steps, str(results))], check=False)
    assert done.returncode == 1
    assert (tmp_path / "it's here").exists()
    assert not (tmp_path / "never").exists()


@pytest.mark.parametrize(
    ("where", "value", "said"),
    [
        (("hosts", 0, "password"), "x", r"hosts\.0\.password: unknown key"),
        (("hosts", 1, "name"), "a", "given twice: a"),
        (("hosts", 0, "devices"), [{"serial": "S1"}, {"serial": "S1"}], "given twice: S1"),
        (("hosts", 0, "name"), "-oProxyCommand=x", r"hosts\.0\.name"),
        (("hosts", 1, "address"), "-x", r"hosts\.1\.address"),
        (("jobs", 0, "devices"), [], r"jobs\.0\.bench\.devices"),
        (("jobs", 0, "devices"), ["S9"], "layouts: no host of it has S9"),
        (("jobs", 0, "grid"), "--results=/", r"jobs\.0\.bench\.grid"),
        (("jobs", 1, "hosts"), ["c"], "model: no such host: c"),
        (("jobs", 1, "devices"), ["S3"], r"jobs\.1\.wear\.devices"),
        (("jobs", 1, "kind"), "rm", r"jobs\.1"),
        (("jobs", 1, "budget_s"), 0, r"jobs\.1\.wear\.budget_s"),
        (("wheels",), "-x", "wheels"),
        (
            ("jobs", 0),
            {
                "name": "r",
                "kind": "replay",
                "trace": "t",
                "devices": ["S1"],
                "mode": "flat-out",
                "speed": 2,
            },
            "speed means nothing flat out",
        ),
        (("jobs", 1, "minutes"), 0, r"jobs\.1\.wear\.minutes"),
        (("window",), {"start": "22:00", "end": "6"}, r"window\.end: expected a quoted time"),
        (("tolerances",), {"default": 1.5}, r"tolerances\.default"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, where: tuple[Any, ...], value: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        load_inventory(changed(tmp_path / "n.yaml", where, value))


@pytest.mark.parametrize(
    ("start", "end", "now", "closes"),
    [
        ("22:00", "06:00", "2026-01-02T23:00", "2026-01-03T06:00"),
        ("22:00", "06:00", "2026-01-02T05:59", "2026-01-02T06:00"),
        ("22:00", "06:00", "2026-01-02T06:00", None),
        ("01:00", "02:00", "2026-01-02T01:30", "2026-01-02T02:00"),
        ("01:00", "02:00", "2026-01-02T00:59", None),
        ("03:00", "03:00", "2026-01-02T02:00", "2026-01-02T03:00"),
    ],
)
def test_windows_over_midnight(start: str, end: str, now: str, closes: str | None) -> None:
    window = Window.model_validate({"start": start, "end": end})
    expected = datetime.fromisoformat(closes).replace(tzinfo=UTC) if closes else None
    assert window.closes(datetime.fromisoformat(now).replace(tzinfo=UTC)) == expected


def test_the_example_is_valid() -> None:
    tasks = plan(load_inventory(asset_dir("workloads") / "nightly/example.yaml"))
    assert [task.name for found in tasks.values() for task in found] == [
        "rack1-path-S64GNE0R600123",
        "rack1-layouts-S64GNE0R600123",
        "rack2-wear",
    ]
