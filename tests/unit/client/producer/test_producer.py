"""A producer over scripted hosts: when messages leave, and what becomes of those who wait when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future

import pytest

from raybroker.client.producer.producer import ProducerCore
from raybroker.client.producer.producer_state import Refusal, Shared
from raybroker.errors import BrokerError, IllegalStateError, ResourceAllocationError
from raybroker.wire.native import frames as wire
from tests.unit.client.fakes import PERSISTENT, Scripted, run, send, turns

VOLATILE = Shared(False, 4)


@pytest.mark.parametrize("fault", ["refused", "cut", "cancelled"])
def test_nobody_waits_for_a_producer_whose_close_has_failed(fault: str) -> None:
    async def work() -> None:
        scripted = Scripted(**{"raybroker.producer.buffer_bytes": 65536, "imqAckTimeout": 200})
        host = scripted.host
        session = scripted.session()
        producer = await scripted.producer(session)
        host.confirms = False
        futures = send(producer, b"x" * 70_000)
        await turns()
        settled, room = producer.settled_future(), producer.room_future()
        assert not any(future.done() for future in (*futures, settled, room))
        if fault == "refused":
            host.answers["close_producer"] = ResourceAllocationError("not now")
        elif fault == "cut":
            host.cut_at.add("close_producer")
        else:
            host.silent.add("close_producer")
        closing = asyncio.ensure_future(producer.close())
        await turns()
        if fault == "cancelled":
            closing.cancel()
        with pytest.raises(asyncio.CancelledError if fault == "cancelled" else BrokerError):
            await closing
        assert all(future.done() for future in (*futures, settled, room))
        assert isinstance(futures[0].exception(), BrokerError)
        assert producer.closed
        assert producer not in scripted.core.handles.producers
        with pytest.raises(IllegalStateError, match="closed"):
            producer.put("y", b"", PERSISTENT, None, urgent=True, block=False)

    run(work)


def queued(producer: ProducerCore, body: bytes, shared: Shared = PERSISTENT) -> None:
    """As send_async does."""
    waiter: Future[str] | None = Future() if shared.persistent else None
    assert producer.put(body, b"", shared, waiter, urgent=False, block=False)


def blocks(scripted: Scripted) -> list[int]:
    """How many messages the blocks have that came."""
    return [frame.block.count for frame in scripted.host.of(wire.SendFrame)]


def test_a_message_leaves_at_once_while_nothing_is_unconfirmed_and_others_wait_for_the_answer() -> None:
    async def work() -> None:
        scripted = Scripted(**{"raybroker.producer.linger_ms": 60_000})
        producer = await scripted.producer(scripted.session())
        scripted.host.confirms = False
        queued(producer, b"1")
        queued(producer, b"2")
        await turns()
        assert blocks(scripted) == [2], "both came before the first turn of the loop"
        queued(producer, b"3")
        await turns()
        queued(producer, b"4")
        await turns()
        assert blocks(scripted) == [2]
        scripted.host.link.write(wire.sent([(1, 1, 2)]))
        await turns()
        assert blocks(scripted) == [2, 2]
        scripted.host.link.write(wire.sent([(1, 3, 2)]))
        await turns()
        queued(producer, b"5")
        await turns()
        assert blocks(scripted) == [2, 2, 1]

    run(work)


def test_a_run_leaves_at_once_and_its_sender_is_told_when_it_is_settled() -> None:
    async def work() -> None:
        scripted = Scripted()
        producer = await scripted.producer(scripted.session())
        scripted.host.confirms = False
        told: list[tuple[int, int, int]] = []

        def tell(start: int, end: int, refusals: Sequence[Refusal]) -> None:
            told.append((start, end, len(refusals)))

        assert producer.put_run(0, [b"1", b"2", b"3"], b"", PERSISTENT, tell)
        await turns()
        assert (blocks(scripted), told) == ([3], [])
        scripted.host.link.write(wire.sent([(1, 1, 3)]))
        await turns()
        assert told == [(0, 3, 0)]
        assert producer.put_run(0, [b"4"], b"", VOLATILE, tell)
        await turns()
        assert told == [(0, 3, 0), (0, 1, 0)], "it is settled when it has left"
        assert producer.put_run(0, [b"5", b"6"], b"", PERSISTENT, tell)
        await producer.close()
        assert told[2:] == [(0, 2, 1)]

    run(work)


@pytest.mark.parametrize("why", ["ending", "bytes", "stopped", "transacted"])
def test_a_run_is_not_taken_where_some_of_it_may_not_be(why: str) -> None:
    async def work() -> None:
        scripted = Scripted(**{"raybroker.producer.buffer_bytes": 65536})
        producer = await scripted.producer(scripted.session("transacted" if why == "transacted" else "auto"))
        if why == "stopped":
            producer.refuse_sends(BrokerError("paused"))
        if why == "ending":
            producer.wait_no_longer(IllegalStateError("the session closes"))
        bodies = [bytes(40_000)] * 2 if why == "bytes" else [b"1"] * 2
        assert not producer.put_run(0, bodies, b"", PERSISTENT, lambda *told: None)
        await turns()
        assert blocks(scripted) == []
        assert not producer.holds_some

    run(work)


def test_the_linger_time_bounds_the_wait_for_an_answer() -> None:
    async def work() -> None:
        scripted = Scripted(**{"raybroker.producer.linger_ms": 5})
        producer = await scripted.producer(scripted.session())
        scripted.host.confirms = False
        queued(producer, b"1")
        await turns()
        queued(producer, b"2")
        while blocks(scripted) != [1, 1]:  # noqa: ASYNC110 - what is waited for is seen from outside only
            await asyncio.sleep(0.005)

    run(work)


def test_messages_that_the_host_does_not_answer_wait_for_company() -> None:
    async def work() -> None:
        scripted = Scripted(**{"raybroker.producer.linger_ms": 60_000})
        producer = await scripted.producer(scripted.session())
        assert not producer._state.answered
        for _ in range(3):
            queued(producer, b"1", VOLATILE)
            await turns()
        assert blocks(scripted) == []

    run(work)


@pytest.mark.parametrize("confirms", [True, False])
def test_what_was_sent_while_the_link_was_lost_leaves_with_the_next_one(confirms: bool) -> None:
    async def work() -> None:
        scripted = Scripted(**{"raybroker.producer.linger_ms": 60_000})
        producer = await scripted.producer(scripted.session())
        scripted.host.confirms = confirms
        queued(producer, b"1")
        await turns()
        scripted.host.link.abort()
        await turns(2)
        assert producer.place is None
        for _ in range(3):
            queued(producer, b"2")
        scripted.host.confirms = True
        while sum(blocks(scripted)) < 4 + (not confirms):  # noqa: ASYNC110 - seen from outside only
            await asyncio.sleep(0.005)
        await asyncio.wrap_future(producer.settled_future())

    run(work)
