"""Read the kernel's own type information (BTF) with the standard library alone.

Only what the probe needs: byte offsets of structure members, values of enumerators, and the
argument lists of raw tracepoints. Format: Documentation/bpf/btf.rst of the kernel.
"""

from __future__ import annotations

import struct

VMLINUX = "/sys/kernel/btf/vmlinux"

_PTR, _ARRAY, _STRUCT, _UNION, _ENUM, _TYPEDEF = 2, 3, 4, 5, 6, 8
_FUNC_PROTO, _ENUM64 = 13, 19
_NAMED_ALIASES = {8, 9, 10, 11, 18}  # typedef, volatile, const, restrict, type tag
# Bytes after the 12-byte head of each kind, as (constant, bytes per member).
_TAIL = {1: (4, 0), 3: (12, 0), 4: (0, 12), 5: (0, 12), 6: (0, 8), 13: (0, 8), 14: (4, 0),
         15: (0, 12), 17: (4, 0), 19: (0, 12)}  # fmt: skip


class BtfError(Exception):
    """The BTF is missing, malformed, or lacks what was asked for."""


class Btf:
    """The types of one BTF blob, indexed by id.

    >>> Btf.load().offset("request", "__sector")
    48
    """

    def __init__(self, blob: bytes) -> None:
        try:
            magic, _, _, header, type_at, type_len, str_at, str_len = struct.unpack_from(
                "<HBBIIIII", blob
            )
        except struct.error as error:
            raise BtfError("BTF is truncated") from error
        if magic != 0xEB9F:
            raise BtfError("not little-endian BTF")
        if len(blob) < header + max(type_at + type_len, str_at + str_len):
            raise BtfError("BTF is truncated")
        self._types = blob[header + type_at : header + type_at + type_len]
        self._strings = blob[header + str_at : header + str_at + str_len]
        self._heads = self._index()

    @classmethod
    def load(cls, path: str = VMLINUX) -> Btf:
        """The BTF of the running kernel; BtfError if it has none."""
        try:
            with open(path, "rb") as file:
                return cls(file.read())
        except OSError as error:
            raise BtfError(f"{path}: {error.strerror}") from error

    def _index(self) -> list[tuple[int, int, int, int]]:
        """(name offset, info, size or type, byte offset of the tail) of each type; id 0 is void."""
        heads = [(0, 0, 0, 0)]
        at, end, unpack = 0, len(self._types), struct.Struct("<III").unpack_from
        try:
            while at < end:
                name, info, size = unpack(self._types, at)
                heads.append((name, info, size, at + 12))
                fixed, each = _TAIL.get((info >> 24) & 31, (0, 0))
                at += 12 + fixed + each * (info & 0xFFFF)
        except struct.error as error:
            raise BtfError("BTF is truncated") from error
        return heads

    def _text(self, offset: int) -> str:
        return self._strings[offset : self._strings.index(b"\0", offset)].decode()

    def _find(self, name: str, kinds: tuple[int, ...]) -> int:
        at = self._strings.find(b"\0" + name.encode() + b"\0") + 1
        if at:
            for number, (name_at, info, _, _) in enumerate(self._heads):
                if name_at == at and ((info >> 24) & 31) in kinds:
                    return number
        raise BtfError(f"the kernel's BTF has no type {name}")

    def _resolve(self, number: int) -> int:
        """Follow typedefs and qualifiers."""
        while ((self._heads[number][1] >> 24) & 31) in _NAMED_ALIASES:
            number = self._heads[number][2]
        return number

    def _members(self, number: int) -> list[tuple[str, int, int]]:
        """(name, type, bit offset) of a structure or union."""
        _, info, _, tail = self._heads[number]
        members = []
        for index in range(info & 0xFFFF):
            name, type_, offset = struct.unpack_from("<III", self._types, tail + 12 * index)
            members.append((self._text(name), type_, offset & 0xFFFFFF if info >> 31 else offset))
        return members

    def _member(self, number: int, wanted: str) -> tuple[int, int] | None:
        """(type, bit offset) of a member, also inside anonymous structures and unions."""
        for name, type_, offset in self._members(number):
            if name == wanted:
                return type_, offset
            inner = self._resolve(type_)
            if not name and ((self._heads[inner][1] >> 24) & 31) in (_STRUCT, _UNION):
                found = self._member(inner, wanted)
                if found is not None:
                    return found[0], offset + found[1]
        return None

    def offset(self, structure: str, path: str) -> int:
        """Byte offset of member ``path`` ("bi_iter.bi_sector") in ``structure``."""
        number, bits = self._find(structure, (_STRUCT,)), 0
        for name in path.split("."):
            found = self._member(self._resolve(number), name)
            if found is None:
                raise BtfError(f"struct {structure} has no member {path}")
            number, bits = found[0], bits + found[1]
        if bits % 8:
            raise BtfError(f"struct {structure}: {path} is a bit field")
        return bits // 8

    def has(self, structure: str, path: str) -> bool:
        """Whether the running kernel's ``structure`` has ``path``."""
        try:
            self.offset(structure, path)
        except BtfError:
            return False
        return True

    def enum(self, name: str) -> dict[str, int]:
        """Enumerators of a named enum and their values."""
        _, info, _, tail = self._heads[self._find(name, (_ENUM, _ENUM64))]
        step = 8 if (info >> 24) & 31 == _ENUM else 12
        values = {}
        for index in range(info & 0xFFFF):
            text, value = struct.unpack_from("<Ii", self._types, tail + step * index)
            values[self._text(text)] = value
        return values

    def tracepoint_id(self, tracepoint: str) -> int:
        """Type id by which programs attach to a raw tracepoint; BtfError if there is none."""
        return self._find(f"btf_trace_{tracepoint}", (_TYPEDEF,))

    def tracepoint_args(self, tracepoint: str) -> list[str]:
        """Types of a raw tracepoint's arguments: "struct request *" as "request*", else the name.

        Source of truth: ``typedef void (*btf_trace_NAME)(void *, args...)`` in the BTF.
        """
        number = self._resolve(self.tracepoint_id(tracepoint))
        if (self._heads[number][1] >> 24) & 31 == _PTR:
            number = self._resolve(self._heads[number][2])
        _, info, _, tail = self._heads[number]
        if (info >> 24) & 31 != _FUNC_PROTO:
            raise BtfError(f"btf_trace_{tracepoint} is not a function")
        params = [
            struct.unpack_from("<II", self._types, tail + 8 * index)[1]
            for index in range(info & 0xFFFF)
        ]
        return [self._type_name(type_) for type_ in params[1:]]  # the first is tracing's own

    def _type_name(self, number: int) -> str:
        stars = ""
        while True:
            name, info, target, _ = self._heads[number]
            kind = (info >> 24) & 31
            if kind == _TYPEDEF or (kind != _PTR and kind not in _NAMED_ALIASES):
                return (self._text(name) if number else "void") + stars
            stars += "*" if kind == _PTR else ""
            number = target
