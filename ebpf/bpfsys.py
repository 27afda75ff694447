"""The three bpf(2) calls that are needed once the probe runs, without bcc."""

from __future__ import annotations

import ctypes
import os
import platform
import struct

_NUMBERS = {"x86_64": 321, "aarch64": 280, "s390x": 351, "ppc64le": 361, "riscv64": 280}
_MAP_LOOKUP, _OBJ_GET_INFO = 1, 15
_MISSES_AT = 208  # struct bpf_prog_info.recursion_misses, since Linux 5.12

_libc = ctypes.CDLL(None, use_errno=True)


def _bpf(command: int, attributes: bytes) -> bytes:
    buffer = ctypes.create_string_buffer(attributes, max(len(attributes), 128))
    number = _NUMBERS.get(platform.machine())
    if number is None:
        raise OSError(f"bpf(2) is not known for {platform.machine()}")
    if _libc.syscall(number, command, buffer, len(buffer)) < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"bpf({command}): {os.strerror(error)}")
    return buffer.raw


def possible_cpus() -> int:
    """CPUs that per-CPU maps have room for."""
    with open("/sys/devices/system/cpu/possible") as file:
        return int(file.read().strip().replace("-", ",").split(",")[-1]) + 1


def percpu_values(map_fd: int, key: int) -> list[int]:
    """The u64 of every possible CPU in a per-CPU array."""
    cpus = possible_cpus()
    key_buffer = ctypes.c_uint32(key)
    values = (ctypes.c_uint64 * cpus)()
    _bpf(
        _MAP_LOOKUP,
        struct.pack("<IIQQQ", map_fd, 0, ctypes.addressof(key_buffer), ctypes.addressof(values), 0),
    )
    return list(values)


def recursion_misses(program_fd: int) -> int | None:
    """Events that a program missed because it was already running on that CPU; None if unknown."""
    info = ctypes.create_string_buffer(256)
    reply = _bpf(_OBJ_GET_INFO, struct.pack("<IIQ", program_fd, len(info), ctypes.addressof(info)))
    if struct.unpack_from("<I", reply, 4)[0] < _MISSES_AT + 8:
        return None
    return int(struct.unpack_from("<Q", info, _MISSES_AT)[0])
