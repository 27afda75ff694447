"""The decorator of this part's compiled loops."""

from __future__ import annotations

from harness.core.jit import kernels

kernel = kernels("trace", "trace/formats", "trace/stats", "core/ops.py")
