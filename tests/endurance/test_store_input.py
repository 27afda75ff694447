"""A store as the input of a measurement: its clock is as fine as its requests."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from harness.core.errors import UsageError
from harness.endurance.result import to_json
from harness.endurance.store_input import StoreInput
from harness.endurance.wear import Options, wear
from tests.endurance.inputs import MIB, small_drive

NAMESPACE = 1024 * MIB


def chat() -> StoreInput:
    return StoreInput("lmcache-raw-block", "chat", "llama-3.1-8b-tp8", NAMESPACE)


def test_the_clock_is_noted_while_a_request_trace_goes_on() -> None:
    clock = [batch.clock_s for batch in islice(chat().batches(), 100)]
    noted = np.array([at for at in clock if at is not None])
    assert len(noted) > 50
    assert np.all(np.diff(noted) > 0)


def test_a_full_store_that_evicts_nothing_ends_with_an_error_not_never() -> None:
    source = StoreInput("lmcache-raw-block-legacy", "chat", "llama-3.1-8b-tp8", NAMESPACE)
    with pytest.raises(UsageError, match=r"written nothing for 100,000 requests") as caught:
        for _ in source.batches():
            pass
    assert "evicts" in str(caught.value.fix)


def test_a_drive_worn_by_a_store_has_a_rate_and_lifetimes() -> None:
    drive = small_drive(blks_per_pl=1137, capacity_bytes=NAMESPACE)
    found = to_json(wear(chat(), drive, Options(fills=0)))
    assert found["rate_source"] == "clock of the requests chat"
    assert found["writes_per_day_bytes"] > 0
    assert found["lifetimes"]["paper_days"] is not None
