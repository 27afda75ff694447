"""fio as second engine: found, gated by version, and not believed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from harness.core.errors import MachineError
from harness.core.ops import Op
from harness.replay.fio import parse_fio
from harness.replay.options import ReplayOptions
from harness.replay.run import replay

from .conftest import Own
from .traces import MIB, mixed_trace, write_trace


def test_versions_decide_on_the_io_engine() -> None:
    assert parse_fio("fio", "fio-3.33").io_engine("timed") == "io_uring"
    assert parse_fio("fio", "fio-3.40-12-gabc").io_engine("timed") == "io_uring"
    assert parse_fio("fio", "fio-3.41").io_engine("timed") == "libaio"
    assert parse_fio("fio", "fio-3.42").io_engine("flat-out") == "io_uring"


@pytest.mark.parametrize("said", ["fio-3.30", "fio-2.21", "", "nonsense"])
def test_a_fio_without_timed_logs_is_refused(said: str) -> None:
    with pytest.raises(MachineError, match=r"not fio 3\.31 or newer"):
        parse_fio("fio", said)


@pytest.mark.root
def test_fio_does_the_work_and_its_lateness_is_measured(own: Own, tmp_path: Path) -> None:
    path = mixed_trace(tmp_path / "t", 3000, seconds=1.0)
    result = replay(path, own.target, ReplayOptions(engine="fio"))
    assert result.requests == 3000
    assert result.fidelity["bytes"]["done"] == result.fidelity["bytes"]["asked"]
    assert result.fidelity["order_kept"] == 1.0
    assert result.fidelity["lag_ns"]["n"] == 3000
    assert result.details["engine"]["name"].startswith("fio/")
    ours = replay(path, own.target)
    assert result.fidelity["lag_ns"]["p99"] > ours.fidelity["lag_ns"]["p99"]


@pytest.mark.root
def test_fio_flat_out_repeats(own: Own, tmp_path: Path) -> None:
    path = write_trace(
        tmp_path / "t",
        ts_ns=np.arange(30),
        op=[Op.WRITE, Op.READ, Op.FLUSH] * 10,
        offset=np.arange(30) % 8 * MIB,
        length=[65536, 4096, 0] * 10,
    )
    result = replay(path, own.target, ReplayOptions(engine="fio", mode="flat-out", repeat=2))
    assert result.verdict == "FAITHFUL", result.fidelity["reasons"]
    assert result.bytes == 2 * 10 * (65536 + 4096)
    assert result.requests == 60
    assert result.fidelity["order_kept"] is None


@pytest.mark.root
def test_discards_that_fio_does_not_issue_are_missed(own: Own, tmp_path: Path) -> None:
    """fio 3.33 reads trims from a log and never issues them; newer ones do."""
    path = write_trace(tmp_path / "t", ts_ns=np.arange(20), op=[1, 2] * 10, offset=0, length=65536)
    result = replay(path, own.target, ReplayOptions(engine="fio", mode="flat-out"))
    issued = result.details["block_layer"]["seen"]["D"]["requests"]
    assert result.requests == 10 + issued
    assert result.verdict == ("FAITHFUL" if issued == 10 else "WRONG")


@pytest.mark.root
def test_success_without_io_is_not_believed(
    own: Own, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fio counts writes beyond the device as done; the block layer saw none of them."""
    path = write_trace(
        tmp_path / "t", ts_ns=np.arange(10), op=1, offset=np.arange(10) * 16 * MIB, length=65536
    )
    monkeypatch.setattr("harness.replay.survey._refuse_misfits", lambda *_: None)
    result = replay(path, own.target, ReplayOptions(engine="fio", mode="flat-out"))
    assert result.verdict == "WRONG"
    assert result.bytes == 4 * 65536
