"""The decorator of this part's compiled loops."""

from __future__ import annotations

from harness.core.jit import kernels

kernel = kernels("replay", "device/buffers.py", "device/ring.py", "core/ops.py")
