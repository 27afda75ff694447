"""The BTF reader, on a hand-made blob and on the running kernel."""

from __future__ import annotations

import struct

import pytest
from btf import VMLINUX, Btf, BtfError

_INT, _PTR, _STRUCT, _UNION, _ENUM, _TYPEDEF, _CONST, _PROTO = 1, 2, 4, 5, 6, 8, 10, 13


class _Maker:
    """Writes BTF: Documentation/bpf/btf.rst."""

    def __init__(self) -> None:
        self.strings = b"\0"
        self.types = b""

    def name(self, text: str) -> int:
        if not text:
            return 0
        at = len(self.strings)
        self.strings += text.encode() + b"\0"
        return at

    def type(self, kind: int, name: str, size: int, tail: bytes = b"", count: int = 0) -> None:
        info = kind << 24 | count
        self.types += struct.pack("<III", self.name(name), info, size) + tail

    def struct(
        self, name: str, size: int, *members: tuple[str, int, int], union: bool = False
    ) -> None:
        tail = b"".join(struct.pack("<III", self.name(n), t, bits) for n, t, bits in members)
        self.type(_UNION if union else _STRUCT, name, size, tail, len(members))

    def blob(self) -> bytes:
        head = struct.pack(
            "<HBBIIIII", 0xEB9F, 1, 0, 24, 0, len(self.types), len(self.types), len(self.strings)
        )
        return head + self.types + self.strings


def _sample() -> bytes:
    make = _Maker()
    make.type(_INT, "int", 4, struct.pack("<I", 32))  # 1
    make.struct("iter", 12, ("sector", 1, 0), ("size", 1, 32))  # 2
    make.struct("", 8, ("inside", 1, 0), ("other", 1, 0), union=True)  # 3
    make.struct("outer", 24, ("a", 1, 0), ("it", 2, 64), ("", 3, 160))  # 4
    make.type(_PTR, "", 4)  # 5: outer *
    make.type(_TYPEDEF, "status_t", 1)  # 6
    make.type(_CONST, "", 6)  # 7
    proto = struct.pack("<IIIIII", 0, 5, 0, 5, 0, 7)
    make.type(_PROTO, "", 0, proto, 3)  # 8: (data, outer *, const status_t)
    make.type(_PTR, "", 8)  # 9
    make.type(_TYPEDEF, "btf_trace_thing", 9)  # 10
    values = struct.pack("<IiIi", make.name("ZERO"), 0, make.name("TEN"), 10)
    make.type(_ENUM, "numbers", 4, values, 2)  # 11
    return make.blob()


def test_offsets_reach_through_nested_and_anonymous_members() -> None:
    btf = Btf(_sample())
    assert btf.offset("outer", "a") == 0
    assert btf.offset("outer", "it.size") == 12
    assert btf.offset("outer", "inside") == 20
    assert btf.has("outer", "other") and not btf.has("outer", "absent")


def test_enums_and_tracepoint_arguments_are_read() -> None:
    btf = Btf(_sample())
    assert btf.enum("numbers") == {"ZERO": 0, "TEN": 10}
    assert btf.tracepoint_args("thing") == ["outer*", "status_t"]


@pytest.mark.parametrize(
    "ask",
    [
        lambda btf: btf.offset("nothing", "a"),
        lambda btf: btf.offset("outer", "nothing"),
        lambda btf: btf.enum("outer"),
        lambda btf: btf.tracepoint_args("nothing"),
    ],
)
def test_what_is_not_there_is_an_error(ask) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(BtfError):
        ask(Btf(_sample()))


@pytest.mark.parametrize("blob", [b"", b"\xeb\x9f" * 20, _sample()[:100]])
def test_a_malformed_blob_is_an_error(blob: bytes) -> None:
    with pytest.raises(BtfError):
        Btf(blob)


def test_the_running_kernel_gives_all_that_the_probe_needs() -> None:
    import layout

    try:
        btf = Btf.load(VMLINUX)
    except BtfError as error:
        pytest.skip(str(error))
    macros = layout.kernel_macros(btf)
    assert macros["OP_READ"] == 0 and macros["OP_WRITE"] == 1
    assert macros["COMPLETE_BYTES"] == macros["COMPLETE_STATUS"] + 1
    assert layout.meaning(btf)["ops"]["1"] == "W"
