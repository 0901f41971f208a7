"""Consumer options: which rule of flow control follows from the arguments, and the warning of a lower limit."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from raybroker.client.consumer.consumer_options import ConsumerOptions, consumer_options
from raybroker.config import Config
from raybroker.model.errors import ConfigError, InvalidSelectorError


def options(prefetch: int | None = None, threshold: int | None = None, **attributes: Any) -> ConsumerOptions:
    return consumer_options(
        Config.from_values(attributes), {"selector": "", "prefetch": prefetch, "threshold": threshold}
    )


def test_a_prefetch_counts_unacknowledged_messages_unless_a_threshold_says_otherwise() -> None:
    given = options(7)
    assert (given.style, given.limit, given.explicit, given.selector) == ("prefetch", 7, True, None)
    assert (options(7, 30).style, options(7, 30).percent) == ("credit", 30)


def test_the_attributes_of_the_connection_hold_for_what_is_not_given() -> None:
    default = options(imqConsumerFlowLimit=9, imqConsumerFlowThreshold=20)
    assert (default.style, default.limit, default.percent, default.explicit) == ("credit", 9, 20, False)
    bare = options(imqConsumerFlowLimitPrefetch=False)
    assert (bare.style, bare.limit) == ("prefetch", 0)


def test_arguments_are_checked_by_their_names() -> None:
    with pytest.raises(ConfigError, match="prefetch=-2"):
        options(-2)
    with pytest.raises(InvalidSelectorError):
        consumer_options(Config.from_values({}), {"selector": 7})  # type: ignore[typeddict-item]
    with pytest.raises(ConfigError, match="'json' is unknown"):
        consumer_options(Config.from_values({}), {"serializer": "json"})  # type: ignore[typeddict-item]


@pytest.mark.parametrize(
    ("limit", "explicit", "granted", "warned"),
    [
        (100, True, 10, True),
        (-1, True, 10, True),
        (100, False, 10, False),
        (10, True, 10, False),
        (5, True, 10, False),
        (100, True, -1, False),
    ],
)
def test_a_limit_that_the_destination_lowers_is_logged_once(
    limit: int, explicit: bool, granted: int, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    one = ConsumerOptions(limit=limit, explicit=explicit)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            one.warn_if_cut("queue q", granted)
    assert [record.getMessage().startswith(f"prefetch={limit} of") for record in caplog.records] == [True] * warned
