"""Where the real stores are installed, and what to say where they are not."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.core.errors import MachineError

_TOP = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class RealStore:
    """A store that runs as itself. ``model_of_it`` is the file of ``workloads/stores`` that sets it
    up and models it; ``folder`` and ``probe_module`` say how to find its environment."""

    name: str
    model_of_it: str
    folder: str
    probe_module: str

    @property
    def python(self) -> Path:
        """The interpreter of its environment, beside the harness's own."""
        return _TOP / self.folder / "bin" / "python"

    @property
    def missing(self) -> str | None:
        """Why it cannot run here; None if it can."""
        if not self.python.exists():
            return f"{self.name} is not installed: there is no {self.folder}/ beside the harness"
        site = self.python.parents[1] / "lib"
        if not any(site.glob(f"python*/site-packages/{self.probe_module}")):
            return f"{self.name} is not installed: {self.folder}/ lacks {self.probe_module}"
        return None

    def need(self) -> None:
        """MachineError unless it can run here."""
        if self.missing:
            raise MachineError(
                self.missing,
                fix=f"in a checkout: make {self.folder.removeprefix('.venv-')} "
                "(a CPU build; some minutes, no GPU needed)",
            )


_STORES = (
    RealStore("lmcache", "lmcache-driven", ".venv-lmcache", "lmcache_rust_raw_block_io"),
    RealStore("lmcache-uring", "lmcache-driven-uring", ".venv-lmcache",
              "lmcache_rust_raw_block_io"),
    RealStore("vllm", "lmcache-vllm", ".venv-vllm", "vllm"),
)  # fmt: skip

REAL = {store.name: store for store in _STORES}
"""Real stores by the name that ``--store`` takes."""
