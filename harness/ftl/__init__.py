"""The flash translation layer: FEMU's, operation for operation, and a drive's as sold.

``Ftl(profile)`` serves commands and counts; one module a policy (``femu``, ``drive``).
"""

from __future__ import annotations

from harness.ftl.model import Counters, Ftl

__all__ = ["Counters", "Ftl"]
