"""The record on one broker while one of its hosts does not start: what may be there waits, and nothing else does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from raybroker.cluster.change_record import Change, RecordState
from raybroker.errors import ConnectionLostError
from raybroker.model.settings.settings import DestinationAttributes
from tests.unit.broker.worlds import DMQ, FakeHost, World, served, subscription

WHY = "host h2 does not start: store damaged in segment 1"


def attributes(kind: str = "queue") -> dict[str, Any]:
    return DestinationAttributes().as_dict(kind)  # type: ignore[arg-type]


def wanted(*names: str) -> RecordState:
    state = RecordState()
    for name in names:
        state.destinations["queue", name] = attributes()
    return state


async def away(*here: str) -> tuple[World, FakeHost, Any]:
    """A broker with queues on its host h1, whose host h2 does not start."""
    world = World()
    one = FakeHost("h1", served=[served(*DMQ), *(served("queue", name) for name in here)])
    for row in one.served.values():
        row["attributes"] = {}
    await world.broker.placement.adopt(one)
    world.broker.registry.unasked = {"h2": "dedicated"}
    world.broker.registry.away.refused = {"h2": WHY}
    return world, one, world.broker.applying(lambda: None)


async def back(world: World, *there: str) -> FakeHost:
    two = FakeHost("h2", "dedicated", [served("queue", name) for name in there])
    await world.broker.placement.adopt(two)
    world.broker.registry.note_answered("h2")
    return two


def test_what_may_be_on_a_host_that_does_not_start_is_not_made_elsewhere() -> None:
    async def work() -> None:
        world, one, applying = await away("here")
        assert await applying.apply_whole(wanted("here", "there")), "a part of it waits"
        assert await applying.apply([Change("create_destination", ("queue", "later"), attributes())])
        assert await applying.apply([Change("update_destination", ("queue", "there"), {"maxNumMsgs": 5})])
        assert (one.created, world.made) == ([], [])
        rows = await world.admin("list_destinations")
        shown = {row["name"]: (row["state"], row.get("error")) for row in rows}
        assert shown["there"] == shown["later"] == ("UNKNOWN", WHY)
        assert shown["here"][0] != "UNKNOWN"
        assert rows.missing == {"loopback/h2": WHY}
        with pytest.raises(ConnectionLostError, match="store damaged in segment 1"):
            await world.admin("query_destination", type="queue", name="there")
        await back(world, "there")
        assert not await applying.apply_whole(wanted("here", "there", "later"))
        assert [host.key for host in world.made] == ["h1"], "later was on no host, and is made"
        assert world.made[0].created == ["later"]
        assert {row["state"] for row in await world.admin("list_destinations")} == {"RUNNING"}

    asyncio.run(work())


def test_what_is_known_is_changed_and_destroyed_meanwhile() -> None:
    async def work() -> None:
        _, one, applying = await away("here", "gone")
        state = wanted("here")
        state.past.add(("queue", "gone"))
        await applying.apply_whole(state)
        assert ("queue", "gone") not in one.served
        await applying.apply([Change("update_destination", ("queue", "here"), {"maxNumMsgs": 5})])
        assert any("maxNumMsgs" in str(call) for call in one.calls)

    asyncio.run(work())


def test_what_was_destroyed_while_its_host_was_away_is_destroyed_there() -> None:
    async def work() -> None:
        world, _, applying = await away()
        await applying.apply_whole(wanted("there"))
        assert await applying.apply([Change("destroy_destination", ("queue", "there"))])
        assert [row["name"] for row in await world.admin("list_destinations")] == ["mq.sys.dmq"]
        two = await back(world, "there")
        state = wanted()
        state.past.add(("queue", "there"))
        assert not await applying.apply_whole(state)
        assert two.served == {}
        assert world.dropped == [two]

    asyncio.run(work())


def test_subscriptions_and_quotas_of_a_host_that_does_not_start_are_left_alone() -> None:
    async def work() -> None:
        world, one, applying = await away()
        one.served["topic", "news"] = served("topic", "news")
        one.subscribed.append(subscription("news", "mine"))
        await world.broker.placement.adopt(one)
        await world.admin("create_quota", name="small", attributes={"MessagesMaximum": 5})
        assert await applying.apply([Change("destroy_subscription", ("c", "its"))])
        assert await applying.apply([Change("destroy_subscription", ("c", "mine"))])
        assert [call[1:] for call in one.calls if call[0] == "unsubscribe"] == [("news", "c", "mine")]
        elsewhere = {"topic": "away", "shared": False, "selector": None, "no_local": False}
        assert await applying.apply([Change("create_subscription", ("c", "its"), elsewhere)])
        assert await applying.apply([Change("destroy_quota", ("small",))])
        assert [row["name"] for row in await world.admin("list_quotas")] == ["small"]
        assert world.made == []

    asyncio.run(work())


def test_a_host_that_may_still_start_is_waited_for() -> None:
    async def work() -> None:
        world, _, _ = await away()
        registry = world.broker.registry
        registry.require_started("what the record changes")
        registry.unasked["h3"] = "dedicated"
        with pytest.raises(ConnectionLostError, match="h2, h3"):
            registry.require_started("what the record changes")

    asyncio.run(work())
