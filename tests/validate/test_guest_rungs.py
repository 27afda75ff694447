"""The rungs and the replay that need a guest: stock QEMU here, FEMU where HARNESS_FEMU is set."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from harness.calibrate.counters import counter_sample
from harness.calibrate.model import WafSample
from harness.core.ops import Op
from harness.core.profiles import load_profile
from harness.device.guest import Guest
from harness.device.guest.replaying import fill_ops
from harness.device.guest.trace_ops import trace_ops
from harness.ftl import Ftl
from harness.trace.parquet import TraceWriter, open_trace
from harness.trace.schema import TraceMeta
from harness.validate.guests import counting_rungs, femu_rungs, quick_femu_cases, trace_case
from harness.validate.rung import Verdict

pytestmark = [pytest.mark.guest, pytest.mark.slow, pytest.mark.root]

needs_femu = pytest.mark.skipif(
    not os.environ.get("HARNESS_FEMU"),
    reason="FEMU is not installed (HARNESS_FEMU names no qemu-system-x86_64)",
)

PROFILE = """\
nchs: 4
luns_per_ch: 4
pgs_per_blk: 16
blks_per_pl: 64
devsz_mb: 48
policy: femu-late
"""


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    """A drive of 48 MiB on 64 MiB of flash."""
    path = tmp_path / "tiny.yaml"
    path.write_text(PROFILE)
    return path


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """600 requests within 48 MiB, some longer than a command may be, some flushes."""
    rng = np.random.default_rng(11)
    count = 600
    op = rng.choice([Op.WRITE, Op.READ, Op.DISCARD], count, p=[0.8, 0.15, 0.05]).astype(np.uint8)
    size = rng.choice([4096, 65536, 262144, 1 << 20], count, p=[0.6, 0.2, 0.15, 0.05])
    lba = rng.integers(0, 47 * 16, count) * 128
    op[100], size[100] = Op.FLUSH, 0
    path = tmp_path / "kv.parquet"
    with TraceWriter(path, TraceMeta(source="test")) as writer:
        writer.write(
            {"ts_ns": np.arange(count) * 1000, "op": op, "lba": lba.astype(np.uint64),
             "bytes": size.astype(np.uint64)}
        )  # fmt: skip
    return path


def replay_femu(trace: Path, profile: Path, results: Path, *words: str) -> dict:
    """``harness replay --femu`` as a user runs it."""
    argv = [sys.executable, "-m", "harness", "replay", str(trace), "--femu", str(profile)]
    argv += ["--results", str(results), "--json", *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict = json.loads(done.stdout)
    return found


def test_stock_qemu_counts_what_was_sent(guest: Guest) -> None:
    rows = counting_rungs(guest)
    assert [row.verdict for row in rows] == [Verdict.AGREES, Verdict.AGREES]


def test_a_named_drive_counts_what_was_sent(guest: Guest) -> None:
    """Run where the drive is a local one: inside the guest."""
    code = (
        "import json, sys; from harness.validate.guests import drive_rungs;"
        "print(json.dumps([row.to_json() for row in drive_rungs(*sys.argv[1:])]))"
    )
    done = guest.run([*guest.python, "-c", code, guest.device, guest.destroy], timeout_s=280.0)
    rows = json.loads(done.stdout)
    assert [row["verdict"] for row in rows] == ["AGREES", "AGREES"]
    assert rows[0]["expected"]["write commands"] > 300
    assert rows[0]["compared"].startswith("QEMU NVMe Ctrl")


def test_replay_where_femu_is_not_installed(
    trace: Path, profile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HARNESS_FEMU", raising=False)
    found = replay_femu(trace, profile, tmp_path / "results")
    assert found["emulator"] == "stock QEMU"
    assert found["waf"] is None and "no WAF can be measured" in found["why_no_waf"]
    assert any("no WAF was measured" in note for note in found["notes"])
    assert isinstance(counter_sample(found, "run", "replay-femu.json"), str)  # why there is none
    assert found["fidelity"]["verdict"] == "FAITHFUL" and found["fidelity"]["order_kept"] == 1.0
    listed = trace_ops(open_trace(trace), 48 << 20)
    writes = listed.ops["op"] == Op.WRITE
    assert found["change"]["write_commands"] == int(writes.sum())
    assert found["split_requests"] == listed.split_requests > 0
    assert found["left_out"] == {"flush": 1}
    assert "Server listening on" in (Path(found["run"]) / "console.log").read_text()


@needs_femu
def test_replay_on_femu_measures_the_models_waf(trace: Path, profile: Path, tmp_path: Path) -> None:
    found = replay_femu(trace, profile, tmp_path / "results", "--fills", "2")
    assert found["emulator"] == "FEMU" and found["fidelity"]["verdict"] == "FAITHFUL"
    model = Ftl(load_profile(str(profile)))
    fill = fill_ops(48 << 20)
    for _ in range(2):
        model.apply(fill["offset"], fill["length"], fill["op"])
    before = model.counters()
    ops = trace_ops(open_trace(trace), 48 << 20).ops
    model.apply(ops["offset"], ops["length"], ops["op"])
    after = model.counters()
    host = after.host_pages - before.host_pages
    moved = after.gc_pages - before.gc_pages
    assert moved > 0
    assert (found["change"]["host_units"], found["change"]["media_units"]) == (host, host + moved)
    assert found["waf"] == pytest.approx((host + moved) / host)
    sample = counter_sample(found, "run", "replay-femu.json")
    assert isinstance(sample, WafSample) and sample.source == "femu"
    assert sample.cumulative == pytest.approx(found["waf"])


@needs_femu
@pytest.mark.timeout(1200)
def test_femu_equals_the_model(trace: Path, profile: Path) -> None:
    cases = [case for case in quick_femu_cases() if case[0] in ("m_micro_M", "mixed")]
    cases.append(trace_case(trace, load_profile(str(profile)), Fraction(1)))
    rows = femu_rungs(cases)
    assert {row.rung for row in rows} == {1, 3}
    assert {row.verdict for row in rows} == {Verdict.AGREES}, rows
