"""Runs on another host as ``python3 -c``: unpack the loader, run it as root, remove it again.

Standard input carries a length (8 bytes, little-endian) and a tar archive of this folder, then
whatever the loader reads there. Standard output is the loader's. The folder is removed when the
loader ends, and it ends when the connection breaks, because its standard input does.
"""

import io
import os
import subprocess
import sys
import tarfile
import tempfile

NO_SUDO = 3


def main() -> int:
    """Exit status of the loader; NO_SUDO where it may not be run as root."""
    size = int.from_bytes(_exactly(8), "little")
    archive = _exactly(size)
    as_root = []
    if os.geteuid() != 0:
        as_root = ["sudo", "-n"]
        try:
            asked = subprocess.run([*as_root, "true"], stdin=subprocess.DEVNULL, check=False)
        except OSError:
            print("sudo: not installed, and not root", file=sys.stderr)
            return NO_SUDO
        if asked.returncode:
            return NO_SUDO
    with tempfile.TemporaryDirectory(prefix="kvflash-probe-") as folder:
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            tar.extractall(folder)
        words = [*as_root, "/usr/bin/python3", "-B", f"{folder}/loader.py", *sys.argv[1:]]
        return subprocess.run(words, check=False).returncode


def _exactly(size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = os.read(0, size - len(data))  # not one byte more: the rest is the loader's
        if not piece:
            raise SystemExit(1)
        data += piece
    return data


if __name__ == "__main__":
    raise SystemExit(main())
