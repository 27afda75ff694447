"""The decorator of this part's compiled loops that are the same for every policy."""

from __future__ import annotations

from harness.core.jit import kernels

kernel = kernels(
    "simulator/corpus_kernel.py",
    "simulator/tree_kernel.py",
    "simulator/jit.py",
    "stores/index.py",
    "stores/requests/marks.py",
)
