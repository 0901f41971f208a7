"""A producer for a pattern: one copy for each topic that matches, over members that only remember what they get."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from raybroker.client.destinations import Destination, Topic
from raybroker.client.producer.members import topic_pattern
from raybroker.client.producer.members.topic_pattern import PatternProducer
from raybroker.client.producer.producer import ProducerCore
from raybroker.client.producer.producer_state import Shared
from raybroker.config import Config
from raybroker.content.bodies import encode_body
from raybroker.model.errors import IllegalStateError, InvalidDestinationError, ResourceAllocationError

PLAIN = Shared(True, 4)


class Member(ProducerCore):
    """The producer for one topic; it confirms when the test says so."""

    throttled = False
    duplicates, refused = 1, 2  # type: ignore[assignment]

    def __init__(self, name: str) -> None:
        self.name = name
        self.got: list[Any] = []
        self.waiters: list[Future[str]] = []
        self.room = True
        self.ended = False

    def belong_to(self, owner: Any) -> None:
        self.owner = owner

    def put(self, body: Any, header: bytes, shared: Shared, waiter: Any, **how: Any) -> str:
        self.got.append(body)
        self.waiters.append(waiter)
        return f"{self.name}:{body}"

    def put_many(self, bodies: Any, shared: Shared, each: Any = None) -> Iterator[tuple[int, Future[str]]]:
        for body in bodies:
            self.got.append(body)
            self.waiters.append(Future())
            yield 1, self.waiters[-1]

    def has_room(self) -> bool:
        return self.room

    def room_future(self) -> Future[None]:
        return Future()

    async def close(self) -> None:
        self.ended = True


class World:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, *topics: str) -> None:
        self.forgotten: list[Any] = []
        self.opened: dict[str, Member] = {}

        async def open_producer(connection: Any, topic: Destination, *args: Any, **how: Any) -> Member:
            return self.opened.setdefault(topic.name, Member(topic.name))

        async def matching(pattern: str, broker: str | None) -> tuple[int, list[str]]:
            return 1, list(topics)

        async def with_retry(what: str, work: Any) -> Any:
            return await work()

        monkeypatch.setattr(topic_pattern, "open_producer", open_producer)
        connection: Any = SimpleNamespace(
            attributes=Config.from_values(),
            directory=SimpleNamespace(matching=matching),
            handles=SimpleNamespace(forget_producer=self.forgotten.append),
            tasks=SimpleNamespace(with_retry=with_retry, keep=lambda name, run: None),
        )
        self.producer = PatternProducer(connection, Topic("t.>"), PLAIN, encode=encode_body, transactions=None)
        asyncio.run(self.producer.open())

    def put(self, body: str, waiter: Future[str] | None = None, *, block: bool = True) -> str | None:
        return self.producer.put(body, b"", PLAIN, waiter, urgent=True, block=block)


def test_every_topic_that_matches_gets_a_copy_and_the_id_is_that_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, "t.a", "t.b")
    assert world.put("m") == "t.a:m"
    assert {name: member.got for name, member in world.opened.items()} == {"t.a": ["m"], "t.b": ["m"]}
    assert (world.producer.duplicates, world.producer.refused) == (2, 4)


def test_a_send_is_settled_with_its_last_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    world, waiter = World(monkeypatch, "t.a", "t.b"), Future[str]()
    world.put("m", waiter)
    world.opened["t.b"].waiters[0].set_result("id b")
    assert not waiter.done()
    world.opened["t.a"].waiters[0].set_result("id a")
    assert waiter.result(0) == "id b"


def test_a_refused_copy_fails_the_send_and_a_destroyed_topic_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    world, gone, full = World(monkeypatch, "t.a", "t.b"), Future[str](), Future[str]()
    world.put("m", gone)
    world.put("n", full)
    world.opened["t.a"].waiters[0].set_exception(InvalidDestinationError("destroyed"))
    world.opened["t.b"].waiters[0].set_result("id")
    assert gone.result(0) == "id"
    world.opened["t.a"].waiters[1].set_exception(ResourceAllocationError("full"))
    assert isinstance(full.exception(0), ResourceAllocationError)


def test_without_a_match_nobody_gets_it_and_the_send_succeeds(monkeypatch: pytest.MonkeyPatch) -> None:
    world, waiter = World(monkeypatch), Future[str]()
    sent = world.put("m", waiter)
    assert (sent, waiter.result(0)) == (sent, sent)
    assert world.put("n") != sent
    assert [count for count, _ in world.producer.put_many("xyz", PLAIN)] == [3]


def test_a_full_topic_holds_back_who_may_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, "t.a", "t.b")
    assert world.producer.room_future().done()
    world.opened["t.b"].room = False
    assert world.put("m", block=False) is None
    assert world.opened["t.a"].got == []
    assert not world.producer.room_future().done()


def test_each_piece_of_many_counts_once_however_many_topics_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, "t.a", "t.b")
    pieces = list(world.producer.put_many(iter("xyz"), PLAIN))
    assert [count for count, _ in pieces] == [1, 1, 1]
    assert [member.got for member in world.opened.values()] == [["x", "y", "z"]] * 2
    world.opened["t.a"].waiters[1].set_result("id")
    assert not pieces[1][1].done()
    world.opened["t.b"].waiters[1].set_result("id")
    assert pieces[1][1].result(0) == "id"


def test_a_member_that_failed_gets_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, "t.a", "t.b")
    world.producer.member_failed(world.opened["t.a"])
    assert world.forgotten == [world.opened["t.a"]]
    assert world.put("m") == "t.b:m"


def test_a_closed_one_closes_its_members_and_takes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, "t.a")
    asyncio.run(world.producer.close())
    assert world.opened["t.a"].ended
    for work in (lambda: world.put("m"), lambda: list(world.producer.put_many("m", PLAIN))):
        with pytest.raises(IllegalStateError, match="is closed"):
            work()
