"""Windows of writes and the rule by which a WAF counts as steady.

A window is one namespace of host writes. Steady: five windows in a row within 5 % of their
mean, and a straight line through them that rises or falls by less than 2 % of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

WINDOWS = 5
SPREAD, SLOPE = 0.05, 0.02


@dataclass(frozen=True)
class Window:
    """What one window of writes cost."""

    host_bytes: int
    host_pages: int
    gc_pages: int
    erased_lines: int

    @property
    def waf(self) -> float:
        """(host + GC) / host pages."""
        return (self.host_pages + self.gc_pages) / self.host_pages


def mean_waf(windows: Sequence[Window]) -> float:
    """WAF over several windows together."""
    host = sum(w.host_pages for w in windows)
    return (host + sum(w.gc_pages for w in windows)) / host


def is_steady(windows: Sequence[Window]) -> bool:
    """Whether the last five windows are steady."""
    if len(windows) < WINDOWS:
        return False
    waf = np.array([w.waf for w in windows[-WINDOWS:]])
    rise = np.polyfit(np.arange(WINDOWS), waf, 1)[0] * (WINDOWS - 1)
    spread = waf.max() - waf.min()
    return bool(spread <= SPREAD * waf.mean() and abs(rise) <= SLOPE * waf.mean())


def steady_windows(windows: Sequence[Window]) -> Sequence[Window]:
    """The last five windows if they are steady, else none."""
    return windows[-WINDOWS:] if is_steady(windows) else ()
