"""Where caches lie."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.core.caches import cache_home


def test_the_variable_wins_over_the_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert cache_home() == Path("/elsewhere/kvflash-harness")
    for unset in ("", None):
        if unset is None:
            monkeypatch.delenv("XDG_CACHE_HOME")
        else:
            monkeypatch.setenv("XDG_CACHE_HOME", unset)
        assert cache_home() == Path("/home/somebody/.cache/kvflash-harness")
