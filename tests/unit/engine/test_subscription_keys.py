"""Keys find the same subscription again, also when it was made anew, and no other."""

from __future__ import annotations

from raybroker.core.subscription import Subscription
from raybroker.core.topic import Topic
from raybroker.engine.destinations.subscription_keys import queue_with, subscription_key
from tests.unit.engine.parts import Desk


def topic_of(desk: Desk) -> Topic:
    destination = desk.add("t", "topic")
    assert isinstance(destination, Topic)
    return destination


def test_a_queue_has_no_key() -> None:
    destination = Desk().add()
    assert subscription_key(destination, destination.queues[0], 99) == ""


def test_a_named_subscription_keeps_its_key_when_it_is_made_again() -> None:
    desk = Desk()
    first, second = topic_of(desk), topic_of(desk)
    wanted = Subscription("c", "d", True)
    first.current.begin(0)
    second.current.begin(0)
    second.subscribe(Subscription())
    key = subscription_key(first, first.subscribe(wanted), 99)
    again = second.subscribe(wanted)
    assert subscription_key(second, again, 7) == key
    assert queue_with(second, key, 7) is again
    another = first.subscribe(Subscription("c", "d", False, True))
    assert queue_with(second, subscription_key(first, another, 99), 7) is None


def test_a_plain_subscriber_is_found_on_its_own_host_alone() -> None:
    destination = topic_of(Desk())
    destination.current.begin(0)
    one, other = destination.subscribe(Subscription()), destination.subscribe(Subscription())
    key = subscription_key(destination, one, 99)
    assert key != subscription_key(destination, other, 99)
    assert queue_with(destination, key, 99) is one
    assert queue_with(destination, key, 98) is None
