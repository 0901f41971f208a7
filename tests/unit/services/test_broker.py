"""A broker and its hosts: nothing is missing, and nothing is made twice, while one of them cannot be asked."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from raybroker.config import Config
from raybroker.errors import ConfigError, ConnectionLostError, InvalidDestinationError
from raybroker.services.broker import Broker


class FakeHost:
    """A host that only remembers what it serves."""

    def __init__(self, key: str, hosting: str = "shared", **names: bool) -> None:
        self.key = key
        self.hosting = hosting
        self.served = names
        self.created: list[str] = []

    async def names(self) -> dict[str, bool]:
        return dict(self.served)

    async def create(self, name: str, attributes: dict[str, Any], auto_created: bool) -> None:
        await asyncio.sleep(0)
        self.created.append(name)
        self.served[name] = auto_created

    async def destroy(self, name: str) -> None:
        await asyncio.sleep(0)
        del self.served[name]

    async def query(self, name: str) -> dict[str, Any]:
        if self.key == "mute":
            raise ConnectionLostError("restarting")
        return {"name": name, "state": "RUNNING"}


class World:
    """A broker whose hosts are made and dropped here."""

    def __init__(self, **properties: object) -> None:
        self.made: list[FakeHost] = []
        self.dropped: list[Any] = []
        config = Config.of({name.replace("__", "."): value for name, value in properties.items()})
        self.broker: Any = Broker(config, make_host=self._make, drop_host=self._drop)

    async def _make(self, hosting: str) -> Any:
        await asyncio.sleep(0)
        self.made.append(FakeHost(f"h{len(self.made) + 1}", hosting))
        return self.made[-1]

    async def _drop(self, host: Any) -> None:
        self.dropped.append(host)


def test_while_a_host_cannot_be_asked_an_unknown_queue_may_live_there() -> None:
    async def work() -> None:
        world = World()
        broker = world.broker
        await broker.adopt(FakeHost("h1", known=False))
        broker.unasked = {"h2": "dedicated"}
        assert (await broker.locate("queue", "known", False)).key == "h1"
        for call in (
            broker.locate("queue", "other", False),
            broker.locate("queue", "other", True),
            broker.create_destination("queue", "other", {}),
            broker.query_destination("queue", "other"),
            broker.destroy_destination("queue", "other"),
        ):
            with pytest.raises(ConnectionLostError, match="h2"):
                await call
        assert world.made == []
        await broker.adopt(FakeHost("h2", "dedicated", other=False))
        broker.unasked = {}
        assert (await broker.locate("queue", "other", True)).key == "h2"
        with pytest.raises(InvalidDestinationError):
            await broker.locate("queue", "third", False)

    asyncio.run(work())


def test_a_queue_that_many_open_at_once_is_created_on_one_host() -> None:
    async def work() -> None:
        world = World()
        hosts = await asyncio.gather(*(world.broker.locate("queue", "orders", True) for _ in range(20)))
        assert {host.key for host in hosts} == {"h1"}
        assert [host.key for host in world.made] == ["h1"]

    asyncio.run(work())


@pytest.mark.parametrize("hosts", [1, 3])
def test_shared_queues_are_spread_over_the_pool_and_dedicated_ones_have_a_host_each(hosts: int) -> None:
    async def work() -> None:
        world = World(raybroker__hosting__shared__hosts=hosts)
        for n in range(6):
            await world.broker.create_destination("queue", f"shared{n}", {"hosting": "shared"})
        assert [len(h.created) for h in world.made] == [6 // hosts] * hosts
        await world.broker.create_destination("queue", "own", {"hosting": "dedicated"})
        assert world.made[-1].created == ["own"]
        await world.broker.destroy_destination("queue", "own")
        assert world.dropped == [world.made[-1]]
        await world.broker.destroy_destination("queue", "shared0")
        assert len(world.dropped) == 1

    asyncio.run(work())


def test_a_dedicated_host_that_serves_nothing_is_dropped_when_the_broker_comes_back() -> None:
    async def work() -> None:
        world = World()
        empty, pooled = FakeHost("h1", "dedicated"), FakeHost("h2", "shared")
        for host in (empty, pooled):
            await world.broker.adopt(host)
        assert world.dropped == [empty]
        assert (await world.broker.locate("queue", "orders", True)).key == "h2"

    asyncio.run(work())


def test_a_host_that_cannot_answer_is_listed_as_such() -> None:
    async def work() -> None:
        world = World()
        await world.broker.adopt(FakeHost("mute", a=False))
        await world.broker.adopt(FakeHost("h1", b=False))
        rows = await world.broker.list_destinations()
        assert [(row["name"], row["state"]) for row in rows] == [("a", "UNKNOWN"), ("b", "RUNNING")]

    asyncio.run(work())


def test_an_unknown_verb_names_those_there_are() -> None:
    async def work() -> None:
        with pytest.raises(ConfigError, match="create_destination"):
            await World().broker.admin("explode", {})

    asyncio.run(work())
