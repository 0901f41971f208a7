"""Whoever gives up while a handle is being opened leaves nothing open at the broker, and no message with it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from raybroker import aio
from raybroker.client.connection.channel import Channel

WAIT_S = 30
OPENS: dict[str, Callable[[Any], Awaitable[Any]]] = {
    "consumer": lambda session: session.consumer("q"),
    "consumer with an ack deadline": lambda session: session.consumer("q", ack_timeout_ms=60_000),
    "receive": lambda session: session.receive("q", timeout=WAIT_S),
    "receive_many": lambda session: session.receive_many("q", 5, timeout=WAIT_S),
    "durable": lambda session: session.durable_consumer("news", "d"),
    "shared": lambda session: session.shared_consumer("news", "s"),
    "pattern": lambda session: session.consumer(session.topic("news.*")),
    "producer": lambda session: session.producer("q"),
}


async def only_the_other(admin: Any) -> None:
    """Wait until the producer and the consumer of the other session are all that is open."""
    for _ in range(WAIT_S * 100):
        producers = (await admin.query_destination("queue", "q"))["producers"]
        if (producers, [row["destination"] for row in await admin.list_consumers()]) == (1, ["q"]):
            return
        await asyncio.sleep(0.01)
    raise AssertionError("something was left open")


@pytest.mark.parametrize("kind", sorted(OPENS))
def test_a_handle_whose_opening_was_cancelled_is_closed_at_the_broker(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host opens it, and whoever asked has given up before its answer is heard."""
    asked = asyncio.Event()
    call = Channel.call

    async def unheard(self: Channel, op: str, args: dict[str, Any], then: Any = None) -> Any:
        if op not in ("open_consumer", "open_producer"):
            return await call(self, op, args, then)
        answer = self.request(op, args, then)
        await asyncio.wait([answer])
        loop.call_soon_threadsafe(asked.set)
        await asyncio.Event().wait()
        raise AssertionError

    async def work() -> None:
        nonlocal loop
        loop = asyncio.get_running_loop()
        async with await aio.loopback(client_id="c") as connection:
            await connection.start()
            session = await connection.session(ack="client")
            other = await connection.session(ack="client")
            admin = connection.admin()
            await admin.create_destination("queue", "q")
            await admin.create_destination("topic", "news.uk")
            monkeypatch.setattr(Channel, "call", unheard)
            opening = asyncio.ensure_future(OPENS[kind](session))
            await asyncio.wait_for(asked.wait(), WAIT_S)
            monkeypatch.undo()
            opening.cancel()
            await asyncio.wait([opening])
            producer = await other.producer("q")
            await producer.send("for others")
            message = await other.receive("q", timeout=WAIT_S)
            assert message is not None
            assert (message.body, message.redelivered) == ("for others", False)
            await only_the_other(admin)

    loop: asyncio.AbstractEventLoop
    asyncio.run(work())
