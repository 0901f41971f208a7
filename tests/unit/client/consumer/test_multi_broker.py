"""A consumer on several brokers, over members that only remember what is asked of them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from raybroker.client.connection.belongings import Choosers
from raybroker.client.connection.channels import Ended
from raybroker.client.consumer import multi_broker
from raybroker.client.consumer.acknowledging.handed_out import HandedOut
from raybroker.client.consumer.consumer_options import ConsumerOptions
from raybroker.client.consumer.multi_broker import MultiBrokerConsumer
from raybroker.client.destinations import Destination, Queue, Topic
from raybroker.client.io.tasks import Tasks
from raybroker.config import Config
from raybroker.model.errors import (
    BrokerError,
    ConnectionLostError,
    IllegalStateError,
    InvalidDestinationError,
    LocalDestinationError,
)
from tests.unit.client.fakes import run, turns


class Member:
    """An attachment at one broker. ``backups``: where it is a backup at first; ``refusals``: what opening raises."""

    backups: frozenset[str] = frozenset()
    refusals: ClassVar[dict[str, list[BrokerError]]] = {}

    def __init__(
        self,
        session: Any,
        destination: Destination,
        options: Any,
        *,
        broker: str | None,
        identity: str,
        owner: Any,
        notifier: Any,
        credit_pool: Any,
    ) -> None:
        self.broker, self.name, self.owner = broker, destination.name, owner
        self.share = credit_pool.join()
        self.listener: Any = None
        self.failure: BrokerError | None = None
        self.active, self.attached, self.closed, self.abandoned = broker not in self.backups, False, False, False
        self.take_one = lambda: None

    async def open(self, *, create: bool) -> None:
        if faults := self.refusals.get(self.broker or ""):
            raise faults.pop(0)
        self.attached = True

    def abandon(self) -> None:
        self.abandoned = True

    def shut(self) -> None:
        self.closed = True

    let_go = shut

    async def close(self) -> None:
        self.closed = True

    def info(self) -> dict[str, Any]:
        return {"limit": 10, "buffered": 2, "consumed": 3}


class World:
    """``view``: brokers that are up, the first of them the coordinator."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        *brokers: str,
        traits: dict[str, Any] | None = None,
        counts: dict[str, int] | None = None,
        **attributes: Any,
    ) -> None:
        monkeypatch.setattr(multi_broker, "ConsumerCore", Member)
        self.brokers = list(brokers)
        self.traits = traits or {}
        self.counts = counts or {}
        self.forgotten: list[Any] = []
        self.ended: list[BrokerError] = []
        self.over = asyncio.Event()
        config = Config.from_values({"imqReconnectInterval": 1, "raybroker.reconnect.timeout_ms": 60_000, **attributes})
        self.tasks = Tasks(config)
        self.listeners: list[Any] = []
        self.connection: Any = SimpleNamespace(
            attributes=config,
            kept=SimpleNamespace(choosers=Choosers(), at_close=[]),
            channels=SimpleNamespace(ended=Ended()),
            handles=SimpleNamespace(buffers=set()),
            started=True,
            tasks=self.tasks,
            attachments=SimpleNamespace(reconnects=True, end_handle=self._end),
            brokers=SimpleNamespace(alone=not brokers, listeners=self.listeners, view=self._view),
            directory=SimpleNamespace(home=brokers[0] if brokers else "", locate=self._locate, members=self._members),
            io=SimpleNamespace(post=lambda call, *args: None),
        )
        self.session: Any = SimpleNamespace(
            connection=self.connection,
            forget_consumer=self.forgotten.append,
            handed=HandedOut(keeps_track=True, tells_in_hand=False, redelivery_delay_ms=0),
        )

    def _end(self, consumer: Any, error: BrokerError) -> None:
        self.ended.append(error)
        self.over.set()

    def view(self) -> Any:
        rows = [
            SimpleNamespace(name=name, state="UP", coordinator=index == 0) for index, name in enumerate(self.brokers)
        ]
        return SimpleNamespace(members=rows, home=self.brokers[0] if self.brokers else "")

    async def _view(self) -> Any:
        return self.view()

    async def _locate(self, kind: str, name: str, create: bool) -> Any:
        return SimpleNamespace(traits=self.traits)

    async def _members(self, kind: str, name: str) -> dict[str, int]:
        return self.counts

    async def consumer(self, destination: Destination | None = None) -> MultiBrokerConsumer:
        found = MultiBrokerConsumer(self.session, destination or Queue("q"), ConsumerOptions())
        await found.open()
        return found

    async def changed(self, *brokers: str) -> None:
        self.brokers = list(brokers)
        for listener in list(self.listeners):
            listener(self.view())
        await turns()


def where(consumer: MultiBrokerConsumer) -> list[str]:
    return sorted(broker for broker, _ in consumer.members)


def member(consumer: MultiBrokerConsumer, broker: str) -> Any:
    return next(one for (name, _), one in consumer.members.items() if name == broker)


