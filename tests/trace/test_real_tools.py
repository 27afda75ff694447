"""What perf, the kernel's own trace file and bpftrace really print of requests made here."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.device.loop import LoopDevice
from harness.trace.convert import convert
from tests.trace.helpers import read_rows
from tests.trace.samples import W

pytestmark = pytest.mark.root

COUNT, SIZE = 10, 8192
Row = tuple[int, int, int, int, int | None, int]

# In a mount namespace of their own, so that the machine's tracefs stays where it is.
_MOUNTED = (
    "mount -t tracefs tracefs /sys/kernel/tracing && mount -t debugfs debugfs /sys/kernel/debug && "
)
_FTRACE = """
instance=/sys/kernel/tracing/instances/harness-$$
mkdir $instance
trap 'rmdir $instance' EXIT
echo 1 > $instance/events/block/block_rq_issue/enable
echo 1 > $instance/events/block/block_rq_complete/enable
{work}
cat $instance/trace > {out}
echo 0 > $instance/events/enable
"""
_PERF = """
perf record -q -a -o {out}.data \
    -e block:block_rq_issue --filter 'dev == {dev}' \
    -e block:block_rq_complete --filter 'dev == {dev}' -- {work}
perf script -i {out}.data > {out}
"""
_BPFTRACE = """
bpftrace -c '{work}' -e '
tracepoint:block:block_rq_issue /args->dev == {dev}/
{{ printf("%llu,I,%s,%llu,%u\\n", nsecs, args->rwbs, args->sector, args->bytes); }}
tracepoint:block:block_rq_complete /args->dev == {dev}/
{{ printf("%llu,C,%s,%llu,%u\\n", nsecs, args->rwbs, args->sector, args->nr_sector * 512); }}
' > {out}
"""


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[LoopDevice]:
    with LoopDevice(16 << 20, tmp_path) as device:
        yield device


def recorded(script: str, loop: LoopDevice, out: Path) -> list[Row]:
    """What ``script`` records of some writes to ``loop``, read as a trace; that device alone."""
    numbers = os.stat(loop.path).st_rdev
    dev = os.major(numbers) << 20 | os.minor(numbers)
    work = f"{shutil.which('dd')} if=/dev/zero of={loop.path} bs={SIZE} count={COUNT} oflag=direct"
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-ec", _MOUNTED + script.format(work=work, out=out, dev=dev)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    if done.returncode:
        pytest.skip(f"it does not work here: {done.stderr.strip()[-200:]}")
    convert(out, out.with_suffix(".parquet"))
    rows = read_rows(out.with_suffix(".parquet"))
    return [row for row in rows if row[5] in (dev, 0)]


@pytest.mark.parametrize(
    ("tool", "script"),
    [("perf", _PERF), ("sh", _FTRACE), ("bpftrace", _BPFTRACE)],
    ids=["perf", "ftrace", "bpftrace"],
)
def test_its_output_is_read_as_what_was_done(
    tool: str, script: str, loop: LoopDevice, tmp_path: Path
) -> None:
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    rows = recorded(script, loop, tmp_path / "printed")
    assert [row[1:4] for row in rows] == [(W, n * SIZE // 512, SIZE) for n in range(COUNT)]
    assert all(latency_ns is not None and latency_ns > 0 for *_, latency_ns, _ in rows)
