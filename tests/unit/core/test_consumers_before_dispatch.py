"""A queue that waits for consumers hands nothing out before, and then goes on (B20)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from raybroker.core import command as cmd
from raybroker.core.outcome import Outcome, Ready
from tests.unit.core.homes import Home, handed, of


def waiting(wanted: int, delay_ms: int = -1, **more: Any) -> tuple[Home, int]:
    """A queue with one message, and its producer."""
    home = Home(consumersBeforeDispatch=wanted, delayBeforeDispatch=delay_ms, **more)
    producer = home.producer()
    home.send(producer)
    return home, producer


def update(home: Home, **changes: Any) -> Outcome:
    return home.do(cmd.Update(replace(home.core.attributes, **changes)))


def test_without_the_attribute_the_first_consumer_gets_it_at_once() -> None:
    home = Home()
    home.send(home.producer())
    assert len(handed(home.open()[1])) == 1


def test_the_last_one_wanted_opens_the_queue_for_all() -> None:
    home, producer = waiting(3)
    for _ in range(2):
        assert handed(home.open()[1]) == []
    assert handed(home.send(producer)) == []
    assert len(handed(home.open()[1])) == 2


def test_it_stays_open_until_the_last_consumer_has_left() -> None:
    home, producer = waiting(2)
    first, second = home.consumer(), home.consumer()
    assert len(handed(home.do(cmd.DetachConsumer(first)))) == 1, "what it had goes to the other one"
    assert len(handed(home.send(producer))) == 1
    home.do(cmd.DetachConsumer(second))
    assert handed(home.open()[1]) == [], "a queue that nobody was left at waits anew"


def test_backup_consumers_count() -> None:
    home, _ = waiting(2, maxNumActiveConsumers=1, maxNumBackupConsumers=1)
    active = home.consumer()
    backup, out = home.open()
    assert (len(handed(out, active)), handed(out, backup)) == (1, [])


def test_the_wait_ends_after_the_delay_from_the_first_consumer_on() -> None:
    home, _ = waiting(5, 100)
    home.tick(1_000)
    out = home.open()[1]
    assert (handed(out), out.wake_at) == ([], home.now_ms + 100)
    home.now_ms += 60
    assert home.open()[1].wake_at == home.now_ms + 40
    assert handed(home.tick(39)) == []
    assert len(handed(home.tick(1))) == 1


def test_no_delay_at_all_waits_for_nobody() -> None:
    home, _ = waiting(5, 0)
    assert len(handed(home.open()[1])) == 1


def test_lowering_the_number_opens_and_raising_it_does_not_close() -> None:
    home, producer = waiting(3)
    home.consumer()
    assert handed(update(home, consumersBeforeDispatch=2)) == []
    assert len(handed(update(home, consumersBeforeDispatch=1))) == 1
    update(home, consumersBeforeDispatch=9)
    assert len(handed(home.send(producer))) == 1


def test_a_consumer_in_drain_mode_is_not_told_before_enough_have_come() -> None:
    home, _ = waiting(2)
    first, out = home.open(drain=True)
    assert of(out, Ready) == []
    assert handed(home.do(cmd.Drain(first, 5))) == []
    out = home.open(0)[1]
    assert [effect.attachment for effect in of(out, Ready)] == [first]
    assert len(handed(home.do(cmd.Drain(first, 5)))) == 1


def test_a_topic_does_not_wait() -> None:
    home = Home("topic")
    home.subscriber()
    assert len(handed(home.send(home.producer()))) == 1


def test_a_restart_waits_anew() -> None:
    home, _ = waiting(2)
    home.consumer()
    home.consumer()
    again = home.crash()
    assert handed(again.open()[1]) == []
    assert len(handed(again.open()[1])) == 1
