"""The check of a destination's invariants accepts sound ones and names what is wrong with others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings

from raybroker.core.delivery.backlog import Bucket
from raybroker.core.delivery.consumers import Consumer
from raybroker.core.delivery.run import Run
from raybroker.core.destination import Destination
from raybroker.core.invariants import check
from raybroker.core.queue import Queue
from raybroker.core.subscription import Subscription
from raybroker.core.topic import Topic
from tests.unit.core.driven_destination import DrivenDestination
from tests.unit.core.driver import Driver, seeds

PREFETCHING, FIRST = 102, 1
"""The consumer's attachment, and the block that it has most of."""


def queue() -> Queue:
    """Blocks of 4; the first is with a consumer (prefetch 4) but for its first message; two more wait."""
    destination = DrivenDestination()
    producer = destination.producer()
    assert destination.consumer(4, "prefetch") == PREFETCHING
    for _ in range(3):
        destination.send(producer, [4] * 4)
    destination.ack(PREFETCHING, 1)
    assert isinstance(destination.core, Queue)
    return destination.core


def topic() -> Topic:
    """Two durable subscriptions are owed a block of 4, of which the first one has settled a message."""
    destination = DrivenDestination("topic")
    producer = destination.producer()
    for name in ("a", "b"):
        destination.consumer(4, "prefetch", subscription=Subscription("c", name, True))
    destination.send(producer, [4] * 4)
    destination.ack(PREFETCHING, 1)
    assert isinstance(destination.core, Topic)
    return destination.core


def _consumer(q: Destination) -> Consumer:
    return next(iter(q.queues.values())).consumers.by_attachment[PREFETCHING]


def _bucket(q: Queue) -> Bucket:
    (bucket,) = q.queue.plain.backlog.buckets.values()
    return bucket


def _swap(q: Queue) -> None:
    """Two deliveries in the wrong order of tags."""
    held = _consumer(q).unsettled
    last = held.pop()
    low = last.run.mask & -last.run.mask
    others = last.run._replace(mask=last.run.mask & ~low)
    held.append(last._replace(tag=last.tag + 1, count=last.count - 1, run=others))
    held.append(last._replace(count=1, run=last.run._replace(mask=low)))


def _double(q: Queue) -> None:
    held = _consumer(q).unsettled
    held.append(held[-1]._replace(tag=9))


def _set(of: Callable[[Any], Any], name: str, value: Any) -> Callable[[Any], None]:
    return lambda q: setattr(of(q), name, value)


WRONGS: list[tuple[Callable[[Queue], object], str]] = [
    (_set(lambda q: q.block_index, "messages", 5), "messages are counted"),
    (_set(lambda q: q.block_index, "bytes_held", 5), "bytes are counted"),
    (_set(lambda q: q.block_index.held[FIRST], "left", 2), "miscounts what is left"),
    (_set(lambda q: q.block_index.held[FIRST], "left", 0), "is held with 0 of 4 left"),
    (_set(lambda q: q.block_index, "next_ordinal", 2), "number that was not given out"),
    (_set(lambda q: q.queue.plain.backlog, "count", 1), "counted as waiting"),
    (lambda q: _bucket(q).fresh.reverse(), "waits behind"),
    (lambda q: _bucket(q).fresh.appendleft(Run(0, 2, 0, 0, 0, 4)), "an empty run"),
    (lambda q: _bucket(q).fresh.append(Run(9, 3, 1, 0, 0, 5)), "in the bucket of priority 4"),
    (lambda q: q.queue.plain.backlog.bucket(7, 0), "empty bucket"),
    (lambda q: _consumer(q).unsettled.pop(), "are nowhere"),
    (_double, "and elsewhere"),
    (lambda q: q.queue.delayed.add(1, Run(9, 9, 1, 1, 0, 4)), "delayed and not held"),
    (_swap, "order of tags"),
    (_set(lambda q: _consumer(q).window, "outstanding", 1), "are outstanding"),
    (_set(lambda q: _consumer(q).window, "full", False), "has room and no turn"),
    (lambda q: q.queue.dead_letters.add(Run(3, 3, 1, 0, 0, 4)), "elsewhere"),
    (_set(lambda q: q.block_index, "dead", 1), "counted as dead letters"),
    (lambda q: q.producers.taken.__setitem__(7, [(5, 9), (1, 3)]), "sequence numbers"),
]


def test_a_sound_queue_and_a_sound_topic_pass() -> None:
    check(queue())
    check(topic())


@pytest.mark.parametrize(("spoil", "text"), WRONGS, ids=[text for _, text in WRONGS])
def test_a_spoilt_queue_is_named(spoil: Callable[[Queue], object], text: str) -> None:
    spoilt = queue()
    spoil(spoilt)
    with pytest.raises(AssertionError, match=text):
        check(spoilt)


TOPIC_WRONGS: list[tuple[Callable[[Topic], object], str]] = [
    (_set(lambda t: t.block_index.held[FIRST], "claims", 1), "is owed to 2 delivery queues, 1 counted"),
    (lambda t: t.queues[1].owes.__setitem__(FIRST, 0b1111), "are nowhere"),  # type: ignore[union-attr]
    (lambda t: t.queues[1].owes.pop(FIRST), "is owed to 1 delivery queues"),  # type: ignore[union-attr]
    (lambda t: t.block_index.settle_messages(FIRST, 0b1), "is held for nobody, or not for all"),
]


@pytest.mark.parametrize(("spoil", "text"), TOPIC_WRONGS, ids=[text for _, text in TOPIC_WRONGS])
def test_a_spoilt_topic_is_named(spoil: Callable[[Topic], object], text: str) -> None:
    spoilt = topic()
    spoil(spoilt)
    with pytest.raises(AssertionError, match=text):
        check(spoilt)


@settings(max_examples=20)
@given(seeds())
def test_invariants_of_a_queue_hold_after_any_commands(seed: int) -> None:
    driver = Driver(seed)
    for _ in range(150):
        driver.act()


@settings(max_examples=20)
@given(seeds())
def test_invariants_of_a_topic_hold_after_any_commands(seed: int) -> None:
    driver = Driver(seed, "topic")
    for _ in range(150):
        driver.act()
