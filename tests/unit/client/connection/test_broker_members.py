"""The members of a handle on one broker: joined as they come, and again after they left."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from raybroker.client.cluster.broker_members import BrokerMembers, Key
from raybroker.client.destinations import Destination, Queue, Topic
from raybroker.client.io.tasks import Tasks
from raybroker.config import Config
from raybroker.model.errors import ConnectionLostError, InvalidDestinationError
from tests.unit.client.fakes import run, turns


class Topics:
    """A directory whose list of topics changes when told to."""

    def __init__(self, *names: str) -> None:
        self.names = list(names)
        self.version = 1
        self._changed = asyncio.Event()

    def change(self, *names: str) -> None:
        self.names = list(names)
        self.version += 1
        self._changed.set()

    async def matching(self, pattern: str, broker: str | None = None) -> tuple[int, list[str]]:
        return self.version, list(self.names)

    async def changed(self, version: int, timeout_s: float, broker: str | None = None) -> int:
        while version == self.version:
            self._changed.clear()
            await self._changed.wait()
        return self.version


class Handle:
    """Has members, and refuses to join what it was told to refuse."""

    def __init__(self, topics: Topics, destination: Destination, **options: bool) -> None:
        directory: Any = topics
        self.members: dict[Key, object] = {}
        self.errors: dict[str, Exception] = {}
        self.creates: list[bool] = []
        self.joined = asyncio.Event()
        self.tasks = Tasks(Config.from_values({"imqReconnectInterval": 1}))
        self.kept = BrokerMembers(directory, self.tasks, destination, "b1", self.members, self._join, **options)

    async def _join(self, broker: str, destination: Destination, create: bool) -> None:
        self.creates.append(create)
        error = self.errors.pop(destination.name, None)
        if error is not None:
            raise error
        self.members[broker, destination.name] = object()
        self.joined.set()

    @property
    def names(self) -> set[str]:
        return {name for _, name in self.members}


def test_topics_that_come_later_are_joined_and_one_that_is_gone_again_is_passed_over() -> None:
    async def work() -> None:
        topics = Topics("t1")
        handle = Handle(topics, Topic("t>"))
        await handle.kept.join_present()
        handle.kept.follow()
        assert handle.names == {"t1"}
        handle.errors["t2"] = InvalidDestinationError("gone")
        topics.change("t1", "t2", "t3")
        await turns()
        assert handle.names == {"t1", "t3"}
        handle.kept.stop()

    run(work)


def test_a_topic_that_could_not_be_reached_is_tried_again() -> None:
    async def work() -> None:
        handle = Handle(Topics("t1"), Topic("t>"))
        handle.errors["t1"] = ConnectionLostError("not now")
        await handle.kept.join_present()
        assert handle.names == set()
        handle.kept.follow()
        await handle.joined.wait()
        assert handle.names == {"t1"}
        handle.kept.stop()

    run(work)


def test_a_member_that_left_is_joined_again_and_not_created_again() -> None:
    async def work() -> None:
        handle = Handle(Topics(), Queue("q"), create=True)
        await handle.kept.join_present()
        handle.kept.follow()
        await turns()
        handle.members.clear()
        handle.kept.member_left()
        await turns()
        assert handle.names == {"q"}
        assert handle.creates == [True, False], "whoever destroyed it meant to"
        handle.kept.stop()

    run(work)


def test_why_the_first_member_cannot_be_joined_is_raised() -> None:
    async def work() -> None:
        handle = Handle(Topics(), Queue("q"))
        handle.errors["q"] = InvalidDestinationError("there is none")
        with pytest.raises(InvalidDestinationError, match="there is none"):
            await handle.kept.join_present()

    run(work)


def test_nothing_is_joined_once_it_has_stopped() -> None:
    async def work() -> None:
        topics = Topics()
        handle = Handle(topics, Topic("t>"))
        await handle.kept.join_present()
        handle.kept.follow()
        await turns()
        handle.kept.stop()
        topics.change("t1")
        await turns()
        assert handle.names == set()

    run(work)
