"""Recount a drive from its page tables and compare with what it keeps."""

from __future__ import annotations

import numpy as np

from harness.ftl import Ftl
from harness.ftl.pages import FLAG, UNMAPPED, place_bits


def expanded_notes(ftl: Ftl, line: int) -> list[int]:
    """LPN of each programmed page of a line, from its notes."""
    pages, per_line = ftl.state.pages, ftl.profile.pages_per_line
    flag = int(pages.const[FLAG])
    words = pages.p2l[line * per_line : line * per_line + int(pages.noted[line])].tolist()
    lpns: list[int] = []
    while words:
        word = words.pop(0)
        if word & flag:
            first = word ^ flag
            lpns.extend(range(first, first + words.pop(0)))
        else:
            lpns.append(word)
    return lpns


def audit(ftl: Ftl) -> None:
    """Assert everything that must always hold between two commands."""
    profile, pages = ftl.profile, ftl.state.pages
    shift = place_bits(profile.pages_per_line)
    mapped = np.flatnonzero(pages.l2p != pages.const[UNMAPPED])
    addresses = pages.l2p[mapped].astype(np.int64)
    lines, places = addresses >> shift, addresses & ((1 << shift) - 1)
    assert places.max(initial=0) < profile.pages_per_line
    assert len(np.unique(addresses)) == len(addresses), "two logical pages share a flash page"
    recount = np.bincount(lines, minlength=profile.lines)
    assert recount.tolist() == pages.valid.tolist(), "valid pages per line"
    assert int(pages.valid.sum()) == len(mapped) == ftl.mapped_pages
    notes = {int(line): expanded_notes(ftl, int(line)) for line in np.unique(lines)}
    for lpn, line, place in zip(mapped, lines, places, strict=True):
        assert notes[int(line)][place] == lpn, "a mapped page does not map back"
    states = ftl.line_states()
    assert sum(states.values()) == profile.lines, states
    counters = ftl.counters()
    assert counters.free_lines == states["free"]
    assert counters.erased_lines == int(ftl.erases.sum())
    assert counters.erased_lines == counters.foreground_gc + counters.background_gc
    assert (states["full"], states["victims"]) == closed_lines(ftl)


def closed_lines(ftl: Ftl) -> tuple[int, int]:
    """(full, with invalid pages), counted from free ring and write points."""
    state, n = ftl.state, ftl.profile.lines
    stats, policy = state.stats, ftl.policy
    head, count = int(stats[policy.FREE_HEAD]), ftl.counters().free_lines
    away = {int(state.free[(head + i) % n]) for i in range(count)}
    if ftl.profile.is_femu:
        away.add(int(stats[policy.OPEN]))
    else:
        away.update(int(line) for line in state.line if line >= 0)
    closed = [line for line in range(n) if line not in away]
    full = sum(int(state.pages.valid[line]) == ftl.profile.pages_per_line for line in closed)
    return full, len(closed) - full
