"""A producer without a destination: one for each that was sent to lately, over producers that remember nothing."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from raybroker.client.destinations import Destination, Queue
from raybroker.client.producer.members import unnamed
from raybroker.client.producer.members.unnamed import UnnamedProducer
from raybroker.client.producer.producer_state import Shared
from raybroker.model.errors import BrokerError, ConnectionLostError, IllegalStateError


class Named:
    def __init__(self, destination: Destination) -> None:
        self.destination = destination
        self.failure: BrokerError | None = None
        self.duplicates, self.refused, self.closed = 1, 2, False
        self.fault: BrokerError | None = None

    def settled_futures(self) -> list[Future[None]]:
        return [Future()]

    async def close(self) -> None:
        self.closed = True
        if self.fault is not None:
            raise self.fault


class World:
    def __init__(self) -> None:
        self.opened: list[Named] = []
        self.let_go: list[Any] = []
        connection: Any = SimpleNamespace(tasks=SimpleNamespace(spawn=asyncio.ensure_future))
        opener: Any = self._open
        self.producer = UnnamedProducer(connection, Shared(True, 4), opener, self._let_go, transacted=False)

    async def _open(self, destination: Destination, shared: Shared) -> Named:
        self.opened.append(Named(destination))
        return self.opened[-1]

    async def _let_go(self, producer: Any) -> None:
        self.let_go.append(producer)

    async def find(self, *names: str) -> None:
        for name in names:
            await self.producer.find(Queue(name))
        await asyncio.sleep(0)


def test_a_destination_that_was_sent_to_lately_keeps_its_producer() -> None:
    world = World()
    assert world.producer.known(Queue("a")) is None
    asyncio.run(world.find("a", "b", "a"))
    assert [one.destination.name for one in world.opened] == ["a", "b"]
    known: Any = world.producer.known(Queue("a"))
    assert known is world.opened[0]


def test_the_producer_used_last_is_found_again_until_it_fails_or_the_whole_is_closed() -> None:
    world = World()
    first, second = Queue("a"), Queue("b")
    asyncio.run(world.producer.find(first))  # type: ignore[arg-type]
    asyncio.run(world.producer.find(second))  # type: ignore[arg-type]
    found: list[Any] = [world.producer.known(one) for one in (second, second, first, first)]
    assert found == [world.opened[1], world.opened[1], world.opened[0], world.opened[0]]
    world.opened[0].failure = ConnectionLostError("gone")
    assert world.producer.known(first) is None
    asyncio.run(world.find("a"))
    again: Any = world.producer.known(first)
    assert again is world.opened[2]
    world.producer.closed = True
    with pytest.raises(IllegalStateError, match="closed"):
        world.producer.known(first)


def test_the_one_used_longest_ago_makes_room_and_its_counts_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unnamed, "DESTINATIONS_MAX", 2)
    world = World()
    asyncio.run(world.find("a", "b", "a", "c"))
    assert [one.destination.name for one in world.let_go] == ["b"]
    assert (world.producer.duplicates, world.producer.refused) == (3, 6)
    assert len(world.producer.settled_futures()) == 2


def test_a_producer_that_has_failed_is_replaced() -> None:
    world = World()
    asyncio.run(world.find("a"))
    world.opened[0].failure = ConnectionLostError("cut")
    asyncio.run(world.find("a"))
    assert (len(world.opened), world.let_go) == (2, world.opened[:1])


def test_closing_closes_all_and_raises_the_first_error() -> None:
    world = World()
    asyncio.run(world.find("a", "b", "c"))
    for index in (0, 1):
        world.opened[index].fault = ConnectionLostError(f"lost {index}")
    with pytest.raises(ConnectionLostError, match="lost 0"):
        asyncio.run(world.producer.close())
    assert all(one.closed for one in world.opened)
    with pytest.raises(IllegalStateError, match="the producer is closed"):
        world.producer.known(Queue("a"))
