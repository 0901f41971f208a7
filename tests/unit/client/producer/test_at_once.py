"""Messages that are handed over by a plain call on the IO loop, and who waits for them there."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import InvalidStateError
from typing import Any

import pytest

from raybroker import aio
from raybroker.client.io.io_thread import IoThread, fulfil, refuse
from raybroker.client.producer.at_once import Waiter, send_at_once
from raybroker.errors import BrokerError, MessageFormatError, MessageTooLargeError


def test_who_waits_is_told_once() -> None:
    told: list[tuple[str, BaseException | None]] = []
    waiter = Waiter(lambda sent, error: told.append((sent, error)))
    assert (waiter.done(), waiter.cancel(), waiter.cancelled()) == (False, False, False)
    fulfil(waiter, "id")
    fulfil(waiter, "other")
    refuse(waiter, BrokerError("late"))
    assert waiter.done()
    assert told == [("id", None)]
    with pytest.raises(InvalidStateError):
        waiter.set_result("again")
    error = BrokerError("full")
    refuse(Waiter(lambda sent, error: told.append((sent, error))), error)
    assert told[1:] == [("", error)]


def test_a_fault_of_who_waits_is_logged_and_keeps_nobody_else_waiting(caplog: pytest.LogCaptureFixture) -> None:
    def fails(sent: str, error: BaseException | None) -> None:
        raise ValueError(sent)

    with caplog.at_level(logging.ERROR, "raybroker.client"):
        fulfil(Waiter(fails), "id")
    assert "could not be passed on" in caplog.text


class Sending:
    """A producer without a destination of its own, used on its IO loop."""

    def __init__(self, producer: Any) -> None:
        self.producer = producer
        self.told: list[tuple[str, BaseException | None]] = []
        self._heard = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    async def at_once(self, body: Any, queue: str, **options: Any) -> bool:
        async def call() -> bool:
            return send_at_once(self.producer, body, f"queue:{queue}", self._tell, **options)

        return await asyncio.wrap_future(IoThread.shared().submit(call()))

    def _tell(self, sent: str, error: BaseException | None) -> None:
        self.told.append((sent, error))
        self._loop.call_soon_threadsafe(self._heard.set)

    async def answer(self) -> tuple[str, BaseException | None]:
        await asyncio.wait_for(self._heard.wait(), 30)
        self._heard.clear()
        return self.told[-1]


def run(work: Callable[[Sending, Any], Any], **factory: Any) -> None:
    async def whole() -> None:
        async with await aio.loopback(**factory) as connection:
            session = await connection.session()
            sending = Sending(await session.producer())
            await sending.producer.send("first", destination="q")
            assert (await session.receive("q", timeout=30)).body == "first"
            await work(sending, session)

    asyncio.run(whole())


def test_a_message_with_its_options_is_stored_and_its_id_told() -> None:
    async def work(sending: Sending, session: Any) -> None:
        assert await sending.at_once({"a": 1}, "q", properties={"p": 1}, priority=7, correlation_id="c")
        sent, error = await sending.answer()
        assert error is None
        message = await session.receive("q", timeout=30)
        assert (message.id, message.body, message.properties) == (sent, {"a": 1}, {"p": 1})
        assert (message.priority, message.correlation_id, message.persistent) == (7, "c", True)

    run(work)


def test_what_has_to_wait_for_more_is_not_begun() -> None:
    async def work(sending: Sending, session: Any) -> None:
        assert not await sending.at_once("x", "never-opened")
        assert not await sending.at_once("x", "q", persistent=False)
        with pytest.raises(MessageFormatError):
            await sending.at_once("x", "q", priority=10)
        assert sending.told == []
        assert await session.receive("q", timeout=0.1) is None

    run(work)


def test_a_refusal_is_told() -> None:
    async def work(sending: Sending, session: Any) -> None:
        await session.connection.admin().update_destination("queue", "q", maxBytesPerMsg=10)
        assert await sending.at_once("x" * 1000, "q")
        sent, error = await sending.answer()
        assert (sent, type(error)) == ("", MessageTooLargeError)

    run(work)
