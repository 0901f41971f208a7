"""The asynchronous face over a whole broker: the same names as coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import raybroker as rb
from raybroker import aio, errors
from raybroker.client.io.io_thread import IoThread
from raybroker.client.loopback import make_core
from raybroker.client.session import xa
from tests.unit.client.fakes import run


def over(work: Callable[[aio.Connection], Coroutine[Any, Any, None]], **properties: object) -> None:
    """Run ``work`` with a started connection to a broker of its own."""

    async def whole() -> None:
        async with await aio.loopback(properties=properties) as connection:
            await work(connection)

    run(whole)


async def bodies(consumer: aio.Consumer, count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        message = await consumer.receive(timeout=10)
        assert message is not None, found
        found.append(message.body)
    return found


def test_transactions_commit_and_roll_back() -> None:
    async def work(connection: aio.Connection) -> None:
        session, plain = await connection.session(transacted=True), await connection.session()
        producer, consumer = await session.producer("out"), await session.consumer("in")
        await (await plain.producer("in")).send_many(range(2))
        seen = await plain.consumer("out")
        assert await bodies(consumer, 2) == [0, 1]
        await producer.send("never")
        await session.rollback()
        assert await bodies(consumer, 2) == [0, 1]
        await producer.send("a")
        future = await producer.send_async("b")
        assert await producer.send_many(["c"]) == 1
        await session.commit()
        assert await bodies(seen, 3) == ["a", "b", "c"]
        assert future.done()
        with pytest.raises(errors.IllegalStateError):
            await plain.commit()

    over(work)


def test_a_transacted_listener_commits_batches() -> None:
    async def work(connection: aio.Connection) -> None:
        session, plain = await connection.session(transacted=True), await connection.session()
        producer, calls = await session.producer("out"), list[int]()

        async def listen(message: Any) -> None:
            calls.append(message.body)
            await producer.send(message.body)
            if message.body == 3 and message.delivery_count == 1:
                raise ValueError(message.body)

        await (await plain.producer("in")).send_many(range(5))
        await (await session.consumer("in")).on_message(listen)
        assert await bodies(await plain.consumer("out"), 5) == list(range(5))
        assert calls.count(3) == 2

    over(work, maxMessagesInTransaction=4)


def test_topics_subscriptions_and_patterns() -> None:
    async def work(connection: aio.Connection) -> None:
        session = await connection.session()
        topic = session.topic("prices")
        plain, some = await session.consumer(topic), await session.shared_consumer("prices", "pool", selector="x = 1")
        producer = await session.producer(topic)
        await producer.send("a")
        await producer.send("b", properties={"x": 1})
        assert await bodies(plain, 2) == ["a", "b"]
        assert await bodies(some, 1) == ["b"]
        assert connection.client_id is None
        with pytest.raises(errors.IllegalStateError, match="client id"):
            await session.durable_consumer(topic, "audit")
        kept = await session.shared_durable_consumer(topic, "kept")
        await kept.close()
        await session.unsubscribe("kept")
        pattern, every = await session.consumer("topic:>"), await session.producer("topic:>")
        await every.send("all")
        assert await bodies(pattern, 1) == ["all"]
        assert await every.send_many(["m"]) == 1
        assert await bodies(pattern, 1) == ["m"]
        await pattern.close()
        await every.close()

    over(work)


def test_temporary_destinations_requests_and_browsers() -> None:
    async def work(connection: aio.Connection) -> None:
        session = await connection.session()
        queue, topic = await session.temporary_queue(), await session.temporary_topic()
        consumer = await session.consumer(queue)
        await (await session.producer(queue)).send("x")
        assert await bodies(consumer, 1) == ["x"]
        await consumer.close()
        await queue.delete()
        await topic.delete()
        serving = await connection.session()
        answering = await serving.consumer("service")

        async def serve(message: Any) -> None:
            producer = await serving.producer(message.reply_to)
            await producer.send(message.body * 2, correlation_id=message.correlation_id)

        await answering.on_message(serve)
        assert (await session.request("service", 21, timeout=10)).body == 42
        with pytest.raises(errors.RequestTimeoutError):
            await session.request("nobody", 1, timeout=0.02)
        await (await session.producer("shelf")).send_many(range(5))
        browser = await session.browser("shelf")
        for _ in range(2):
            assert [m.body async for m in browser] == list(range(5))
        await browser.close()
        with pytest.raises(errors.IllegalStateError):
            aiter(browser)
        with pytest.raises(errors.InvalidDestinationError):
            await session.browser(topic)

    over(work)


def test_outcomes_and_deduplication() -> None:
    async def work(connection: aio.Connection) -> None:
        await connection.admin().create_destination("queue", "once", duplicateWindowMs=60_000, hosting="shared")
        session = await connection.session(ack="client")
        producer, consumer = await session.producer("once"), await session.consumer("once")
        for body in ("a", "b"):
            await producer.send(body, dedup_id="same")
        await producer.send("c")
        assert producer.duplicates == 1
        first, second = await consumer.receive(10), await consumer.receive(10)
        assert first is not None
        assert second is not None
        assert (first.body, second.body) == ("a", "c")
        await first.release()
        await second.fail(0)
        again = [await consumer.receive(10) for _ in range(2)]
        assert sorted(m.body for m in again if m is not None) == ["a", "c"]
        await again[-1].acknowledge()  # type: ignore[union-attr]
        connection.on_exception(lambda error: None)
        with pytest.raises(errors.IllegalStateError, match="client id is set before"):
            connection.client_id = "late"

    over(work)


def test_a_branch_of_a_distributed_transaction() -> None:
    async def work() -> None:
        core = await asyncio.to_thread(make_core, None, {}, None, IoThread.shared())
        async with aio.XaConnection(core) as connection:
            session, plain = await connection.session(), await aio.Connection(core).session()
            producer, xid = await session.producer("out"), rb.Xid(7, b"g")
            with pytest.raises(errors.IllegalStateError):
                await producer.send("x")
            await session.xa.start(xid)
            await producer.send("x")
            await session.xa.end(xid)
            assert await session.xa.prepare(xid) == xa.XA_OK
            assert await session.xa.recover() == [xid]
            await session.xa.commit(xid)
            assert await bodies(await plain.consumer("out"), 1) == ["x"]
            with pytest.raises(errors.IllegalStateError, match="connect_xa"):
                _ = plain.xa

    run(work)
