"""What goes into starting a guest: keys, the lines to QEMU, and QEMU's command line."""

from __future__ import annotations

import io
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import paramiko

from harness.device.guest.accel import Accelerator
from harness.device.guest.drives import Drive, pci_address
from harness.device.guest.qmp import Qmp

_KERNEL_ARGS = (
    "console=ttyS0", "loglevel=5", "panic=-1", "mitigations=off", "nokaslr", "audit=0",
    "random.trust_cpu=on", "net.ifnames=0", "rdinit=/init",
)  # fmt: skip

_SSHD_CONFIG = b"""\
HostKey /run/guest/host_key
AuthorizedKeysFile /run/guest/authorized_keys
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
AllowUsers root
UsePAM no
StrictModes no
PidFile none
UseDNS no
PrintMotd no
AcceptEnv *
Subsystem sftp internal-sftp
"""


@dataclass(frozen=True)
class Secrets:
    """Keys of one guest's life: the guest proves itself by one, the harness by the other."""

    host_key: paramiko.PKey
    user_key: paramiko.PKey

    @classmethod
    def make(cls) -> Secrets:
        """Two fresh P-256 keys, kept in memory and in the guest's initramfs only."""
        return cls(paramiko.ECDSAKey.generate(), paramiko.ECDSAKey.generate())

    def guest_files(self) -> dict[str, bytes]:
        """sshd's files inside the guest."""
        pem = io.StringIO()
        self.host_key.write_private_key(pem)
        user = f"{self.user_key.get_name()} {self.user_key.get_base64()}\n"
        return {
            "host_key": pem.getvalue().encode(),
            "authorized_keys": user.encode(),
            "sshd_config": _SSHD_CONFIG,
        }


class NotReady(Exception):
    """The guest did not come up; the message says how far it came."""


class Links:
    """The lines between us and one QEMU: control, the guest's progress, a port for SSH.

    Control and progress are socket pairs inherited by QEMU: nothing to find, to race for or to
    clean up in the file system.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        control, self._control = socket.socketpair()
        self._status, self._guest_status = socket.socketpair()
        self.qmp = Qmp(control)
        self._buffer = b""

    @classmethod
    def make(cls, port: int | None) -> Links:
        """Lines with the wanted ``port``, or one that is free now."""
        if port is None:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port = probe.getsockname()[1]
        return cls(port)

    def guest_fds(self) -> tuple[int, int]:
        """Descriptors QEMU must inherit: control, progress."""
        return self._control.fileno(), self._guest_status.fileno()

    def started(self) -> None:
        """QEMU has its ends now; ours of them are closed, so that its death is seen."""
        self._control.close()
        self._guest_status.close()

    def drive_addresses(self, drives: Sequence[Drive]) -> str:
        """PCI addresses of the drives, for the guest's configuration."""
        return " ".join(pci_address(index) for index in range(len(drives)))

    def wait_ready(self, deadline: float) -> dict[str, str]:
        """Follow the guest's progress until sshd listens; PCI address -> node of every drive.

        NotReady if the guest gives up, ends, or is not there by ``deadline``.
        """
        nodes: dict[str, str] = {}
        reached = "power on"
        while True:
            line = self.status_line(deadline)
            if line is None:
                raise NotReady(f"the guest did not come up (last seen: {reached})")
            word, _, rest = line.partition(" ")
            if word == "READY":
                return nodes
            if word == "FAIL":
                raise NotReady(f"the guest gave up: {rest}")
            if word == "DRIVE":
                address, _, node = rest.partition(" ")
                nodes[address] = node
            reached = rest

    def status_line(self, deadline: float) -> str | None:
        """The guest's next progress line; None if QEMU ended or ``deadline`` passed."""
        while b"\n" not in self._buffer:
            self._status.settimeout(max(0.01, deadline - time.monotonic()))
            try:
                data = self._status.recv(4096)
            except OSError:
                return None
            if not data:
                return None
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode(errors="replace").strip()

    def close(self) -> None:
        """Close every end that is still ours."""
        self.started()
        self._status.close()
        self.qmp.close()


def qemu_argv(
    binary: str,
    accelerator: Accelerator,
    kernel: Path,
    initrd: Path,
    console: Path | str,
    links: Links,
    memory_bytes: int,
    cpus: int,
    drives: Sequence[tuple[Drive, Path]],
    kernel_args: Sequence[str],
) -> list[str]:
    """QEMU's command line. The network lets nothing out and only SSH on loopback in."""
    control, status = links.guest_fds()
    argv = [
        binary, *accelerator.argv, "-m", str(memory_bytes >> 20), "-smp", str(cpus),
        "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
        "-kernel", str(kernel), "-initrd", str(initrd),
        "-append", " ".join([*_KERNEL_ARGS, *kernel_args]),
        "-chardev", f"file,id=console,path={str(console).replace(',', ',,')}",
        "-serial", "chardev:console",
        "-chardev", f"socket,id=status,fd={status}", "-serial", "chardev:status",
        "-chardev", f"socket,id=control,fd={control}", "-mon", "chardev=control,mode=control",
        "-fsdev", "local,id=host,path=/,security_model=none,readonly=on,multidevs=remap",
        "-device", "virtio-9p-pci,fsdev=host,mount_tag=host",
        "-netdev", f"user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:{links.port}-:22",
        "-device", "virtio-net-pci,netdev=net,romfile=",
    ]  # fmt: skip
    for index, (drive, backing) in enumerate(drives):
        argv += drive.argv(index, backing)
    return argv
