"""Dead letters between their parts: each death is told once, and what no target takes is offered again."""

from __future__ import annotations

from typing import Any

import pytest

from raybroker.core.outcome import DeadLetter
from raybroker.engine.dead_letters.dead_letters import DeadLetters
from raybroker.engine.path.wakeups import AGAIN_MS, Durations, Retries, Wakeups
from tests.unit.engine.parts import Desk


class Dying(Desk):
    """Stands in for the policy, the moves and the log. ``targets``: what the policy says; ``takes``: whether the
    targets take them."""

    def __init__(self) -> None:
        super().__init__()
        self.home = self.add()
        self.targets: list[tuple[str | None, int, bool]] = [("e", 1, False)]
        self.takes = True
        self.told: list[str] = []
        self.sent: list[tuple[str, int, bool]] = []
        self.settled: list[int] = []
        retries: Retries[Any] = Retries(Durations(Wakeups(), self.time))
        me: Any = self
        self.dead = DeadLetters(self.executor, self.registry, self.executor, me, me, me, retries)

    def sort(self, home: Any, effect: DeadLetter, block: Any) -> list[tuple[str | None, int, bool]]:
        return self.targets

    def settle(self, home: Any, effect: DeadLetter) -> None:
        self.settled.append(effect.mask)

    def send(self, home: Any, effect: DeadLetter, block: Any, name: str, refused: Any, *, truncate: bool) -> None:
        self.sent.append((name, effect.mask, truncate))
        if not self.takes:
            refused(effect, "it is full")

    def died(self, home: Any, effect: DeadLetter, block: Any) -> None:
        self.told.append(effect.reason)

    def refused(self, home: Any, count: int, why: str, *, kept: bool) -> None:
        self.told += [why] * count

    def die(self, *bodies: str, reason: str = "ERROR", persistent: bool = True) -> None:
        ordinal, mask = self.put(self.home, *bodies, persistent=persistent), (1 << len(bodies)) - 1
        self.kill(self.home, ordinal, mask)
        self.dead.died(self.home, DeadLetter(0, ordinal, mask, 1, reason, ""))


def test_each_goes_where_the_policy_says() -> None:
    world = Dying()
    world.targets = [("e", 0b001, True), (None, 0b010, False), ("f", 0b100, False)]
    world.die("a", "b", "c")
    assert (world.sent, world.settled) == ([("e", 0b001, True), ("f", 0b100, False)], [0b010])


@pytest.mark.parametrize(("reason", "expired"), [("EXPIRED", 1), ("ERROR", 0)])
def test_only_expiries_are_counted_as_such(reason: str, expired: int) -> None:
    world = Dying()
    world.die("a", reason=reason)
    assert world.home.counters.expired == expired


def test_what_is_not_taken_is_offered_again_and_told_once() -> None:
    world = Dying()
    world.takes = False
    world.die("a")
    assert world.told == ["ERROR", "it is full"]
    world.clock.ms += AGAIN_MS - 1
    world.dead.tick()
    assert len(world.sent) == 1
    world.takes = True
    world.clock.ms += AGAIN_MS
    world.dead.tick()
    assert world.sent == [("e", 1, False)] * 2
    assert world.told == ["ERROR", "it is full"], "its death is not news"


def test_a_volatile_message_that_is_not_taken_is_gone() -> None:
    world = Dying()
    world.takes = False
    world.die("a", persistent=False)
    assert world.settled == [1]
    world.clock.ms += AGAIN_MS
    world.dead.tick()
    assert len(world.sent) == 1


def test_a_destroyed_destination_takes_its_dead_along() -> None:
    world = Dying()
    del world.registry.destinations["queue", "q"]
    world.die("a")
    assert (world.told, world.sent, world.settled) == ([], [], [])
