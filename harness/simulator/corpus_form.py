"""A request trace as a prefix tree of arrays: what every run reads and none changes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Corpus:
    """R requests over a tree of N nodes, a node being one full block after its prefix.

    Nodes are numbered in order of first appearance, root side first. The path of request r is the
    runs ``run_of[r]`` to ``run_of[r + 1]``: run i is the nodes ``run_node[i]`` to ``run_node[i] +
    run_length[i] - 1``, a chain that one request made.

    Attributes
    ----------
    name, block_tokens, scope, content_hash
        The trace, tokens a node stands for, whether ids hold in the ``session`` or the ``trace``,
        and 16 hex digits over all arrays.
    time_s : float64[R]
    session, turn, input_tokens, output_tokens : uint32[R]
    tag : uint8[R]
        Who made it, a ``Tag``; all UNTAGGED where the trace does not say.
    run_of : int64[R + 1]
    run_node, run_length : uint32[runs]
    parent : int32[N]
        -1 for a first block.
    depth : int32[N]
        0 for a first block.
    first_request : uint32[N]
    """

    name: str
    block_tokens: int
    scope: str
    content_hash: str
    time_s: NDArray[np.float64]
    session: NDArray[np.uint32]
    turn: NDArray[np.uint32]
    input_tokens: NDArray[np.uint32]
    output_tokens: NDArray[np.uint32]
    tag: NDArray[np.uint8]
    run_of: NDArray[np.int64]
    run_node: NDArray[np.uint32]
    run_length: NDArray[np.uint32]
    parent: NDArray[np.int32]
    depth: NDArray[np.int32]
    first_request: NDArray[np.uint32]

    @property
    def requests(self) -> int:
        """Number of requests."""
        return len(self.time_s)

    @property
    def nodes(self) -> int:
        """Number of distinct full blocks."""
        return len(self.parent)

    @property
    def references(self) -> int:
        """Full blocks of all prompts together."""
        return int(self.run_length.sum(dtype=np.int64))

    def chunks(self) -> NDArray[np.int64]:
        """Full blocks of each prompt, int64[R]."""
        ends = np.concatenate(([0], np.cumsum(self.run_length, dtype=np.int64)))
        return ends[self.run_of[1:]] - ends[self.run_of[:-1]]

    def references_of(self) -> NDArray[np.int64]:
        """The nodes that all requests ask for, one after the other, int64[references]."""
        ends = np.cumsum(self.run_length, dtype=np.int64)
        return np.arange(self.references) + np.repeat(
            self.run_node.astype(np.int64) - (ends - self.run_length), self.run_length
        )
