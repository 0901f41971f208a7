"""Subscriptions as administrators make, purge and end them."""

from __future__ import annotations

import pytest

from raybroker.core.subscription import Subscription
from raybroker.core.topic import Topic
from raybroker.engine.destinations.subscription_administration import SubscriptionAdministration
from raybroker.model.errors import InvalidDestinationError
from tests.unit.engine.parts import Desk


def test_a_subscription_is_made_purged_and_ended() -> None:
    desk, done = Desk(), []
    topic = desk.add("t", "topic")
    assert isinstance(topic, Topic)
    verbs = SubscriptionAdministration(desk.executor, desk.registry)
    verbs.subscribe("t", Subscription("c", "d", True), lambda: done.append("made"))
    queue = topic.find("c", "d")
    assert queue is not None
    desk.put(topic, "a")
    assert topic.block_index.messages == 1
    verbs.purge("t", "c", "d", lambda: done.append("purged"))
    assert (topic.block_index.messages, topic.find("c", "d")) == (0, queue)
    verbs.unsubscribe("t", "c", "d", lambda: done.append("ended"))
    assert topic.find("c", "d") is None
    assert done == ["made", "purged", "ended"]


def test_without_the_topic_or_the_subscription_it_is_refused() -> None:
    desk = Desk()
    desk.add("t", "topic")
    verbs = SubscriptionAdministration(desk.executor, desk.registry)
    for topic, why in (("t", "no subscription 'd' of client 'c'"), ("u", "'u' does not exist")):
        with pytest.raises(InvalidDestinationError, match=why):
            verbs.purge(topic, "c", "d", lambda: None)
    assert desk.executor.batches == []
