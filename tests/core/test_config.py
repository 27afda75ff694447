from __future__ import annotations

from pathlib import Path

import pytest

from harness.core.assets import asset_dir, find_yaml
from harness.core.config import Size, Strict, load_yaml
from harness.core.errors import UsageError


class Example(Strict):
    capacity: Size
    depth: int = 4


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "example.yaml"
    path.write_text(text)
    return path


def test_sizes_may_carry_units(tmp_path: Path) -> None:
    assert load_yaml(write(tmp_path, "capacity: 4MiB\n"), Example).capacity == 4 * 2**20


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("capacity: 1\nspeed: 3\n", "speed: unknown key"),
        ("capacity: -5\n", "capacity: size must not be negative"),
        ("capacity: [1]\n", "capacity: expected a size"),
        ("depth: 3\n", "capacity: Field required"),
        ("capacity: 1\ndepth: many\n", "depth: "),
        ("- 1\n", "(top level)"),
        ("capacity: {\n", "not valid YAML"),
        ("capacity: !!python/object:os.system 1\n", "not valid YAML"),
    ],
)
def test_a_mistake_names_file_and_key(tmp_path: Path, text: str, said: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(UsageError) as error:
        load_yaml(path, Example)
    assert str(path) in str(error.value)
    assert said in str(error.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*nowhere\.yaml"):
        load_yaml(tmp_path / "nowhere.yaml", Example)


def test_unknown_names_offer_the_known_ones() -> None:
    with pytest.raises(UsageError, match="unknown name 'nosuch' in femu/devices/; known: "):
        find_yaml("femu/devices", "nosuch")


def test_assets_are_found_in_a_checkout() -> None:
    assert asset_dir("workloads").name == "workloads"


def test_an_installation_uses_its_own_assets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside a package in site-packages, a folder of that name is somebody else's."""
    own = tmp_path / "harness/_assets/ebpf"
    for folder in (own, tmp_path / "ebpf"):
        folder.mkdir(parents=True)
    monkeypatch.setattr("harness.core.assets._PACKAGE", tmp_path / "harness")
    assert asset_dir("ebpf") == own
