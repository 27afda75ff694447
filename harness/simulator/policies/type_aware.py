"""Strict type-aware placement: states stay in DRAM, full attention goes straight to the SSD.

Gandalf's section 3.1: a state that DRAM has no room for is dropped; chunks pass through a staging
buffer that serves no hits. LRU in each tier.
"""

from __future__ import annotations

from typing import Any

from harness.simulator.hooks import DRAM, SSD, class_of


def admit(s: Any, o: int) -> int:
    """By class."""
    return DRAM if class_of(s, o) == 1 else SSD


def demote(s: Any, o: int) -> bool:
    """A state is never written."""
    return False
