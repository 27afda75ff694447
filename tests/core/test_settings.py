"""A user's settings file, and the variable that overrides it."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.core.errors import UsageError
from harness.core.settings import Named, load_settings, named_femu, settings_path


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of a settings file that does not exist yet; nothing is set in the environment."""
    monkeypatch.delenv("HARNESS_FEMU", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    path = settings_path()
    path.parent.mkdir()
    return path


def test_without_file_and_variable_nothing_is_named(settings: Path) -> None:
    assert load_settings().femu is None
    assert named_femu() is None


def test_the_file_names_femu_and_the_variable_wins(
    settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.write_text("femu: ~/femu/qemu-system-x86_64\n")
    monkeypatch.setenv("HOME", "/home/someone")
    found = Named("/home/someone/femu/qemu-system-x86_64", f"femu in {settings}")
    assert named_femu() == found
    monkeypatch.setenv("HARNESS_FEMU", "/opt/femu/qemu")
    assert named_femu() == Named("/opt/femu/qemu", "HARNESS_FEMU")


def test_a_misspelt_key_is_named(settings: Path) -> None:
    settings.write_text("fmeu: /opt/femu/qemu\n")
    with pytest.raises(UsageError, match=r"settings\.yaml: fmeu: unknown key"):
        named_femu()
