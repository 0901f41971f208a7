"""Consumers: settling against a dumb twin, places for active and backup consumers, turns."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.core.blocks import message_mask as pk
from raybroker.core.blocks.block_entry import BlockEntry
from raybroker.core.command import AttachConsumer
from raybroker.core.delivery.consumers import Consumer, Consumers, Delivery
from raybroker.core.delivery.run import Run
from raybroker.model.errors import ResourceAllocationError


def consumer(number: int, credit: int = -1, *, no_ack: bool = False) -> Consumer:
    return Consumer(AttachConsumer(number, "credit", limit=credit, no_ack=no_ack, held=False))


def run(ordinal: int, mask: int, attempts: int = 0) -> Run:
    return Run(ordinal, ordinal, mask, attempts, 0, 4)


def handed(to: Consumer, messages: Run, now_ms: int = 0) -> Delivery:
    """All of a run, which is of a block of empty messages."""
    delivery = to.handed(messages, now_ms, BlockEntry(messages.mask.bit_length(), 0, persistent=True))
    assert delivery is not None
    return delivery


def single(delivery: Delivery) -> dict[int, tuple[int, int, int]]:
    own = delivery.run
    assert delivery.count == own.count
    return {delivery.tag + i: (own.ordinal, index, own.attempts) for i, index in enumerate(pk.indexes(own.mask))}


@given(
    st.lists(st.tuples(st.integers(1, 63), st.integers(0, 3)), max_size=12),
    st.lists(st.tuples(st.integers(-2, 50), st.integers(-2, 50)), max_size=12),
)
def test_settling_is_what_its_twin_does(runs: list[tuple[int, int]], acks: list[tuple[int, int]]) -> None:
    one = consumer(1)
    twin: dict[int, tuple[int, int, int]] = {}
    for ordinal, (mask, attempts) in enumerate(runs, start=1):
        twin |= single(handed(one, run(ordinal, mask, attempts)))
    assert len(twin) == one.next_tag - 1 == one.sent
    for first, last in acks:
        counted = one.count_of([(first, last)])
        found: dict[int, tuple[int, int, int]] = {}
        for delivery in one.settle_tags(first, last):
            found |= single(delivery)
        expected = {tag: row for tag, row in twin.items() if first <= tag <= last}
        assert found == expected
        assert counted == len(expected)
        twin = {tag: row for tag, row in twin.items() if tag not in expected}
        left: dict[int, tuple[int, int, int]] = {}
        for delivery in one.unsettled:
            left |= single(delivery)
        assert left == twin
        assert list(left) == sorted(left)


def test_a_delivery_counts_itself_as_an_attempt() -> None:
    assert handed(consumer(1), run(5, 0b11, 3)) == Delivery(tag=1, count=2, run=run(5, 0b11, 4), until_ms=0)


def test_without_acknowledgements_nothing_is_kept() -> None:
    one = Consumer(AttachConsumer(1, "prefetch", limit=2, no_ack=True, held=False))
    one.active = one.serving = True
    handed(one, run(1, 0b11))
    assert not one.unsettled
    assert one.room() == 2


def test_a_held_or_backup_consumer_has_no_room() -> None:
    one = consumer(1)
    assert one.room() == 0, "not active"
    one.active = one.serving = True
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
    assert consumers.active_count == 2
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
        consumers.rank(local_first=False)
        consumers.offer(one)
    assert len(consumers.turn) == 2
    first = consumers.next_with_room()
    assert first is not None
    assert first == consumers.next_with_room()
    handed(first[0], run(1, 0b01))
    second = consumers.next_with_room()
    assert second is not None
    assert (second[0].attachment, second[1]) == (2, 1)
    handed(second[0], run(1, 0b10))
    assert consumers.next_with_room() is None
    assert not consumers.turn


def test_a_detached_consumer_loses_its_turn() -> None:
    consumers = Consumers()
    one = consumer(1)
    consumers.attach(one, active_max=-1, backup_max=0, name="q")
    consumers.rank(local_first=False)
    assert consumers.next_with_room() == (one, one.room())
    assert consumers.detach(1) is one
    assert consumers.next_with_room() is None
    assert consumers.detach(1) is None


def leased(lease_ms: int) -> Consumer:
    return Consumer(AttachConsumer(1, "credit", limit=-1, no_ack=False, held=False, lease_ms=lease_ms))


def test_a_lease_is_over_at_its_time_and_not_before() -> None:  # B6
    one = leased(100)
    handed(one, run(1, 0b11), 1000)
    handed(one, run(2, 0b11), 1050)
    assert one.next_due_ms() == 1100
    assert one.overdue(1099) == []
    assert [item.tag for item in one.overdue(1100)] == [1]
    assert [item.tag for item in one.unsettled] == [3]
    assert one.next_due_ms() == 1150


def test_without_a_lease_nothing_is_ever_due() -> None:
    one = consumer(1)
    handed(one, run(1, 1), 1000)
    assert one.next_due_ms() is None
    assert one.overdue(1 << 60) == []


@given(st.lists(st.integers(1, 15), min_size=1, max_size=6), st.integers(-1, 20), st.integers(-1, 20))
def test_extending_moves_the_time_of_exactly_these(masks: list[int], first: int, last: int) -> None:  # B7
    one = leased(100)
    for ordinal, mask in enumerate(masks, start=1):
        handed(one, run(ordinal, mask), 1000)
    before = {tag: row for item in one.unsettled for tag, row in single(item).items()}
    one.extend([(first, last)], 1040)
    assert {tag: row for item in one.unsettled for tag, row in single(item).items()} == before
    tags = [tag for item in one.unsettled for tag in single(item)]
    assert tags == sorted(tags)
    renewed = {tag for item in one.unsettled if item.until_ms == 1140 for tag in single(item)}
    assert renewed == {tag for tag in before if first <= tag <= last}
