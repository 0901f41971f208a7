"""Large sends: bodies that go ahead of their messages, over a connection that answers when it is told to."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import numpy
import pytest

from raybroker.client.connection.shared_body import ReferredBody, SharedObject, SharedObjects
from raybroker.client.connection.whole_body import WholeBody
from raybroker.client.destinations import Destination, Queue
from raybroker.client.producer.bodies.large_sends import AHEAD, LargeSends
from raybroker.client.producer.producer_state import ProducerState, SendBatch, Shared
from raybroker.content.scattered import parts_of, size_of_parts
from raybroker.model.blocks.large_block import LARGE_BODY_BYTES, PIECE_BYTES, pieces_of
from raybroker.model.bounds import MESSAGE_BYTES_MAX
from raybroker.model.errors import (
    BrokerError,
    ConnectionLostError,
    IllegalStateError,
    MessageTooLargeError,
    StoreFullError,
)

DATA = bytes(range(256)) * 5000
QUEUE: Destination = Queue("q")


class Channel:
    def __init__(self) -> None:
        self.pieces, self.lost = True, False
        self.uploads = asyncio.Semaphore(2)
        self.asked: list[tuple[str, dict[str, Any], asyncio.Future[Any]]] = []
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.written: list[bytes] = []
        self.link = self
        self._bodies = 0

    def new_body(self) -> int:
        self._bodies += 1
        return self._bodies

    def request(self, op: str, args: dict[str, Any]) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.asked.append((op, args, future))
        return future

    async def call(self, op: str, args: dict[str, Any]) -> Any:
        return await self.request(op, args)

    def tell(self, op: str, args: dict[str, Any]) -> None:
        self.told.append((op, args))

    def write(self, *buffers: bytes) -> None:
        self.written.append(b"".join(buffers))

    async def answer(self, error: BrokerError | None = None) -> list[tuple[str, dict[str, Any]]]:
        """Everything that is asked, until nothing more is."""
        found = []
        while self.asked:
            op, args, future = self.asked.pop(0)
            found.append((op, args))
            if not future.done():
                future.set_exception(error) if error is not None else future.set_result(None)
            await turns()
        return found


class Room:
    def __init__(self) -> None:
        self.changes = 0
        self.stopped: list[BrokerError] = []

    def changed(self) -> None:
        self.changes += 1

    def stop(self, error: BrokerError) -> None:
        self.stopped.append(error)


class Transactions:
    def __init__(self) -> None:
        self.refusals: list[BrokerError] = []

    def note_refusal(self, error: BrokerError) -> None:
        self.refusals.append(error)


class Tasks:
    def __init__(self) -> None:
        self.running: set[asyncio.Future[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.running.add(asyncio.ensure_future(work))


class Rig:
    def __init__(self, transactions: Transactions | None = None) -> None:
        self.channel: Any = Channel()
        self.room, self.state = Room(), ProducerState(7)
        self.flushed = 0
        self.given_up: list[tuple[SendBatch, BrokerError]] = []
        self.waiter: Future[str] = Future()
        tasks: Any = Tasks()
        self.part = LargeSends(
            QUEUE,
            self.state,
            threading.Lock(),
            self.room,
            tasks,
            self._flush,
            lambda batches, error: self.given_up.extend((batch, error) for batch in batches),
            note_refusal=transactions.note_refusal if transactions is not None else None,
        )

    def _flush(self) -> None:
        self.flushed += 1

    def batch(self, data: bytes = DATA, *, persistent: bool = True) -> SendBatch:
        self.state.add(0, data, b"", Shared(persistent, 4), 1, self.waiter)
        self.state.seal()
        batch = self.state.next_ready()
        assert batch is not None
        return batch


async def turns() -> None:
    for _ in range(6):
        await asyncio.sleep(0)


def run(work: Callable[[Rig], Awaitable[None]], transactions: Transactions | None = None) -> None:
    async def whole() -> None:
        await work(Rig(transactions))

    asyncio.run(whole())


def test_a_block_keeps_a_large_body_apart() -> None:
    state = ProducerState(7)
    for size in (LARGE_BODY_BYTES, LARGE_BODY_BYTES + 1):
        state.add(0, bytes(size), b"", Shared(True, 4), 1, None)
    state.seal()
    small, large = state.ready
    assert small.large is None
    assert isinstance(large.large, WholeBody)
    assert len(large.data) < 200
    assert large.block == large.data + bytes(LARGE_BODY_BYTES + 1)


def test_the_message_follows_when_all_pieces_are_there() -> None:
    async def work(rig: Rig) -> None:
        batch = rig.batch()
        assert rig.part.send_in_pieces(rig.channel, 3, batch)
        assert rig.part.under_way(rig.channel)
        await turns()
        assert [op for op, _, _ in rig.channel.asked] == ["begin_body"]
        asked = await rig.channel.answer()
        assert asked[0][1] == {"body": 1, "bytes": len(DATA), "headers": 0, "type": "queue", "name": "q"}
        assert b"".join(args["data"] for _, args in asked[1:]) == DATA
        assert len(asked) == 1 + pieces_of(len(DATA))
        assert len(rig.channel.written) == 1
        assert DATA[:PIECE_BYTES] not in rig.channel.written[0]
        assert list(rig.state.unsettled) == [batch]  # The broker settles it.
        assert not rig.waiter.done()
        assert (rig.flushed, rig.part.under_way(rig.channel)) == (1, False)

    run(work)


def test_no_more_than_some_pieces_are_on_their_way() -> None:
    async def work(rig: Rig) -> None:
        rig.part.send_in_pieces(rig.channel, 3, rig.batch(bytes(40 * PIECE_BYTES)))
        await turns()
        rig.channel.asked.pop(0)[2].set_result(None)
        await turns()
        assert len(rig.channel.asked) == AHEAD

    run(work)


def test_a_refusal_is_told_once_and_the_host_may_forget_the_body() -> None:
    async def work(rig: Rig) -> None:
        rig.part.send_in_pieces(rig.channel, 3, rig.batch())
        await turns()
        await rig.channel.answer(StoreFullError("no room"))
        assert str(rig.waiter.exception()) == "no room"
        assert [str(error) for _, error in rig.given_up] == ["no room"]
        assert (rig.state.held_bytes, rig.flushed) == (0, 1)
        assert rig.channel.written == []
        assert rig.channel.told == [("drop_body", {"body": 1})]

    run(work)


def test_one_that_a_lost_connection_may_have_stored_is_not_said_to_be_refused() -> None:
    """Its body is sent once more, and then the disk is full."""

    async def work(rig: Rig) -> None:
        rig.part.send_in_pieces(rig.channel, 3, rig.batch())
        await turns()
        await rig.channel.answer()
        assert len(rig.channel.written) == 1
        rig.state.send_again()
        again = rig.state.next_ready()
        assert again is not None
        rig.part.send_in_pieces(rig.channel, 3, again)
        await turns()
        await rig.channel.answer(StoreFullError("no room"))
        error = rig.waiter.exception()
        assert isinstance(error, ConnectionLostError)
        assert "whether the message was stored is not known: no room" in str(error)

    run(work)


def test_a_message_that_was_given_up_is_not_sent_and_others_go_on() -> None:
    async def work(rig: Rig) -> None:
        rig.part.send_in_pieces(rig.channel, 3, rig.batch())
        await turns()
        rig.state.abandon()
        await rig.channel.answer()
        assert rig.channel.written == []
        assert rig.channel.told == [("drop_body", {"body": 1})]
        assert (rig.flushed, rig.part.under_way(rig.channel)) == (1, False)

    run(work)


@pytest.mark.parametrize("persistent", [True, False])
def test_a_connection_that_ends_meanwhile_is_told_unless_the_message_goes_again(*, persistent: bool) -> None:
    async def work(rig: Rig) -> None:
        batch = rig.batch(persistent=persistent)
        rig.part.send_in_pieces(rig.channel, 3, batch)
        await turns()
        rig.channel.lost = True
        await rig.channel.answer()
        assert rig.channel.written == []
        if persistent:
            assert not rig.waiter.done()
            assert list(rig.state.unsettled) == [batch]
        else:
            assert isinstance(rig.waiter.exception(), ConnectionLostError)
            assert rig.state.held_bytes == 0

    run(work)


def test_what_is_not_persistent_is_done_when_it_has_left() -> None:
    async def work(rig: Rig) -> None:
        rig.part.send_in_pieces(rig.channel, 3, rig.batch(persistent=False))
        await turns()
        assert rig.state.held_bytes > 0
        await rig.channel.answer()
        assert rig.waiter.result()
        assert rig.state.held_bytes == 0

    run(work)


def test_in_a_transaction_it_is_the_hosts_once_it_has_left_and_a_refusal_spoils_it() -> None:
    transactions = Transactions()

    async def work(rig: Rig) -> None:
        rig.part.send_in_pieces(rig.channel, 3, rig.batch(), 5)
        await turns()
        await rig.channel.answer()
        assert rig.waiter.result()
        assert (rig.state.held_bytes, transactions.refusals) == (0, [])
        rig.waiter = Future()
        rig.part.send_in_pieces(rig.channel, 3, rig.batch(), 5)
        await turns()
        await rig.channel.answer(StoreFullError("no room"))
        assert [str(error) for error in transactions.refusals] == ["no room"]
        assert rig.room.stopped == transactions.refusals
        assert str(rig.waiter.exception()) == "no room"

    run(work, transactions)


def test_a_host_that_takes_no_pieces_gets_the_block_as_it_is() -> None:
    async def work(rig: Rig) -> None:
        rig.channel.pieces = False
        assert not rig.part.send_in_pieces(rig.channel, 3, rig.batch())
        rig.channel.pieces = True
        assert not rig.part.send_in_pieces(rig.channel, 3, rig.batch(b"small"))
        assert not rig.part.under_way(rig.channel)

    run(work)


# ---- bodies by reference ---------------------------------------------------------------------------------------------


class Objects:
    """An object store. ``failure``: of what gives a reference to a host."""

    def __init__(self) -> None:
        self.given: list[tuple[str, int, bool]] = []
        self.failure: BrokerError | None = None

    async def give(self, shared: SharedObject, host: str, nbytes: int, persistent: bool) -> str:
        if self.failure is not None:
            raise self.failure
        self.given.append((host, nbytes, persistent))
        return "token"

    def resolve(self, held: Any) -> Any:
        return held


ARRAY = numpy.arange(200_000)


def referred(rig: Rig, objects: Any, nbytes: int = 0) -> SendBatch:
    """A batch with a body by reference; ``nbytes``: what it says to have."""
    kind, parts = parts_of(ARRAY)
    store = SharedObjects(objects.give, objects.give, objects.give, objects.resolve)
    body: Any = ReferredBody(store, SharedObject("b1/key", ARRAY), kind, nbytes or size_of_parts(parts))
    rig.channel.place = SimpleNamespace(key="b1/h1@127.0.0.1:5")
    return rig.batch(body)


def test_a_reference_is_given_to_the_process_of_the_host_and_its_token_told() -> None:
    async def work(rig: Rig) -> None:
        objects = Objects()
        batch = referred(rig, objects)
        assert batch.large is not None
        assert rig.part.send_in_pieces(rig.channel, 3, batch)
        await turns()
        (asked,) = await rig.channel.answer()
        size = batch.large.nbytes
        assert objects.given == [("b1/h1", size, batch.shared.persistent)]
        assert asked == (
            "refer_body",
            {
                "body": 1, "bytes": size, "token": "token", "headers": 0, "type": "queue", "name": "q",
                "persistent": batch.shared.persistent,
            },
        )  # fmt: skip
        assert len(rig.channel.written) == 1

    run(work)


def test_a_reference_that_cannot_be_given_or_is_not_taken_goes_in_pieces() -> None:
    async def work(rig: Rig) -> None:
        for given in (False, True):
            objects = Objects()
            objects.failure = None if given else BrokerError("the actor is gone")
            batch = referred(rig, objects)
            assert batch.large is not None
            rig.part.send_in_pieces(rig.channel, 3, batch)
            await turns()
            if given:
                op, _, future = rig.channel.asked.pop(0)
                assert op == "refer_body"
                future.set_exception(IllegalStateError("this host takes no bodies by reference"))
                await turns()
            ops = [op for op, _ in await rig.channel.answer()]
            assert ops == ["begin_body", *["body_piece"] * pieces_of(batch.large.nbytes)]

    run(work)


@pytest.mark.parametrize("pieces", [False, True])
def test_one_that_is_too_large_for_that_is_refused(pieces: bool) -> None:
    async def work(rig: Rig) -> None:
        rig.channel.pieces = pieces
        objects = Objects()
        objects.failure = BrokerError("the actor is gone")
        assert rig.part.send_in_pieces(rig.channel, 3, referred(rig, objects, MESSAGE_BYTES_MAX + 1))
        await turns()
        error = rig.waiter.exception(5)
        assert isinstance(error, MessageTooLargeError)
        assert ("the actor is gone" if pieces else "keeps no bodies in files") in str(error)
        assert rig.channel.asked == []

    run(work)
