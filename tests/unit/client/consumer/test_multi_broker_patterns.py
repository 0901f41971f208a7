"""Handles on a pattern follow the list of topics whatever happens to it (D-05)."""

from __future__ import annotations

import asyncio
from typing import Any

from raybroker.client.consumer.consumer_options import ConsumerOptions
from raybroker.client.consumer.multi_broker import MultiBrokerConsumer
from raybroker.client.destinations import Topic
from raybroker.errors import ConnectionLostError, InvalidDestinationError
from raybroker.wire.native import frames as wire
from tests.unit.client.fakes import Scripted, run, turns


class Topics:
    """The part of a directory that knows topics."""

    def __init__(self, *names: str) -> None:
        self.names = list(names)
        self.version = 1
        self.faults: list[Exception] = []
        self._bell = asyncio.Event()

    async def matching(self, pattern: str, broker: str | None = None) -> tuple[int, list[str]]:
        if self.faults:
            raise self.faults.pop(0)
        return self.version, list(self.names)

    async def changed(self, version: int, timeout_s: float, broker: str | None = None) -> int:
        while version == self.version:
            await self._bell.wait()
            self._bell.clear()
        return self.version

    def set(self, *names: str) -> None:
        self.names = list(names)
        self.version += 1
        self._bell.set()


async def following(topics: Topics) -> tuple[Scripted, MultiBrokerConsumer]:
    scripted = Scripted(imqReconnectInterval=1)
    directory: Any = scripted.directory
    directory.matching, directory.changed = topics.matching, topics.changed
    consumer = MultiBrokerConsumer(scripted.session(), Topic("t>"), ConsumerOptions())
    await consumer.open()
    return scripted, consumer


async def until_members(consumer: MultiBrokerConsumer, *names: str) -> None:
    while sorted(name for _, name in consumer.members) != list(names):
        await turns()


def test_topics_that_come_are_joined_and_those_that_go_are_left_without_a_word() -> None:
    async def work() -> None:
        topics, heard = Topics("t.a"), list[Exception]()
        scripted, consumer = await following(topics)
        scripted.core.events.on_exception(heard.append)
        topics.set("t.a", "t.b")
        await until_members(consumer, "t.a", "t.b")
        handle = consumer.members["", "t.a"]._handle
        topics.set("t.b")
        scripted.host.link.write(wire.event("destroyed", {"handle": handle}))
        await until_members(consumer, "t.b")
        assert heard == []
        assert consumer.take_messages(1) == []
        topics.set("t.a", "t.b")
        await until_members(consumer, "t.a", "t.b")
        await consumer.close()

    run(work)


def test_a_broker_that_cannot_be_asked_for_a_while_is_asked_again() -> None:
    async def work() -> None:
        topics = Topics()
        _, consumer = await following(topics)
        topics.faults = [ConnectionLostError("away"), ConnectionLostError("still away")]
        topics.set("t.a")
        await until_members(consumer, "t.a")
        await consumer.close()

    run(work)


def test_a_topic_that_is_gone_again_before_it_was_joined_is_left_out() -> None:
    async def work() -> None:
        topics = Topics("t.a")
        scripted, consumer = await following(topics)
        scripted.host.answers["open_consumer"] = InvalidDestinationError("gone")
        topics.set("t.a", "t.b")
        await turns(50)
        assert list(consumer.members) == [("", "t.a")]
        scripted.host.answers["open_consumer"] = {"epoch": 1, "limit": 1000, "active": True}
        topics.set("t.a", "t.c")
        await until_members(consumer, "t.a", "t.c")
        await consumer.close()

    run(work)


def test_messages_of_all_members_are_taken_in_turn() -> None:
    async def work() -> None:
        scripted, consumer = await following(Topics("t.a", "t.b"))
        for tag in (1, 3):
            for member in consumer.members.values():
                scripted.host.deliver([b"1", b"2"], tag=tag, handle=member._handle)
        await turns()
        found = [consumer.take_one() for _ in range(6)]
        assert [m.destination for m in found if m is not None] == ["t.a", "t.a", "t.b", "t.b", "t.a", "t.a"]
        assert len(consumer.take_messages(10)) == 2
        assert consumer.take_one() is None
        assert consumer.info()["consumed"] == 8
        consumer.session.acknowledge(None)
        await turns()
        assert sorted(f.handle for f in scripted.host.of(wire.AckFrame)) == sorted(
            member._handle for member in consumer.members.values()
        )
        await consumer.close()

    run(work)
