"""A queue that waits for consumers hands nothing out before, and then goes on (B20)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from raybroker.core import command as cmd
from raybroker.core.outcome import Outcome, Ready
from tests.unit.core.driven_destination import DrivenDestination, handed, of


def waiting(wanted: int, delay_ms: int = -1, **more: Any) -> tuple[DrivenDestination, int]:
    """A queue with one message, and its producer."""
    destination = DrivenDestination(consumersBeforeDispatch=wanted, delayBeforeDispatch=delay_ms, **more)
    producer = destination.producer()
    destination.send(producer)
    return destination, producer


def update(destination: DrivenDestination, **changes: Any) -> Outcome:
    return destination.do(cmd.Update(replace(destination.core.attributes, **changes)))


def test_without_the_attribute_the_first_consumer_gets_it_at_once() -> None:
    destination = DrivenDestination()
    destination.send(destination.producer())
    assert len(handed(destination.open()[1])) == 1


def test_the_last_one_wanted_opens_the_queue_for_all() -> None:
    destination, producer = waiting(3)
    for _ in range(2):
        assert handed(destination.open()[1]) == []
    assert handed(destination.send(producer)) == []
    assert len(handed(destination.open()[1])) == 2


def test_it_stays_open_until_the_last_consumer_has_left() -> None:
    destination, producer = waiting(2)
    first, second = destination.consumer(), destination.consumer()
    assert len(handed(destination.do(cmd.DetachConsumer(first)))) == 1, "what it had goes to the other one"
    assert len(handed(destination.send(producer))) == 1
    destination.do(cmd.DetachConsumer(second))
    assert handed(destination.open()[1]) == [], "a queue that nobody was left at waits anew"


def test_backup_consumers_count() -> None:
    destination, _ = waiting(2, maxNumActiveConsumers=1, maxNumBackupConsumers=1)
    active = destination.consumer()
    backup, out = destination.open()
    assert (len(handed(out, active)), handed(out, backup)) == (1, [])


def test_the_wait_ends_after_the_delay_from_the_first_consumer_on() -> None:
    destination, _ = waiting(5, 100)
    destination.tick(1_000)
    out = destination.open()[1]
    assert (handed(out), out.wake_at) == ([], destination.now_ms + 100)
    destination.now_ms += 60
    assert destination.open()[1].wake_at == destination.now_ms + 40
    assert handed(destination.tick(39)) == []
    assert len(handed(destination.tick(1))) == 1


def test_no_delay_at_all_waits_for_nobody() -> None:
    destination, _ = waiting(5, 0)
    assert len(handed(destination.open()[1])) == 1


def test_lowering_the_number_opens_and_raising_it_does_not_close() -> None:
    destination, producer = waiting(3)
    destination.consumer()
    assert handed(update(destination, consumersBeforeDispatch=2)) == []
    assert len(handed(update(destination, consumersBeforeDispatch=1))) == 1
    update(destination, consumersBeforeDispatch=9)
    assert len(handed(destination.send(producer))) == 1


def test_a_consumer_in_drain_mode_is_not_told_before_enough_have_come() -> None:
    destination, _ = waiting(2)
    first, out = destination.open(drain=True)
    assert of(out, Ready) == []
    assert handed(destination.do(cmd.Drain(first, 5))) == []
    out = destination.open(0)[1]
    assert [effect.attachment for effect in of(out, Ready)] == [first]
    assert len(handed(destination.do(cmd.Drain(first, 5)))) == 1


def test_a_topic_does_not_wait() -> None:
    destination = DrivenDestination("topic")
    destination.subscriber()
    assert len(handed(destination.send(destination.producer()))) == 1


def test_a_restart_waits_anew() -> None:
    destination, _ = waiting(2)
    destination.consumer()
    destination.consumer()
    again = destination.crash()
    assert handed(again.open()[1]) == []
    assert len(handed(again.open()[1])) == 1
