"""Imports inside the package flow downwards, and parts of one layer leave each other alone."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "harness"

LAYERS = (
    {"cli"},
    {"run"},
    {"nightly"},
    {"validate", "report", "simulator"},
    {"calibrate"},
    {"bench"},
    {"endurance", "replay", "capture"},
    {"stores", "doctor"},
    {"device", "ftl"},
    {"trace"},
    {"core"},
)
"""Highest first; a part imports only from layers below its own."""

LEVEL = {part: level for level, parts in enumerate(LAYERS) for part in parts}


def imported_parts(path: Path) -> set[str]:
    """The parts of ``harness`` that a module imports, at any depth of its code."""
    parts = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            if node.module == "harness":
                parts |= {alias.name for alias in node.names if alias.name in LEVEL}
            elif node.module.startswith("harness."):
                parts.add(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            parts |= {a.name.split(".")[1] for a in node.names if a.name.startswith("harness.")}
    return parts


def modules() -> list[Path]:
    return sorted(p for p in PACKAGE.rglob("*.py") if p.parent != PACKAGE)


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_module_imports_only_from_below(path: Path) -> None:
    part = path.relative_to(PACKAGE).parts[0]
    for other in imported_parts(path) - {part}:
        assert other in LEVEL, f"{other} has no layer"
        assert LEVEL[other] > LEVEL[part], f"{part} must not import {other}"


def test_every_part_has_a_layer() -> None:
    parts = {p.name for p in PACKAGE.iterdir() if (p / "__init__.py").is_file()}
    assert parts <= set(LEVEL)


def test_relative_imports_are_not_used() -> None:
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            assert not (isinstance(node, ast.ImportFrom) and node.level), path
