"""The decorators of this part's compiled loops."""

from __future__ import annotations

from harness.core.jit import kernels

_SOURCES = ("replay", "device/buffers.py", "device/ring.py", "core/ops.py")
kernel = kernels(*_SOURCES)
inner = kernels(*_SOURCES, inner=True)
