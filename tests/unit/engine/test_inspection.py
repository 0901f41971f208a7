"""What administrators see of destinations, consumers and subscriptions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from raybroker.core import command as cmd
from raybroker.core.subscription import Subscription
from raybroker.engine.destinations.inspection import Inspection
from raybroker.engine.sessions.attachments import Attachments, Outbox
from raybroker.model.errors import InvalidDestinationError, StoreDamagedError
from tests.unit.engine.parts import Desk
from tests.unit.engine.rig import RecordingPeer


class Seen(Desk):
    def __init__(self) -> None:
        super().__init__()
        self.attachments = Attachments(1)
        schedules: Any = SimpleNamespace(count=lambda destination: 2)
        baselines: Any = SimpleNamespace(counter_row=lambda destination: {"messages_in": 7})
        self.inspection = Inspection(
            self.registry, self.attachments, schedules, baselines, broker="b1", now_ms=lambda: 0
        )

    def consume(self, destination: Any, limit: int = 10, **more: Any) -> int:
        number = self.attachments.attach(destination, RecordingPeer(), 1, Outbox()).number
        self.executor.perform(destination, cmd.AttachConsumer(number, "prefetch", limit, False, held=False, **more))
        return number


def test_a_destination_is_described_by_its_counts() -> None:
    world = Seen()
    destination = world.add(maxNumMsgs=50)
    world.put(destination, "a", "bb", "c")
    world.put(destination, "later", delay=1000)
    world.consume(destination, limit=1)
    row = world.inspection.describe("queue", "q")
    counts = ("messages", "waiting", "unacknowledged", "delayed", "active_consumers", "schedules", "messages_in")
    assert [row[name] for name in counts] == [4, 2, 1, 1, 1, 2, 7]
    assert (row["current"], row["pending"]) == (2, 2), "one is with the consumer, and one is delayed"
    assert row["attributes"]["maxNumMsgs"] == 50
    with pytest.raises(InvalidDestinationError):
        world.inspection.describe("topic", "q")


def test_damage_counts_more_than_a_pause() -> None:
    world = Seen()
    destination = world.add()
    states = [world.registry.state_of(destination)]
    for part in ("consumption", "insertion"):
        destination.paused[part] = 0
        states.append(world.registry.state_of(destination))
    del destination.paused["consumption"]
    states.append(world.registry.state_of(destination))
    world.registry.halted[destination.number] = StoreDamagedError("block 1")
    states.append(world.registry.state_of(destination))
    assert states == ["RUNNING", "CONSUMERS_PAUSED", "PAUSED", "PRODUCERS_PAUSED", "HALTED"]


def test_consumers_are_listed_with_the_broker_that_they_are_on() -> None:
    world = Seen()
    destination, other = world.add("a"), world.add("b")
    first, second = world.consume(destination), world.consume(other, selector="n > 1")
    world.attachments.by_number[second].broker = "b2"
    rows = {row["id"]: row for row in world.inspection.consumers()}
    assert {number: row["broker"] for number, row in rows.items()} == {first: "b1", second: "b2"}
    assert (rows[second]["selector"], rows[second]["destination"]) == ("n > 1", "b")
    assert [row["id"] for row in world.inspection.consumers("queue", "a")] == [first]
    assert world.inspection.consumer(second) == rows[second]
    with pytest.raises(InvalidDestinationError, match="no consumer 9"):
        world.inspection.consumer(9)


def test_named_subscriptions_are_shown_with_what_they_owe() -> None:
    world = Seen()
    topic = world.add("t", "topic")
    world.executor.perform(topic, cmd.Subscribe(Subscription("c", "d", True)))
    world.consume(topic, subscription=Subscription())
    world.put(topic, "a", "b")
    (row,) = world.inspection.subscriptions()
    assert (row["name"], row["active"], row["messages"], row["consumers"]) == ("d", False, 2, 0)
    assert world.inspection.subscriptions("t") == [row]
