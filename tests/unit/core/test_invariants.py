"""The check of a queue's invariants accepts sound queues and names what is wrong with others."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings

from raybroker.core.backlog import Run
from raybroker.core.consumers import Delivery
from raybroker.core.invariants import check
from raybroker.core.queue import Queue
from raybroker.model.settings import DestinationAttributes
from tests.unit.core.driver import Driver, seeds


def queue() -> Queue:
    """Blocks of 4; the first is with consumer 101 (prefetch 4) but for its first message; two more wait."""
    driver = Driver(1, DestinationAttributes())
    driver.attach_consumer(limit=4, flow="prefetch")
    for _ in range(3):
        driver.send(4, persistent=True)
    driver.acknowledge([(1, 1)])
    return driver.queue


def _unsettled(q: Queue) -> Delivery:
    return q.consumers.by_attachment[101].unsettled[-1]


WRONGS: list[tuple[Callable[[Queue], object], str]] = [
    (lambda q: setattr(q.ledger, "messages", 5), "messages are counted"),
    (lambda q: setattr(q.ledger, "bytes_held", 5), "bytes are counted"),
    (lambda q: setattr(q.ledger.held[1], "left", 2), "miscounts what is left"),
    (lambda q: setattr(q.ledger, "next_ordinal", 2), "number that was not given out"),
    (lambda q: q.ledger.held[1].done.append((0, 1)), "not sorted, disjoint and joined"),  # type: ignore[union-attr]
    (lambda q: setattr(q.backlog, "count", 1), "counted as waiting"),
    (lambda q: q.backlog.fresh.reverse(), "waits behind"),
    (lambda q: q.backlog.fresh.appendleft(Run(2, 0, 0, 0)), "an empty run"),
    (lambda q: q.backlog.returned.append(Run(1, 0, 1, 0)), "never handed out came back"),
    (lambda q: q.backlog.fresh.appendleft(Run(1, 1, 2, 1)), "counts as fresh"),
    (lambda q: q.consumers.by_attachment[101].unsettled.pop(), "are at a place"),
    (lambda q: q.consumers.by_attachment[101].unsettled.append(_unsettled(q)._replace(tag=9)), "two places"),
    (lambda q: q.consumers.by_attachment[101].unsettled.reverse() or _swap(q), "order of tags"),
    (lambda q: setattr(q.consumers.by_attachment[101].window, "outstanding", 1), "are outstanding"),
    (lambda q: setattr(q.consumers.by_attachment[101].window, "full", False), "has room and no turn"),
    (lambda q: q.producers.taken.__setitem__(7, [(5, 9), (1, 3)]), "sequence numbers"),
]


def _swap(q: Queue) -> None:
    """Two deliveries in the wrong order of tags."""
    held = q.consumers.by_attachment[101].unsettled
    last = held.pop()
    middle = last.start + 1
    held.append(last._replace(tag=last.tag + 1, start=middle))
    held.append(last._replace(end=middle))


def test_a_sound_queue_passes() -> None:
    check(queue())


@pytest.mark.parametrize(("spoil", "text"), WRONGS)
def test_a_spoilt_queue_is_named(spoil: Callable[[Queue], object], text: str) -> None:
    spoilt = queue()
    spoil(spoilt)
    with pytest.raises(AssertionError, match=text):
        check(spoilt)


@settings(max_examples=25)
@given(seeds())
def test_invariants_hold_and_the_twin_agrees_after_any_commands(seed: int) -> None:
    driver = Driver(seed)
    for _ in range(150):
        driver.act()
