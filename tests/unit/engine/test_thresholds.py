"""Being over a threshold, for how long, and what the log hears of it (W-18, W-19, W-28)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.engine.measuring.thresholds import held_of
from raybroker.engine.ports import Notice
from raybroker.model.histogram import PARTS
from tests.unit.engine.rig import Client, Rig


class Filled:
    """A queue to which messages come, and from which they go, one at a time."""

    def __init__(self, **attributes: Any) -> None:
        self.rig = Rig()
        self.rig.create(**attributes)
        self.client = Client(self.rig)
        self.producer, self.consumer = self.client.producer(), self.client.consumer()
        self.held: list[str] = []
        self.number = 0

    def send(self, count: int = 1) -> None:
        names = [f"{self.number + index:03}" for index in range(count)]
        self.number += count
        self.client.send(self.producer, *names)
        self.rig.sync()
        self.client.got()
        self.held += names

    def take(self, count: int = 1) -> None:
        self.client.ack(self.consumer, *self.held[:count])
        del self.held[:count]
        self.rig.sync()

    @property
    def over(self) -> Any:
        return self.rig.host.metrics.gauges(self.rig.destination())["over_threshold"]

    @property
    def seconds(self) -> Any:
        held = self.rig.host.metrics.totals(self.rig.destination())["threshold_seconds_total"]
        return {of: ns / PARTS for of, ns in held.items()}


def test_above_high_it_is_over_and_below_low_not_any_more() -> None:
    queue = Filled(messagesHigh=3, messagesLow=2)
    states = []
    for step in (queue.send,) * 4 + (queue.take,) * 4 + (queue.send,) * 2:
        step()
        states.append((len(queue.held), queue.over["messages"]))
    assert states == [(1, 0), (2, 0), (3, 0), (4, 1), (3, 1), (2, 1), (1, 0), (0, 0), (1, 0), (2, 0)]
    assert queue.over["bytes"] == 0


def test_messages_and_bytes_are_over_each_by_itself_and_their_times_add_up() -> None:
    queue = Filled(messagesHigh=3, messagesLow=1, bytesHigh=20, bytesLow=10)
    queue.send(4)  # 12 bytes
    queue.rig.clock.ms += 1000
    queue.send(4)  # 24 bytes
    queue.rig.clock.ms += 500
    assert queue.seconds == {"messages": 1.5, "bytes": 0.5}
    queue.take(5)
    queue.rig.clock.ms += 500
    assert queue.over == {"messages": 1, "bytes": 0}
    queue.take(3)
    queue.rig.clock.ms += 9000
    assert queue.seconds == {"messages": 2.0, "bytes": 0.5}
    queue.send(4)
    queue.rig.clock.ms += 250
    assert queue.seconds == {"messages": 2.25, "bytes": 0.5}


def test_thresholds_that_change_hold_at_once_and_what_was_counted_stays() -> None:
    queue = Filled()
    queue.send(5)
    catalogue = queue.rig.host.administration
    catalogue.update("q", {"messagesHigh": 4, "messagesLow": 2}, lambda: None)
    assert queue.over["messages"] == 1
    queue.rig.clock.ms += 3000
    catalogue.update("q", {"messagesHigh": -1, "messagesLow": -1}, lambda: None)
    queue.rig.clock.ms += 3000
    assert (queue.over["messages"], queue.seconds["messages"]) == (0, 3.0)


def test_what_a_restart_finds_is_over_from_there_on() -> None:
    queue = Filled(messagesHigh=1, messagesLow=0)
    queue.send(3)
    queue.rig.clock.ms += 5000
    rig = queue.rig.restart()
    rig.clock.ms += 250
    assert rig.host.metrics.gauges(rig.destination())["over_threshold"]["messages"] == 1
    assert rig.host.metrics.totals(rig.destination())["threshold_seconds_total"]["messages"] == 0.25 * PARTS


def test_the_log_hears_of_it_once_a_second_at_most_and_the_last_is_true() -> None:
    queue = Filled(messagesHigh=1, messagesLow=0)
    host, reports = queue.rig.host, queue.rig.reports
    queue.rig.clock.ms += 5000
    queue.send(2)
    assert reports == ["[B2151] queue q holds 2 messages, more than messagesHigh=1"]
    queue.rig.host.administration.update("q", {"messagesHigh": 2, "messagesLow": 1}, lambda: None)
    for _ in range(50):
        queue.send(2)
        queue.take(4 if len(queue.held) >= 4 else 2)
    queue.take(len(queue.held))
    host.count()
    assert len(reports) == 1
    queue.rig.clock.ms += 1000
    host.count()
    assert reports[1:] == ["[B1152] queue q holds 0 messages; it was over until messagesLow=1"]
    assert [isinstance(line, Notice) for line in reports] == [False, True], "only the first is a warning"
    host.count()
    assert len(reports) == 2


def test_what_a_destroyed_destination_was_over_stays_in_the_sums() -> None:
    queue = Filled(messagesHigh=1, messagesLow=0)
    queue.send(2)
    queue.rig.clock.ms += 1500
    queue.rig.host.removal.destroy("q", lambda: None)
    queue.rig.sync()
    assert queue.rig.host.meters.gone["queue"]["threshold_seconds_total"] == {"messages": 1.5 * PARTS, "bytes": 0}
    assert "over_threshold" not in queue.rig.host.meters.gone["queue"]


def test_producers_that_obey_hear_of_it_and_those_that_come_later_learn_it() -> None:
    queue = Filled(messagesHigh=3, messagesLow=2, bytesHigh=20, bytesLow=10)
    rig, client = queue.rig, Client(queue.rig)
    obeying = client.handle()
    answer = client.ok("open_producer", handle=obeying, name="q", type="queue", producer=9, obeys=True)
    assert "armed" not in answer
    rig.clock.ms += 1000
    queue.send(8)
    assert client.peer.take("event") == [("event", "armed", {"handle": obeying, "armed": True})]
    assert queue.client.peer.take("event") == [], "it does not obey"
    assert rig.host.metrics.gauges(rig.destination())["slowed_producers"] == 1
    later = client.handle()
    answer = client.ok("open_producer", handle=later, name="q", type="queue", producer=10, obeys=True)
    assert answer["armed"] is True
    rig.clock.ms += 1000
    queue.take(6)
    assert client.peer.take("event") == [], "of messages it is still over"
    rig.clock.ms += 1000
    queue.take(1)
    told = [(row[2]["handle"], row[2]["armed"]) for row in client.peer.take("event")]
    assert sorted(told) == [(obeying, False), (later, False)]
    assert rig.host.metrics.gauges(rig.destination())["slowed_producers"] == 0


def test_producers_are_told_once_a_second_at_most_and_what_they_heard_last_is_true() -> None:
    queue = Filled(messagesHigh=2, messagesLow=1)
    rig, client = queue.rig, Client(queue.rig)
    client.ok("open_producer", handle=1, name="q", type="queue", producer=9, obeys=True)
    rig.clock.ms += 5000
    for _ in range(20):
        queue.send(3)
        queue.take(3)
    assert [row[2]["armed"] for row in client.peer.take("event")] == [True]
    answer = client.ok("open_producer", handle=2, name="q", type="queue", producer=10, obeys=True)
    assert answer["armed"] is True, "as the others have heard"
    rig.clock.ms += 1000
    rig.host.count()
    assert [row[2] for row in client.peer.take("event")] == [{"handle": n, "armed": False} for n in (1, 2)]


def test_producers_of_every_destination_hear_that_the_broker_is_over_and_only_what_is_new_to_them() -> None:
    queue = Filled(messagesHigh=3, messagesLow=2)
    rig, client = queue.rig, Client(queue.rig)
    rig.create("other")
    of_rig = rig.host.meters.thresholds
    destinations = list(rig.host.registry.destinations.values())
    for handle, name in ((1, "q"), (2, "other")):
        client.ok("open_producer", handle=handle, name=name, type="queue", producer=8 + handle, obeys=True)
    assert held_of(destinations) == {"messages": 0, "bytes": 0}
    rig.clock.ms += 1000
    queue.send(4)
    assert [row[2] for row in client.peer.take("event")] == [{"handle": 1, "armed": True}]
    assert held_of(destinations) == {"messages": 4, "bytes": 12}
    for over in (True, True, False, False, True):
        of_rig.broker_is(over=over, destinations=destinations)
    told = [(row[2]["handle"], row[2]["armed"]) for row in client.peer.take("event")]
    assert told == [(2, True), (2, False), (2, True)]
    assert rig.host.metrics.gauges(rig.destination("other"))["slowed_producers"] == 1
    answer = client.ok("open_producer", handle=3, name="other", type="queue", producer=20, obeys=True)
    assert answer["armed"] is True
    rig.clock.ms += 1000
    queue.take(4)
    assert client.peer.take("event") == [], "the broker is over its thresholds still"
    of_rig.broker_is(over=False, destinations=destinations)
    told = [(row[2]["handle"], row[2]["armed"]) for row in client.peer.take("event")]
    assert sorted(told) == [(1, False), (2, False), (3, False)]


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 4), st.integers(0, 700)), max_size=40))
def test_it_is_as_the_rule_says_after_every_step(steps: list[tuple[bool, int, int]]) -> None:
    queue = Filled(messagesHigh=5, messagesLow=3)
    over, total_ms = False, 0
    for sends, count, pause_ms in steps:
        if sends:
            queue.send(count)
        elif queue.held:
            queue.take(min(count, len(queue.held)))
        held = len(queue.held)
        over = held >= 3 if over else held > 5
        assert queue.over["messages"] == over
        queue.rig.clock.ms += pause_ms
        total_ms += pause_ms * over
        queue.rig.host.count()
    assert queue.seconds["messages"] == pytest.approx(total_ms / 1000)
