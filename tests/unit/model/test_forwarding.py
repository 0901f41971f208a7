"""Definitions of forwarding agents (W-121, W-122)."""

from __future__ import annotations

from typing import Any

import pytest

from raybroker.errors import ConfigError
from raybroker.model.definitions.forwarding import Forwarding, forwarding

PLACES = {"queue": "out", "to": "far/in"}


def test_an_agent_has_the_seeds_defaults() -> None:
    made = forwarding(PLACES)
    assert (made.cluster, made.target) == ("far", "in")
    assert (made.qos, made.windowSize, made.windowInterval) == ("Exactly-once", 10, 0)
    assert (made.retryDelayBase, made.retryDelayMaximum, made.retryDelayMultiplier) == (20_000, 180_000, 1.0)
    assert (made.acknowledgeInterval, made.conversationIdleTimeMaximum) == (-1, 0)
    assert made.errorPolicy == "Discard"
    assert forwarding(made.as_dict()) == made


def test_text_of_the_command_line_is_understood() -> None:
    made = forwarding({**PLACES, "windowSize": "100", "retryDelayMultiplier": "1.5", "qos": "at-least-once"})
    assert (made.windowSize, made.retryDelayMultiplier, made.qos) == (100, 1.5, "At-least-once")


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ({"windowsize": 3}, "windowSize"),
        ({"windowSize": 0}, "1 to 1000"),
        ({"windowSize": True}, "1 to 1000"),
        ({"windowSize": "many"}, "windowSize"),
        ({"qos": "Twice"}, "Exactly-once"),
        ({"to": "in"}, "cluster/queue"),
        ({"to": "/in"}, "cluster/queue"),
        ({"to": "far/"}, "cluster/queue"),
        ({"to": "f ar/in"}, "cluster name"),
        ({"to": ""}, "needs to"),
        ({"queue": ""}, "needs queue"),
        ({"queue": "a b"}, "queue"),
        ({"errorPolicy": "Redirect"}, "errorDestination"),
        ({"errorDestination": "out"}, "another one"),
        ({"retryDelayMultiplier": 0.5}, "1 to 100"),
        ({"retryDelayMultiplier": "x"}, "number"),
        ({"queue": "mq.temp.q.b1.x"}, "temporary"),
        ({"timeToLive": -2}, "timeToLive"),
        ({"acknowledgeInterval": -2}, "acknowledgeInterval"),
        ({"acknowledgeInterval": 1 << 31}, "acknowledgeInterval"),
        ({"conversationIdleTimeMaximum": -1}, "conversationIdleTimeMaximum = -1; it is a whole number from 0"),
        ({"conversationIdleTimeMaximum": "soon"}, "conversationIdleTimeMaximum"),
        ({"compressionThreshold": -1}, "compressionThreshold = -1; it is a whole number from 0"),
        ({"compressionThreshold": "1k"}, "compressionThreshold"),
    ],
)
def test_what_is_wrong_is_named(attributes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        forwarding({**PLACES, **attributes})


def test_dead_messages_may_be_forwarded() -> None:
    assert forwarding({**PLACES, "queue": "mq.sys.dmq"}).queue == "mq.sys.dmq"


@pytest.mark.parametrize(
    ("window", "most", "wait"), [(0, -1, 0), (500, -1, 500), (500, 200, 200), (100, 200, 100), (500, 0, 0)]
)
def test_a_window_waits_no_longer_than_its_messages_may_stay_unconfirmed(window: int, most: int, wait: int) -> None:
    assert forwarding({**PLACES, "windowInterval": window, "acknowledgeInterval": most}).wait_ms == wait


def test_delays_grow_up_to_their_maximum() -> None:
    same = Forwarding("a", "b/c")
    assert [same.delay_ms(n) for n in (1, 2, 50)] == [20_000] * 3
    growing = Forwarding("a", "b/c", retryDelayBase=10, retryDelayMaximum=50, retryDelayMultiplier=2.0)
    assert [growing.delay_ms(n) for n in range(1, 6)] == [10, 20, 40, 50, 50]
    assert growing.delay_ms(10_000) == 50
