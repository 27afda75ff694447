"""The bpf(2) calls that are made without bcc: what it cannot load, and what the pump asks."""

from __future__ import annotations

import ctypes
import os
import platform
import struct

_NUMBERS = {"x86_64": 321, "aarch64": 280, "s390x": 351, "ppc64le": 361, "riscv64": 280}
_MAP_LOOKUP, _PROG_LOAD, _OBJ_GET_INFO, _RAW_TRACEPOINT_OPEN = 1, 5, 15, 17
_TRACING, _RAW_TP = 26, 23  # BPF_PROG_TYPE_TRACING, BPF_TRACE_RAW_TP
_LOG_BYTES = 1 << 20
_MISSES_AT = 208  # struct bpf_prog_info.recursion_misses, since Linux 5.12

_libc = ctypes.CDLL(None, use_errno=True)


def _call(command: int, attributes: bytes) -> tuple[int, bytes]:
    """What the kernel returns, and the attributes as it leaves them."""
    buffer = ctypes.create_string_buffer(attributes, max(len(attributes), 128))
    number = _NUMBERS.get(platform.machine())
    if number is None:
        raise OSError(f"bpf(2) is not known for {platform.machine()}")
    returned = _libc.syscall(number, command, buffer, len(buffer))
    if returned < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"bpf({command}): {os.strerror(error)}")
    return returned, buffer.raw


def load_typed(name: str, code: bytes, btf_id: int) -> int:
    """Load a program for the raw tracepoint with this type id; its descriptor.

    OSError, with the end of what the verifier says, if the kernel refuses it.
    """
    code_buffer = ctypes.create_string_buffer(code, len(code))
    license_ = ctypes.create_string_buffer(b"GPL")
    log = ctypes.create_string_buffer(_LOG_BYTES)

    def load(log_level: int) -> int:
        attributes = struct.pack(
            "<IIQQIIQII16sIIIIQIIQII", _TRACING, len(code) // 8, ctypes.addressof(code_buffer),
            ctypes.addressof(license_), log_level, len(log) if log_level else 0,
            ctypes.addressof(log) if log_level else 0, 0, 0, name.encode()[:15], 0, _RAW_TP,
            0, 0, 0, 0, 0, 0, 0, btf_id,
        )  # fmt: skip
        return _call(_PROG_LOAD, attributes)[0]

    try:
        return load(0)
    except OSError:
        try:
            return load(1)
        except OSError as error:
            said = log.value.decode("utf-8", "replace").strip()[-500:]
            raise OSError(error.errno, f"{error.strerror}\n{said}") from None


def attach_typed(program_fd: int) -> int:
    """Attach a program of ``load_typed`` to its tracepoint; it runs while the result is open."""
    return _call(_RAW_TRACEPOINT_OPEN, struct.pack("<QII", 0, program_fd, 0))[0]


def possible_cpus() -> int:
    """CPUs that per-CPU maps have room for."""
    with open("/sys/devices/system/cpu/possible") as file:
        return int(file.read().strip().replace("-", ",").split(",")[-1]) + 1


def percpu_values(map_fd: int, key: int) -> list[int]:
    """The u64 of every possible CPU in a per-CPU array."""
    cpus = possible_cpus()
    key_buffer = ctypes.c_uint32(key)
    values = (ctypes.c_uint64 * cpus)()
    _call(
        _MAP_LOOKUP,
        struct.pack("<IIQQQ", map_fd, 0, ctypes.addressof(key_buffer), ctypes.addressof(values), 0),
    )
    return list(values)


def recursion_misses(program_fd: int) -> int | None:
    """Events that a program missed because it was already running on that CPU; None if unknown."""
    info = ctypes.create_string_buffer(256)
    wanted = struct.pack("<IIQ", program_fd, len(info), ctypes.addressof(info))
    _, reply = _call(_OBJ_GET_INFO, wanted)
    if struct.unpack_from("<I", reply, 4)[0] < _MISSES_AT + 8:
        return None
    return int(struct.unpack_from("<Q", info, _MISSES_AT)[0])
