"""Limits that are reached are told in the log: at once, and then with a count."""

from __future__ import annotations

import pytest

from raybroker.engine.measuring.limit_log import TOLD_EVERY_MS
from tests.unit.engine.rig import Client, Rig


class Full:
    """A queue with a limit, and what the log hears of it."""

    def __init__(self, **attributes: object) -> None:
        self.rig = Rig()
        self.rig.create(**attributes)
        self.client = Client(self.rig)
        self.producer = self.client.producer()

    def send(self, count: int, *, persistent: bool = True) -> None:
        for _ in range(count):
            self.client.send(self.producer, "x", persistent=persistent)
        self.rig.sync()

    def lines(self, ms: int = 1000) -> list[str]:
        self.rig.clock.ms += ms
        self.rig.host.count()
        found, self.rig.reports[:] = list(self.rig.reports), []
        return found


@pytest.mark.parametrize("persistent", [True, False])
def test_refused_messages_are_one_line_with_a_count(persistent: bool) -> None:
    queue = Full(maxNumMsgs=2, limitBehavior="REJECT_NEWEST")
    queue.send(2, persistent=persistent)
    assert queue.lines() == []
    queue.send(500, persistent=persistent)
    (line,) = queue.lines()
    assert line.startswith("[B2147] queue q refused 500 messages (quota_exceeded): ")
    assert "maxNumMsgs=2" in line


def test_what_goes_on_is_told_once_a_minute_with_what_came_since() -> None:
    queue = Full(maxNumMsgs=0, limitBehavior="REJECT_NEWEST")
    queue.send(1)
    assert len(queue.lines()) == 1
    for _ in range(TOLD_EVERY_MS // 1000 - 1):
        queue.send(2)
        assert queue.lines() == []
    (line,) = queue.lines()
    assert f"refused {2 * (TOLD_EVERY_MS // 1000 - 1)} messages" in line
    assert queue.lines(2 * TOLD_EVERY_MS) == []


def test_what_is_refused_for_several_reasons_is_a_line_for_each() -> None:
    queue = Full(maxNumMsgs=1, maxBytesPerMsg=3, limitBehavior="REJECT_NEWEST")
    queue.client.send(queue.producer, "long one")
    queue.send(3)
    assert [line[:60].partition("(")[2].partition(")")[0] for line in queue.lines()] == [
        "message_too_large",
        "quota_exceeded",
    ]


@pytest.mark.parametrize("behavior", ["REMOVE_OLDEST", "REMOVE_LOW_PRIORITY"])
def test_removed_messages_are_one_line(behavior: str) -> None:
    queue = Full(maxNumMsgs=2, limitBehavior=behavior, useDMQ=False)
    queue.send(10)
    (line,) = queue.lines()
    assert line.startswith("[B2149] queue q is full (maxNumMsgs=2, ")
    assert line.endswith(f"{behavior} removed 8 messages")


def test_producers_that_wait_are_one_line_with_how_often_and_how_long() -> None:
    queue = Full(maxNumMsgs=1, limitBehavior="FLOW_CONTROL")
    consumer = queue.client.consumer()
    for name in "abc":
        queue.client.send(queue.producer, name)
        queue.rig.clock.ms += 500
        queue.rig.sync()
        queue.client.got()
        queue.client.ack(consumer, name)
        queue.rig.sync()
    (line,) = queue.lines()
    assert line.startswith("[B2150] queue q is full (maxNumMsgs=1, ")
    assert line.endswith("FLOW_CONTROL made its producers wait 3 times, 1.5 s in all")
    queue.client.send(queue.producer, "d")
    (line,) = queue.lines(TOLD_EVERY_MS)
    assert line.endswith("wait once, 60.0 s in all, and they wait now")


def test_a_destination_that_is_made_again_starts_anew() -> None:
    queue = Full(maxNumMsgs=0, limitBehavior="REJECT_NEWEST")
    queue.send(1)
    assert len(queue.lines()) == 1
    queue.rig.host.removal.destroy("q", lambda: None)
    queue.rig.create(maxNumMsgs=0, limitBehavior="REJECT_NEWEST")
    queue.producer = queue.client.producer()
    queue.send(1)
    assert len(queue.lines()) == 1
