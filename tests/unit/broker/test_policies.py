"""Policies of a broker: what there is, which hosts know it, and what each holds for."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from raybroker.broker.policies import Policies, Saved
from raybroker.errors import ConfigError, StoreError
from raybroker.model.policy import POLICIES_MAX
from tests.unit.broker.worlds import FakeHost


class World:
    """Policies with two hosts; ``saved``: every state that was made durable."""

    def __init__(self, saved: Saved | None = None) -> None:
        self.hosts = [FakeHost("h1"), FakeHost("h2")]
        self.saved: list[Saved] = []
        self.broken = False
        self.destinations: list[Any] = [("queue", "orders"), ("queue", "orders.eu"), ("topic", "prices")]
        self.policies = Policies(saved, self._save, lambda: self.hosts, lambda: self.destinations)

    async def _save(self, saved: Saved) -> None:
        if self.broken:
            raise StoreError("the disk is broken")
        self.saved.append(saved)


def fields(**attributes: Any) -> dict[str, Any]:
    return {"pattern": "orders>", "applyTo": "all", "priority": 0, "operator": False, "attributes": attributes}


def test_a_policy_is_durable_and_known_to_all_hosts_before_the_answer() -> None:
    async def work() -> None:
        world = World()
        await world.policies.create_policy("p", "orders>", {"maxNumMsgs": "5"})
        assert world.saved == [{"p": fields(maxNumMsgs=5)}]
        assert [host.policies for host in world.hosts] == [{"p": fields(maxNumMsgs=5)}] * 2
        await world.policies.update_policy("p", {"useDMQ": False}, priority=3, unset=["maxNumMsgs"])
        assert world.policies.saved() == {"p": {**fields(useDMQ=False), "priority": 3}}
        await world.policies.destroy_policy("p")
        assert [host.policies for host in world.hosts] == [{}, {}]

    asyncio.run(work())


def test_what_cannot_be_written_down_does_not_hold() -> None:
    async def work() -> None:
        world = World()
        world.broken = True
        with pytest.raises(StoreError):
            await world.policies.create_policy("p", "orders>", {"maxNumMsgs": 5})
        assert (world.policies.saved(), world.hosts[0].policies) == ({}, None)

    asyncio.run(work())


def test_a_host_that_does_not_answer_is_told_later() -> None:
    async def work() -> None:
        world = World()
        world.hosts[0].mute = True
        await world.policies.create_policy("p", "orders>", {"maxNumMsgs": 5})
        assert (world.hosts[0].policies, world.hosts[1].policies) == (None, {"p": fields(maxNumMsgs=5)})
        world.hosts[0].mute, world.hosts[1].policies = False, None
        await world.policies.tell()
        assert (world.hosts[0].policies, world.hosts[1].policies) == ({"p": fields(maxNumMsgs=5)}, None)

    asyncio.run(work())


def test_a_host_that_comes_is_told_unless_it_cannot_know_anything_else() -> None:
    async def work() -> None:
        world, new = World(), FakeHost("h3")
        await world.policies.greet(new, True)
        assert new.policies is None
        await world.policies.greet(new, False)
        assert new.policies == {}

    asyncio.run(work())


def test_what_is_wrong_changes_nothing() -> None:
    async def work() -> None:
        world = World({"p": fields(maxNumMsgs=5)})
        policies = world.policies
        for call, text in (
            (policies.create_policy("p", ">", {"useDMQ": True}), "policy 'p' exists already"),
            (policies.create_policy("x", ">", {"nope": 1}), "policy 'x': 'nope'"),
            (policies.update_policy("x", {"useDMQ": True}), "there is no policy 'x'; there are: p"),
            (policies.update_policy("p", {}, unset=["useDMQ"]), "has no attribute 'useDMQ' to unset"),
            (policies.update_policy("p", {"maxNumMsgs": 1}, unset=["maxNumMsgs"]), "set and unset at a time"),
            (policies.update_policy("p", {}, unset=["maxNumMsgs"]), "has no attributes"),
            (policies.update_policy("p", {}, pattern="a*"), "has '\\*' beside"),
            (policies.destroy_policy("x"), "there is no policy 'x'"),
            (policies.query_policy("x"), "there is no policy 'x'"),
        ):  # fmt: skip
            with pytest.raises(ConfigError, match=text):
                await call
        assert (world.saved, policies.saved()) == ([], {"p": fields(maxNumMsgs=5)})
        full = World({f"p{number}": fields(maxNumMsgs=5) for number in range(POLICIES_MAX)})
        with pytest.raises(ConfigError, match=f"there are {POLICIES_MAX} policies"):
            await full.policies.create_policy("one-more", ">", {"useDMQ": True})

    asyncio.run(work())


def test_lists_say_what_holds_where_and_what_conflicts() -> None:
    async def work() -> None:
        world = World({
            "a": fields(maxNumMsgs=5), "b": {**fields(maxNumMsgs=6), "pattern": "*.eu"},
            "o": {**fields(maxNumMsgs=9), "operator": True}, "high": {**fields(maxNumMsgs=1), "pattern": "orders",
                                                                      "priority": 7},
        })  # fmt: skip
        rows = await world.policies.list_policies()
        assert [(row["name"], row["conflicts"]) for row in rows] == [
            ("o", {}), ("high", {}), ("a", {"b": "orders.eu"}), ("b", {"a": "orders.eu"}),
        ]  # fmt: skip
        holds = {row["name"]: (await world.policies.query_policy(row["name"]))["destinations"] for row in rows}
        assert holds == {
            "o": ["queue orders", "queue orders.eu"], "high": ["queue orders"], "a": ["queue orders.eu"], "b": [],
        }  # fmt: skip

    asyncio.run(work())
