"""A broker and its hosts: nothing is missing, and nothing is made twice, while one of them cannot be asked."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from raybroker.broker.destinations.destination_registry import Registry
from raybroker.content.headers import message_id
from raybroker.errors import ConfigError, ConnectionLostError, IllegalStateError, InvalidDestinationError
from tests.unit.broker.worlds import DMQ, FakeHost, World, block_of, served


def run(work: Any) -> None:
    asyncio.run(work())


def test_while_a_host_cannot_be_asked_an_unknown_queue_may_live_there() -> None:
    async def work() -> None:
        world = World()
        broker = world.broker
        await broker.placement.adopt(FakeHost("h1", served=[served("queue", "known")]))
        broker.registry.unasked = {"h2": "dedicated"}
        await broker.placement.ready()
        assert (await broker.locate("queue", "known", False)).key == "h1"
        for call in (
            broker.locate("queue", "other", False),
            broker.locate("queue", "other", True),
            broker.locate("topic", "known", True),
            world.admin("create_destination", type="queue", name="other", attributes={}),
            world.admin("query_destination", type="queue", name="other"),
            world.admin("destroy_destination", type="queue", name="other"),
            world.admin("pause_destination"),
            world.admin("query_transaction", id=5),
            world.admin("destroy_subscription", name="s"),
        ):
            with pytest.raises(ConnectionLostError, match="h2"):
                await call
        assert world.made == []
        await broker.placement.adopt(FakeHost("h2", "dedicated", [served("queue", "other")]))
        broker.registry.unasked = {}
        assert (await broker.locate("queue", "other", True)).key == "h2"
        with pytest.raises(InvalidDestinationError):
            await broker.locate("queue", "third", False)

    run(work)


def test_a_queue_that_many_open_at_once_is_created_on_one_host() -> None:
    async def work() -> None:
        world = World()
        hosts = await asyncio.gather(*(world.broker.locate("queue", "orders", True) for _ in range(20)))
        assert {host.key for host in hosts} == {"h1"}
        assert [host.key for host in world.made] == ["h1"]

    run(work)


@pytest.mark.parametrize("hosts", [1, 3])
def test_shared_queues_are_spread_over_the_pool_and_dedicated_ones_have_a_host_each(hosts: int) -> None:
    async def work() -> None:
        world = World(raybroker__hosting__shared__hosts=hosts)
        for n in range(6):
            await world.admin("create_destination", type="queue", name=f"shared{n}", attributes={"hosting": "shared"})
        assert [len(h.created) for h in world.made] == [6 // hosts] * hosts
        await world.admin("create_destination", type="topic", name="own", attributes={"hosting": "dedicated"})
        assert world.made[-1].created == ["own"]
        await world.admin("destroy_destination", type="t", name="own")
        assert world.dropped == [world.made[-1]]
        await world.admin("destroy_destination", type="queue", name="shared0")
        assert len(world.dropped) == 1

    run(work)


@pytest.mark.parametrize("hosting", ["shared", "dedicated"])
def test_what_a_host_did_and_could_not_answer_is_done_once_when_it_is_asked_again(hosting: str) -> None:
    async def work() -> None:
        world = World(**{"raybroker.hosting.shared.hosts": 3})
        for number in (1, 2):
            await world.admin("create_destination", type="queue", name=f"q{number}", attributes={"hosting": hosting})
        world.next_dies = True
        create = {"type": "queue", "name": "orders", "attributes": {"hosting": hosting}}
        with pytest.raises(ConnectionLostError):
            await world.admin("create_destination", **create)
        await world.admin("create_destination", **create)
        assert [host.key for host in world.made] == ["h1", "h2", "h3"]
        assert world.made[2].created == ["orders", "orders"]
        world.made[2].dies = True
        for expected in (ConnectionLostError, None):
            with pytest.raises(expected) if expected is not None else contextlib.nullcontext():
                await world.admin("destroy_destination", type="queue", name="orders")
        assert [key[1] for key in world.broker.registry.keys("queue")] == ["q1", "q2"]
        assert [host.key for host in world.dropped] == (["h3"] if hosting == "dedicated" else [])

    run(work)


def test_a_dedicated_host_that_refuses_its_destination_does_not_stay() -> None:
    async def work() -> None:
        world = World()
        world.next_refuses = ConfigError("no such attribute")
        with pytest.raises(ConfigError):
            await world.admin("create_destination", type="queue", name="q", attributes={"hosting": "dedicated"})
        assert [host.key for host in world.dropped] == ["h1"]
        assert world.broker.registry.hosts == []

    run(work)


def test_a_dedicated_host_that_serves_nothing_is_dropped_when_the_broker_comes_back() -> None:
    async def work() -> None:
        world = World()
        empty, pooled = FakeHost("h1", "dedicated"), FakeHost("h2", "shared")
        for host in (empty, pooled):
            await world.broker.placement.adopt(host)
        assert world.dropped == [empty]
        assert (await world.broker.locate("queue", "orders", True)).key == "h2"

    run(work)


def test_a_host_that_cannot_answer_is_listed_as_such() -> None:
    async def work() -> None:
        world = World()
        mute = FakeHost("h2", served=[served("queue", "a")])
        await world.broker.placement.adopt(mute)
        await world.broker.placement.adopt(FakeHost("h1", served=[served("queue", "b")]))
        mute.mute = True
        rows = await world.admin("list_destinations")
        assert [(row["name"], row["state"]) for row in rows] == [("a", "UNKNOWN"), ("b", "RUNNING")]
        found = await world.admin("query_broker")
        assert found["destinations"] == 2
        assert ["failure" in row for row in found["hosts"]] == [True, False]

    run(work)


def test_an_unknown_verb_names_those_there_are() -> None:
    async def work() -> None:
        with pytest.raises(ConfigError, match="create_destination"):
            await World().broker.admin("explode", {})

    run(work)


def test_a_queue_and_a_topic_may_share_a_name() -> None:
    async def work() -> None:
        world = World(raybroker__hosting__default="shared")
        for kind in ("topic", "queue"):
            await world.admin("create_destination", type=kind, name="orders", attributes={})
        assert [(row["type"], row["name"]) for row in await world.admin("list_destinations")] == [
            ("queue", "orders"),
            ("topic", "orders"),
        ]
        assert [row["type"] for row in await world.admin("list_destinations", type="t")] == ["topic"]
        await world.admin("destroy_destination", type="queue", name="orders")
        assert (await world.admin("query_destination", type="topic", name="orders"))["type"] == "topic"
        with pytest.raises(InvalidDestinationError, match="queue 'orders' does not exist"):
            await world.admin("query_destination", type="queue", name="orders")
        with pytest.raises(InvalidDestinationError, match="exists already"):
            await world.admin("create_destination", type="topic", name="orders", attributes={})

    run(work)


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_a_type_that_is_not_created_by_itself_says_how_to_create_one(kind: str) -> None:  # D-21
    async def work() -> None:
        world = World(**{f"imq__autocreate__{kind}": False})
        with pytest.raises(InvalidDestinationError, match=f"raybroker create dst -t {kind[0]} -n orders"):
            await world.broker.locate(kind, "orders", True)
        other = "topic" if kind == "queue" else "queue"
        await world.broker.locate(other, "orders", True)
        assert world.made[0].served[other, "orders"]["auto_created"]
        for bad in ("mq.other", "a b", "a.*"):
            with pytest.raises(InvalidDestinationError):
                await world.broker.locate(other, bad, True)

    run(work)


def test_an_attribute_of_the_other_type_is_refused_by_name_whatever_it_says() -> None:
    async def work() -> None:
        world = World()
        await world.broker.locate("topic", "t", True)
        said = {"maxNumActiveConsumers": -1}
        for call in (
            world.admin("create_destination", type="topic", name="new", attributes=said),
            world.admin("update_destination", type="topic", name="t", changes=said),
        ):
            with pytest.raises(ConfigError, match="maxNumActiveConsumers is an attribute of queues"):
                await call
        assert "maxNumActiveConsumers" not in world.made[0].served["topic", "t"]["attributes"]

    run(work)


def test_the_dead_message_queue_is_there_from_the_start_and_stays() -> None:  # D-24
    async def work() -> None:
        world = World()
        for _ in range(2):
            await world.broker.placement.ready()
        assert [host.hosting for host in world.made] == ["shared"]
        assert world.made[0].created == ["mq.sys.dmq"]
        assert world.made[0].served[DMQ]["attributes"]["limitBehavior"] == "REMOVE_OLDEST"
        assert (await world.broker.locate("queue", "mq.sys.dmq", True)).key == "h1"
        assert [row["name"] for row in await world.admin("list_destinations")] == ["mq.sys.dmq"]
        for verb in ("pause_destination", "resume_destination", "destroy_destination"):
            with pytest.raises(IllegalStateError, match=r"mq\.sys\.dmq cannot be"):
                await world.admin(verb, type="queue", name="mq.sys.dmq")
        with pytest.raises(InvalidDestinationError, match="reserved"):
            await world.admin("create_destination", type="queue", name="mq.sys.dmq", attributes={})
        for change in ({"limitBehavior": "FLOW_CONTROL"}, {"maxNumProducers": 5}):
            with pytest.raises(ConfigError, match="not possible"):
                await world.admin("update_destination", type="queue", name="mq.sys.dmq", changes=change)
        await world.admin("update_destination", type="queue", name="mq.sys.dmq", changes={"maxNumMsgs": 5})
        await world.admin("purge_destination", type="queue", name="mq.sys.dmq")
        assert [call[0] for call in world.made[0].calls] == ["update", "purge_destination"]

    run(work)


def test_temporary_destinations_belong_to_their_connection() -> None:  # D-23
    async def work() -> None:
        world = World()
        broker = world.broker
        names = [await broker.create_temporary(kind, "cxn1") for kind in ("queue", "topic")]
        assert [name.rpartition(".")[0] for name in names] == ["mq.temp.q.loopback", "mq.temp.t.loopback"]
        assert (await broker.locate("queue", names[0], True)) is world.made[0]
        assert await world.admin("list_destinations") == []
        assert len(await world.admin("list_destinations", temporary=True)) == 2
        with pytest.raises(IllegalStateError, match="is temporary"):
            await world.admin("destroy_destination", type="queue", name=names[0])
        with pytest.raises(IllegalStateError, match="not a temporary destination of this connection"):
            await broker.destroy_temporary("queue", names[0], "cxn2")
        world.made[0].served["queue", names[0]]["active_consumers"] = 1
        with pytest.raises(IllegalStateError, match="has consumers"):
            await broker.destroy_temporary("queue", names[0], "cxn1")
        world.made[0].served["queue", names[0]]["active_consumers"] = 0
        await broker.destroy_temporary("queue", names[0], "cxn1")
        broker.placement.forget_destination("topic", names[1])
        for kind, name in zip(("queue", "topic"), names, strict=True):
            with pytest.raises(InvalidDestinationError, match="any more"):
                await broker.locate(kind, name, True)
        with pytest.raises(ConfigError, match="owner"):
            await broker.create_temporary("queue", "")

    run(work)


def test_a_broker_that_came_back_still_knows_what_is_temporary() -> None:  # D-23
    async def work() -> None:
        world = World()
        name = "mq.temp.q.1"
        await world.broker.placement.adopt(FakeHost("h1", served=[served("queue", name, temporary=True)]))
        with pytest.raises(IllegalStateError, match="is temporary"):
            await world.admin("destroy_destination", type="queue", name=name)
        await world.broker.destroy_temporary("queue", name, "cxn1")
        assert await world.admin("list_destinations", temporary=True) == []

    run(work)


def test_pause_and_resume_reach_one_destination_or_all() -> None:  # A-36, B21
    async def work() -> None:
        world = World()
        await world.broker.placement.ready()
        for kind, name in (("queue", "a"), ("queue", "b"), ("topic", "a")):
            await world.broker.locate(kind, name, True)
        assert await world.admin("pause_destination", type="queue", name="a", which="consumers", until_ms=99) == 1
        assert await world.admin("pause_destination") == 3
        assert await world.admin("resume_destination", type="topic") == 1
        assert world.made[0].calls == [
            ("pause", "queue", "a", "consumers", 99),
            ("pause", "queue", "a", "all", 0),
            ("pause", "topic", "a", "all", 0),
            ("pause", "queue", "b", "all", 0),
            ("resume", "topic", "a", "all"),
        ]
        for args, why in (
            ({"type": "queue", "name": "a", "which": "everything"}, "producers, consumers, all, insertion"),
            ({"name": "a"}, "of which type"),
            ({"until_ms": -1}, "until_ms"),
        ):
            with pytest.raises(ConfigError, match=why):
                await world.admin("pause_destination", **args)

    run(work)


def test_a_host_that_cannot_be_paused_does_not_keep_the_others_from_it() -> None:
    async def work() -> None:
        world = World()
        gone, there = FakeHost("h1", served=[served("queue", "a")]), FakeHost("h2", served=[served("queue", "b")])
        for host in (gone, there):
            await world.broker.placement.adopt(host)
        gone.mute = True
        with pytest.raises(ConnectionLostError, match="h1"):
            await world.admin("pause_destination")
        assert there.calls == [("pause", "queue", "b", "all", 0)]

    run(work)


def test_consumers_are_listed_of_one_destination_or_all() -> None:
    async def work() -> None:
        world = World()
        for key, kind, name in (("h1", "queue", "a"), ("h22", "topic", "b")):
            await world.broker.placement.adopt(FakeHost(key, served=[served(kind, name)]))
        for args, expected in (
            ({"destination": "a"}, [("queue", "a", "h1")]),
            ({"destination": "b"}, [("topic", "b", "h22")]),
            ({"type": "t"}, [("topic", None, "h1"), ("topic", None, "h22")]),
            ({}, [(None, None, "h1"), (None, None, "h22")]),
        ):
            rows = await world.admin("list_consumers", **args)
            assert [(row["type"], row["destination"], row["host"]) for row in rows] == expected
        assert (await world.admin("query_consumer", id=3))["host"] == "h22"
        for call in (world.admin("list_consumers", destination="c"), world.admin("query_consumer", id=9)):
            with pytest.raises(InvalidDestinationError):
                await call

    run(work)


def test_topics_that_match_a_pattern_and_those_that_come_later() -> None:  # D-05
    async def work() -> None:
        world = World()
        broker = world.broker
        for name in ("small.x", "small.y.z", "large.x"):
            await broker.locate("topic", name, True)
        await broker.locate("queue", "small.queue", True)
        await broker.create_temporary("topic", "cxn")
        version, names = await broker.matching("small>")
        assert names == ["small.x", "small.y.z"]
        assert await broker.changed(version, 0) == version
        await broker.locate("queue", "small.other", True)
        await broker.locate("topic", "small.x", True)
        assert await broker.changed(version, 0) == version
        waiting = asyncio.ensure_future(broker.changed(version, 10))
        await asyncio.sleep(0)
        assert not waiting.done()
        await broker.locate("topic", "small", True)
        later = await asyncio.wait_for(waiting, 5)
        assert later > version
        assert await broker.matching("small>") == (later, ["small", "small.x", "small.y.z"])
        await world.admin("destroy_destination", type="topic", name="small.x")
        assert await broker.changed(later, 10) > later
        assert (await broker.matching(">"))[1] == ["large.x", "small", "small.y.z"]
        with pytest.raises(InvalidDestinationError):
            await broker.matching("small.>")
        with pytest.raises(ConfigError):
            await broker.changed(0, -1)

    run(work)


def test_a_broker_that_came_back_is_a_change() -> None:
    async def work() -> None:
        one, other = World().broker, World().broker
        version, _ = await one.matching(">")
        assert await other.changed(version, 0) != version

    run(work)


def test_what_a_host_has_for_another_one_is_handed_on() -> None:
    async def work() -> None:
        world = World()
        host = FakeHost("h1", served=[served("queue", "a")])
        await world.broker.placement.adopt(host)
        await world.broker.forward("queue", "a", block_of(message_id(7, 1)))
        assert [row["id"] for row in host.held["queue", "a"]] == [message_id(7, 1)]
        with pytest.raises(InvalidDestinationError):
            await world.broker.forward("queue", "b", b"ID:1")
        host.mute = True
        with pytest.raises(ConnectionLostError):
            await world.broker.forward("queue", "a", b"ID:2")

    run(work)


def test_hosts_that_are_starting_are_named_by_number_and_not_all_of_many() -> None:
    away = Registry("b1").away
    assert away.under_way() == ""
    away.starting = {"h3"}
    assert away.under_way() == "it waits for host b1/h3 to start"
    away.starting = {f"h{number}" for number in range(1, 13)}
    assert away.under_way() == "it waits for hosts b1/h1, b1/h2, b1/h3, b1/h4, b1/h5 and 7 more to start"


def test_what_is_not_known_while_hosts_start_is_said_to_wait_for_them() -> None:
    registry = Registry("b1")
    registry.unasked, registry.away.starting = {"h2": "dedicated"}, {"h2", "h9"}
    with pytest.raises(ConnectionLostError, match=r"hosts h2 cannot be asked now \(it waits for hosts b1/h2, b1/h9"):
        registry.require_all_asked("queue 'q'")
    registry.note_answered("h2")
    assert registry.away.starting == {"h9"}
    registry.require_all_asked("queue 'q'")
