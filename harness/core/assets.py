"""Where the files beside the package are: ``ebpf/``, ``workloads/`` and ``femu/``.

In a checkout they lie at its top, where people edit them; in a wheel they ship inside the
package.
"""

from __future__ import annotations

from pathlib import Path

from harness.core.errors import MachineError, UsageError

_PACKAGE = Path(__file__).resolve().parents[1]


def asset_dir(name: str) -> Path:
    """The folder ``ebpf``, ``workloads`` or ``femu``; MachineError if the install lost it."""
    # The package's own first: in an install the folder beside it belongs to everybody.
    for candidate in (_PACKAGE / "_assets" / name, _PACKAGE.parent / name):
        if candidate.is_dir():
            return candidate
    raise MachineError(
        f"the folder {name}/ is missing from this installation", fix="reinstall the harness"
    )


def find_yaml(kind: str, name: str) -> Path:
    """A YAML file by path, or by bare name inside the asset folder ``kind``.

    ``find_yaml("femu/devices", "1tb-0.3dwpd")`` and ``find_yaml(..., "./mine.yaml")`` both work;
    an unknown name is a UsageError that offers the names that exist.
    """
    given = Path(name)
    if given.suffix in (".yaml", ".yml"):
        if given.is_file():
            return given
        raise UsageError(f"no such file: {name}")
    top, _, below = kind.partition("/")
    folder = asset_dir(top) / below
    path = folder / f"{name}.yaml"
    if path.is_file():
        return path
    known = sorted(p.stem for p in folder.glob("*.yaml"))
    raise UsageError(f"unknown name {name!r} in {kind}/; known: {', '.join(known) or 'none'}")
