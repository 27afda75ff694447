"""Settings of a block device's queue for the time of a measurement, given back also after a crash.

What was found is written down in the runtime directory before anything is changed. A process
that dies leaves the note behind; the next one that comes this way puts the settings back. One
process at a time may set a disk's queue: whoever came second would lose its settings when the
first gives them back.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.core.errors import MachineError, UsageError
from harness.core.files import write_json
from harness.core.signals import uninterrupted

_SYS = Path("/sys/class/block")
IN_ORDER = {"scheduler": "none", "nomerges": "2"}
"""Requests reach the driver one by one, in the order in which they were submitted."""
_SCHEDULER, _SIZE, _TUNABLES = "scheduler", "nr_requests", "iosched"


def runtime_dir() -> Path:
    """Where notes that must not outlive a boot are kept."""
    user = os.geteuid()
    base = "/run" if user == 0 else os.environ.get("XDG_RUNTIME_DIR", f"/run/user/{user}")
    return Path(base) / "kvflash-harness"


@contextmanager
def queue_settings(
    disk: str, wanted: Mapping[str, str] = IN_ORDER, *, notes: Path | None = None
) -> Iterator[dict[str, str]]:
    """Set queue attributes of ``disk`` and put them back at the end.

    Yields the values found before. Attributes that the device does not have are left out.
    Settings that a dead process left on any device are restored first. A change of the scheduler
    resets the queue's size and the scheduler's own settings: these come back with it.

    Raises
    ------
    MachineError
        The kernel refuses a setting, or the note cannot be written.
    UsageError
        Another measurement has set the queue of this disk, through another partition perhaps.
    """
    folder = notes or runtime_dir()
    with _sole_use(disk):
        restore_stale(folder)
        found = {key: value for key in wanted if (value := _read(disk, key)) is not None}
        changes = {key: wanted[key] for key, value in found.items() if value != wanted[key]}
        if not changes:
            yield found
            return
        if _SCHEDULER in changes:
            found |= _reset_by_scheduler(disk)
        note = folder / f"queue-{disk}.json"
        try:
            with uninterrupted():
                _write_note(note, {**_owner(), "disk": disk, "set": changes, "found": found})
                for key, value in changes.items():
                    _write(disk, key, value)
            yield found
        finally:
            with uninterrupted():
                _give_back(disk, changes, found)
                note.unlink(missing_ok=True)


@contextmanager
def _sole_use(disk: str) -> Iterator[None]:
    """Hold the lock of a disk's queue: the kernel's own folder, so nothing is left behind."""
    try:
        fd = os.open(_SYS / disk / "queue", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        yield  # no queue, or gone: nothing to set either
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(fd)
        raise UsageError(
            f"another measurement runs on {disk} and has set its queue",
            fix="wait until it has ended: partitions of one disk share the queue",
        ) from error
    try:
        yield
    finally:
        os.close(fd)


def _reset_by_scheduler(disk: str) -> dict[str, str]:
    """What a change of the scheduler sets to its defaults: the queue's size, its own settings."""
    tunables = sorted(path.name for path in (_SYS / disk / "queue" / _TUNABLES).glob("*"))
    keys = [_SIZE, *(f"{_TUNABLES}/{name}" for name in tunables)]
    return {key: value for key in keys if (value := _read(disk, key)) is not None}


def restore_stale(folder: Path | None = None) -> list[str]:
    """Give back what processes that no longer live had set; names of those disks."""
    restored = []
    for note in sorted((folder or runtime_dir()).glob("queue-*.json")):
        try:
            record = json.loads(note.read_text())
            if _is_alive(record["pid"], record["started"]):
                continue
            _give_back(record["disk"], record["set"], record["found"])
            restored.append(record["disk"])
        except (ValueError, KeyError, TypeError):
            pass  # not a note of ours: drop it
        except OSError as error:
            raise MachineError(
                f"cannot restore queue settings noted in {note}: {error}", fix="run as root"
            ) from error
        note.unlink(missing_ok=True)
    return restored


def _give_back(disk: str, changes: Mapping[str, str], found: Mapping[str, str]) -> None:
    """Undo ``changes``, except where somebody has set something else since."""
    for key, value in changes.items():
        if _read(disk, key) == value:
            _write(disk, key, found[key])
    if _SCHEDULER not in changes or _read(disk, _SCHEDULER) != found[_SCHEDULER]:
        return
    for key, value in found.items():
        if key.startswith((_SIZE, _TUNABLES)) and _read(disk, key) != value:
            _write(disk, key, value)


def _read(disk: str, key: str) -> str | None:
    try:
        text = (_SYS / disk / "queue" / key).read_text().strip()
    except OSError:
        return None
    return text.partition("[")[2].partition("]")[0] if "[" in text else text


def _write(disk: str, key: str, value: str) -> None:
    try:
        (_SYS / disk / "queue" / key).write_text(value)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENODEV):
            return  # the device is gone, and its settings with it
        raise MachineError(
            f"cannot set queue/{key} of {disk} to {value}: {error.strerror}",
            fix="run as root" if error.errno in (errno.EACCES, errno.EPERM) else None,
        ) from error


def _write_note(note: Path, record: dict[str, Any]) -> None:
    try:
        note.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_json(note, record)
    except OSError as error:
        raise MachineError(
            f"cannot note the queue settings in {note.parent}: {error.strerror}",
            fix="run as root",
        ) from error


def _owner() -> dict[str, int]:
    return {"pid": os.getpid(), "started": _start_ticks(os.getpid()) or 0}


def _is_alive(pid: int, started: int) -> bool:
    return _start_ticks(pid) == started


def _start_ticks(pid: int) -> int | None:
    """When ``pid`` started, in clock ticks since boot: tells a process from a later namesake."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text[text.rindex(")") + 2 :].split()
    return int(fields[19]) if fields[0] not in "ZX" else None
