"""Strict YAML: what a person edits is checked key by key, and a mistake names the key."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from harness.core.errors import UsageError
from harness.core.units import parse_size


class Strict(BaseModel):
    """Base of every configuration model: unknown keys are errors, values are frozen."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _size(value: object) -> int:
    if not isinstance(value, str | int):
        raise ValueError("expected a size such as 4096, 128KiB or 1TB")
    try:
        return parse_size(value)
    except UsageError as error:
        raise ValueError(str(error)) from None


Size = Annotated[int, BeforeValidator(_size)]
"""A number of bytes that may be written ``1TB`` or ``4MiB``; never negative."""

ModelT = TypeVar("ModelT", bound=BaseModel)


def load_yaml(path: Path, model: type[ModelT]) -> ModelT:
    """Read ``path`` into ``model``; UsageError names file and key (or line) of what is wrong."""
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid YAML: {error}") from error
    return validate(data, model, str(path))


def validate(data: Any, model: type[ModelT], where: str) -> ModelT:
    """``data`` as ``model``; UsageError lists every offending key, prefixed by ``where``."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise UsageError("\n".join(_problems(error, where))) from error


def _problems(error: ValidationError, where: str) -> list[str]:
    lines = []
    for item in error.errors():
        key = ".".join(str(part) for part in item["loc"]) or "(top level)"
        reason = item["msg"].removeprefix("Value error, ")
        if item["type"] == "extra_forbidden":
            reason = "unknown key"
        lines.append(f"{where}: {key}: {reason}")
    return lines
