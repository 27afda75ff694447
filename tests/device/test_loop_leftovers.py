"""Partitions that somebody left behind on a free loop device do not stick to the next user's."""

from __future__ import annotations

import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from harness.device.guard import open_guarded
from harness.device.info import partitions
from harness.device.loop import LoopDevice
from tests.device.test_guard import partition_table

MIB = 1 << 20


@pytest.mark.root
def test_a_new_device_has_no_partitions_of_the_last_user(tmp_path: Path) -> None:
    with LoopDevice(32 * MIB, tmp_path) as last:
        name = last.name
        with open(last.path, "r+b") as file:
            file.write(partition_table())
        subprocess.run(["partx", "--add", last.path], check=True)
        assert partitions(name) == (f"{name}p1",)
    with ExitStack() as stack:
        for _ in range(32):  # others may take the freed number first
            ours = stack.enter_context(LoopDevice(32 * MIB, tmp_path))
            if ours.name == name:
                assert partitions(name) == ()
                open_guarded(ours.path, own=True).close()
                return
    pytest.skip(f"{name} was taken by somebody else meanwhile")
