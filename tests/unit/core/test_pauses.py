"""Births, pauses, and messages that an administrator takes out or puts aside."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.core import command as cmd
from raybroker.model.errors import IllegalStateError
from tests.unit.core.homes import NOW, Home, burials, columns, delivered, first_indexes, gates, handed

# ---- delays and pauses ---------------------------------------------------------------------------------------------


def test_unborn_messages_are_charged_and_not_seen() -> None:  # W-65
    home = Home(maxNumMsgs=2)
    consumer = home.consumer()
    producer = home.producer()
    out = home.send(producer, [1, 1], columns=columns(2, delay=[100, 0]))
    assert handed(out) == [(1, 1, 1)]
    assert out.wake_at == NOW + 100
    assert home.core.block_index.messages == 2
    assert handed(home.tick(100), consumer) == [(1, 0, 1)]


def test_a_consumption_pause_holds_everything_back() -> None:  # W-125
    home, consumer = delivered()
    home.do(cmd.Pause("consumption"))
    home.send(0, [1], producer=0)
    assert handed(home.ack(consumer, 1)) == []
    out = home.do(cmd.Resume("consumption"))
    assert handed(out) == [(2, 0, 1)]
    assert gates(out) == [], "producers have nothing to do with it"


def test_a_pause_may_end_by_itself() -> None:
    home, _ = delivered()
    out = home.do(cmd.Pause("consumption", NOW + 100))
    assert out.wake_at == NOW + 100
    home.send(0, [1], producer=0)
    assert handed(home.tick(99)) == []
    assert handed(home.tick(1)) == [(2, 0, 1)]
    assert not home.core.paused


def test_what_completes_during_an_insertion_pause_appears_after_it() -> None:  # W-124
    home = Home()
    consumer = home.consumer(1, "prefetch")
    producer = home.producer()
    home.send(producer, [1, 1], columns=columns(2, delay=[0, 100]))
    home.send(producer, [1], txn=5)
    home.do(cmd.Pause("insertion"))
    home.do(cmd.Decide(5, True))
    home.settle(consumer, "fail")
    assert home.queue.plain.backlog.count == 0
    home.tick(100)
    assert home.queue.plain.backlog.count == 0
    assert home.core.block_index.messages == 3
    assert handed(home.do(cmd.Resume("insertion"))) == [(1, 0, 2)]
    assert home.queue.plain.backlog.count == 2


def test_only_three_things_can_be_paused() -> None:
    with pytest.raises(IllegalStateError, match="'everything' cannot be paused"):
        Home().do(cmd.Pause("everything"))


@given(st.lists(st.sampled_from(["production", "consumption", "insertion"]), max_size=6))
def test_resuming_what_is_not_paused_does_nothing(parts: list[str]) -> None:
    home, _ = delivered()
    for which in parts:
        out = home.do(cmd.Resume(which))
        assert not out.immediate
        assert not out.after_durable


# ---- removing ------------------------------------------------------------------------------------------------------


def test_chosen_messages_are_removed_where_they_wait_or_rest() -> None:  # W-129
    home, consumer = delivered(2)
    producer = home.producer()
    home.do(cmd.Hold(consumer))
    home.send(producer, [1, 1, 1], columns=columns(3, delay=[0, 100, 0]))
    home.do(cmd.Remove({1: 0b11, 2: 0b011}))
    assert home.core.block_index.messages == 3
    assert handed(home.do(cmd.Proceed(consumer))) == [(2, 2, 1)]


def test_messages_that_were_put_aside_and_went_nowhere_wait_again() -> None:
    home = Home()
    producer = home.producer()
    for _ in range(2):
        home.send(producer, [1, 1], columns=columns(2, priorities=[2, 7]))
    home.do(cmd.Remove({1: 0b11, 2: 0b11}, aside=True))
    assert home.core.block_index.dead == 4
    assert handed(home.open()[1]) == []
    found = [row for ordinal in (2, 1) for row in handed(home.do(cmd.ReturnDeadLetters(0, ordinal, 0b11)))]
    assert home.core.block_index.dead == 0
    assert sorted(row[:2] for row in found) == [(1, 0), (1, 1), (2, 0), (2, 1)]


def test_messages_that_wait_again_are_in_order() -> None:
    home = Home()
    producer = home.producer()
    for _ in range(3):
        home.send(producer, [1, 1])
    home.do(cmd.Remove({1: 0b11, 2: 0b11}, aside=True))
    for ordinal in (2, 1):
        home.do(cmd.ReturnDeadLetters(0, ordinal, 0b11))
    assert first_indexes(home.open()[1]) == [(o, i) for o in (1, 2, 3) for i in (0, 1)]


def test_what_was_put_aside_before_its_birth_is_born_in_time() -> None:  # W-65
    home = Home()
    home.send(home.producer(), [1, 1], columns=columns(2, delay=[100, 0]))
    consumer = home.consumer(held=True)
    home.do(cmd.Remove({1: 0b11}, aside=True))
    home.do(cmd.ReturnDeadLetters(0, 1, 0b11))
    assert handed(home.do(cmd.Proceed(consumer))) == [(1, 1, 1)]
    assert handed(home.tick(100)) == [(1, 0, 1)]


def test_what_was_put_aside_before_a_crash_waits_again() -> None:
    for checkpoint in (False, True):
        home = Home(useDMQ=False)
        home.send(home.producer(), [1, 1])
        home.do(cmd.Remove({1: 0b01}, aside=True))
        again = home.crash(checkpoint=checkpoint)
        _, out = again.open()
        assert first_indexes(out) == [(1, 0), (1, 1)]
        assert burials(out) == []
