"""Lachesis, as it is cited: what agents keep for long goes to the SSD, the short-lived to DRAM.

The paper, which places into HBM and HBF, was not seen. Ours: what a subagent's request makes is
short-lived, but for the first ``shared_chunks`` of its prompt (system prompt, tools); all else is
long-lived, as is everything where a trace does not say who makes it: then all goes to the SSD.
Each object is placed once, LRU in each tier; what leaves DRAM is dropped.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from pydantic import Field

from harness.simulator.hooks import DRAM, SSD, Parameters, World, node_of
from harness.simulator.state import NOW
from harness.stores.requests.form import Tag

LIKE = True
NEEDS = ("tags",)

_SUBAGENT = int(Tag.SUBAGENT)


class Settings(Parameters):
    """``shared_chunks`` at the head of each prompt that live long whoever makes them."""

    shared_chunks: int = Field(64, ge=0)


class Own(NamedTuple):
    """``shared_chunks`` int64[1]."""

    shared_chunks: np.ndarray


def create(world: World, settings: Settings) -> Own:
    """As told."""
    return Own(np.array([settings.shared_chunks], np.int64))


def admit(s: Any, o: int) -> int:
    """By who makes it, and where in the prompt."""
    short = s.tag[s.reg[NOW]] == _SUBAGENT and s.depth[node_of(s, o)] >= s.p.shared_chunks[0]
    return DRAM if short else SSD


def demote(s: Any, o: int) -> bool:
    """What is short-lived is never written."""
    return False
