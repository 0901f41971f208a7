"""Consumers: settling against a dumb twin, places for active and backup consumers, turns."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.core.backlog import Run
from raybroker.core.consumers import Consumer, Consumers, Delivery
from raybroker.core.window import CreditWindow, PrefetchWindow
from raybroker.model.errors import ResourceAllocationError


def consumer(number: int, credit: int = -1, *, no_ack: bool = False) -> Consumer:
    return Consumer(number, CreditWindow(credit), limit=credit, no_ack=no_ack, held=False)


def single(delivery: Delivery) -> dict[int, tuple[int, int, int]]:
    size = delivery.end - delivery.start
    return {delivery.tag + i: (delivery.ordinal, delivery.start + i, delivery.attempts) for i in range(size)}


@given(
    st.lists(st.tuples(st.integers(1, 6), st.integers(0, 3)), max_size=12),
    st.lists(st.tuples(st.integers(-2, 50), st.integers(-2, 50)), max_size=12),
)
def test_settling_is_what_its_twin_does(runs: list[tuple[int, int]], acks: list[tuple[int, int]]) -> None:
    one = consumer(1)
    twin: dict[int, tuple[int, int, int]] = {}
    for ordinal, (size, attempts) in enumerate(runs, start=1):
        twin |= single(one.handed(Run(ordinal, 2, 2 + size, attempts)))
    assert len(twin) == one.next_tag - 1 == one.sent
    for first, last in acks:
        found: dict[int, tuple[int, int, int]] = {}
        for delivery in one.settle(first, last):
            found |= single(delivery)
        expected = {tag: row for tag, row in twin.items() if first <= tag <= last}
        assert found == expected
        twin = {tag: row for tag, row in twin.items() if tag not in expected}
        left: dict[int, tuple[int, int, int]] = {}
        for delivery in one.unsettled:
            left |= single(delivery)
        assert left == twin
        assert list(left) == sorted(left)


def test_a_delivery_counts_itself_as_an_attempt() -> None:
    assert consumer(1).handed(Run(5, 0, 2, 3)) == Delivery(tag=1, ordinal=5, start=0, end=2, attempts=4)


def test_without_acknowledgements_nothing_is_kept() -> None:
    one = Consumer(1, PrefetchWindow(2), limit=2, no_ack=True, held=False)
    one.active = True
    one.handed(Run(1, 0, 2, 0))
    assert not one.unsettled
    assert one.room() == 2


def test_a_held_or_backup_consumer_has_no_room() -> None:
    one = consumer(1)
    assert one.room() == 0, "not active"
    one.active = True
    assert one.room() > 0
    one.held = True
    assert one.room() == 0


def attached(count: int, active_max: int, backup_max: int) -> Consumers:
    consumers = Consumers()
    for number in range(1, count + 1):
        consumers.attach(consumer(number), active_max=active_max, backup_max=backup_max, name="q")
    return consumers


def test_active_places_are_filled_first_then_backups_then_nobody() -> None:  # D-15
    consumers = attached(3, active_max=2, backup_max=1)
    assert [c.active for c in consumers.by_attachment.values()] == [True, True, False]
    assert (consumers.active_count, consumers.backup_count) == (2, 1)
    with pytest.raises(ResourceAllocationError, match="2 active and 1 backup"):
        consumers.attach(consumer(4), active_max=2, backup_max=1, name="q")
    assert len(consumers.by_attachment) == 3


@pytest.mark.parametrize(("active_max", "backup_max", "fits"), [(-1, 0, 50), (1, 0, 1), (1, -1, 50), (3, 2, 5)])
def test_places_for_consumers(active_max: int, backup_max: int, fits: int) -> None:  # D-15
    consumers = attached(fits, active_max, backup_max)
    if fits < 50:
        with pytest.raises(ResourceAllocationError):
            consumers.attach(consumer(99), active_max=active_max, backup_max=backup_max, name="q")


def test_the_first_registered_backup_is_promoted() -> None:  # D-16
    consumers = attached(4, active_max=1, backup_max=-1)
    consumers.detach(1)
    assert [c.attachment for c in consumers.promote(1)] == [2]
    assert consumers.promote(1) == []
    assert [c.attachment for c in consumers.promote(-1)] == [3, 4]


def test_a_consumer_keeps_its_turn_until_it_is_full_and_has_one_turn() -> None:
    consumers = Consumers()
    for number in (1, 2):
        one = consumer(number, credit=1)
        consumers.attach(one, active_max=-1, backup_max=0, name="q")
        consumers.offer(one)
        consumers.offer(one)
    assert len(consumers.turn) == 2
    first = consumers.next_with_room()
    assert first is consumers.next_with_room()
    assert first is not None
    first.handed(Run(1, 0, 1, 0))
    second = consumers.next_with_room()
    assert second is not None
    assert second.attachment == 2
    second.handed(Run(1, 1, 2, 0))
    assert consumers.next_with_room() is None
    assert not consumers.turn


def test_a_detached_consumer_loses_its_turn() -> None:
    consumers = Consumers()
    one = consumer(1)
    consumers.attach(one, active_max=-1, backup_max=0, name="q")
    consumers.offer(one)
    assert consumers.detach(1) is one
    assert consumers.next_with_room() is None
    assert consumers.detach(1) is None
