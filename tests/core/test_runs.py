from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.core.errors import MachineError, UsageError
from harness.core.files import whole_file, write_json
from harness.core.runs import RunFolder, load_run, newest_run


def test_a_run_gets_its_name_only_when_complete(tmp_path: Path) -> None:
    with RunFolder(tmp_path, "wear", "1 TB / 0.3", {"seed": 7}) as run:
        assert run.path.name.endswith("-wear-1-TB-0.3.partial")
        assert load_state(run.path) == "running"
        (run.path / "data").write_text("x")
    assert run.path == run.final
    assert [p.name for p in tmp_path.iterdir()] == [run.final.name]
    record = load_run(run.final)
    assert record["state"] == "done"
    assert record["exit_code"] == 0
    assert record["config"] == {"seed": 7}
    assert record["host"]["kernel"]
    assert newest_run(tmp_path, "wear") == run.final
    assert newest_run(tmp_path, "bench") is None


def load_state(folder: Path) -> str:
    return str(json.loads((folder / "run.json").read_text())["state"])


@pytest.mark.parametrize(
    ("raised", "state", "code"),
    [
        (MachineError("no loop"), "failed", 3),
        (KeyboardInterrupt(), "interrupted", 130),
        (RuntimeError("bug"), "failed", 1),
    ],
)
def test_an_interrupted_run_stays_visibly_partial(
    tmp_path: Path, raised: BaseException, state: str, code: int
) -> None:
    with pytest.raises(type(raised)), RunFolder(tmp_path, "run", "x") as run:
        raise raised
    assert not run.final.exists()
    record = json.loads((run.path / "run.json").read_text())
    assert (record["state"], record["exit_code"]) == (state, code)
    assert newest_run(tmp_path) is None
    with pytest.raises(UsageError, match="interrupted run"):
        load_run(run.path)


def test_two_runs_never_share_a_folder(tmp_path: Path) -> None:
    with RunFolder(tmp_path, "run", "x") as one, RunFolder(tmp_path, "run", "x") as two:
        assert one.path != two.path


def test_an_unusable_results_folder_is_one_message(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("")
    with (
        pytest.raises(UsageError, match="cannot make a run folder"),
        RunFolder(blocker, "run", "x"),
    ):
        pass


def test_other_folders_are_not_runs(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a run folder"):
        load_run(tmp_path)


def test_a_file_is_whole_or_absent(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    write_json(path, {"a": 1})
    with pytest.raises(RuntimeError), whole_file(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert json.loads(path.read_text()) == {"a": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["out.json"]
    with pytest.raises(ValueError, match="JSON compliant"):
        write_json(path, float("nan"))
    assert json.loads(path.read_text()) == {"a": 1}
