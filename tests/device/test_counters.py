"""Every source of counters, on bytes: right values, and refusal of what is something else."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.errors import MeasurementError
from harness.device import counter_logs, counter_vendors
from harness.device.counter_reader import read_counters, run_here
from harness.device.counters import Counters, MediaTotals, delta
from harness.device.smart import Controller, data_units, parse_controller, parse_smart

U64 = st.integers(0, 2**64 - 1)


def log(size: int, fields: dict[tuple[int, int], int]) -> bytes:
    """``size`` zero bytes with little-endian integers at (offset, length)."""
    data = bytearray(size)
    for (offset, length), value in fields.items():
        data[offset : offset + length] = value.to_bytes(length, "little")
    return bytes(data)


def smart_log(written: int = 0, commands: int = 0, **femu: int) -> bytes:
    """A SMART log as FEMU fills it."""
    return log(
        512,
        {
            (32, 16): 7,
            (48, 16): written,
            (64, 16): 3,
            (80, 16): commands,
            (192, 4): femu.get("waf", 0),
            (200, 8): femu.get("host", 0),
            (208, 8): femu.get("moved", 0),
        },
    )


def identity(model: str, vendor: int = 0x1D1D, ctratt: int = 0) -> bytes:
    """Identify Controller with these fields."""
    data = bytearray(log(4096, {(0, 2): vendor, (96, 4): ctratt}))
    data[4:24] = b"vSSD0".ljust(20)
    data[24:64] = model.encode().ljust(40)
    data[64:72] = b"1.0".ljust(8)
    return bytes(data)


FEMU = identity("FEMU BlackBox-SSD Controller")


def test_smart_fields_are_where_the_specification_puts_them() -> None:
    data = bytearray(range(256)) * 2
    smart = parse_smart(bytes(data))
    assert smart.critical_warning == 0
    assert smart.available_spare_pct == 3
    assert smart.percentage_used == 5
    assert smart.data_units_read == int.from_bytes(bytes(range(32, 48)), "little")
    assert smart.data_units_written == int.from_bytes(bytes(range(48, 64)), "little")
    assert smart.host_read_commands == int.from_bytes(bytes(range(64, 80)), "little")
    assert smart.host_write_commands == int.from_bytes(bytes(range(80, 96)), "little")
    assert smart.power_on_hours == int.from_bytes(bytes(range(128, 144)), "little")
    assert smart.media_errors == int.from_bytes(bytes(range(160, 176)), "little")


def test_short_logs_are_errors_not_zeros() -> None:
    for parse in (parse_smart, counter_logs.femu_smart, counter_logs.ocp_smart):
        with pytest.raises(MeasurementError, match="has 100 bytes"):
            parse(bytes(100))
    with pytest.raises(MeasurementError, match="FDP statistics"):
        counter_logs.fdp_statistics(bytes(63))


def test_controller_identity() -> None:
    assert parse_controller(FEMU) == Controller(
        0x1D1D, "vSSD0", "FEMU BlackBox-SSD Controller", "1.0", False
    )
    assert parse_controller(identity("x", ctratt=1 << 19)).fdp


def test_data_units_round_up() -> None:
    assert [data_units(size) for size in (0, 1, 512_000, 512_001)] == [0, 1, 1, 2]


@given(host=U64, moved=U64)
def test_femu_smart_reads_host_and_moved_pages(host: int, moved: int) -> None:
    data = smart_log(host=host, moved=moved, waf=1)
    assert counter_logs.femu_smart(data) == MediaTotals("femu-smart", host + moved, host, None)


def test_femu_smart_of_older_femu_and_stock_qemu_is_no_counters() -> None:
    assert counter_logs.femu_smart(smart_log(written=132, commands=512)) is None


@given(host=st.integers(1, 2**40), moved=st.integers(0, 2**40))
def test_femu_vendor_log(host: int, moved: int) -> None:
    programmed = host + moved
    data = log(
        512,
        {(0, 4): min(programmed * 1000 // host, 2**32 - 1), (8, 8): host, (16, 8): moved,
         (24, 8): programmed},
    )  # fmt: skip
    found = counter_logs.femu_vendor_log(data)
    if programmed * 1000 // host >= 2**32:
        assert found is None
    else:
        assert found == MediaTotals("femu-c0", programmed, host, None)


def test_femu_vendor_log_refuses_another_layout() -> None:
    assert counter_logs.femu_vendor_log(bytes(512)) is None
    other = log(512, {(0, 4): 2600, (8, 8): 1000, (16, 8): 425, (24, 8): 1425})
    assert counter_logs.femu_vendor_log(other) is None


def test_fdp_statistics_of_a_real_femu_run() -> None:
    # 128 MiB fill and 4000 random 64 KiB writes: host, media and erased bytes (110 units of 4 MiB).
    data = log(64, {(0, 16): 396361728, (16, 16): 643280896, (32, 16): 461373440})
    assert counter_logs.fdp_statistics(data) == MediaTotals(
        "fdp", 643280896, 396361728, 1, 461373440
    )


def ocp_page(media: int, guid: str = "c5af1028eabff2a49c4f6f7cc914d5af") -> bytes:
    """An OCP C0h page."""
    return log(496, {(0, 16): media}) + bytes.fromhex(guid)


@given(media=st.integers(0, 2**128 - 1))
def test_ocp_is_known_by_its_guid(media: int) -> None:
    assert counter_logs.ocp_smart(ocp_page(media)) == MediaTotals("ocp", media, None, 1)
    assert counter_logs.ocp_smart(ocp_page(media, "00" * 16)) is None


INTEL = {
    "Intel Smart log": "nvme0",
    "Device stats": {
        "nand_bytes_written": {"normalized": 100, "raw": 2600},
        "host_bytes_written": {"normalized": 100, "raw": 1000},
    },
}
MICRON = {"Extended Smart Log Page : 0xFB": [{"Physical Media Units Written": "0x10000"}]}
MICRON_OLD = {"Extended Smart Log Page : 0xD0": [{"NAND Writes (Bytes Written)": "0x2000"}]}
SEAGATE = {
    "Seagate SMART Health Attributes": [
        {"attribute_name": "Physical Media Units Read", "attribute_value": "0x01"},
        {
            "attribute_name": "Physical Media Units Written",
            "attribute_value": "0x" + "0" * 29 + "abc",
        },
    ]
}


@pytest.mark.parametrize(
    ("vendor", "text", "expected"),
    [
        (0x8086, INTEL, MediaTotals("vendor-intel", 2600, 1000, 32 << 20)),
        (0x025E, INTEL, MediaTotals("vendor-intel", 2600, 1000, 32 << 20)),
        (0x1344, MICRON, MediaTotals("vendor-micron", 0x10000, None, 1)),
        (0x1344, MICRON_OLD, MediaTotals("vendor-micron", 0x2000, None, 1)),
        (0x1BB1, SEAGATE, MediaTotals("vendor-seagate", 0xABC, None, 1)),
        (0x1344, {"Extended Smart Log Page : 0xFB": []}, None),
        (0x8086, ["Device stats"], None),
        (0x9999, INTEL, None),
    ],
)
def test_vendor_logs(vendor: int, text: object, expected: MediaTotals | None) -> None:
    assert counter_vendors.parse_vendor(vendor, json.dumps(text).encode()) == expected


def test_vendor_log_that_is_no_json_is_no_counters() -> None:
    assert counter_vendors.parse_vendor(0x8086, b"NVMe status: INVALID_LOG") is None


class Drive:
    """A ``Runner`` that answers like one drive."""

    def __init__(self, identify: bytes, logs: dict[int, bytes], vendor: object = None) -> None:
        self.identify, self.logs, self.vendor = identify, logs, vendor

    def __call__(self, argv: Sequence[str]) -> bytes | None:
        if argv[1] == "id-ctrl":
            return self.identify
        if argv[1] == "get-log":
            wanted = int(argv[3].removeprefix("--log-id="))
            return self.logs.get(wanted)
        return json.dumps(self.vendor).encode() if self.vendor else None


def reading(drive: Drive) -> Counters:
    """Counters of a drive that answers so."""
    return read_counters("/dev/nvme0n1", drive)


def test_reader_finds_femu_before_c0() -> None:
    drive = Drive(FEMU, {2: smart_log(host=10, moved=5, waf=1500), 0xC0: ocp_page(1)})
    assert reading(drive).media == MediaTotals("femu-smart", 15, 10, None)


def test_reader_finds_newer_femu_page() -> None:
    page = log(512, {(0, 4): 1500, (8, 8): 10, (16, 8): 5, (24, 8): 15})
    assert reading(Drive(FEMU, {2: smart_log(), 0xC0: page})).source == "femu-c0"


def test_reader_prefers_fdp_statistics_where_the_drive_has_fdp() -> None:
    page = log(64, {(0, 16): 100, (16, 16): 150, (32, 16): 0})
    drive = Drive(
        identity("FEMU BlackBox-SSD Controller", ctratt=1 << 19),
        {2: smart_log(waf=1000), 0x22: page},
    )
    assert reading(drive).media == MediaTotals("fdp", 150, 100, 1, 0)


def test_reader_never_takes_temperatures_of_another_drive_for_pages() -> None:
    hot = smart_log(waf=1000, host=320, moved=325)
    found = reading(Drive(identity("Some Drive 1TB", 0x9999), {2: hot}))
    assert found.media is None
    assert found.source == "none"
    assert found.why_no_media is not None and "no WAF can be measured" in found.why_no_media


def test_reader_asks_the_vendor_last() -> None:
    assert reading(Drive(identity("P4510", 0x8086), {2: smart_log()}, INTEL)).source == (
        "vendor-intel"
    )
    ocp = Drive(identity("D7", 0x8086), {2: smart_log(), 0xC0: ocp_page(9)}, INTEL)
    assert reading(ocp).source == "ocp"


def test_no_nvme_drive_is_a_result() -> None:
    found = read_counters("/dev/null", run_here)
    assert found.media is None and found.smart is None
    assert found.why_no_media is not None and "/dev/null is no NVMe drive" in found.why_no_media
    assert found.to_json()["source"] == "none"


def test_delta_of_femu_is_exact() -> None:
    before = reading(Drive(FEMU, {2: smart_log(10, 5, host=100, moved=0, waf=1000)}))
    after = reading(Drive(FEMU, {2: smart_log(30, 9, host=300, moved=1400, waf=5666)}))
    change = delta(before, after)
    assert (change.host_units, change.media_units, change.waf) == (200, 1600, 8.0)
    assert (change.write_commands, change.host_written_bytes) == (4, 20 * 512_000)


def test_delta_of_ocp_takes_the_host_from_data_units() -> None:
    model = identity("OCP drive", 0x144D)
    before = reading(Drive(model, {2: smart_log(1000), 0xC0: ocp_page(0)}))
    after = reading(Drive(model, {2: smart_log(2000), 0xC0: ocp_page(1_331_200_000)}))
    assert delta(before, after).waf == pytest.approx(2.6)


def test_delta_without_media_counters_says_why() -> None:
    stock = Drive(identity("QEMU NVMe Ctrl", 0x1B36), {2: smart_log(132, 512)})
    change = delta(reading(stock), reading(stock))
    assert change.waf is None
    assert change.why_no_waf is not None and "QEMU NVMe Ctrl exposes no NAND writes" in (
        change.why_no_waf
    )
    json.dumps(change.to_json(), allow_nan=False)


def test_delta_without_writes_has_no_waf() -> None:
    idle = reading(Drive(FEMU, {2: smart_log(host=100, moved=1, waf=1010)}))
    change = delta(idle, idle)
    assert (
        change.waf is None and change.why_no_waf == "the host wrote nothing that the drive counted"
    )


def test_delta_refuses_another_drive_and_a_restart() -> None:
    first = reading(Drive(FEMU, {2: smart_log(host=100, waf=1000)}))
    other = reading(Drive(identity("FEMU other"), {2: smart_log(host=100, waf=1000)}))
    with pytest.raises(MeasurementError, match="not of the same drive"):
        delta(first, other)
    restarted = reading(Drive(FEMU, {2: smart_log(host=1, waf=1000)}))
    with pytest.raises(MeasurementError, match="ran backwards"):
        delta(first, restarted)
