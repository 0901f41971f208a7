"""Changing properties of one broker: what is written down, and which hosts know of it (A-17)."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from raybroker.errors import BrokerGoneError, ConfigError, StoreError
from tests.unit.broker.worlds import FakeHost, World

LEVEL = "imq.log.level"
SAVED = {LEVEL: ["ERROR", "INFO"]}


async def update(world: World, level: str, **more: Any) -> Any:
    return await world.admin("update_broker", properties={LEVEL: level}, **more)


async def two_hosts(world: World) -> list[FakeHost]:
    for name in ("a", "b"):
        await world.admin("create_destination", type="queue", name=name, attributes={"hosting": "dedicated"})
    return world.made


def test_a_change_is_written_down_and_told_to_all_hosts() -> None:
    async def work() -> None:
        world = World()
        hosts = await two_hosts(world)
        assert [host.configured for host in hosts] == [None, None]
        row = {"changed": {LEVEL: "ERROR"}, "unreached": []}
        assert await update(world, "error") == {"brokers": {"loopback": row}, "down": []}
        assert [host.configured for host in hosts] == [{LEVEL: "ERROR"}] * 2
        assert world.kept == SAVED
        assert (await world.admin("query_broker"))["changed"] == {LEVEL: "ERROR"}
        await update(world, "INFO", broker="loopback")
        assert [host.configured for host in hosts] == [{}] * 2
        assert world.kept == {}

    asyncio.run(work())


def test_a_host_that_does_not_answer_is_told_later() -> None:
    async def work() -> None:
        world = World()
        hosts = await two_hosts(world)
        hosts[1].mute = True
        found = await update(world, "ERROR")
        assert found["brokers"]["loopback"]["unreached"] == [hosts[1].key]
        await world.broker.properties.tell()
        assert hosts[1].configured is None
        hosts[1].mute = False
        hosts[0].configured = None
        await world.broker.properties.tell()
        assert (hosts[0].configured, hosts[1].configured) == (None, {LEVEL: "ERROR"})

    asyncio.run(work())


def test_a_host_that_is_new_or_was_there_before_the_broker_is_told() -> None:
    async def work() -> None:
        world = World(changed=SAVED)
        old = FakeHost("h0", served=[])
        await world.broker.placement.adopt(old)
        assert old.configured == {LEVEL: "ERROR"}
        (new, _) = await two_hosts(world)
        assert new.configured == {LEVEL: "ERROR"}
        undone = World()
        await undone.broker.placement.adopt(old)
        assert old.configured == {}

    asyncio.run(work())


def test_what_cannot_be_written_down_or_is_wrong_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        world = World()
        (host, _) = await two_hosts(world)
        world.broken_disk = True
        with pytest.raises(StoreError):
            await update(world, "ERROR")
        world.broken_disk = False
        with pytest.raises(ConfigError):
            await update(world, "LOUD")
        with pytest.raises(BrokerGoneError, match="b7"):
            await update(world, "ERROR", broker="b7")
        assert (host.configured, world.kept, world.broker.config[LEVEL]) == (None, {}, "INFO")
        await update(world, "WARNING")

    with caplog.at_level(logging.INFO, logger="raybroker.broker"):
        asyncio.run(work())
    assert [r.getMessage() for r in caplog.records if "B1082" in r.getMessage()] == [
        "[B1082] broker loopback: imq.log.level is now WARNING"
    ]


def test_changes_at_the_same_time_come_one_after_the_other() -> None:
    async def work() -> None:
        world = World()
        (host, _) = await two_hosts(world)
        await asyncio.gather(
            *(update(world, level) for level in ("ERROR", "NONE", "WARNING")),
            world.admin("update_broker", properties={"imq.log.file.rolloversecs": "60"}),
        )
        assert host.configured == {LEVEL: "WARNING", "imq.log.file.rolloversecs": 60}
        assert world.kept == {LEVEL: ["WARNING", "INFO"], "imq.log.file.rolloversecs": [60, "604800"]}

    asyncio.run(work())
