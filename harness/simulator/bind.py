"""Compiling the engine together with one policy's hooks.

The engine's functions are written once, in plain Python, and call hooks by name. ``bind`` makes a
copy of each whose names mean the policy's hooks, and compiles it; so a hook costs no call, and the
same text runs uncompiled where tests want that. Machine code is kept in a folder of its own for
each policy, named after the content of its file and of the engine's.
"""

from __future__ import annotations

import dis
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from harness.core.jit import kernels
from harness.simulator import engine_segment
from harness.simulator import hooks as defaults
from harness.simulator.engine_block import play
from harness.simulator.engine_segment import play_segments
from harness.simulator.reference import keep, memory_for_tuple, refer

ENGINE = tuple(
    f"simulator/{name}.py"
    for name in (
        "engine_block",
        "tiers",
        "queues",
        "idle",
        "lists",
        "coins",
        "descendants",
        "past",
        "objects",
        "hooks",
        "state",
        "bind",
        "reference",
        "requestlog",
    )
)

SEGMENT_WORDS = ("candidate", "key", "order", "pinned")
"""What the queues mean by these names in the segment engine."""

Serve = Callable[[int, int], None]
"""Serves requests from the first number to before the last."""

Play = Callable[[Any], Serve]


def own_words(policy: ModuleType) -> dict[str, FunctionType]:
    """The hooks that a policy's module defines, by name."""
    found = {name: vars(policy).get(name) for name in defaults.HOOKS}
    return {name: hook for name, hook in found.items() if isinstance(hook, FunctionType)}


def _store(s: Any, memory: Any) -> None:
    keep(s, memory)


def _enter(s: Any, memory: Any, first: int, last: int) -> None:
    play(refer(s, memory), first, last)


def _enter_segments(s: Any, memory: Any, first: int, last: int) -> None:
    play_segments(refer(s, memory), first, last)


@cache
def bind(policy: ModuleType, compiled: bool = True) -> Play:
    """The engine with a policy's hooks: of a state, what serves requests ``first`` to ``last``."""
    hooks = own_words(policy)
    if not compiled:
        return _plain(play, hooks)
    return _compiled(_enter, hooks, (str(Path(str(policy.__file__)).resolve()), *ENGINE))


@cache
def bind_segments(compiled: bool = True) -> Play:
    """The segment engine, likewise of a ``SegmentState``."""
    hooks = {name: getattr(engine_segment, name) for name in SEGMENT_WORDS}
    if not compiled:
        return _plain(play_segments, hooks)
    return _compiled(_enter_segments, hooks, ("simulator/engine_segment.py", *ENGINE))


def _plain(entry: Any, hooks: dict[str, FunctionType]) -> Play:
    plain = _Binder(hooks, None).bound(entry)
    return lambda state: lambda first, last: plain(state, first, last)


def _compiled(entry: Any, hooks: dict[str, FunctionType], sources: tuple[str, ...]) -> Play:
    outer, inner = kernels(*sources), kernels(*sources, inner=True)
    store = outer(_store)
    enter = _Binder(hooks, inner).bound(entry, outer)

    def engine(state: Any) -> Serve:
        memory = memory_for_tuple()
        store(state, memory)
        return lambda first, last: enter(state, memory, first, last)

    return engine


class _Binder:
    """Copies of functions, made once each."""

    def __init__(self, hooks: dict[str, FunctionType], inner: Any) -> None:
        self._hooks = hooks
        self._inner = inner
        self._made: dict[FunctionType, Any] = {}

    def bound(self, function: Any, decorator: Any = None) -> Any:
        """The copy of a function, compiled by ``decorator`` (None: as inner functions are)."""
        if function not in self._made:
            words = dict(function.__globals__)
            for name in _names(function):
                meant = words.get(name)
                if isinstance(meant, FunctionType):
                    words[name] = self.bound(self._hooks.get(name, meant))
            copy = FunctionType(function.__code__, words, function.__name__)
            copy.__qualname__ = function.__qualname__
            copy.__module__ = function.__module__
            decorate = decorator or self._inner
            self._made[function] = decorate(copy) if decorate else copy
        return self._made[function]


def _names(function: FunctionType) -> list[str]:
    """Globals that it uses; not attributes, which may have the name of a hook."""
    steps = dis.get_instructions(function)
    return list(dict.fromkeys(step.argval for step in steps if step.opname == "LOAD_GLOBAL"))
