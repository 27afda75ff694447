"""How numbers are read from tolerant JSON and printed."""

from __future__ import annotations

from typing import Any

import pytest

from harness.report import values
from harness.report.values import ABSENT, NBSP


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"), (2.6031, "2.60"), (0.0123, "0.0123"), (12345.6, "12,346"), (1234567, "1,234,567"),
        (99.94, "99.9"), (100.4, "100"), (-3.14159, "-3.14"), (0.000012, "1.20e-05"), (5.0, "5.00"),
        (5, "5"), (0.0, "0"), (1e6, "1,000,000"),
        (9.996, "10.0"), (99.96, "100"),
    ],
)  # fmt: skip
def test_plain_numbers_have_three_digits(value: float, shown: str) -> None:
    assert values.plain(value) == shown


@pytest.mark.parametrize(
    ("share", "shown"), [(1, "100"), (0.5, "50.0"), (0.99996, ">99.9"), (0.4471, "44.7"), (0, "0")]
)
def test_a_share_below_one_is_never_printed_as_all(share: float, shown: str) -> None:
    assert values.percent(share).text == f"{shown}{NBSP}%"


def test_intervals_say_median_and_bounds() -> None:
    shown = values.interval({"median": 2.5, "low": 2.0, "high": 3.1}, "a.b")
    assert (shown.text, shown.exact, shown.key) == (f"2.50{NBSP}(2.00–3.10)", 2.5, "a.b.median")
    assert values.interval({"median": 2.5}).text == "2.50"
    assert values.interval(None) is ABSENT


def test_units_follow_the_size_of_the_number() -> None:
    assert values.decimal_bytes(547.5e12).text == f"548{NBSP}TB"
    assert values.decimal_bytes(3e16).text == f"30.0{NBSP}PB"
    assert values.nanoseconds(189_000).text == f"189{NBSP}µs"
    assert values.days(111).text == f"111{NBSP}d"
    assert values.days(2000).text == f"5.48{NBSP}y"
    assert values.days(2000).exact == 2000


@pytest.mark.parametrize("odd", [None, True, "x", [], {}, float("nan"), float("inf")])
def test_what_is_no_number_is_a_dash(odd: Any) -> None:
    assert values.size(odd) is ABSENT
    assert values.duration(odd) is ABSENT
    assert values.percent(odd) is ABSENT
    assert values.number(odd) is None


def test_dig_follows_keys_and_indices_and_never_raises() -> None:
    data = {"a": [{"b": 1}, "text"]}
    assert values.dig(data, "a.0.b") == 1
    for path in ("a.1.b", "a.7", "a.b", "x.y.z", "a.0.b.c"):
        assert values.dig(data, path) is None
    assert values.records(data, "a") == [{"b": 1}]
    assert values.strings(data, "a") == ["text"]
    assert values.strings("one") == ["one"]
