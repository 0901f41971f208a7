"""Destinations come with their settings and wake-ups, and dormant ones come back as they were."""

from __future__ import annotations

from typing import Any

from raybroker.engine.checkpoint import Definition
from raybroker.engine.destinations.destination_installation import DestinationInstallation
from raybroker.engine.path.wakeups import Wakeups
from raybroker.model.settings.settings import destination_attributes
from tests.unit.engine.parts import Desk


class Settings:
    """Settings that remember to whom they were given."""

    def __init__(self) -> None:
        self.given: list[str] = []

    def give(self, destination: Any) -> None:
        self.given.append(destination.name)


class Installing(Desk):
    def __init__(self) -> None:
        super().__init__()
        self.wakeups = Wakeups()
        self.settings: Any = Settings()
        config: Any = {"imq.autocreate.reaptime": 5}
        cache: Any = None
        self.installation = DestinationInstallation(
            self.registry, cache, self.executor, self.wakeups, self.time, config, self.settings
        )


def definition(name: str = "q", *, auto_created: bool = False, **attributes: Any) -> Definition:
    return Definition(name, auto_created, destination_attributes(attributes, type="queue"))


def test_a_new_one_is_in_the_registry_with_its_settings() -> None:
    world = Installing()
    first, second = world.installation.make(definition("a")), world.installation.make(definition("b", maxNumMsgs=7))
    assert (first.number, second.number) == (1, 2)
    assert world.registry.destinations == {("queue", "a"): first, ("queue", "b"): second}
    assert world.registry.definition(second).attributes.maxNumMsgs == second.attributes.maxNumMsgs == 7
    assert world.settings.given == ["a", "b"]
    assert world.wakeups.due(10**12) == [], "nobody reaps what an administrator made"


def test_an_auto_created_one_wakes_when_its_reap_time_is_over() -> None:
    world = Installing()
    destination = world.installation.make(definition(auto_created=True))
    assert destination.idle_since_ms == world.clock.ms
    assert world.wakeups.due(world.clock.ms + 4999) == []
    assert world.wakeups.due(world.clock.ms + 5000) == [destination.number]


def test_a_dormant_one_comes_back_with_its_number_and_new_attributes() -> None:
    world = Installing()
    destination = world.installation.make(definition(auto_created=True))
    del world.registry.destinations["queue", "q"]
    world.registry.dormant["queue", "q"] = world.registry.definitions.pop(destination.number), destination
    again = world.installation.make(definition(maxNumMsgs=3))
    assert again is destination
    assert (again.attributes.maxNumMsgs, again.reap_ms, world.registry.dormant) == (3, None, {})
    assert world.wakeups.due(10**12) == []


def test_a_dormant_one_is_forgotten_once() -> None:
    world = Installing()
    destination = world.installation.make(definition(auto_created=True))
    world.registry.dormant["queue", "q"] = world.registry.definitions[destination.number], destination
    assert not world.installation.forget_dormant(destination.number + 1)
    assert world.installation.forget_dormant(destination.number)
    assert not world.installation.forget_dormant(destination.number)
