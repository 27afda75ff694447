"""Reading and writing calibration files: versions, hand edits, truncation."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from harness.calibrate.model import KIND, VERSION, CalibrationFile
from harness.core.errors import UsageError
from harness.core.files import write_json

SCHEMA_FILE = Path(__file__).with_name("calibration.schema.json")
"""The published JSON Schema; a test holds it equal to the model."""


@dataclass(frozen=True)
class Problem:
    """What is wrong at a path of the file, such as ``bandwidth.3.gbps.low``."""

    path: str
    message: str


@dataclass(frozen=True)
class Parsed:
    """A calibration file and the keys that a newer writer added and this reader skipped."""

    file: CalibrationFile
    unknown_keys: tuple[str, ...] = ()


class InvalidCalibration(UsageError):
    """A file that does not fit the schema; ``problems`` has every path at fault."""

    def __init__(self, where: str, problems: list[Problem]) -> None:
        self.problems = problems
        lines = [f"{where}: {p.path}: {p.message}" for p in problems]
        super().__init__("\n".join(lines))


def read(path: Path) -> Parsed:
    """The calibration file at ``path``; UsageError (InvalidCalibration) names what is wrong."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not a calibration file: {error}") from error
    return parse(text, str(path))


def parse(text: str, where: str) -> Parsed:
    """Text -> model. A newer minor version is read without the keys unknown here.

    Raises
    ------
    InvalidCalibration
        Not JSON, another kind of file, a version from another major step, or schema errors.
    """
    try:
        data = json.loads(text)
    except ValueError as error:
        raise InvalidCalibration(where, [Problem("(file)", f"not valid JSON: {error}")]) from error
    if not isinstance(data, dict) or data.get("kind") != KIND:
        raise InvalidCalibration(
            where, [Problem("kind", f"expected {KIND!r}: this is not a calibration file")]
        )
    newer = _newer_minor(data.get("schema_version"), where)
    try:
        return Parsed(_validate(data))
    except ValidationError as error:
        unknown = [e["loc"] for e in error.errors() if e["type"] == "extra_forbidden"]
        if not (newer and len(unknown) == error.error_count()):
            raise InvalidCalibration(where, _problems(error)) from error
    for location in unknown:
        _delete(data, location)
    try:
        return Parsed(_validate(data), tuple(_dotted(key) for key in unknown))
    except ValidationError as error:
        raise InvalidCalibration(where, _problems(error)) from error


def write(path: Path, file: CalibrationFile) -> None:
    """Write ``file`` to ``path`` as a whole."""
    write_json(path, file.model_dump(mode="json"))


def json_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of the file."""
    schema = CalibrationFile.model_json_schema()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:{KIND}:{VERSION}",
        **schema,
    }


def _validate(data: dict[str, Any]) -> CalibrationFile:
    # JSON mode and strict: a number in quotes is a hand edit, not a number.
    return CalibrationFile.model_validate_json(json.dumps(data), strict=True)


def _newer_minor(version: object, where: str) -> bool:
    ours = tuple(int(part) for part in VERSION.split("."))
    try:
        theirs = tuple(int(part) for part in str(version).split("."))
    except ValueError:
        theirs = ()
    if len(theirs) != 3:
        message = f"expected a version such as {VERSION!r}, found {version!r}"
        raise InvalidCalibration(where, [Problem("schema_version", message)])
    if theirs[0] != ours[0]:
        age = "newer" if theirs[0] > ours[0] else "older"
        message = (
            f"version {version} is {age} than this reader's {VERSION} by a major step; "
            f"versions {ours[0]}.x.y can be read: export it again, or use a harness of its age"
        )
        raise InvalidCalibration(where, [Problem("schema_version", message)])
    return theirs > ours


def _problems(error: ValidationError) -> list[Problem]:
    problems = []
    for item in error.errors():
        message = item["msg"].removeprefix("Value error, ")
        if item["type"] == "extra_forbidden":
            message = "unknown key"
        problems.append(Problem(_dotted(item["loc"]), message))
    return problems


def _dotted(location: tuple[int | str, ...]) -> str:
    return ".".join(str(part) for part in location) or "(file)"


def _delete(data: Any, location: tuple[int | str, ...]) -> None:
    for part in location[:-1]:
        data = data[part]
    del data[location[-1]]
