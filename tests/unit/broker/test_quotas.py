"""Quotas of a broker: what there is, which hosts know it, and who uses it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from raybroker.broker.definitions.named import Saved
from raybroker.broker.definitions.quotas import NAMED_MAX, Quotas, merged, refuse_used
from raybroker.errors import ConfigError, ConnectionLostError, IllegalStateError, StoreError
from tests.unit.broker.worlds import FakeHost


class World:
    """Quotas with two hosts; ``saved``: every state that was made durable."""

    def __init__(self, saved: Saved | None = None) -> None:
        self.hosts = [FakeHost("a"), FakeHost("b")]
        self.unasked: list[str] = []
        self.templates: list[dict[str, Any]] = []
        self.saved: list[Saved] = []
        self.full = False
        self.quotas = Quotas(saved, self._save, lambda: self.hosts, lambda: self.unasked, self._listed, broker="b1")

    async def _save(self, saved: Saved) -> None:
        await asyncio.sleep(0)
        if self.full:
            raise StoreError("the disk is full")
        self.saved.append(saved)

    async def _listed(self) -> list[dict[str, Any]]:
        return self.templates

    def told(self) -> list[list[str] | None]:
        return [None if host.quotas is None else sorted(host.quotas) for host in self.hosts]


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(work())


def test_a_change_is_durable_before_hosts_hear_of_it_and_no_change_is_lost() -> None:
    async def work() -> None:
        world = World()
        names = [f"q{n}" for n in range(5)]
        await asyncio.gather(*(world.quotas.create_quota(name, {}) for name in names))
        assert sorted(world.saved[-1]) == names
        assert world.told() == [names, names]
        world.full = True
        with pytest.raises(StoreError):
            await world.quotas.destroy_quota("q0")
        assert world.told() == [names, names]
        assert [row["name"] for row in await world.quotas.list_quotas()] == names

    run(work)


def test_a_host_that_cannot_be_told_is_told_later_and_gets_no_destination_before() -> None:
    async def work() -> None:
        world = World()
        world.hosts[0].mute = True
        await world.quotas.create_quota("q", {})
        assert world.told() == [None, ["q"]]
        await world.quotas.known_at(world.hosts[0], {"quota": ""})
        with pytest.raises(ConnectionLostError, match="host a cannot be told of quota 'q'"):
            await world.quotas.known_at(world.hosts[0], {"quota": "q"})
        world.hosts[0].mute = False
        await world.quotas.known_at(world.hosts[0], {"quota": "q"})
        assert world.told() == [["q"], ["q"]]
        world.hosts[0].mute = True
        await world.quotas.create_quota("r", {})
        world.hosts[0].mute = False
        await world.quotas.tell()
        assert world.told() == [["q", "r"], ["q", "r"]]

    run(work)


def test_a_host_that_was_there_before_the_broker_is_told_what_there_is_not_as_well() -> None:
    async def work() -> None:
        world = World()
        await world.quotas.greet(world.hosts[0], new=False)
        await world.quotas.greet(world.hosts[1], new=True)
        assert world.told() == [[], None]
        world = World({"q": {"MessagesMaximum": 1, "BytesMaximum": -1, "Policy": "FIFO", "Shared": True}})
        await world.quotas.greet(world.hosts[1], new=True)
        assert world.told() == [None, ["q"]]

    run(work)


def test_who_uses_a_quota_is_named_and_keeps_it() -> None:
    async def work() -> None:
        world = World()
        await world.quotas.create_quota("q", {"MessagesMaximum": 9})
        for number, host in enumerate(world.hosts):
            await host.destinations.create("queue", f"n{number}", {"quota": "q"}, False, None)
        world.templates = [{"name": "t", "attributes": {"quota": "q"}}, {"name": "u", "attributes": {}}]
        with pytest.raises(IllegalStateError, match="quota 'q' is in use by queue n0, queue n1, template t;"):
            await world.quotas.destroy_quota("q")
        row = await world.quotas.query_quota("q")
        assert (row["messages"], row["bytes"], row["waiting"], row["refused"]) == (2, 4, 0, 6)
        assert [pool["broker"] for pool in row["pools"]] == ["b1", "b1"]
        world.unasked = ["b1/h3"]
        with pytest.raises(ConnectionLostError, match="b1/h3"):
            await world.quotas.destroy_quota("q")

    run(work)


def test_the_pool_of_a_quota_has_its_limits() -> None:
    async def work() -> None:
        world = World()
        await world.quotas.create_quota("q", {"MessagesMaximum": 9, "Policy": "Preemptive"})
        limits = world.quotas.limits("quota:q")
        assert limits is not None
        assert (limits.messages, limits.bytes, limits.policy) == (9, -1, "Preemptive")
        assert [world.quotas.limits(pool) for pool in ("q", "system", "quota:x", "quota:")] == [None] * 4

    run(work)


def test_rows_of_several_brokers_are_added_up() -> None:
    def row(broker: str, *users: str) -> dict[str, Any]:
        return {
            "name": "q",
            "users": list(users),
            "messages": 1,
            "bytes": 2,
            "waiting": 3,
            "refused": 4,
            "pools": [{"broker": broker}],
        }

    found = merged([row("b1", "queue a"), row("b2", "queue a", "queue b")])
    assert found == {
        "name": "q",
        "users": ["queue a", "queue b"],
        "messages": 2,
        "bytes": 4,
        "waiting": 6,
        "refused": 8,
        "pools": [{"broker": "b1"}, {"broker": "b2"}],
    }


def test_of_many_users_some_are_named() -> None:
    with pytest.raises(IllegalStateError, match="queue 4 and 2 more;"):
        refuse_used("q", [f"queue {n}" for n in range(NAMED_MAX + 2)])
    refuse_used("q", [])


def test_an_unknown_one_is_said_with_those_there_are() -> None:
    quotas = World({"a": {}, "b": {}}).quotas
    with pytest.raises(ConfigError, match="there is no quota 'c'; there are: a, b"):
        quotas.require({"quota": "c"})
    quotas.require({"quota": "a"})
    quotas.require({})
