"""Write-through: what is made goes to DRAM and at once to the SSD; leaving DRAM costs nothing."""

from __future__ import annotations

from typing import Any

from harness.simulator.hooks import in_dram


def write_now(s: Any, o: int) -> bool:
    """Always."""
    return True


def demote(s: Any, o: int) -> bool:
    """What leaves DRAM was written when it was made; only what found no room there was not."""
    return not in_dram(s, o)
