"""How large the objects are that a cache holds for a model."""

from __future__ import annotations

from dataclasses import dataclass

from harness.core.errors import UsageError
from harness.core.units import format_size
from harness.stores.models import load_model


@dataclass(frozen=True)
class ObjectSizes:
    """Bytes of one full-attention chunk of ``block_tokens`` and of one fixed state (0: none)."""

    chunk_bytes: int
    state_bytes: int
    block_tokens: int

    @property
    def by_class(self) -> tuple[int, int]:
        """Bytes indexed by class: full attention, fixed state."""
        return self.chunk_bytes, self.state_bytes

    def check(self, dram_bytes: int, ssd_bytes: int) -> None:
        """UsageError for tiers that hold nothing, or less than one state."""
        if dram_bytes <= 0:
            raise UsageError(
                "a DRAM tier of zero bytes holds nothing", fix="give --dram a size, such as 100GB"
            )
        if ssd_bytes < 0:
            raise UsageError(f"an SSD tier cannot have {ssd_bytes} bytes")
        largest = max(self.by_class)
        if largest > dram_bytes:
            what = "state" if self.state_bytes == largest else "chunk"
            raise UsageError(
                f"one {what} of this model is {format_size(largest)}, more than the DRAM tier of "
                f"{format_size(dram_bytes)}",
                fix="make DRAM larger, or the blocks smaller",
            )


def object_sizes(model: str, block_tokens: int) -> ObjectSizes:
    """The sizes of a model of ``workloads/models`` or of a file; UsageError if it is unknown."""
    kv = load_model(model)
    sizes = ObjectSizes(kv.chunk_bytes(block_tokens), kv.state_bytes, block_tokens)
    if not sizes.chunk_bytes:
        raise UsageError(f"{kv.name} keeps nothing that grows with the context: no prefix to reuse")
    return sizes
