"""Asynchronous connections that live on the application's own event loop, and what becomes of them with it."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import uvloop

from raybroker import aio
from raybroker.client.connection.channel import Channel
from raybroker.client.io.own_loop import OwnLoop
from raybroker.errors import IllegalStateError
from raybroker.model.errors import BrokerError
from tests.contracts.test_services import Outside, until

WAIT_S = 30
OWN = {"raybroker.client.loop": "own"}
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}
Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Outside]:
    with ExitStack() as opened:
        yield Outside(tmp_path, opened)


@pytest.fixture(params=sorted(LOOPS))
def run(request: pytest.FixtureRequest) -> Run:
    """``asyncio.run``, on either kind of loop."""

    def call(work: Coroutine[Any, Any, Any]) -> Any:
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            return runner.run(asyncio.wait_for(work, 2 * WAIT_S))

    return call


async def connect(outside: Outside, **more: Any) -> aio.Connection:
    found = await aio.connect(outside.url(), username="ann", password="secret", **{**OWN, **more})
    assert isinstance(found._core.io, OwnLoop)
    return found


def users(outside: Outside) -> int:
    """Clients that the broker has."""
    return sum(row["user"] == "ann" for row in outside.admin.list_connections())


def test_messages_change_threads_nowhere(outside: Outside, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    served: set[int] = set()
    frames = Channel._frames

    def noted(self: Channel, came: list[Any]) -> None:
        served.add(threading.get_ident())
        frames(self, came)

    monkeypatch.setattr(Channel, "_frames", noted)

    async def work() -> None:
        async with await connect(outside) as connection:
            session = await connection.session()
            producer, consumer = await session.producer("orders"), await session.consumer("orders")
            for number in range(100):
                await producer.send(number)
                message = await consumer.receive(timeout=WAIT_S)
                assert message is not None
                assert message.body == number
            transacted = await connection.session(transacted=True)
            await (await transacted.producer("orders")).send("one")
            await transacted.commit()
            message = await consumer.receive(timeout=WAIT_S)
            assert message is not None
            assert message.body == "one"

    run(work())
    assert served == {threading.get_ident()}


def test_a_hundred_tasks_send_and_receive_beside_each_other(outside: Outside, run: Run) -> None:
    async def work() -> None:
        async with await connect(outside) as connection:
            session = await connection.session()
            producer = await session.producer("orders")
            ids = await asyncio.gather(*(producer.send(number) for number in range(100)))
            assert len(set(ids)) == 100
            consumer = await session.consumer("orders")
            found = [await consumer.receive(timeout=WAIT_S) for _ in range(100)]
            assert sorted(message.body for message in found if message is not None) == list(range(100))

    run(work())


def test_other_threads_and_loops_use_its_handles(outside: Outside, run: Run) -> None:
    async def work() -> None:
        async with await connect(outside) as connection:
            producer = await (await connection.session()).producer("orders")

            async def elsewhere() -> str:
                assert asyncio.get_running_loop() is not connection._core.io.loop
                return str(await producer.send("from another loop"))

            found = await asyncio.to_thread(asyncio.run, elsewhere())
            assert found
            consumer = await (await connection.session()).consumer("orders")
            message = await consumer.receive(timeout=WAIT_S)
            assert message is not None
            assert message.body == "from another loop"
            future = await producer.send_async("x")
            assert await asyncio.to_thread(future.result, WAIT_S)
            assert await consumer.receive(timeout=WAIT_S)

    run(work())


def test_who_would_wait_for_itself_is_told(outside: Outside, run: Run) -> None:
    async def work() -> None:
        async with await connect(outside) as connection:
            producer = await (await connection.session()).producer("orders")
            future = await producer.send_async("x")
            for call in (future.result, future.exception):
                with pytest.raises(IllegalStateError, match="await"):
                    call(WAIT_S)
            assert await asyncio.wrap_future(future) == future.result()
            with pytest.raises(IllegalStateError, match="await"):
                connection._core.io.run(asyncio.sleep(0))
            consumer = await (await connection.session()).consumer("orders")
            assert await consumer.receive(timeout=WAIT_S)

    run(work())


def test_a_cancelled_call_ends_and_harms_no_other(outside: Outside, run: Run) -> None:
    async def work() -> None:
        async with await connect(outside) as connection:
            session = await connection.session()
            consumer = await session.consumer("orders")
            waiting = asyncio.create_task(consumer.receive())
            await asyncio.sleep(0.05)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            opening = asyncio.create_task(session.consumer("blocks"))
            await asyncio.sleep(0)
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening
            producer = await session.producer("orders")
            await producer.send("after")
            message = await consumer.receive(timeout=WAIT_S)
            assert message is not None
            assert message.body == "after"

    run(work())


def test_a_loop_that_ends_takes_its_connections_along(
    outside: Outside, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    left: list[Any] = []

    async def work() -> None:
        connection = await connect(outside)
        await connection.start()
        producer = await (await connection.session()).producer("orders")
        await producer.send("stored")
        left.extend((connection, producer))
        assert users(outside) == 1

    for _ in range(2):
        left.clear()
        with caplog.at_level(logging.WARNING, "raybroker.client"):
            run(work())
        assert "not closed before the event loop ended" in caplog.text
        caplog.clear()
        until(lambda: users(outside) == 0)
        connection, producer = left

        async def again(connection: Any = connection, producer: Any = producer) -> None:
            for call in (connection.session, lambda: producer.send("x"), connection.close):
                with pytest.raises(IllegalStateError, match="has ended"):
                    await call()

        run(again())
    consumer = outside.inside.session().consumer("orders")
    outside.inside.start()
    assert [consumer.receive(timeout=WAIT_S).body for _ in range(2)] == ["stored"] * 2
    consumer.close()


@pytest.mark.parametrize("kind", sorted(LOOPS))
def test_a_connection_that_is_closed_leaves_nothing_to_be_done_on_its_loop(outside: Outside, kind: str) -> None:
    async def work() -> None:
        connection = await connect(outside)
        await connection.start()
        session = await connection.session()
        producer, consumer = await session.producer("orders"), await session.consumer("orders")
        await producer.send("x")
        assert await consumer.receive(timeout=WAIT_S)
        await connection.close()

    loop = LOOPS[kind]()
    loop.run_until_complete(work())  # As soon as close() has returned, and the handles are gone.
    assert not asyncio.all_tasks(loop)
    loop.close()


@pytest.mark.filterwarnings("ignore")
def test_a_loop_that_is_closed_with_its_tasks_lets_nobody_wait(outside: Outside) -> None:
    loop = uvloop.new_event_loop()
    connection = loop.run_until_complete(connect(outside))
    producer = loop.run_until_complete(_producer(connection))
    results: list[Any] = []
    io = connection._core.io

    def wait() -> None:
        try:
            results.append(io.run(asyncio.sleep(WAIT_S)))
        except BrokerError as error:
            results.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    loop.close()
    thread.join(WAIT_S)
    assert not thread.is_alive()
    assert isinstance(results[0], IllegalStateError)
    with pytest.raises(IllegalStateError, match="has ended"):
        asyncio.run(producer.send("x"))
    del connection, producer
    gc.collect()
    until(lambda: users(outside) == 0)


async def _producer(connection: aio.Connection) -> aio.Producer:
    await connection.start()
    return await (await connection.session()).producer("orders")


def test_a_loop_that_was_busy_keeps_its_links(outside: Outside, run: Run) -> None:
    async def work() -> None:
        more = {"imqPingInterval": 1, "imqPingAckTimeout": 2500, "imqAbortOnPingAckTimeout": True}
        events: list[Any] = []
        async with await connect(outside, **more) as connection:
            connection.on_event(events.append)
            session = await connection.session()
            producer, consumer = await session.producer("orders"), await session.consumer("orders")
            for _ in range(2):
                await asyncio.sleep(1.02)  # A ping is on its way.
                time.sleep(3.5)  # noqa: ASYNC251 - the application computes
            await asyncio.sleep(0.3)
            assert await producer.send("still here")
            message = await consumer.receive(timeout=WAIT_S)
            assert message is not None
            assert message.body == "still here"
            assert events == []

    run(work())


def test_a_forked_child_is_refused_and_harms_nothing(outside: Outside, run: Run) -> None:
    async def work() -> None:
        async with await connect(outside) as connection:
            producer = await (await connection.session()).producer("orders")
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    asyncio.run(producer.send("x"))
                except IllegalStateError as error:
                    code = 0 if "fork" in str(error) else 2
                finally:
                    os._exit(code)
            _, status = await asyncio.to_thread(os.waitpid, child, 0)
            assert os.waitstatus_to_exitcode(status) == 0
            assert await producer.send("from the parent")
            consumer = await (await connection.session()).consumer("orders")
            assert await consumer.receive(timeout=WAIT_S)

    run(work())


def test_connections_of_a_loop_share_what_serves_them(outside: Outside, run: Run) -> None:
    async def work() -> None:
        one, other = await connect(outside), await connect(outside)
        assert one._core.io is other._core.io
        await one.close()
        session = await other.session()
        assert await (await session.producer("orders")).send("x")
        await other.close()
        with pytest.raises(IllegalStateError, match="closed"):
            await other.session()

    run(work())
    outside.inside.start()
    consumer = outside.inside.session().consumer("orders")
    assert consumer.receive(timeout=WAIT_S).body == "x"
    consumer.close()
