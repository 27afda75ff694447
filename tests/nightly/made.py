"""Nights that nobody slept through."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from harness.nightly.nights import SOFTWARE, Metric, Night

FIRST = datetime(2026, 1, 1, 2, 0, 0, 250_000, tzinfo=UTC)


def night(
    day: int, *figures: Metric, host: str = "rack1", good: bool = True, **software: str
) -> Night:
    """Night number ``day`` of the made-up drive SN1."""
    started = FIRST + timedelta(days=day)
    return Night(
        run=f"{started:%Y%m%dT%H%M%S.%fZ}-bench-quick",
        host=host,
        started=started,
        job="bench quick",
        device="SN1",
        good=good,
        software={**dict.fromkeys(SOFTWARE, "1"), **software},
        metrics=figures,
    )


def gbps(value: float) -> Metric:
    """A figure of which more is better."""
    return Metric("Bandwidth", value, "GB/s", 1)


def waf(value: float) -> Metric:
    """A figure of which less is better."""
    return Metric("WAF", value, "", -1)
