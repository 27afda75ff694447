"""What the cloud traces share: a column of volume numbers that becomes ``dev``."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from harness.trace.formats.base import BadLine


def volume_numbers(values: npt.NDArray[Any], what: str) -> npt.NDArray[np.uint32]:
    """``values`` as the trace's device column; BadLine when one needs more than 32 bits."""
    if len(values) and int(values.max()) >= 2**32:
        raise BadLine(f"{what} needs more than 32 bits")
    return values.astype(np.uint32)
