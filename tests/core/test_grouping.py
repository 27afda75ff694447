from __future__ import annotations

from harness.core.grouping import by_reason


def test_each_reason_is_said_once_with_the_first_of_those_that_share_it() -> None:
    pairs = [("a", "no room"), ("b", "no GPU"), ("c", "no room"), ("d", "no room")]
    assert by_reason(pairs) == [("a and 2 more", "no room"), ("b", "no GPU")]
    assert by_reason([]) == []
