"""What tests of every part share: where real things are, and the reason when they are not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from harness.device.guest import Guest

_TOP = Path(__file__).resolve().parents[1]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs root, with the reason, where we are not."""
    if os.geteuid() == 0:
        return
    reason = pytest.mark.skip(reason="needs root (loop devices or the probe)")
    for item in items:
        if item.get_closest_marker("root"):
            item.add_marker(reason)


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """Reference material and third-party traces kept beside the checkout, never in it."""
    for candidate in (os.environ.get("HARNESS_SHARED"), _TOP.parent / "shared"):
        if candidate and Path(candidate).is_dir():
            return Path(candidate)
    pytest.skip("no shared/ folder with third-party traces beside the checkout")


@pytest.fixture
def traces_dir(shared_dir: Path) -> Path:
    """Folder of the third-party request and block traces."""
    return shared_dir / "traces"


@pytest.fixture(scope="session")
def guest() -> Iterator[Guest]:
    """One stock-QEMU guest for the whole session: /dev/nvme0n1 (512 MiB) and a spare to unplug."""
    from harness.core.errors import MachineError
    from harness.device.guest import Guest, NvmeDrive

    shared = Guest([NvmeDrive(512 << 20), NvmeDrive(64 << 20)])
    try:
        shared.start()
    except MachineError as error:
        pytest.skip(f"no guest here: {error}")
    yield shared
    shared.stop()
