"""Temporary destinations wait for their connection, and for a prepared transaction, before they end."""

from __future__ import annotations

import pytest

from raybroker.core.destination import Destination
from raybroker.engine.destinations.temporary_destinations import ORPHAN_MS, TemporaryDestinations
from raybroker.engine.path.wakeups import Durations, Wakeups
from tests.unit.engine.parts import Desk


class Waiting(Desk):
    """``ended``: what is over; ``prepared``: names of what a prepared transaction holds."""

    def __init__(self) -> None:
        super().__init__()
        self.ended: list[tuple[str, str]] = []
        self.prepared: set[str] = set()
        self.alarms: list[int] = []
        self.temporary = TemporaryDestinations(
            self.registry, Durations(Wakeups(self.alarms.append), self.time), prepared=self._prepared, over=self._over
        )

    def _prepared(self, destination: Destination) -> int | None:
        return 0 if destination.name in self.prepared else None

    def _over(self, kind: str, name: str) -> None:
        self.ended.append((kind, name))
        destination = self.registry.destinations.pop((kind, name))
        del self.registry.definitions[destination.number]

    def after(self, ms: int) -> list[tuple[str, str]]:
        self.clock.ms += ms
        self.temporary.end_expired()
        return self.ended


def test_those_of_a_lost_connection_end_after_a_while() -> None:
    world = Waiting()
    world.add("a", owner="me")
    world.add("b", "topic", owner="me")
    world.add("c", owner="you")
    world.temporary.lost("me")
    assert world.alarms == [world.clock.ms + ORPHAN_MS]
    assert world.after(ORPHAN_MS - 1) == []
    assert world.after(1) == [("queue", "a"), ("topic", "b")]


@pytest.mark.parametrize("hours", [-1, 1])
def test_they_wait_as_long_when_the_clock_is_set(hours: int) -> None:
    world = Waiting()
    world.add("a", owner="me")
    world.temporary.lost("me")
    world.clock.stepped_ms = hours * 3_600_000
    assert world.after(ORPHAN_MS - 1) == []
    assert world.after(1) == [("queue", "a")]


def test_a_connection_that_comes_back_keeps_them() -> None:
    world = Waiting()
    world.add("a", owner="me")
    world.temporary.lost("me")
    world.temporary.found("me")
    assert world.after(2 * ORPHAN_MS) == []


def test_a_connection_without_any_is_not_waited_for() -> None:
    world = Waiting()
    world.add("a")
    world.temporary.lost("me")
    assert world.alarms == []


def test_one_with_a_prepared_transaction_waits_once_more() -> None:
    world = Waiting()
    world.add("a", owner="me")
    world.prepared = {"a"}
    world.temporary.lost("me")
    assert world.after(ORPHAN_MS) == []
    world.prepared = set()
    assert world.after(ORPHAN_MS - 1) == []
    assert world.after(1) == [("queue", "a")]
