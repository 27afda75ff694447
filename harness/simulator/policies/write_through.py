"""Write-through: what is made goes to DRAM and at once to the SSD; leaving DRAM costs nothing."""

from __future__ import annotations

from typing import Any


def write_now(s: Any, o: int) -> bool:
    """Always."""
    return True


def demote(s: Any, o: int) -> bool:
    """Never: what leaves DRAM was written when it was made, and perhaps evicted since."""
    return False
