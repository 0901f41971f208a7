"""Named subscriptions: which destinations have them, and what a name may be."""

from __future__ import annotations

from typing import Any

import pytest

from raybroker.client.consumer.subscriptions import NAME_CHARS_MAX, subscription
from raybroker.client.destinations import Queue, Topic
from raybroker.model.errors import InvalidDestinationError


def test_a_subscription_is_what_the_broker_is_asked_for() -> None:
    assert subscription(Topic("t"), "s", durable=True, shared=False) == {"name": "s", "durable": True, "shared": False}


@pytest.mark.parametrize("destination", [Queue("q"), Topic("t.>")])
def test_only_one_topic_has_subscriptions(destination: Any) -> None:
    with pytest.raises(InvalidDestinationError):
        subscription(destination, "s", durable=False, shared=True)


@pytest.mark.parametrize("name", [None, "", 7, "a\n", "x" * (NAME_CHARS_MAX + 1)])
def test_a_name_is_a_bounded_printable_text(name: Any) -> None:
    with pytest.raises(InvalidDestinationError, match=f"1 to {NAME_CHARS_MAX} printable"):
        subscription(Topic("t"), name, durable=False, shared=True)
