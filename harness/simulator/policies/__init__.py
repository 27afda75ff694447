"""Policies, one module each, and how they are found by name, by file, or by entry point."""

from __future__ import annotations

import difflib
import hashlib
import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from harness.core.config import validate
from harness.core.errors import UsageError
from harness.simulator.hooks import Parameters, World
from harness.simulator.state import QUEUES

ENTRY_POINTS = "kvflash_harness.policies"


class NoArrays(NamedTuple):
    """What a policy without arrays of its own has as ``s.p``."""

    unused: np.ndarray


@dataclass(frozen=True)
class Policy:
    """A module of hooks with its parameters; see ``harness.simulator.hooks``."""

    name: str
    module: ModuleType
    parameters: Parameters

    @property
    def label(self) -> str:
        """Name for figures: ends in "-like" where the paper was not seen."""
        like = bool(getattr(self.module, "LIKE", False))
        return f"{self.name}-like" if like and not self.name.endswith("-like") else self.name

    @property
    def rebuild(self) -> int:
        """Bits of the queues whose keys hold for a request."""
        queues = getattr(self.module, "REBUILD", False)
        if isinstance(queues, bool):
            queues = range(QUEUES) if queues else ()
        return sum(1 << q for q in queues)

    @property
    def ahead(self) -> int:
        """Requests for which bounds of such keys hold; 0 without bounds."""
        return int(getattr(self.module, "AHEAD", 0))

    @property
    def any_node(self) -> bool:
        """Whether keys do not follow the depth of nodes."""
        return bool(getattr(self.module, "ANY_NODE", False))

    @property
    def evict_any_tier(self) -> bool:
        """Whether the SSD may give up what DRAM continues."""
        return bool(getattr(self.module, "EVICT_ANY_TIER", False))

    @property
    def needs_future(self) -> bool:
        """Whether it looks at requests to come."""
        return "future" in getattr(self.module, "NEEDS", ())

    @property
    def needs_tags(self) -> bool:
        """Whether it treats requests of subagents otherwise."""
        return "tags" in getattr(self.module, "NEEDS", ())

    @property
    def usual_structure(self) -> str:
        """``leaf`` for policies that choose themselves what moves from the root side, else
        ``free``, where tails move first: under ``leaf`` a prefix that all share stays in DRAM, and
        all behind it with it."""
        return self._structures[0]

    @property
    def _structures(self) -> tuple[str, ...]:
        usual_first = ("leaf", "free") if hasattr(self.module, "choose") else ("free", "leaf")
        return getattr(self.module, "STRUCTURES", usual_first)

    def check(self, structure: str) -> None:
        """UsageError if the policy has no meaning under a structure."""
        if structure not in self._structures:
            raise UsageError(
                f"{self.name} has no meaning under structure {structure}",
                fix=f"use --structure {self.usual_structure}",
            )

    def create(self, world: World) -> Any:
        """The policy's own arrays."""
        make = getattr(self.module, "create", None)
        return make(world, self.parameters) if make else NoArrays(np.empty(0, np.int64))


@cache
def policy_names() -> tuple[str, ...]:
    """Names of the policies that come with the harness, and of those installed beside it."""
    own = {info.name.replace("_", "-") for info in pkgutil.iter_modules(__path__)}
    return tuple(sorted(own | {point.name for point in entry_points(group=ENTRY_POINTS)}))


def describe_policies() -> dict[str, str]:
    """First sentence of each policy's description, by name."""
    return {name: _first_line(load_policy(name)) for name in policy_names()}


def _first_line(module: ModuleType) -> str:
    return (module.__doc__ or "").strip().split("\n")[0]


def find_policy(name: str, parameters: Mapping[str, Any]) -> Policy:
    """A policy by name or file, with parameters.

    UsageError: an unknown name (the nearest are offered), a file that is no policy, a parameter
    that it does not have or that is out of range.
    """
    module = load_policy(name)
    settings = getattr(module, "Settings", Parameters)
    shown = Path(name).stem if name.endswith(".py") else name
    return Policy(shown, module, validate(dict(parameters), settings, f"policy {shown}"))


@cache
def load_policy(name: str) -> ModuleType:
    """The module of a policy."""
    if name.endswith(".py"):
        return _from_file(Path(name))
    for point in entry_points(group=ENTRY_POINTS, name=name):
        return _checked(point.load(), name)
    if name in policy_names():
        return importlib.import_module(f"{__name__}.{name.replace('-', '_')}")
    near = difflib.get_close_matches(name.lower(), policy_names(), n=3, cutoff=0.4)
    hint = f"; did you mean {', '.join(near)}?" if near else ""
    raise UsageError(
        f"unknown policy {name!r}{hint}",
        fix=f"known: {', '.join(policy_names())}, or a file ./x.py",
    )


def _from_file(path: Path) -> ModuleType:
    """A module under a name of its own, the same in every process, as cached kernels need it."""
    if not path.is_file():
        raise UsageError(f"no such policy file: {path}")
    content = path.read_bytes()
    name = f"kvflash_policy_{path.stem}_{hashlib.sha256(content).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise UsageError(f"{path}: cannot be loaded: {type(error).__name__}: {error}") from error
    return _checked(module, str(path))


def _checked(module: ModuleType, name: str) -> ModuleType:
    from harness.simulator.bind import own_words

    if not own_words(module):
        raise UsageError(
            f"{name}: no policy: it defines none of the hooks",
            fix="see the description in harness/simulator/hooks.py",
        )
    return module
