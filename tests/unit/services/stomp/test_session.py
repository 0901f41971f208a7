"""A session alone: frames become sends, transactions and acknowledgements, without a broker behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from raybroker.client.producer.members.unnamed import UnnamedProducer
from raybroker.client.producer.producer_state import Shared
from raybroker.client.session.joint_transaction import JointTransactions
from raybroker.model.errors import BrokerError, NotSupportedError, ProtocolError, ResourceAllocationError
from raybroker.services.stomp import session as module
from raybroker.services.stomp.session import StompSession
from raybroker.wire.stomp.frame import StompFrame
from tests.unit.services.stomp.parts import Client, until

NOW_MS = 1000


class Producer:
    """One of one destination. ``room``: messages that it takes before it is full."""

    def __init__(self, room: int = 1 << 30) -> None:
        self.room = room
        self.waiters: list[Future[str] | None] = []
        self.bodies: list[str | bytes] = []
        self.asked_for_room: list[Future[None]] = []

    def put(self, body: Any, header: bytes, shared: Shared, waiter: Any, *, urgent: bool, block: bool) -> str | None:
        assert not block
        assert urgent == (waiter is not None)
        if len(self.bodies) >= self.room:
            return None
        self.bodies.append(body)
        self.waiters.append(waiter)
        return f"id-{len(self.bodies)}"

    def room_future(self) -> Future[None]:
        self.asked_for_room.append(Future())
        return self.asked_for_room[-1]


class Unnamed(UnnamedProducer):
    def __init__(self, opens: Callable[[], Producer]) -> None:
        self.shared = Shared(True, 4)
        self.opened: dict[str, Producer] = {}
        self._opens = opens

    def known(self, destination: Any) -> Any:
        return self.opened.get(destination.name)

    async def find(self, destination: Any) -> Any:
        return self.opened.setdefault(destination.name, self._opens())


class Transactions(JointTransactions):
    def __init__(self) -> None:
        self.ended: list[str] = []

    async def commit(self) -> None:
        self.ended.append("commit")

    async def rollback(self) -> None:
        self.ended.append("rollback")


class Rig:
    """A session of a connection; ``opens`` makes producers of destinations."""

    def __init__(self, patch: pytest.MonkeyPatch, opens: Callable[[], Producer]) -> None:
        self.producers: list[Unnamed] = []
        self.transactions: list[Transactions] = []
        self.client = Client()
        clock = SimpleNamespace(now_ms=lambda: NOW_MS)
        self.core: Any = SimpleNamespace(clock=clock, identity="i", begin_session=lambda: None)

        async def producer(*_: object) -> Unnamed:
            self.producers.append(Unnamed(opens))
            return self.producers[-1]

        patch.setattr(module.opening, "producer", producer)
        self.session = StompSession(self.core, self._make, self.client, "1.2")

    def _make(self, mode: str) -> Any:
        self.transactions.append(Transactions())
        return SimpleNamespace(mode=mode, transactions=self.transactions[-1])

    async def does(self, command: str, body: bytes = b"", /, **headers: object) -> None:
        await self.session.handle(StompFrame(command, {name: str(value) for name, value in headers.items()}, body))


def play(work: Callable[[Rig], Awaitable[None]], opens: Callable[[], Producer] = Producer) -> None:
    with pytest.MonkeyPatch.context() as patch:

        async def run() -> None:
            async with asyncio.timeout(60):
                await work(Rig(patch, opens))

        asyncio.run(run())


def send(receipt: int, destination: str = "/queue/q", **headers: str) -> StompFrame:
    return StompFrame("SEND", {"destination": destination, "receipt": str(receipt), **headers}, b"x")


def test_only_a_send_to_what_is_open_is_done_at_once() -> None:
    async def work(rig: Rig) -> None:
        session = rig.session
        assert not session.send_at_once(StompFrame("BEGIN", {"transaction": "t"}))
        assert not session.send_at_once(send(1))
        assert rig.producers == []
        await session.handle(send(1))
        (producer,) = rig.producers[0].opened.values()
        assert session.send_at_once(send(2))
        assert not session.send_at_once(send(3, "/queue/other"))
        assert not session.send_at_once(send(3, "/temp-queue/mine"))
        assert not session.send_at_once(send(3, **{"reply-to": "/temp-queue/mine"}))
        assert len(producer.bodies) == 2
        assert rig.client.receipts == []
        for waiter in producer.waiters:
            assert waiter is not None
            waiter.set_result("id")
        assert rig.client.receipts == ["1", "2"]

    play(work)


def test_what_is_wrong_with_a_frame_is_said_by_the_one_that_handles_it() -> None:
    async def work(rig: Rig) -> None:
        await rig.session.handle(send(1))
        for frame, error in (
            (send(2, "nowhere"), BrokerError),
            (send(2, priority="10"), ProtocolError),
            (send(2, transaction="t"), ProtocolError),
            (send(2, transformation="x"), NotSupportedError),
        ):
            assert not rig.session.send_at_once(frame)
            with pytest.raises(error):
                await rig.session.handle(frame)
        assert len(rig.producers[0].opened["q"].bodies) == 1
        assert rig.client.failures == []

    play(work)


def test_a_message_that_was_not_stored_ends_the_connection_with_its_frame() -> None:
    async def work(rig: Rig) -> None:
        frame = send(1)
        await rig.session.handle(frame)
        (waiter,) = rig.producers[0].opened["q"].waiters
        error = BrokerError("full")
        assert waiter is not None
        waiter.set_exception(error)
        assert (rig.client.failures, rig.client.receipts) == ([(error, frame)], [])
        await rig.session.settle_all()

    play(work)


def test_a_send_waits_for_room_and_is_done_once() -> None:
    full = Producer(room=1)

    async def work(rig: Rig) -> None:
        await rig.session.handle(send(1))
        assert not rig.session.send_at_once(send(2))
        assert (len(full.bodies), full.asked_for_room) == (1, [])
        task = asyncio.create_task(rig.session.handle(send(2)))
        await until(lambda: full.asked_for_room)
        assert not task.done()
        full.room = 2
        full.asked_for_room[0].set_result(None)
        await task
        assert len(full.bodies) == 2

    play(work, lambda: full)


def test_the_bound_of_unsettled_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SENDS_MAX", 2)

    async def work(rig: Rig) -> None:
        await rig.session.handle(send(1))
        assert rig.session.send_at_once(send(2))
        assert not rig.session.send_at_once(send(3))
        producer = rig.producers[0].opened["q"]
        task = asyncio.create_task(rig.session.handle(send(3)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(producer.bodies) == 2
        assert producer.waiters[0] is not None
        producer.waiters[0].set_result("id")
        await task
        assert len(producer.bodies) == 3

    play(work)


def test_a_transaction_has_a_producer_of_its_own_and_answers_at_once() -> None:
    async def work(rig: Rig) -> None:
        await rig.does("BEGIN", transaction="t")
        await rig.session.handle(send(1, transaction="t"))
        assert rig.session.send_at_once(send(2, transaction="t"))
        (producer,) = rig.producers[0].opened.values()
        assert (producer.waiters, rig.client.receipts) == ([None, None], ["1", "2"])
        await rig.does("COMMIT", transaction="t", receipt=3)
        assert (rig.transactions[1].ended, rig.client.receipts[2:]) == (["commit"], ["3"])
        await rig.does("BEGIN", transaction="u")
        assert rig.session.send_at_once(send(4, transaction="u"))  # The session of the last one is used again.
        await rig.does("ABORT", transaction="u")
        assert rig.transactions[1].ended == ["commit", "rollback"]
        assert len(rig.transactions) == 2

    play(work)


def test_a_full_transaction_counts_what_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raybroker.services.stomp.transaction.TRANSACTION_FRAMES_MAX", 2)
    full = Producer(room=1)

    async def work(rig: Rig) -> None:
        await rig.does("BEGIN", transaction="t")
        await rig.session.handle(send(1, transaction="t"))
        for _ in range(5):  # Refused for want of room: no part of it.
            assert not rig.session.send_at_once(send(2, transaction="t"))
        full.room = 3
        assert rig.session.send_at_once(send(2, transaction="t"))
        with pytest.raises(ResourceAllocationError, match="more than 2 frames"):
            await rig.session.handle(send(3, transaction="t"))
        assert len(full.bodies) == 2

    play(work, lambda: full)


def test_open_transactions_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TRANSACTIONS_MAX", 1)

    async def work(rig: Rig) -> None:
        await rig.does("BEGIN", transaction="t")
        with pytest.raises(ResourceAllocationError, match="at most 1 open"):
            await rig.does("BEGIN", transaction="u")

    play(work)


def test_a_command_that_there_is_not() -> None:
    async def work(rig: Rig) -> None:
        with pytest.raises(ProtocolError, match="FETCH is no command"):
            await rig.does("FETCH")

    play(work)
