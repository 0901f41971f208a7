"""The memory of a broker: all its processes against one limit, and what hosts are told of each other."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from raybroker.broker.observing.memory import BrokerMemory
from raybroker.core.memory_level import Level
from raybroker.model.errors import ConnectionLostError, MemoryLowError
from tests.unit.broker.worlds import World

MIB = 1 << 20


class Host:
    def __init__(self) -> None:
        self.process = self
        self.told: list[int] = []
        self.silent = False

    async def memory_elsewhere(self, nbytes: int) -> None:
        if self.silent:
            raise ConnectionLostError("it is gone")
        self.told.append(nbytes // MIB)


class Processes:
    """A broker of 60 MiB, 10 of them shared, with a limit of 1000 MiB; hosts by name with their private memory."""

    def __init__(self) -> None:
        self.hosts: dict[str, tuple[Any, int]] = {}
        self.inside: dict[str, Any] = {}
        self.private: dict[int, int] = {}
        self.config: Any = {
            "raybroker.memory.limit_bytes": 1000 * MIB,
            "imq.resource_state.threshold": "",
            "imq.resource_state.count": "5000/500/50/0",
            "imq.green.threshold": 0,
            "imq.yellow.threshold": 80,
            "imq.orange.threshold": 90,
            "imq.red.threshold": 98,
            "imq.green.count": 5000,
            "imq.yellow.count": 500,
            "imq.orange.count": 50,
            "imq.red.count": 0,
        }
        self.memory = BrokerMemory(
            self.config,
            lambda: self.hosts,
            broker="b1",
            own_bytes=lambda: (60 * MIB, 50 * MIB),
            private_of=lambda pid: self.private[pid] * MIB,
            inside=lambda: self.inside,
        )

    def host(self, key: str, pid: int, mib: int) -> Host:
        host = Host()
        self.hosts[key] = host, pid
        self.private[pid] = mib
        return host

    def look(self) -> Level:
        asyncio.run(self.memory.check_memory())
        return self.memory.level


def test_each_host_hears_what_the_others_use_and_only_when_it_has_changed() -> None:
    world = Processes()
    one, other = world.host("h1", 11, 100), world.host("h2", 12, 200)
    assert world.look() is Level.GREEN
    assert (one.told, other.told) == ([250], [150])
    assert world.memory.used_bytes == 360 * MIB
    world.private[12] = 204
    world.look()
    assert (one.told, other.told) == ([250], [150]), "half a per cent of the limit is not worth a call"
    world.private[12] = 210
    world.look()
    assert (one.told, other.told) == ([250, 260], [150])


def test_a_host_in_the_brokers_process_hears_what_the_others_use_and_counts_once() -> None:
    world = Processes()
    one, near = world.host("h1", 11, 100), Host()
    world.inside["h2"] = near
    world.look()
    assert (one.told, near.told) == ([50], [100])
    assert world.memory.used_bytes == 160 * MIB


def test_a_host_that_did_not_hear_is_told_again_and_so_is_its_successor() -> None:
    world = Processes()
    host = world.host("h1", 11, 100)
    host.silent = True
    world.look()
    host.silent = False
    world.look()
    assert host.told == [50]
    world.hosts["h1"], world.private[13] = (host, 13), 20
    world.look()
    assert host.told == [50, 50]


def test_red_refuses_destinations_until_memory_is_free_again(caplog: pytest.LogCaptureFixture) -> None:
    world = Processes()
    world.host("h1", 11, 930)
    with caplog.at_level(logging.INFO, "raybroker.broker"):
        assert world.look() is Level.RED
        with pytest.raises(MemoryLowError, match="no queue: memory is out: 990 of 1000 MiB are used by broker b1"):
            world.memory.require("no queue")
        world.private[11] = 100
        assert world.look() is Level.GREEN
    world.memory.require("no queue")
    assert [record.getMessage() for record in caplog.records] == [
        "[B1089] memory level of broker b1 is RED, it was GREEN: 990 of 1000 MiB are used by 2 processes",
        "[B1089] memory level of broker b1 is GREEN, it was RED: 160 of 1000 MiB are used by 2 processes",
    ]
    assert world.memory.figures() == {"memory_level": {"broker": 0}, "memory_used_bytes": {"broker": 160 * MIB}}


def test_a_broker_without_memory_makes_no_destination_and_still_finds_them() -> None:
    asyncio.run(_without_memory())


async def _without_memory() -> None:
    world = World(raybroker__hosting__default="shared")
    await world.admin("create_destination", type="queue", name="there", attributes={})

    class Out:
        def require(self, what: str) -> None:
            raise MemoryLowError(what)

        def memory_row(self) -> dict[str, Any]:
            return {"memory_level": "RED"}

    world.broker.memory = world.broker.destinations._memory = Out()
    for action in (
        lambda: world.admin("create_destination", type="queue", name="q", attributes={}),
        lambda: world.broker.locate("queue", "made.by.use", True),
        lambda: world.broker.create_temporary("queue", "c1"),
    ):
        with pytest.raises(MemoryLowError, match="be created"):
            await action()
    assert await world.broker.locate("queue", "there", True)
    await world.admin("update_destination", type="queue", name="there", changes={"maxNumMsgs": 5})
    assert (await world.admin("query_broker"))["memory_level"] == "RED"
    await world.admin("destroy_destination", type="queue", name="there")
