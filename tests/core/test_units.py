from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.errors import UsageError
from harness.core.units import format_duration, format_size, parse_size


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("4096", 4096),
        ("1TB", 10**12),
        ("1 TiB", 2**40),
        ("8GiB", 8 * 2**30),
        ("1.5 KiB", 1536),
        ("128k", 128_000),
        (512, 512),
    ],
)
def test_parse_size(text: str | int, size_bytes: int) -> None:
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize("text", ["", "-1", "x", "1 XB", "1.0001 KiB", -5, True, "1e9"])
def test_nonsense_is_refused(text: str | int) -> None:
    with pytest.raises(UsageError):
        parse_size(text)


@given(st.integers(min_value=0, max_value=2**60))
def test_a_bare_number_is_bytes(size_bytes: int) -> None:
    assert parse_size(str(size_bytes)) == size_bytes


def test_format_size() -> None:
    assert format_size(0) == "0 B"
    assert format_size(1536) == "1.5 KiB"
    assert format_size(3 * 2**40) == "3 TiB"
    assert format_size(1000 * 2**10) == "1000 KiB"
    assert format_duration(0.0009999) == "1000 us"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (5e-7, "500 ns"),
        (0.0123, "12.3 ms"),
        (90, "90 s"),
        (3600, "60 min"),
        (4 * 365 * 86400, "4 y"),
    ],
)
def test_format_duration(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
