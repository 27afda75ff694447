"""How long sessions were idle, in buckets."""

from __future__ import annotations

from harness.simulator.idle import bucket_of, buckets


def test_the_table_of_buckets_says_what_is_said_of_each_wait() -> None:
    assert buckets(70_000).tolist() == [bucket_of(wait) for wait in range(70_001)]
