"""Durable subscriptions over all topics: one identity is one subscription (D-27, A-40 … A-42)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from raybroker.errors import IllegalStateError, InvalidDestinationError
from tests.unit.broker.worlds import FakeHost, World, served, subscription


async def two_hosts() -> tuple[World, FakeHost, FakeHost]:
    world = World()
    one = FakeHost("h1", served=[served("topic", "a")])
    two = FakeHost("h2", served=[served("topic", "b")])
    one.subscribed = [subscription("a", "audit", selector="x > 1")]
    for host in (one, two):
        await world.broker.placement.adopt(host)
    return world, one, two


def run(work: Any) -> None:
    asyncio.run(work())


def test_the_same_subscription_again_changes_nothing() -> None:
    async def work() -> None:
        world, one, two = await two_hosts()
        one.subscribed[0]["active"] = True
        await world.broker.subscribe("a", "c", "audit", selector="x > 1")
        assert one.calls == two.calls == []

    run(work)


def test_topics_and_subscriptions_that_are_gone_leave_nothing() -> None:
    """Whichever way they go: destroyed, with their topic, by their host, or never made."""

    async def work() -> None:
        world, _, _ = await two_hosts()
        broker = world.broker
        for number in range(20):
            await broker.admin("create_destination", {"type": "topic", "name": f"t{number}", "attributes": {}})
            await broker.subscribe(f"t{number}", "c", f"s{number}")
            await broker.admin("destroy_destination", {"type": "topic", "name": f"t{number}"})
            broker.placement.forget_destination("queue", await broker.create_temporary("queue", "somebody"))
            with pytest.raises(InvalidDestinationError):
                await broker.unsubscribe("c", f"never made {number}")
        assert not broker.placement._changing
        assert not broker.subscriptions._changing
        assert broker.subscriptions._topics == {("c", "audit"): {"a"}}

    run(work)


@pytest.mark.parametrize(
    "changed",
    [{"topic": "b"}, {"selector": None}, {"selector": "x > 2"}, {"no_local": True}],
)
def test_another_topic_or_selector_ends_the_old_subscription_unless_it_is_in_use(changed: dict[str, Any]) -> None:
    async def work() -> None:
        world, one, two = await two_hosts()
        wanted = {"topic": "a", "client_id": "c", "name": "audit", "selector": "x > 1", **changed}
        one.subscribed[0]["active"] = True
        with pytest.raises(IllegalStateError, match="'audit' is in use with another"):
            await world.broker.subscribe(**wanted)
        assert one.calls == []
        one.subscribed[0]["active"] = False
        await world.broker.subscribe(**wanted)
        assert one.calls == [("unsubscribe", "a", "c", "audit")]
        assert two.calls == []

    run(work)


def test_a_shared_and_an_unshared_subscription_exclude_each_other_whether_in_use_or_not() -> None:
    async def work() -> None:
        world, one, _ = await two_hosts()
        wanted = {"topic": "a", "client_id": "c", "name": "audit", "selector": "x > 1", "shared": True}
        for active in (True, False):
            one.subscribed[0]["active"] = active
            with pytest.raises(IllegalStateError, match="'audit' exists as an unshared durable subscription"):
                await world.broker.subscribe(**wanted)
        assert one.calls == []

    run(work)


def test_identities_are_client_id_and_name_together() -> None:
    async def work() -> None:
        world, one, _ = await two_hosts()
        await world.broker.subscribe("b", "other", "audit")
        await world.broker.subscribe("b", None, "audit", shared=True)
        await world.broker.subscribe("b", "c", "second")
        await world.broker.subscribe("b", "c", "audit", durable=False, shared=True)
        assert one.calls == []

    run(work)


def test_a_subscription_that_was_opened_after_its_identity_moved_on_is_still_known() -> None:
    async def work() -> None:
        world, one, two = await two_hosts()
        await world.broker.subscribe("b", "c", "new")
        await world.broker.subscribe("a", "c", "new")
        two.subscribed.append(subscription("b", "new"))
        one.subscribed.append(subscription("a", "new"))
        await world.broker.unsubscribe("c", "new")
        assert ("unsubscribe", "b", "c", "new") in two.calls
        assert ("unsubscribe", "a", "c", "new") in one.calls

    run(work)


def test_unsubscribe_finds_the_topic() -> None:
    async def work() -> None:
        world, one, two = await two_hosts()
        one.subscribed[0]["active"] = True
        with pytest.raises(IllegalStateError, match="close its consumers first"):
            await world.broker.unsubscribe("c", "audit")
        one.subscribed[0]["active"] = False
        await world.broker.unsubscribe("c", "audit")
        assert one.calls == [("unsubscribe", "a", "c", "audit")]
        for client_id, name in (("c", "audit"), ("d", "audit"), (None, "audit")):
            with pytest.raises(InvalidDestinationError, match="no durable subscription"):
                await world.broker.unsubscribe(client_id, name)
        for bad in ("", "x" * 256, "a\nb", None):
            with pytest.raises(InvalidDestinationError, match="1 to 255 printable"):
                await world.broker.unsubscribe("c", bad)
        assert two.calls == []

    run(work)


def test_a_subscription_that_nobody_announced_is_found_by_its_host() -> None:
    async def work() -> None:
        world, _, two = await two_hosts()
        two.subscribed = [subscription("b", "quiet")]
        await world.broker.unsubscribe("c", "quiet")
        assert two.calls == [("unsubscribe", "b", "c", "quiet")]

    run(work)


def test_a_missing_topic_is_created_by_its_first_subscriber() -> None:
    async def work() -> None:
        world = World()
        await world.broker.subscribe("fresh", "c", "audit")
        assert world.made[0].served["topic", "fresh"]["auto_created"]

    run(work)


def test_a_destroyed_topic_takes_its_subscriptions_along() -> None:
    async def work() -> None:
        world, one, _ = await two_hosts()
        await world.admin("destroy_destination", type="topic", name="a")
        one.subscribed.clear()
        await world.broker.subscribe("b", "c", "audit")
        assert one.calls == []
        assert await world.admin("list_subscriptions") == []

    run(work)


def test_administrators_list_purge_and_destroy() -> None:
    async def work() -> None:
        world, one, two = await two_hosts()
        two.subscribed = [subscription("b", "pool", client_id="", shared=True)]
        rows = await world.admin("list_subscriptions")
        assert [(row["topic"], row["client_id"], row["name"]) for row in rows] == [
            ("a", "c", "audit"),
            ("b", "", "pool"),
        ]
        assert [row["name"] for row in await world.admin("list_subscriptions", topic="b")] == ["pool"]
        await world.admin("purge_subscription", name="audit", client_id="c")
        assert one.calls == [("purge_subscription", "a", "c", "audit")]
        with pytest.raises(InvalidDestinationError, match="on topic 'a'"):
            await world.admin("destroy_subscription", name="pool", topic="a")
        await world.admin("destroy_subscription", name="pool")
        assert two.calls == [("unsubscribe", "b", "", "pool")]
        with pytest.raises(InvalidDestinationError):
            await world.admin("list_subscriptions", topic="c")

    run(work)
