"""A user's own settings: ``settings.yaml`` in the configuration folder. The environment wins.

# ~/.config/kvflash-harness/settings.yaml
femu: /opt/femu/build-femu/qemu-system-x86_64
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from harness.core.config import Strict, load_yaml

FEMU_VARIABLE = "HARNESS_FEMU"
"""Environment variable that names FEMU's ``qemu-system-x86_64``, as the key ``femu`` does."""


class Settings(Strict):
    """What ``settings.yaml`` may hold."""

    femu: str | None = None


class Named(NamedTuple):
    """A program, and what names it (a variable, or a key of a file) for messages."""

    path: str
    by: str


def settings_path() -> Path:
    """``$XDG_CONFIG_HOME/kvflash-harness/settings.yaml``, by default below ``~/.config``."""
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return Path(base) / "kvflash-harness" / "settings.yaml"


def load_settings() -> Settings:
    """The file's settings, defaults without one; UsageError names the key that is wrong."""
    path = settings_path()
    return load_yaml(path, Settings) if path.exists() else Settings()


def named_femu() -> Named | None:
    """FEMU's QEMU as ``HARNESS_FEMU`` or the key ``femu`` names it; None if neither does."""
    given = os.environ.get(FEMU_VARIABLE)
    if given:
        return Named(given, FEMU_VARIABLE)
    configured = load_settings().femu
    return (
        Named(os.path.expanduser(configured), f"femu in {settings_path()}") if configured else None
    )
