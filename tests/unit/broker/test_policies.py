"""Policies of a broker: what there is, which hosts know it, and what each holds for."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from raybroker.broker.definitions.named import Saved, keep_nothing
from raybroker.broker.definitions.policies import Policies
from raybroker.errors import ConfigError, ConnectionLostError, StoreError
from raybroker.model.definitions.policy import POLICIES_MAX
from raybroker.model.settings.settings import destination_attributes
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
        ):
            with pytest.raises(ConfigError, match=text):
                await call
        assert (world.saved, policies.saved()) == ([], {"p": fields(maxNumMsgs=5)})
        full = World({f"p{number}": fields(maxNumMsgs=5) for number in range(POLICIES_MAX)})
        with pytest.raises(ConfigError, match=f"there are {POLICIES_MAX} policies"):
            await full.policies.create_policy("one-more", ">", {"useDMQ": True})

    asyncio.run(work())


def test_lists_say_what_holds_where_and_what_conflicts() -> None:
    async def work() -> None:
        world = World(
            {
                "a": fields(maxNumMsgs=5),
                "b": {**fields(maxNumMsgs=6), "pattern": "*.eu"},
                "o": {**fields(maxNumMsgs=9), "operator": True},
                "high": {**fields(maxNumMsgs=1), "pattern": "orders", "priority": 7},
            }
        )
        rows = await world.policies.list_policies()
        assert [(row["name"], row["conflicts"]) for row in rows] == [
            ("o", {}),
            ("high", {}),
            ("a", {"b": "orders.eu"}),
            ("b", {"a": "orders.eu"}),
        ]
        holds = {row["name"]: (await world.policies.query_policy(row["name"]))["destinations"] for row in rows}
        assert holds == {
            "o": ["queue orders", "queue orders.eu"],
            "high": ["queue orders"],
            "a": ["queue orders.eu"],
            "b": [],
        }

    asyncio.run(work())


class KnownQuotas:
    """There is one, named q; ``mute``: no host can be told of it."""

    def __init__(self) -> None:
        self.mute = False

    def check(self, label: str, attributes: Any) -> None:
        if attributes["quota"] != "q":
            raise ConfigError(f"{label}: there is no such quota")

    async def known_at(self, host: Any, attributes: dict[str, Any]) -> None:
        if self.mute and attributes.get("quota"):
            raise ConnectionLostError("it cannot be told now")


def defaults(key: tuple[str, str]) -> dict[str, Any]:
    return destination_attributes({}, type=key[0]).as_dict(key[0])  # type: ignore[arg-type]


def made(quotas: KnownQuotas, hosts: list[FakeHost]) -> Policies:
    return Policies(None, keep_nothing, lambda: hosts, list, defaults, quotas)


def test_a_host_knows_of_a_quota_before_it_knows_of_a_policy_that_names_it() -> None:
    async def work() -> None:
        quotas, host = KnownQuotas(), FakeHost("h1")
        policies = made(quotas, [host])
        with pytest.raises(ConfigError, match="policy 'p': there is no such quota"):
            await policies.create_policy("p", ">", {"quota": "x"})
        quotas.mute = True
        await policies.create_policy("p", ">", {"quota": "q"})
        assert host.policies is None
        quotas.mute = False
        await policies.tell()
        assert host.policies is not None
        assert (policies.names("q"), policies.names("x")) == (["p"], [])

    asyncio.run(work())


def test_traits_follow_policies_and_what_would_be_switched_on_is_found() -> None:
    async def work() -> None:
        policies, key = made(KnownQuotas(), []), ("queue", "orders")
        own = {"unitOfOrder": False, "duplicateWindowMs": 0, "unitOfOrderRouting": "Hash", "distributed": True}
        assert policies.traits(key, own) == own  # type: ignore[arg-type]
        await policies.create_policy("p", "orders", {"unitOfOrder": True})
        assert policies.traits(key, own)["unitOfOrder"] is True  # type: ignore[arg-type]
        rows = [{"type": "queue", "name": name, "attributes": own} for name in ("orders", "other")]
        rows.append({"type": "queue", "name": "has", "attributes": {**own, "duplicateWindowMs": 5}})
        window = policies.checked("w", ">", {"duplicateWindowMs": 5}, "all", 0, False)
        assert policies.may_switch_on("w", window)
        assert await policies.switched_on("w", window, rows) == ["queue other"], "p holds for orders, as a whole"
        assert await policies.switched_on("p", None, rows) == []
        await policies.create_policy("w", ">", {"duplicateWindowMs": 5})
        assert await policies.switched_on("p", None, rows) == ["queue orders"], "without p the other one holds"
        assert await policies.switched_on("w", None, rows) == []

    asyncio.run(work())
