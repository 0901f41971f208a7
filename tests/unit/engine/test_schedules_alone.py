"""Schedules send their message when it is due, once for what was missed, and again when it is not taken."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from raybroker.core import command as cmd
from raybroker.core.destination import Destination
from raybroker.engine.path.wakeups import AGAIN_MS, Wakeups
from raybroker.engine.schedules.schedule_log import Row
from raybroker.engine.schedules.schedules import Schedules
from raybroker.model.errors import ConfigError, InvalidDestinationError, ResourceAllocationError, StoreDamagedError
from tests.unit.engine.parts import Desk
from tests.unit.engine.rig import made


class Planned(Desk):
    """``templates``: messages of schedules, as the block cache keeps them."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__()
        self.home = self.add(**attributes)
        self.templates: dict[int, Any] = {}
        self.freed: list[int] = []
        self.damaged = False
        cache: Any = SimpleNamespace(
            put=lambda number, ordinal, block, stored: self.templates.update({ordinal: block}),
            get=self._template,
            demote=lambda number, ordinal: None,
            retire=lambda number, ordinals, stored: self.freed.extend(ordinals),
        )
        self.wakeups = Wakeups()
        self.memory: Any = SimpleNamespace(barred="")
        self.schedules = Schedules(
            self.executor,
            self.registry,
            cache,
            self.own,
            self.wakeups,
            self.codec,
            self.time,
            self.lines.append,
            self.memory,
        )

    def _template(self, number: int, ordinal: int) -> Any:
        if self.damaged:
            raise StoreDamagedError("block of a schedule")
        return self.templates[ordinal]

    def plan(
        self,
        expression: str = "@every 10s",
        *,
        id_: str = "s",
        home: Destination | None = None,
        repeat: int = 0,
        catch_up: bool = False,
    ) -> None:
        now_ms = self.clock.ms
        row = Row(
            number=0,
            id=id_,
            destination=0,
            expression=expression,
            zone="UTC",
            repeat=repeat,
            catch_up=catch_up,
            ttl_ms=0,
            delay_ms=0,
            created_ms=now_ms,
            fired=0,
            last_ms=now_ms,
        )
        self.schedules.add(home or self.home, row, made("m"), lambda: None)

    def after(self, ms: int) -> int:
        """How many messages there are then."""
        self.clock.ms += ms
        self.schedules.tick()
        return self.home.block_index.messages


def test_it_fires_when_it_is_due_and_asks_to_be_woken() -> None:
    world = Planned()
    world.plan()
    assert world.wakeups.due(world.clock.ms + 10_000) == [0]
    assert [world.after(9999), world.after(1), world.after(9999), world.after(1)] == [0, 1, 1, 2]
    assert world.home.kept, "its destination is not idle"


@pytest.mark.parametrize(("catch_up", "messages"), [(True, 6), (False, 1)])
def test_missed_occurrences_are_made_up_for_or_stand_as_one(catch_up: bool, messages: int) -> None:
    world = Planned()
    world.plan(catch_up=catch_up)
    assert world.after(60_000) == messages
    assert [line for line in world.lines if "were missed" in line] == world.lines
    assert len(world.lines) == (not catch_up)


def test_the_last_firing_ends_it_and_frees_its_message() -> None:
    world = Planned()
    world.plan(repeat=2)
    assert [world.after(10_000) for _ in range(4)] == [1, 2, 2, 2]
    assert (world.schedules.rows(), world.freed, world.home.kept) == ([], [1], False)


def test_a_full_destination_gets_it_later_and_the_log_hears_once() -> None:
    world = Planned(maxNumMsgs=0)
    world.plan()
    for _ in range(3):
        world.after(10_000)
    assert world.home.block_index.messages == 0
    assert sum("does not take it now" in line for line in world.lines) == 1
    world.executor.perform(world.home, cmd.Update(world.add("free").attributes))
    assert world.after(AGAIN_MS) == 1


def test_one_whose_message_is_damaged_halts_alone() -> None:
    world = Planned()
    world.plan()
    world.damaged = True
    assert [world.after(10_000), world.after(10_000)] == [0, 0]
    assert world.lines == ["schedule s is halted: block of a schedule"]


def test_what_cannot_be_planned_is_refused_and_leaves_nothing() -> None:
    world = Planned(maxNumSchedules=1)
    with pytest.raises(ConfigError):
        world.plan("every now and then")
    with pytest.raises(InvalidDestinationError, match="would outlive it"):
        world.plan(home=world.add("tmp", owner="me"))
    world.plan()
    world.plan()
    assert len(world.schedules.rows()) == 1, "the same id is the same schedule"
    with pytest.raises(ResourceAllocationError, match="maxNumSchedules=1"):
        world.plan(id_="other")
    assert len(world.templates) == 1


def test_a_destroyed_one_sends_nothing_more() -> None:
    world = Planned()
    world.plan()
    world.schedules.destroy("s", lambda: None)
    assert world.after(20_000) == 0
    assert world.freed == [1]
    with pytest.raises(InvalidDestinationError, match="no schedule 's'"):
        world.schedules.destroy("s", lambda: None)