def test_an_active_consumer_has_a_member_on_every_broker_and_follows_them(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        world = World(monkeypatch, "b1", "b2")
        consumer = await world.consumer()
        assert where(consumer) == ["b1", "b2"]
        await world.changed("b1", "b2", "b3")
        assert where(consumer) == ["b1", "b2", "b3"]
        gone = member(consumer, "b2")
        gone.attached = False
        await world.changed("b1", "b3")
        assert (where(consumer), gone.abandoned, world.forgotten) == (["b1", "b3"], True, [gone])

    run(work)


def test_a_backup_is_at_the_coordinator_alone_until_it_is_promoted(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        monkeypatch.setattr(Member, "backups", frozenset({"b1"}))
        consumer = await World(monkeypatch, "b1", "b2").consumer()
        assert (where(consumer), consumer.active) == (["b1"], False)
        member(consumer, "b1").active = True
        consumer.member_promoted()
        await turns()
        assert (where(consumer), consumer.active) == (["b1", "b2"], True)

    run(work)


def test_a_consumer_of_a_distributed_queue_stays_with_one_member_while_its_broker_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def work() -> None:
        traits = {"distributed": True, "loadBalancingPolicy": "Round-Robin"}
        world = World(monkeypatch, "b1", "b2", traits=traits, counts={"b1": 1, "b2": 0}, ServerAffinityEnabled=False)
        consumer = await world.consumer()
        assert where(consumer) == ["b2"]
        world.counts = {"b1": 1}
        member(consumer, "b2").attached = False
        await world.changed("b1")
        assert where(consumer) == ["b1"]

    run(work)


def test_a_destination_that_is_local_to_another_broker_is_looked_for_on_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def work() -> None:
        monkeypatch.setattr(Member, "refusals", {"b1": [LocalDestinationError("of its own clients")] * 9})
        consumer = await World(monkeypatch, "b1", "b2").consumer()
        assert "b2" in where(consumer)
        assert "b1" not in where(consumer)

    run(work)


def test_what_the_coordinator_answers_is_raised_and_nothing_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        monkeypatch.setattr(Member, "refusals", {"b1": [InvalidDestinationError("no such queue")]})
        world = World(monkeypatch, "b1", "b2")
        with pytest.raises(InvalidDestinationError, match="no such queue"):
            await world.consumer()
        assert (world.listeners, world.connection.kept.at_close, len(world.forgotten)) == ([], [], 1)

    run(work)


def test_a_member_that_fails_comes_back_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        world = World(monkeypatch, "b1", "b2")
        consumer = await world.consumer()
        lost = member(consumer, "b2")
        lost.failure = ConnectionLostError("cut")
        consumer.member_failed(lost)
        assert (where(consumer), world.ended) == (["b1"], [])
        while where(consumer) != ["b1", "b2"]:
            await turns()
        assert member(consumer, "b2") is not lost

    run(work)


def test_with_its_last_member_a_consumer_ends_when_its_destination_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        world = World(monkeypatch, "b1", "b2")
        consumer = await world.consumer()
        for broker in ("b1", "b2"):
            one = member(consumer, broker)
            one.failure = InvalidDestinationError("destroyed")
            consumer.member_failed(one)
        assert [str(error) for error in world.ended] == ["destroyed"]
        consumer.fail(world.ended[0])
        with pytest.raises(InvalidDestinationError, match="destroyed"):
            consumer.take_one()

    run(work)


def test_without_any_member_it_gives_up_after_the_reconnect_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        world = World(monkeypatch, "b1", **{"raybroker.reconnect.timeout_ms": 1})
        consumer = await world.consumer()
        monkeypatch.setattr(Member, "refusals", {"b1": [ConnectionLostError("cut")] * 100_000})
        one = member(consumer, "b1")
        one.attached = False
        await world.changed()
        await asyncio.wait_for(world.over.wait(), 20)
        assert "gave up after 0.001 s" in str(world.ended[0])

    run(work)


def test_a_listener_is_that_of_every_member_also_of_later_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        world = World(monkeypatch, "b1")
        consumer = await world.consumer()
        consumer.listener = print
        await world.changed("b1", "b2")
        assert [one.listener for one in consumer.members.values()] == [print, print]

    run(work)


def test_closing_ends_every_member_and_what_it_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        world = World(monkeypatch, "b1", "b2")
        consumer = await world.consumer()
        members = list(consumer.members.values())
        assert consumer.info() == {
            "destination": "q",
            "limit": 10,
            "buffered": 4,
            "consumed": 6,
            "brokers": ["b1", "b2"],
        }
        await consumer.close()
        assert all(one.closed for one in members)
        assert (world.listeners, world.connection.kept.at_close, consumer.members) == ([], [], {})
        with pytest.raises(IllegalStateError, match="is closed"):
            consumer.take_one()

    run(work)


def test_a_pattern_has_a_member_for_each_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        world = World(monkeypatch)
        answered = asyncio.Event()

        async def matching(pattern: str, broker: str | None) -> tuple[int, list[str]]:
            return 1, ["t.a", "t.b"]

        async def changed(version: int, timeout_s: float, broker: str | None) -> int:
            await answered.wait()
            return version

        world.connection.directory.matching, world.connection.directory.changed = matching, changed
        consumer = await world.consumer(Topic("t.>"))
        assert sorted(consumer.members) == [("", "t.a"), ("", "t.b")]
        assert (consumer.info()["topics"], consumer.active) == (["t.a", "t.b"], True)
        await consumer.close()

    run(work)
