"""fio itself: its logs are read, and it replays what is written."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.trace.columns import op_codes
from harness.trace.convert import convert
from harness.trace.formats import detect
from harness.trace.source import open_source
from tests.trace.helpers import table_of, write_trace
from tests.trace.samples import MIB, F, R, W

pytestmark = pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")


def fio(folder: Path, *options: str) -> dict[str, Any]:
    """Run fio in ``folder``; its first job as JSON."""
    out = subprocess.run(
        ["fio", "--name=job", "--output-format=json", "--output=out.json", *options],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert out.returncode == 0, out.stdout + out.stderr
    text = (folder / "out.json").read_text()
    job: dict[str, Any] = json.loads(text[text.index("{\n") :])["jobs"][0]
    return job


def test_a_log_that_fio_wrote(tmp_path: Path) -> None:
    job = fio(
        tmp_path,
        "--filename=data",
        "--rw=randrw",
        "--bs=8k",
        "--size=1m",
        "--number_ios=60",
        "--fsync=16",
        "--ioengine=psync",
        "--randseed=4",
        "--write_iolog=log",
    )
    path = tmp_path / "log"
    assert detect(path) == "fio"
    table = table_of(open_source(path))
    op, size = op_codes(table["op"]), table["bytes"].to_numpy()
    for code, name in ((R, "read"), (W, "write")):
        assert np.count_nonzero(op == code) == job[name]["total_ios"]
        assert int(size[op == code].sum()) == job[name]["io_bytes"]
    assert np.count_nonzero(op == F) == job["sync"]["total_ios"]
    assert set(size[op <= W].tolist()) == {8192}
    assert int(table["lba"].to_numpy().max()) < MIB // 512


def test_fio_replays_what_is_written(tmp_path: Path) -> None:
    gap_ns = 4_000_000
    rows = [(i * gap_ns, (W, R)[i % 2], i * 16, 8192) for i in range(60)]
    trace = write_trace(tmp_path / "in.parquet", rows)
    convert(trace, tmp_path / "t.iolog")
    (tmp_path / "target").write_bytes(bytes(MIB))
    job = fio(tmp_path, "--read_iolog=t.iolog", "--replay_redirect=target", "--ioengine=psync")
    assert (job["write"]["total_ios"], job["write"]["io_bytes"]) == (30, 30 * 8192)
    assert (job["read"]["total_ios"], job["read"]["io_bytes"]) == (30, 30 * 8192)
    # Timed: had fio read the times in another unit, it would end at once or after minutes.
    assert 59 * gap_ns / 1e6 * 0.9 <= float(job["job_runtime"]) < 20_000
