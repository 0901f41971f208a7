"""The spare host: at most one, taken by one, replaced, ended when it is not wanted or does not answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from raybroker.actors.hosts import spare_host
from raybroker.actors.hosts.spare_host import SpareHost
from raybroker.model.errors import BrokerError, ConnectionLostError


class FakeHost:
    def __init__(self, number: int) -> None:
        self.key = f"b1/h{number}"
        self.process = self
        self.told: list[dict[str, Any]] = []
        self.answers: Callable[[], Any] = lambda: None

    async def configure(self, changed: dict[str, Any]) -> None:
        self.answers()
        self.told.append(changed)


class World:
    """Hosts start at once, or when ``gate`` is opened; ``fault`` keeps the next from starting."""

    def __init__(self) -> None:
        self.started: list[FakeHost] = []
        self.ended: list[FakeHost] = []
        self.wanted = True
        self.fault: BrokerError | None = None
        self.gate: asyncio.Event | None = None
        self.spare = SpareHost(self.start, self.end, lambda: self.wanted)  # type: ignore[arg-type]

    async def start(self) -> FakeHost:
        if self.gate is not None:
            await self.gate.wait()
        if self.fault is not None:
            raise self.fault
        self.started.append(FakeHost(len(self.started) + 1))
        return self.started[-1]

    async def end(self, host: FakeHost) -> None:
        self.ended.append(host)

    async def kept(self) -> list[Any]:
        await self.spare.keep()
        await settle()
        return self.spare.hosts


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def run(story: Callable[[World], Any]) -> None:
    async def told() -> None:
        await story(World())

    asyncio.run(told())


def test_there_is_one_spare_however_often_it_is_looked_after() -> None:
    async def story(world: World) -> None:
        assert await world.kept() == await world.kept() == world.started
        assert len(world.started) == 1

    run(story)


def test_a_spare_is_taken_once_told_what_is_changed_and_replaced() -> None:
    async def story(world: World) -> None:
        (first,) = await world.kept()
        assert await world.spare.take_host({"a": 1}) is first
        assert (first.told, world.spare.hosts) == ([{"a": 1}], [])
        assert await world.spare.take_host({}) is None
        assert await world.kept() == [world.started[1]]
        assert world.ended == []

    run(story)


def test_one_that_is_just_starting_is_waited_for_by_one_and_by_no_other() -> None:
    async def story(world: World) -> None:
        world.gate = asyncio.Event()
        assert await world.kept() == []
        takers = [asyncio.create_task(world.spare.take_host({})) for _ in range(2)]
        await settle()
        world.gate.set()
        assert await asyncio.gather(*takers) == [world.started[0], None]

    run(story)


def test_without_the_property_there_is_none_and_a_spare_that_is_there_ends() -> None:
    async def story(world: World) -> None:
        (spare,) = await world.kept()
        world.wanted = False
        assert await world.kept() == []
        assert world.ended == [spare]
        assert await world.kept() == []
        assert len(world.started) == 1

    run(story)


def test_a_spare_that_could_not_start_is_tried_again_and_nobody_fails_for_it() -> None:
    async def story(world: World) -> None:
        world.fault = ConnectionLostError("no process")
        assert await world.kept() == []
        assert await world.spare.take_host({}) is None
        assert await world.kept() == []
        world.fault = None
        assert await world.kept() == world.started
        assert len(world.started) == 1

    run(story)


def test_a_spare_that_does_not_answer_is_ended_and_not_handed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone() -> None:
        raise ConnectionLostError("gone")

    async def story(world: World) -> None:
        (spare,) = await world.kept()
        spare.answers = gone
        assert await world.spare.take_host({}) is None
        assert world.ended == [spare]

    run(story)
    monkeypatch.setattr(spare_host, "ANSWER_WAIT_S", 0.0)

    async def slow(world: World) -> None:
        (spare,) = await world.kept()

        async def never(_changed: dict[str, Any]) -> None:
            await asyncio.Event().wait()

        spare.configure = never
        assert await world.spare.take_host({}) is None
        assert world.ended == [spare]

    run(slow)


def test_what_a_caller_that_went_away_had_asked_for_is_the_spare_again() -> None:
    async def story(world: World) -> None:
        world.gate = asyncio.Event()
        await world.kept()
        taker = asyncio.create_task(world.spare.take_host({}))
        await settle()
        taker.cancel()
        await asyncio.wait({taker})
        world.gate.set()
        await settle()
        assert world.spare.hosts == world.started
        assert len(world.started) == 1

    run(story)


def test_it_is_ended_where_another_one_was_started_meanwhile() -> None:
    async def story(world: World) -> None:
        world.gate = asyncio.Event()
        await world.kept()
        taker = asyncio.create_task(world.spare.take_host({}))
        await settle()
        await world.spare.keep()
        taker.cancel()
        await asyncio.wait({taker})
        world.gate.set()
        await settle()
        assert len(world.started) == 2
        assert world.spare.hosts == [host for host in world.started if host not in world.ended]
        assert len(world.ended) == 1

    run(story)


def test_a_broker_that_stops_waits_for_the_one_that_is_starting_and_starts_none() -> None:
    async def story(world: World) -> None:
        world.gate = asyncio.Event()
        await world.kept()
        asyncio.get_running_loop().call_later(0, world.gate.set)
        await world.spare.close()
        assert world.spare.hosts == world.started
        assert await world.kept() == []
        assert world.ended == world.started

    run(story)
