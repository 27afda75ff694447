"""The calibration file: its model, how runs become one, and a small reader for simulators.

``load`` and the classes beside it are the stable interface for simulators
(docs/calibration-reader.md); everything else may change with the project.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.calibrate.reader import Calibration, MissingTerm, Value, load

__all__ = ["Calibration", "MissingTerm", "Value", "load"]


def __getattr__(name: str) -> object:
    # The reader needs numpy and pydantic; importing a module beside it should not.
    if name in __all__:
        from harness.calibrate import reader

        return getattr(reader, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
