"""Waiting before a partial batch is handed out, without a delivery queue (W-36, W-37)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from raybroker.core.delivery.batch_wait import BATCH_MAX, BatchWait, batch_wait_ms
from raybroker.errors import ConfigError
from raybroker.model.settings.settings import destination_attributes


def consumers(room: int = 100, limit: int = 100, *, draining: bool = False) -> Any:
    turn = (SimpleNamespace(limit=limit), room) if room else None
    return SimpleNamespace(draining=draining, next_with_room=lambda: turn)


def test_the_longer_ones_wait_longer_and_the_others_not_at_all() -> None:
    waits = [batch_wait_ms(destination_attributes({"messagingPerformancePreference": n})) for n in (0, 25, 50, 75, 100)]
    assert waits == [0, 0, 5, 20, 100]
    assert batch_wait_ms(destination_attributes()) == 0
    with pytest.raises(ConfigError, match="messagingPerformancePreference = 30 is not one of 0, 25, 50, 75 and 100"):
        destination_attributes({"messagingPerformancePreference": 30})


def test_with_0_a_consumer_has_one_message_at_a_time_whatever_the_limits() -> None:
    attributes = destination_attributes({"messagingPerformancePreference": 0, "consumerFlowLimit": -1}, type="topic")
    assert (attributes.consumer_flow_limit, attributes.shared_consumer_flow_limit) == (1, 1)


def test_a_partial_batch_waits_from_the_first_message_on_and_then_goes() -> None:
    wait = BatchWait()
    assert wait.holds(consumers(), 1, 2, 1000, 20)
    assert wait.holds(consumers(), 5, 6, 1019, 20)
    assert (wait.since_ms, wait.until_ms(1019, 20)) == (1000, 1020)
    assert not wait.holds(consumers(), 5, 6, 1020, 20)
    assert (wait.since_ms, wait.until_ms(1020, 20)) == (None, None)
    assert not wait.holds(consumers(), 5, 6, 1021, 20), "what was there has waited"
    assert wait.holds(consumers(), 6, 7, 1022, 20), "what is new has not"


@pytest.mark.parametrize(
    ("there", "waiting"),
    [
        (consumers(5), 5),
        (consumers(1 << 62, -1), BATCH_MAX),
        (consumers(100, 9), 1),
        (consumers(1, 0), 0),
        (consumers(draining=True), 1),
        (consumers(0), 1),
    ],
)
def test_what_does_not_wait(there: Any, waiting: int) -> None:
    assert not BatchWait().holds(there, waiting, 9, 1000, 20)


def test_a_wait_that_nobody_asks_about_is_over_in_time() -> None:
    wait = BatchWait()
    assert wait.holds(consumers(), 1, 2, 1000, 20)
    assert wait.until_ms(1500, 20) is None, "no step is asked for again and again"
    assert wait.holds(consumers(), 1, 2, 1500, 20)
