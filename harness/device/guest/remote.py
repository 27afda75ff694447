"""A drive on a user's own machine over SSH, such as a FEMU guest or host that already runs."""

from __future__ import annotations

import io
import shlex
import tarfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from harness.core.errors import MachineError, MeasurementError
from harness.device.guest.session import Completed, Session

_PACKAGE = Path(__file__).resolve().parents[2]
_PARTS = (".", "core", "device", "device/guest")
_CHECK = "import sys, numpy; sys.exit(sys.version_info < (3, 11))"


class RemoteDrive:
    """An ``OpsMachine``: our few modules are copied there and removed at the end.

    The machine needs Python 3.11, numpy, nvme-cli and root (or ``sudo -n``). The drive is named
    twice, by path and by ``destroy``; the guard there decides.
    """

    def __init__(self, session: Session, device: str, destroy: str) -> None:
        self._session = session
        self.device, self.destroy = device, destroy
        self.scratch = ""
        self._sudo: tuple[str, ...] = ()

    def __enter__(self) -> RemoteDrive:
        self.scratch = self._session.run(["mktemp", "-d", "/tmp/harness-drive-XXXXXX"]).text
        try:
            if self._session.run(["id", "-u"]).text != "0":
                self._sudo = ("sudo", "-n")
            self._check()
            self._session.run(["tar", "-x", "-C", self.scratch], stdin=_modules())
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._remove()

    @property
    def python(self) -> tuple[str, ...]:
        """Words that start Python there with our modules."""
        return ("env", f"PYTHONPATH={self.scratch}", "PYTHONDONTWRITEBYTECODE=1", "python3")

    def run(self, argv: Sequence[str], *, timeout_s: float = 120.0) -> Completed:
        """Run a command there as root."""
        return self._session.run([*self._sudo, *argv], timeout_s=timeout_s)

    def runner(self, argv: Sequence[str]) -> bytes | None:
        """For ``read_counters``: standard output, None if the command failed."""
        done = self._session.run([*self._sudo, *argv], check=False)
        return done.stdout if done.returncode == 0 else None

    def put(self, local: Path, remote: str) -> None:
        """Copy a file there."""
        self._session.put(local, remote)

    def _check(self) -> None:
        for argv, what, fix in (
            (["true"], "root, or sudo without a password", "allow `sudo -n`, or log in as root"),
            (["python3", "-c", _CHECK], "Python 3.11 with numpy", "apt-get install python3-numpy"),
        ):
            try:
                self.run(argv)
            except MeasurementError as error:
                raise MachineError(f"the remote machine needs {what}", fix=fix) from error

    def _remove(self) -> None:
        if not self.scratch.startswith("/tmp/harness-drive-"):
            return
        try:
            self._session.run(["rm", "-rf", "--", self.scratch])
        except MeasurementError as error:
            line = shlex.join(["rm", "-rf", "--", self.scratch])
            raise MachineError("could not clean up on the remote machine", fix=line) from error


def _modules() -> bytes:
    """The parts of this package that run beside the drive, as a tar archive."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for part in _PARTS:
            for path in sorted((_PACKAGE / part).glob("*.py")):
                tar.add(path, f"harness/{path.relative_to(_PACKAGE)}")
    return archive.getvalue()
