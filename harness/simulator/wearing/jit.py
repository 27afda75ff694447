"""The decorators of this part's compiled loops."""

from __future__ import annotations

from harness.core.jit import kernels

_STORES = (
    "bucket_kernel", "file_kernel", "file_space", "front", "index", "jit", "offset_allocator",
    "offset_kernel", "ops", "pool_kernel", "session_kernel", "session_state", "slot_memory",
    "slot_state", "slot_workers",
)  # fmt: skip
_SOURCES = (
    "simulator/wearing/jit.py",
    "simulator/requestlog.py",
    *(f"simulator/wearing/{name}.py" for name in
      ("buckets", "events", "places", "records", "sessions", "slots", "state")),
    *(f"stores/{name}.py" for name in _STORES),
    "core/ops.py",
)  # fmt: skip

kernel = kernels(*_SOURCES, allocates=True)

inner_kernel = kernels(*_SOURCES, inner=True, allocates=True)
"""For what only other kernels call: no wrapper for Python has to be compiled."""
