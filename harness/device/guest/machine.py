"""A guest that starts by itself: this host's files, its own kernel, and NVMe drives.

::

    with Guest([NvmeDrive(1 << 30)]) as guest:
        guest.run(["nvme", "smart-log", guest.device])

The host's root is read-only under a layer in RAM, so every program, library and file of the
host that existed at the start is there under the same path; what the guest writes is gone with
it, unless ``get`` brings it back.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from harness.core.errors import HarnessError, MachineError, MeasurementError
from harness.core.memory import available_bytes
from harness.device.guest import keeper
from harness.device.guest.accel import Accelerator, choose_accelerator
from harness.device.guest.binary import find_qemu, version_of
from harness.device.guest.boot import Links, NotReady, Secrets, qemu_argv
from harness.device.guest.diagnose import diagnose
from harness.device.guest.drives import Drive, backing_file
from harness.device.guest.initramfs import initramfs
from harness.device.guest.kernel import GuestKernel, guest_kernel
from harness.device.guest.memory import QEMU_OVERHEAD_BYTES, check_memory
from harness.device.guest.qmp import Qmp
from harness.device.guest.session import CommandTimeout, Completed, Session, connect_guest

_PORT_TRIES = 5
_CONSOLE_TAIL_LINES = 12
_HANG_LIMIT_S = 10.0


class GuestError(MeasurementError):
    """The guest did not start, hung or died; the message names the cause."""


class Guest:
    """A running guest; use it as a context manager. It never outlives this process.

    Parameters
    ----------
    drives
        In the order of ``devices``; at most eight.
    binary
        QEMU to run; found by ``find_qemu`` for the drives' devices if None.
    memory_bytes, cpus
        Of the guest. One processor keeps one NVMe queue, hence one order of commands.
    console
        Where the kernel's console is kept; a temporary file if None.
    port
        Loopback port for SSH; a free one if None.
    boot_limit_s, limit_s
        Time until the guest must answer, and its whole life, after which it is ended.
    kernel_args
        Words appended to the kernel's command line.
    """

    def __init__(
        self,
        drives: Sequence[Drive] = (),
        *,
        binary: str | None = None,
        memory_bytes: int = 1536 << 20,
        cpus: int = 1,
        console: Path | None = None,
        port: int | None = None,
        boot_limit_s: float = 240.0,
        limit_s: float = 7200.0,
        accelerator: Accelerator | None = None,
        kernel_args: Sequence[str] = (),
    ) -> None:
        self.drives = tuple(drives)
        self.binary = binary or find_qemu({drive.device for drive in self.drives})
        self.memory_bytes = memory_bytes
        self.cpus = cpus
        self.kernel: GuestKernel | None = None
        self.accelerator = accelerator
        self.devices: tuple[str, ...] = ()
        self.port = port
        self._console_wanted = console
        self._boot_limit_s = boot_limit_s
        self._limit_s = limit_s
        self._kernel_args = tuple(kernel_args)
        self._state: tempfile.TemporaryDirectory[str] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._links: Links | None = None
        self._session: Session | None = None
        self._serial: str | None = None
        self.boot_s = 0.0

    # -- life cycle ---------------------------------------------------------------------------

    def __enter__(self) -> Guest:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Boot and wait until commands can be run.

        Raises
        ------
        MachineError
            No kernel, QEMU, busybox, sshd or memory; or the wanted port is taken.
        GuestError
            It did not boot; cause and cure in the message.
        """
        check_memory(
            {
                "guest": self.memory_bytes,
                "QEMU": QEMU_OVERHEAD_BYTES,
                **{
                    f"{part} {index}": size
                    for index, drive in enumerate(self.drives)
                    for part, size in drive.memory_parts().items()
                },
            },
            available_bytes(),
            fix="use a smaller drive (--scale), or free memory",
        )
        self.kernel = guest_kernel()
        if self.accelerator is None:
            self.accelerator = choose_accelerator(self.binary, self.kernel.image)
        clock = time.monotonic()
        tries = 1 if self.port else _PORT_TRIES
        for left in reversed(range(tries)):
            try:
                self._start_once(clock + self._boot_limit_s)
                break
            except HarnessError as error:
                self.stop()
                # Another program may take the free port between our look and QEMU's bind.
                if not (left and "port for SSH is taken" in str(error)):
                    raise
            except BaseException:
                self.stop()
                raise
        self.boot_s = time.monotonic() - clock

    def stop(self) -> None:
        """End the guest at once. Its drives are scratch and FEMU is known to crash at power-off,
        so nothing is shut down in order: take counters before."""
        if self._session is not None:
            self._session.close()
            self._session = None
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None
        if self._links is not None:
            self._links.close()
            self._links = None
        if self._state is not None:
            self._state.cleanup()
            self._state = None

    @property
    def alive(self) -> bool:
        """Whether QEMU still runs."""
        return self._process is not None and self._process.poll() is None

    # -- what one does with it ----------------------------------------------------------------

    @property
    def device(self) -> str:
        """Path of the first drive inside the guest, ``/dev/nvme0n1``."""
        if not self.devices:
            raise MeasurementError("this guest was started without drives")
        return self.devices[0]

    @property
    def session(self) -> Session:
        """The SSH session; MeasurementError if the guest is not running."""
        if self._session is None:
            raise MeasurementError("the guest is not running")
        return self._session

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float = 120.0,
        check: bool = True,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> Completed:
        """Run a command inside; see ``Session.run``. A dead guest is a GuestError with cause."""
        return self.session.run(
            argv, timeout_s=timeout_s, check=check, stdin=stdin, env=env, cwd=cwd
        )

    @property
    def destroy(self) -> str:
        """The first drive's identity for the guard: it is scratch and ours."""
        if self._serial is None:
            name = Path(self.device).name
            self._serial = self.run(["cat", f"/sys/block/{name}/device/serial"]).text.strip()
        return self._serial

    @property
    def scratch(self) -> str:
        """A folder inside, in RAM."""
        return "/run/guest"

    @property
    def python(self) -> tuple[str, ...]:
        """This environment's Python, which is inside under the same path."""
        return (sys.executable,)

    def harness(
        self,
        *words: str,
        timeout_s: float = 300.0,
        check: bool = True,
        env: Mapping[str, str] | None = None,
    ) -> Completed:
        """Run this project's own command inside, from the same environment."""
        argv = [sys.executable, "-m", "harness", *words]
        return self.run(argv, timeout_s=timeout_s, check=check, env=env, cwd=os.getcwd())

    def runner(self, argv: Sequence[str]) -> bytes | None:
        """For ``read_counters``: standard output, None if the command failed."""
        done = self.run(argv, check=False)
        return done.stdout if done.returncode == 0 else None

    def put(self, local: Path, remote: str) -> None:
        """Copy a file in. Files of the host from before the start are inside already."""
        self.session.put(local, remote)

    def get(self, remote: str, local: Path) -> None:
        """Copy a file out."""
        self.session.get(remote, local)

    @property
    def qmp(self) -> Qmp:
        """QEMU's control socket: ``guest.qmp("device_del", id="drive0")`` unplugs a drive."""
        if self._links is None:
            raise MeasurementError("the guest is not running")
        return self._links.qmp

    def console_text(self) -> str:
        """What the guest's kernel and init have said so far."""
        path = self._console_path
        return path.read_text(errors="replace") if path and path.exists() else ""

    def facts(self) -> dict[str, Any]:
        """Provenance for ``run.json``; of a guest that was started."""
        assert self.kernel is not None and self.accelerator is not None
        return {
            "qemu": version_of(self.binary),
            "kernel": self.kernel.release,
            "accelerator": self.accelerator.name,
            "accelerator_why": self.accelerator.why,
            "memory_bytes": self.memory_bytes,
            "cpus": self.cpus,
            "boot_s": self.boot_s,
            "drives": [
                {"device": drive.device, "size_bytes": drive.size_bytes} for drive in self.drives
            ],
        }

    # -- inside -------------------------------------------------------------------------------

    @property
    def _console_path(self) -> Path | None:
        if self._console_wanted is not None:
            return self._console_wanted
        return Path(self._state.name) / "console.log" if self._state else None

    def _start_once(self, deadline: float) -> None:
        self._state = tempfile.TemporaryDirectory(prefix="harness-guest-")
        folder = Path(self._state.name)
        kernel, accelerator = self.kernel, self.accelerator
        assert kernel is not None and accelerator is not None  # start() chose them
        secrets = Secrets.make()
        self._links = links = Links.make(self.port)
        settings = {
            "KERNEL_TREE": str(kernel.tree),
            "DRIVES": links.drive_addresses(self.drives),
        }
        initrd = folder / "initrd"
        initrd.touch(0o600)
        initrd.write_bytes(initramfs(kernel, settings, secrets.guest_files()))
        backing = [backing_file(folder, index, drive) for index, drive in enumerate(self.drives)]
        argv = qemu_argv(
            self.binary, accelerator, kernel.image, initrd, self._console_path or os.devnull,
            links, self.memory_bytes, self.cpus, list(zip(self.drives, backing, strict=True)),
            self._kernel_args,
        )  # fmt: skip
        with (folder / "qemu.log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-I", keeper.__file__, str(os.getpid()), str(self._limit_s),
                 str(folder), *argv],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                pass_fds=links.guest_fds(), start_new_session=True,
            )  # fmt: skip
        links.started()
        try:
            nodes = links.wait_ready(deadline)
        except NotReady as error:
            raise self._failure(str(error)) from None
        self.devices = tuple(f"/dev/{nodes[address]}" for address in settings["DRIVES"].split())
        links.qmp.handshake()
        client = connect_guest(
            links.port, secrets.host_key, secrets.user_key, deadline - time.monotonic()
        )
        self._session = Session(client, self._explain)

    def _explain(self, error: MeasurementError) -> HarnessError:
        """A slow command stays a slow command as long as the guest answers another one."""
        if isinstance(error, CommandTimeout) and self.alive and self.session.answers(_HANG_LIMIT_S):
            return error
        return self._failure(str(error))

    def _failure(self, what: str) -> GuestError | MachineError:
        """The error for ``what`` happened, with the cause found in console and QEMU's log."""
        status = None
        if self._process is not None:
            try:
                # A dying QEMU closes its sockets a moment before its keeper has its status.
                status = self._process.wait(timeout=1.0)
            except subprocess.TimeoutExpired:
                status = None
        log = Path(self._state.name, "qemu.log").read_text(errors="replace") if self._state else ""
        console = self.console_text()
        found = diagnose(console, log, status)
        tail = "\n".join(console.rstrip().splitlines()[-_CONSOLE_TAIL_LINES:])
        message = f"{what}: {found.cause}" + (f"\nconsole:\n{tail}" if tail else "")
        kind = MachineError if found.machine else GuestError
        return kind(message, fix=found.fix)
