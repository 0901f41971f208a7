"""Births, pauses, and messages that an administrator takes out or puts aside."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.core import command as cmd
from raybroker.model.errors import IllegalStateError
from tests.unit.core.driven_destination import (
    NOW,
    DrivenDestination,
    burials,
    columns,
    delivered,
    first_indexes,
    gates,
    handed,
)

# ---- delays and pauses ---------------------------------------------------------------------------------------------


def test_unborn_messages_are_charged_and_not_seen() -> None:  # W-65
    destination = DrivenDestination(maxNumMsgs=2)
    consumer = destination.consumer()
    producer = destination.producer()
    out = destination.send(producer, [1, 1], columns=columns(2, delay=[100, 0]))
    assert handed(out) == [(1, 1, 1)]
    assert out.wake_at == NOW + 100
    assert destination.core.block_index.messages == 2
    assert handed(destination.tick(100), consumer) == [(1, 0, 1)]


def test_a_consumption_pause_holds_everything_back() -> None:  # W-125
    destination, consumer = delivered()
    destination.do(cmd.Pause("consumption"))
    destination.send(0, [1], producer=0)
    assert handed(destination.ack(consumer, 1)) == []
    out = destination.do(cmd.Resume("consumption"))
    assert handed(out) == [(2, 0, 1)]
    assert gates(out) == [], "producers have nothing to do with it"


def test_a_pause_may_end_by_itself() -> None:
    destination, _ = delivered()
    out = destination.do(cmd.Pause("consumption", NOW + 100))
    assert out.wake_at == NOW + 100
    destination.send(0, [1], producer=0)
    assert handed(destination.tick(99)) == []
    assert handed(destination.tick(1)) == [(2, 0, 1)]
    assert not destination.core.paused


def test_what_completes_during_an_insertion_pause_appears_after_it() -> None:  # W-124
    destination = DrivenDestination()
    consumer = destination.consumer(1, "prefetch")
    producer = destination.producer()
    destination.send(producer, [1, 1], columns=columns(2, delay=[0, 100]))
    destination.send(producer, [1], txn=5)
    destination.do(cmd.Pause("insertion"))
    destination.do(cmd.Decide(5, True))
    destination.settle(consumer, "fail")
    assert destination.queue.plain.backlog.count == 0
    destination.tick(100)
    assert destination.queue.plain.backlog.count == 0
    assert destination.core.block_index.messages == 3
    assert handed(destination.do(cmd.Resume("insertion"))) == [(1, 0, 2)]
    assert destination.queue.plain.backlog.count == 2


def test_only_three_things_can_be_paused() -> None:
    with pytest.raises(IllegalStateError, match="'everything' cannot be paused"):
        DrivenDestination().do(cmd.Pause("everything"))


@given(st.lists(st.sampled_from(["production", "consumption", "insertion"]), max_size=6))
def test_resuming_what_is_not_paused_does_nothing(parts: list[str]) -> None:
    destination, _ = delivered()
    for which in parts:
        out = destination.do(cmd.Resume(which))
        assert not out.immediate
        assert not out.after_durable


# ---- removing ------------------------------------------------------------------------------------------------------


def test_chosen_messages_are_removed_where_they_wait_or_rest() -> None:  # W-129
    destination, consumer = delivered(2)
    producer = destination.producer()
    destination.do(cmd.Hold(consumer))
    destination.send(producer, [1, 1, 1], columns=columns(3, delay=[0, 100, 0]))
    destination.do(cmd.Remove({1: 0b11, 2: 0b011}))
    assert destination.core.block_index.messages == 3
    assert handed(destination.do(cmd.Proceed(consumer))) == [(2, 2, 1)]


def test_messages_that_were_put_aside_and_went_nowhere_wait_again() -> None:
    destination = DrivenDestination()
    producer = destination.producer()
    for _ in range(2):
        destination.send(producer, [1, 1], columns=columns(2, priorities=[2, 7]))
    destination.do(cmd.Remove({1: 0b11, 2: 0b11}, aside=True))
    assert destination.core.block_index.dead == 4
    assert handed(destination.open()[1]) == []
    found = [row for ordinal in (2, 1) for row in handed(destination.do(cmd.ReturnDeadLetters(0, ordinal, 0b11)))]
    assert destination.core.block_index.dead == 0
    assert sorted(row[:2] for row in found) == [(1, 0), (1, 1), (2, 0), (2, 1)]


def test_messages_that_wait_again_are_in_order() -> None:
    destination = DrivenDestination()
    producer = destination.producer()
    for _ in range(3):
        destination.send(producer, [1, 1])
    destination.do(cmd.Remove({1: 0b11, 2: 0b11}, aside=True))
    for ordinal in (2, 1):
        destination.do(cmd.ReturnDeadLetters(0, ordinal, 0b11))
    assert first_indexes(destination.open()[1]) == [(o, i) for o in (1, 2, 3) for i in (0, 1)]


def test_what_was_put_aside_before_its_birth_is_born_in_time() -> None:  # W-65
    destination = DrivenDestination()
    destination.send(destination.producer(), [1, 1], columns=columns(2, delay=[100, 0]))
    consumer = destination.consumer(held=True)
    destination.do(cmd.Remove({1: 0b11}, aside=True))
    destination.do(cmd.ReturnDeadLetters(0, 1, 0b11))
    assert handed(destination.do(cmd.Proceed(consumer))) == [(1, 1, 1)]
    assert handed(destination.tick(100)) == [(1, 0, 1)]


def test_what_was_put_aside_before_a_crash_waits_again() -> None:
    for checkpoint in (False, True):
        destination = DrivenDestination(useDMQ=False)
        destination.send(destination.producer(), [1, 1])
        destination.do(cmd.Remove({1: 0b01}, aside=True))
        again = destination.crash(checkpoint=checkpoint)
        _, out = again.open()
        assert first_indexes(out) == [(1, 0), (1, 1)]
        assert burials(out) == []
