"""The harness on a host: the installed one where it is the same, else a wheel of ours.

A wheel goes into an environment that is made once on the host and named by the wheel's hash. Its
dependencies come from the host's package index, or from a folder of wheels that is sent along and
kept there: from the second time on nothing is needed from anywhere.
"""

from __future__ import annotations

import hashlib
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from harness.core.errors import MachineError, UsageError
from harness.core.identity import identity
from harness.nightly.inventory import Host
from harness.nightly.remote import Remote, last_line
from harness.nightly.wheel import build_wheel

FOLDER = ".cache/kvflash-nightly"
_MAKE_S = 1800.0
_KEEP_DAYS = 14

# Two nights may want the same environment at once; whoever comes second waits and finds it.
_MAKE = """
set -e
cd "$1"; env=$2 python=$3 wheel=$4; shift 4
exec 9>"$env.lock"
flock 9
[ -e "$env/complete" ] && exit
rm -rf "$env"
"$python" -m venv "$env"
"$env/bin/python" -m pip install --quiet --disable-pip-version-check "$@" "$env.wheel/$wheel"
: > "$env/complete"
"""
_TIDY = """
cd "$1" || exit 0
find . -maxdepth 2 -path './env-*/complete' -mtime +"$2" | while read -r old; do
  rm -rf "${old%/complete}" "${old%/complete}.lock" "${old%/complete}.wheel"
done
find . -maxdepth 1 -type d -name 'job-*' -mtime +"$2" -exec rm -rf {} +
"""
_USE = '[ -e "$1" ] && touch "$1"'
_HAVE = 'cd "$1" && sha256sum -- *.whl 2>/dev/null || true'


@dataclass
class Sender:
    """What is sent to hosts: a wheel of this harness and the wheels of ``wheels`` (a folder)."""

    wheels: Path | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @cached_property
    def _folder(self) -> tempfile.TemporaryDirectory[str]:
        return tempfile.TemporaryDirectory(prefix="kvflash-wheel-")

    def wheel(self) -> Path:
        """The wheel of this harness, made at its first use."""
        with self._lock:
            made = list(Path(self._folder.name).glob("*.whl"))
            return made[0] if made else build_wheel(Path(self._folder.name))

    def others(self) -> list[Path]:
        """The wheels of the folder; UsageError where it has none."""
        if self.wheels is None:
            return []
        found = sorted(self.wheels.glob("*.whl"))
        if not found:
            raise UsageError(
                f"no wheels in {self.wheels}", fix=f"pip wheel --wheel-dir {self.wheels} CHECKOUT"
            )
        return [path for path in found if not path.name.startswith("kvflash_harness-")]


def harness_on(remote: Remote, host: Host, sender: Sender, say: Callable[[str], None]) -> str:
    """The command to call on ``host``. MachineError where it is another one and may not be sent."""
    wanted = host.harness or "harness"
    ended = remote.run([wanted, "--version"])
    found = ended.stdout.decode().strip().removeprefix("harness ")
    if ended.code == 0 and found == identity():
        return wanted
    if host.harness:
        if ended.code != 0:
            raise MachineError(f"{wanted} does not start there: {last_line(ended.stderr)}")
        raise MachineError(
            f"the harness there is {found}, here it is {identity()}: install the same one, "
            "or leave harness: out of the inventory so that it is sent"
        )
    return _sent(remote, host, sender, say)


def _sent(remote: Remote, host: Host, sender: Sender, say: Callable[[str], None]) -> str:
    base, wheel = f"{remote.home}/{FOLDER}", sender.wheel()
    env = f"env-{_sha256(wheel)[:16]}"
    remote.run(["sh", "-c", _TIDY, "sh", base, str(_KEEP_DAYS)])
    if remote.run(["sh", "-c", _USE, "sh", f"{base}/{env}/complete"], sudo=False).code != 0:
        say("making an environment of this harness there")
        others = sender.others()
        _send_wheels(others, remote, f"{base}/wheels")
        _send_wheels([wheel], remote, f"{base}/{env}.wheel")
        index = ["--no-index", "--find-links", f"{base}/wheels"] if others else []
        words = ["sh", "-c", _MAKE, "sh", base, env, host.python, wheel.name, *index]
        ended = remote.run(words, sudo=False, limit_s=_MAKE_S)
        if ended.code != 0:
            raise MachineError(
                f"no environment of the harness can be made there: {last_line(ended.stderr)}",
                fix="where the host reaches no package index, name a folder of wheels "
                "(wheels: in the inventory); python3-venv must be installed there",
            )
        _warm(remote, f"{base}/{env}", say)
    return f"{base}/{env}/bin/harness"


def _send_wheels(wheels: list[Path], remote: Remote, folder: str) -> None:
    remote.must(["mkdir", "-p", folder], "no folder can be made there", sudo=False)
    listing = remote.must(["sh", "-c", _HAVE, "sh", folder], folder, sudo=False).decode()
    have = {tuple(line.split("  ", 1)) for line in listing.splitlines()}
    for path in wheels:
        if (_sha256(path), path.name) not in have:
            remote.send(path, f"{folder}/{path.name}")


def _warm(remote: Remote, env: str, say: Callable[[str], None]) -> None:
    """Compile the loops, so that no measurement waits for it; what fails is compiled later."""
    ended = remote.run([f"{env}/bin/python", "-m", "harness.run.warm"], limit_s=_MAKE_S)
    if ended.code != 0:
        say(f"the loops were not compiled ahead: {last_line(ended.stderr)}")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
