"""Names of commands, as they come from the kernel and as a column of the trace wants them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


class CommTable:
    """Command names as small codes; ``names[code]`` is the name."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._known: dict[tuple[int, int], int] = {}

    def codes(self, comm: npt.NDArray[np.uint64]) -> npt.NDArray[np.int32]:
        """Codes (int32) of names given as two 64-bit words each, shape (n, 2)."""
        codes = np.full(len(comm), -1, np.int32)
        low, high = comm[:, 0], comm[:, 1]
        left = np.arange(len(comm))
        while len(left):
            first = (int(low[left[0]]), int(high[left[0]]))
            same = (low[left] == first[0]) & (high[left] == first[1])
            codes[left[same]] = self._code(first)
            left = left[~same]
        return codes

    def _code(self, words: tuple[int, int]) -> int:
        code = self._known.get(words)
        if code is None:
            raw = words[0].to_bytes(8, "little") + words[1].to_bytes(8, "little")
            name = raw.partition(b"\0")[0].decode("utf-8", "replace")
            if name not in self.names:
                self.names.append(name)
            code = self._known[words] = self.names.index(name)
        return code
