"""Futures of asynchronous sends do not wait for ever; the messages stay (R-02)."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Any

import pytest

from raybroker.errors import RequestTimeoutError
from raybroker.wire.native import frames as wire
from tests.unit.client.fakes import PERSISTENT, Scripted, run, send, turns


def hand_over(producer: Any, body: bytes) -> Future[str]:
    """As send_async."""
    future: Future[str] = Future()
    producer.put(body, b"", PERSISTENT, future, urgent=False, block=False)
    return future


def test_only_the_future_of_an_asynchronous_send_gives_up_and_its_message_is_settled_later() -> None:
    async def work() -> None:
        scripted = Scripted(imqAsyncSendCompletionWaitTimeout=20)
        scripted.host.confirms = False
        producer = await scripted.producer(scripted.session())
        (blocking,) = send(producer, b"1")
        late = hand_over(producer, b"2")
        with pytest.raises(RequestTimeoutError, match="imqAsyncSendCompletionWaitTimeout=20 ms"):
            await asyncio.wrap_future(late)
        assert not blocking.done()
        later = hand_over(producer, b"3")
        await asyncio.wait([asyncio.wrap_future(later)])
        assert isinstance(later.exception(), RequestTimeoutError)
        blocks = [frame.block for frame in scripted.host.of(wire.SendFrame)]
        assert [bytes(block.body(i)) for block in blocks for i in range(block.count)] == [b"1", b"2", b"3"]
        assert not producer.settled_future().done()
        for block in blocks:
            scripted.host.link.write(wire.sent([(1, block.first_seq, block.count)]))
        await turns()
        assert producer.settled_future().done()
        assert blocking.result(0).endswith("-1")

    run(work)


def test_an_answer_in_time_is_the_result_and_0_waits_for_ever() -> None:
    async def work() -> None:
        for timeout_ms in (0, 1000):
            scripted = Scripted(imqAsyncSendCompletionWaitTimeout=timeout_ms)
            producer = await scripted.producer(scripted.session())
            assert (await asyncio.wrap_future(hand_over(producer, b"x"))).startswith("ID:")
            assert (producer._send_timeout._timer is None) == (timeout_ms == 0)
            await producer.close()
            assert producer._send_timeout._timer is None

    run(work)


@pytest.mark.parametrize("before_s", [0, 0.03])
def test_a_message_that_cannot_leave_gives_up_as_well(before_s: float) -> None:
    """D-10: a full destination holds it back, for long already or not"""

    async def work() -> None:
        scripted = Scripted(imqAsyncSendCompletionWaitTimeout=10)
        producer = await scripted.producer(scripted.session())
        scripted.host.link.write(wire.event("gate", {"handle": 1, "state": "slow", "until_ms": 0}))
        await turns()
        await asyncio.sleep(before_s)
        with pytest.raises(RequestTimeoutError):
            await asyncio.wrap_future(hand_over(producer, b"x"))
        assert scripted.host.of(wire.SendFrame) == []
        scripted.host.link.write(wire.event("gate", {"handle": 1, "state": "open", "until_ms": 0}))
        await turns()
        assert len(scripted.host.of(wire.SendFrame)) == 1

    run(work)
