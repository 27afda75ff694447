"""How the engine and a policy's hooks are put together."""

from __future__ import annotations

from pathlib import Path

from tests.simulator.cases import corpus_of, run

ARRAY_NAMED_LIKE_ITS_HOOK = '''"""Written if it was used."""
from typing import Any, NamedTuple
import numpy as np

class Own(NamedTuple):
    used: np.ndarray

def create(world, settings):
    return Own(np.zeros(world.objects, np.uint8))

def used(s: Any, first: int, count: int) -> None:
    for o in range(first, first + count):
        s.p.used[o] = 1

def demote(s: Any, o: int) -> bool:
    return s.p.used[o] == 1
'''


def test_a_policys_array_may_be_named_like_its_hook(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(ARRAY_NAMED_LIKE_ITS_HOOK)
    found = run(corpus_of([[1], [1], [2], [3], [4]]), policy=str(file))
    assert found.outcome.full.written == 1
    assert found.outcome.full.dropped == 1
