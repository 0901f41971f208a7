"""Templates: shared attributes of many destinations, where a value of the destination's own wins (W-58, W-131)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from raybroker.broker.broker import Broker, BrokerHosts, BrokerKept
from raybroker.config import Config
from raybroker.errors import ConfigError, StoreError
from tests.unit.broker.worlds import World


def run(work: Any) -> None:
    asyncio.run(work())


async def create(world: World, name: str, type: str = "queue", **attributes: Any) -> dict[str, Any]:
    await world.admin("create_destination", type=type, name=name, attributes={"hosting": "shared", **attributes})
    found: dict[str, Any] = world.made[0].served[type, name]["attributes"]
    return found


def test_a_destination_takes_from_its_template_what_it_does_not_say_itself() -> None:
    async def work() -> None:
        world = World()
        await world.admin(
            "create_template",
            name="fast",
            attributes={"maxNumMsgs": "5", "maxBytesPerMsg": "1k", "maxNumActiveConsumers": 3},
        )
        queue = await create(world, "a", template="fast", maxNumMsgs=9)
        assert (queue["maxNumMsgs"], queue["maxBytesPerMsg"], queue["maxNumActiveConsumers"]) == (9, 1024, 3)
        assert queue["template"] == "fast"
        topic = await create(world, "a", "topic", template="fast")
        assert topic["maxNumMsgs"] == 5
        assert "maxNumActiveConsumers" not in topic
        assert (await create(world, "b"))["maxNumMsgs"] == -1

    run(work)


def test_default_as_an_expiration_policy_means_the_template_s() -> None:  # W-58
    async def work() -> None:
        world = World()
        await world.admin("create_template", name="log", attributes={"expirationPolicy": "Log"})
        for name, said, expected in (("a", {}, "Log"), ("b", "Default", "Log"), ("c", "Discard", "Discard")):
            given = {"expirationPolicy": said} if said else {}
            assert (await create(world, name, template="log", **given))["expirationPolicy"] == expected

    run(work)


def test_a_change_of_a_template_reaches_those_that_follow_it() -> None:
    async def work() -> None:
        world = World()
        await world.admin("create_template", name="t", attributes={"maxNumMsgs": 5})
        await create(world, "follows", template="t")
        await create(world, "own", template="t", maxNumMsgs=9)
        await create(world, "other", maxNumMsgs=5)
        assert await world.admin("update_template", name="t", changes={"maxNumMsgs": 6, "hosting": "dedicated"}) == 1
        assert world.made[0].calls == [("update", "queue", "follows", {"maxNumMsgs": 6})]
        assert await world.admin("update_template", name="t", changes={"priorityOverride": 3}) == 2
        rows = await world.admin("list_templates")
        expected = {"maxNumMsgs": 6, "hosting": "dedicated", "priorityOverride": 3}
        assert rows == [{"name": "t", "attributes": expected}]
        assert world.saved[-1] == {"t": expected}

    run(work)


def test_what_cannot_be_a_template_is_refused_and_nothing_is_saved() -> None:
    async def work() -> None:
        world = World()
        await world.admin("create_template", name="t", attributes={})
        for verb, args, why in (
            ("create_template", {"name": "t", "attributes": {}}, "exists already"),
            ("create_template", {"name": "two words", "attributes": {}}, "template name"),
            ("create_template", {"name": "u", "attributes": {"maxNumMsg": 1}}, "nearest is 'maxNumMsgs'"),
            ("create_template", {"name": "u", "attributes": {"maxNumMsgs": "many"}}, "not an integer"),
            ("create_template", {"name": "u", "attributes": {"template": "t"}}, "no template of its own"),
            ("update_template", {"name": "u", "changes": {}}, "there are: t"),
            ("destroy_template", {"name": "u"}, "there are: t"),
        ):
            with pytest.raises(ConfigError, match=why):
                await world.admin(verb, **args)
        with pytest.raises(ConfigError, match="there is no template 'u'"):
            await create(world, "a", template="u")
        assert world.saved == [{"t": {}}]

    run(work)


def test_a_destroyed_template_leaves_its_destinations_as_they_are() -> None:
    async def work() -> None:
        world = World()
        await world.admin("create_template", name="t", attributes={"maxNumMsgs": 5})
        await create(world, "a", template="t")
        await world.admin("destroy_template", name="t")
        assert await world.admin("list_templates") == []
        assert world.made[0].served["queue", "a"]["attributes"]["maxNumMsgs"] == 5
        assert world.made[0].calls == []

    run(work)


def test_templates_that_were_saved_are_there_again_and_a_failed_save_changes_nothing() -> None:
    async def work() -> None:
        async def fail(field: str, saved: Any) -> None:
            raise StoreError("no room")

        async def nobody(*_: Any) -> Any:
            raise AssertionError

        broker = Broker(
            Config.from_values(), BrokerHosts(nobody, nobody), BrokerKept({"t": {"maxNumMsgs": 5}}, save=fail)
        )
        for verb, args in (("create_template", {"name": "u", "attributes": {}}), ("destroy_template", {"name": "t"})):
            with pytest.raises(StoreError):
                await broker.admin(verb, args)
        assert await broker.admin("list_templates", {}) == [{"name": "t", "attributes": {"maxNumMsgs": 5}}]

    run(work)


def test_a_destination_that_goes_meanwhile_keeps_no_other_from_its_template() -> None:
    async def work() -> None:
        world = World()
        await world.admin("create_template", name="fast", attributes={"maxNumMsgs": 5})
        for name in ("a", "b", "c"):
            await create(world, name, template="fast")
        host, registry = world.made[0], world.broker.registry
        asked, changed = host.destinations.query, host.destinations.update

        async def query(type: str, name: str) -> dict[str, Any]:
            if name == "a":
                registry.drop(("queue", "b"))
            found: dict[str, Any] = await asked(type, name)
            return found

        async def update(type: str, name: str, changes: dict[str, Any]) -> None:
            registry.drop(("queue", "c"))
            await changed(type, name, changes)

        host.destinations.query, host.destinations.update = query, update  # type: ignore[method-assign]
        assert await world.admin("update_template", name="fast", changes={"maxNumMsgs": 7}) == 1
        assert host.served["queue", "a"]["attributes"]["maxNumMsgs"] == 7

    run(work)
