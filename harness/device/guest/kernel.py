"""The guest's kernel: Debian's ``linux-image`` package, fetched and unpacked, never installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from harness.core.errors import MachineError
from harness.device.guest.cache import cache_dir, locked

_META_PACKAGE = "linux-image-amd64"
_FETCH_LIMIT_S = 300
_MODULES = (
    "virtio_pci", "9pnet_virtio", "9p", "overlay", "virtio_net",
    "crct10dif_generic", "nvme",
)  # fmt: skip
"""What the guest needs before it has the host's root; dependencies are found by name."""


@dataclass(frozen=True)
class GuestKernel:
    """A kernel ready to boot. ``tree`` holds ``lib/modules/<release>`` with a module index."""

    release: str
    image: Path
    tree: Path

    @property
    def modules_dir(self) -> Path:
        """``lib/modules/<release>`` inside the tree."""
        return self.tree / "lib" / "modules" / self.release

    def early_modules(self) -> list[Path]:
        """Module files the initramfs loads, in an order that satisfies their dependencies."""
        index = parse_modules_dep((self.modules_dir / "modules.dep").read_text())
        return [self.modules_dir / name for name in load_order(index, _MODULES)]


def parse_modules_dep(text: str) -> dict[str, list[str]]:
    """``modules.dep`` as {file: files it needs}; the format of depmod(8)."""
    index = {}
    for line in text.splitlines():
        name, _, needs = line.partition(":")
        index[name] = needs.split()
    return index


def load_order(index: dict[str, list[str]], wanted: tuple[str, ...]) -> list[str]:
    """Files to insert, dependencies first. A name without a file is built in and skipped."""
    by_name = {_module_name(file): file for file in index}
    order: list[str] = []

    def visit(file: str) -> None:
        # modules.dep lists dependencies outermost first.
        for need in reversed(index[file]):
            visit(need)
        if file not in order:
            order.append(file)

    for name in wanted:
        if name in by_name:
            visit(by_name[name])
    return order


def _module_name(file: str) -> str:
    return Path(file).name.split(".")[0].replace("-", "_")


def guest_kernel() -> GuestKernel:
    """The kernel guests boot, from the cache or fetched into it.

    ``HARNESS_GUEST_KERNEL`` names another package (``linux-image-5.10.0-…``). Without it the
    kernel whose headers are installed is preferred, so that the probe can be built inside the
    guest, else the one Debian's meta package points to.

    Raises
    ------
    MachineError
        The package is unknown to apt, cannot be fetched, or lacks a kernel.
    """
    if os.uname().machine != "x86_64":
        raise MachineError(f"guests need an x86-64 host, this is {os.uname().machine}")
    with locked("kernel"):
        package = os.environ.get("HARNESS_GUEST_KERNEL") or _choose_package()
        if package is None:
            return _newest_cached()
        release = package.removeprefix("linux-image-")
        tree = cache_dir() / "kernels" / release
        if not tree.is_dir():
            _fetch(package, tree)
        return _kernel_in(tree)


def _kernel_in(tree: Path) -> GuestKernel:
    images = sorted((tree / "boot").glob("vmlinuz-*"))
    if not images:
        raise MachineError(f"no kernel in {tree}", fix=f"remove {tree}; it is then fetched again")
    return GuestKernel(images[0].name.removeprefix("vmlinuz-"), images[0], tree)


def _choose_package() -> str | None:
    headers = sorted(Path("/usr/src").glob("linux-headers-*-amd64"), reverse=True)
    for folder in headers:
        package = folder.name.replace("headers", "image", 1)
        if _known_to_apt(package) or (cache_dir() / "kernels" / package[12:]).is_dir():
            return package
    depends = _apt_cache("depends", _META_PACKAGE)
    match = re.search(r"Depends: (linux-image-\d\S*)", depends)
    return match.group(1) if match else None


def _known_to_apt(package: str) -> bool:
    policy = _apt_cache("policy", package)
    return "Candidate:" in policy and "Candidate: (none)" not in policy


def _apt_cache(*words: str) -> str:
    try:
        return subprocess.run(
            ["apt-cache", *words], capture_output=True, text=True, timeout=60, check=False
        ).stdout
    except FileNotFoundError:
        return ""


def _newest_cached() -> GuestKernel:
    trees = sorted((cache_dir() / "kernels").glob("*"), key=lambda path: path.stat().st_mtime)
    if not trees:
        raise MachineError(
            f"no guest kernel: apt does not know {_META_PACKAGE} and none was kept from before",
            fix="run `apt-get update` (guests boot a Debian kernel, which is fetched but not"
            " installed), or name a package in HARNESS_GUEST_KERNEL",
        )
    return _kernel_in(trees[-1])


def _fetch(package: str, tree: Path) -> None:
    """Download and unpack ``package`` beside ``tree``, index its modules, rename it to ``tree``."""
    tree.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=".fetch-", dir=tree.parent))
    try:
        _tool(["apt-get", "download", "-q", package], work, "apt-get update")
        archives = list(work.glob("*.deb"))
        if len(archives) != 1:
            raise MachineError(f"apt-get download {package} left {len(archives)} packages")
        _tool(["dpkg-deb", "-x", archives[0].name, "tree"], work, "apt-get install dpkg")
        unpacked = work / "tree"
        for modules in (unpacked / "lib" / "modules").iterdir():
            _tool(["depmod", "-b", "tree", modules.name], work, "apt-get install kmod")
            _link_headers(modules)
        unpacked.chmod(0o755)
        unpacked.rename(tree)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _link_headers(modules: Path) -> None:
    """Point ``build`` and ``source`` at where Debian's header packages live (or will)."""
    release = modules.name
    for name, package in (
        ("build", f"linux-headers-{release}"),
        ("source", f"linux-headers-{release.removesuffix('-amd64')}-common"),
    ):
        link = modules / name
        link.unlink(missing_ok=True)
        link.symlink_to(Path("/usr/src") / package)


def _tool(argv: list[str], where: Path, fix: str) -> None:
    try:
        done = subprocess.run(
            argv, cwd=where, capture_output=True, text=True, timeout=_FETCH_LIMIT_S, check=False
        )
    except FileNotFoundError as error:
        raise MachineError(f"{argv[0]} is missing, guests need it", fix=fix) from error
    except subprocess.TimeoutExpired as error:
        raise MachineError(f"{' '.join(argv)} took more than {_FETCH_LIMIT_S} s") from error
    if done.returncode != 0:
        raise MachineError(
            f"{' '.join(argv)} failed: {(done.stderr.strip() or 'no message').splitlines()[-1]}",
            fix=fix,
        )
