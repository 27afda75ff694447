"""WAF from a drive's own counters: exact where they allow it, a reason where they do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.calibrate import Calibration
from harness.calibrate.counters import counter_sample
from harness.calibrate.export import export
from harness.calibrate.model import WafSample
from harness.core.profiles import load_profile
from harness.device.counters import Counters, MediaTotals
from harness.device.smart import Controller
from tests.calibrate.builders import run_folder, wear


def reading(media: MediaTotals | None, why: str | None = None, model: str = "ACME 1") -> dict:
    drive = Controller(vendor_id=1, serial="S", model=model, firmware="F", fdp=False)
    found = Counters(controller=drive, media=media, why_no_media=why)
    return {"block": None, "drive": found.to_json()}


def replay(before: Any, after: Any) -> dict[str, Any]:
    return {"counters": {"before": before, "after": after}}


def pages(host: int, moved: int, source: str = "femu-smart") -> MediaTotals:
    return MediaTotals(source, host + moved, host, None)


def test_femu_pages_give_its_waf(tmp_path: Path) -> None:
    result = replay(reading(pages(1000, 10)), reading(pages(3000, 3010)))
    found = counter_sample(result, "run", "replay.json")
    assert isinstance(found, WafSample)
    assert found.cumulative == pytest.approx((2000 + 3000) / 2000)
    assert (found.source, found.profile, found.steady) == ("femu", "ACME 1", None)
    file = export([run_folder(tmp_path, replay=result)])
    assert [sample.source for sample in file.waf] == ["femu"]
    assert not any(item.what == "WAF of real FEMU" for item in file.not_measured)


def test_a_replay_in_a_guest_names_the_emulated_drive_and_its_fill(tmp_path: Path) -> None:
    profile = load_profile("1tb-0.3dwpd")
    result = {
        **replay(reading(pages(1000, 10)), reading(pages(3000, 3010))),
        "profile": profile.model_dump(mode="json"), "fills": 2,
    }  # fmt: skip
    (found,) = export([run_folder(tmp_path, replay_femu=result)]).waf
    assert (found.source, found.profile, found.policy) == ("femu", profile.name, profile.policy)
    assert (found.line_bytes, found.precondition) == (profile.line_bytes, "2 sequential fills")
    assert found.cumulative == 2.5


def test_a_drives_bytes_are_compared_with_the_hosts_data_units() -> None:
    before, after = reading(MediaTotals("ocp", 0, None, 1)), reading(
        MediaTotals("ocp", 1_024_000_000, None, 1)
    )  # fmt: skip
    for when, units in ((before, 0), (after, 1000)):
        when["drive"]["smart"] = {"data_units_written": units}
    found = counter_sample(replay(before, after), "run", "replay.json")
    assert isinstance(found, WafSample)
    assert found.source == "device-counters"
    assert found.cumulative == pytest.approx(2.0)  # 512 MB by the host, 1024 MB to the flash


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (reading(None, "no known log"), reading(None, "no known log"), "no known log"),
        (reading(pages(10, 0)), reading(pages(10, 0)), "wrote nothing"),
        (reading(pages(10, 0)), reading(pages(5, 0)), "wrote nothing"),
        (reading(pages(0, 0)), reading(pages(10, 5, "femu-c0")), "not of the same drive"),
        (reading(pages(0, 0)), reading(pages(10, 5), model="Other"), "not of the same drive"),
        (reading(MediaTotals("fdp", 0, 0, 1)), reading(MediaTotals("fdp", 90, 100, 1)),
         "too coarse"),
    ],
)  # fmt: skip
def test_what_gives_no_waf_says_why(before: dict, after: dict, words: str) -> None:
    found = counter_sample(replay(before, after), "run", "replay.json")
    assert isinstance(found, str) and words in found


@pytest.mark.parametrize(
    "result", [{}, {"counters": None}, replay({"block": None, "drive": None}, None)]
)
def test_devices_without_counters_give_nothing(result: dict[str, Any]) -> None:
    assert counter_sample(result, "run", "replay.json") is None


def test_reasons_reach_the_file_and_the_model_still_speaks(tmp_path: Path) -> None:
    result = replay(reading(None, "no known log"), reading(None, "no known log"))
    file = export([run_folder(tmp_path, wear=wear(), replay_timed=result)])
    assert any("no known log" in item.reason for item in file.not_measured)
    (constant,) = (c for c in file.constants if c.name == "WAF")
    assert constant.status == "modelled"


def test_a_drive_that_was_measured_speaks_before_a_model_that_is_not_steady(
    tmp_path: Path,
) -> None:
    result = replay(reading(pages(0, 0, "ocp")), reading(pages(1000, 500, "ocp")))
    waf = {"first": 1.1, "cumulative": 1.4, "steady": None, "low": None, "high": None}
    file = export([run_folder(tmp_path, wear=wear(waf=waf), replay=result)])
    found = Calibration(file).waf()
    assert (found.value, found.source) == (1.5, "measured")
    assert found.extrapolated  # one replay is no steady state
