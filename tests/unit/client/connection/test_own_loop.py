"""The application's event loop as the IO loop of its connections: order, other threads, and its end."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from concurrent.futures import Future

import pytest

from raybroker.client.io import own_loop
from raybroker.client.io.own_loop import OwnLoop
from raybroker.model.errors import IllegalStateError


class Connection:
    """An open connection, as its loop sees it."""

    def __init__(self) -> None:
        self.closed = False
        self.disowned = False

    def disown(self) -> None:
        self.disowned = True

    async def close(self) -> None:
        self.closed = True


async def _nothing() -> int:
    return 7


def test_one_loop_has_one_and_another_loop_another() -> None:
    async def found() -> OwnLoop:
        assert OwnLoop.running() is OwnLoop.running()
        return OwnLoop.running()

    assert asyncio.run(found()) is not asyncio.run(found())
    assert all(loop.is_closed() for loop in own_loop._of), "which who comes next lets go of"


def test_what_was_posted_before_comes_before_work_and_what_it_posts_too() -> None:
    async def work() -> list[str]:
        io, order = OwnLoop.running(), list[str]()

        def first() -> None:
            order.append("first")
            io.post(order.append, "posted by the first")

        async def begun() -> None:
            order.append("work")

        io.post(first)
        await io.start_work(begun())
        await io.start_work(begun())
        return order

    assert asyncio.run(work()) == ["first", "posted by the first", "work", "work"]


def test_another_thread_posts_runs_and_waits() -> None:
    async def work() -> None:
        io, threads = OwnLoop.running(), set[int]()
        never: Future[int] = Future()

        def elsewhere() -> int:
            io.post(lambda: threads.add(threading.get_ident()))
            assert not io.done(never, 0.01)
            return io.run(_nothing())

        assert await asyncio.to_thread(elsewhere) == 7
        assert threads == {threading.get_ident()}

    asyncio.run(work())


def test_a_call_that_would_wait_for_itself_is_refused() -> None:
    async def work() -> None:
        io, future = OwnLoop.running(), Future[int]()
        with pytest.raises(IllegalStateError, match="await"):
            io.run(_nothing())
        with pytest.raises(IllegalStateError, match="await"):
            io.done(future)
        assert not io.done(future, 0)
        future.set_result(1)
        assert io.done(future)

    asyncio.run(work())


def test_the_end_of_the_loop_closes_what_is_open(caplog: pytest.LogCaptureFixture) -> None:
    open_, closed = Connection(), Connection()
    closed.closed = True

    async def work() -> OwnLoop:
        io = OwnLoop.running()
        for one in (open_, closed):
            io.join(one)
        await asyncio.sleep(0.01)
        return io

    with caplog.at_level(logging.WARNING):
        io = asyncio.run(work())
    assert open_.closed
    assert open_.disowned
    assert "1 connection was not closed" in caplog.text
    with pytest.raises(IllegalStateError, match="has ended"):
        io.post(print)
    with pytest.raises(IllegalStateError, match="has ended"):
        io.require_usable()


def test_the_last_connection_that_is_closed_leaves_no_task_and_the_next_is_watched_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    first, second, third = Connection(), Connection(), Connection()

    async def work() -> OwnLoop:
        io, me = OwnLoop.running(), asyncio.current_task()
        for connection in (first, second):
            io.join(connection)
        await asyncio.sleep(0.01)
        for connection, tasks in ((first, 1), (second, 0)):
            connection.closed = True
            await io.left(connection)
            assert len(asyncio.all_tasks() - {me}) == tasks
        io.require_usable()
        io.join(third)
        await asyncio.sleep(0.01)
        return io

    assert asyncio.run(work()).unusable
    assert third.closed
    assert "1 connection was not closed" in caplog.text


@pytest.mark.filterwarnings("ignore")
def test_a_closed_loop_is_found_by_who_posts_and_by_who_comes_next() -> None:
    async def work() -> OwnLoop:
        return OwnLoop.running()

    loop = asyncio.new_event_loop()
    io = loop.run_until_complete(work())
    loop.close()
    with pytest.raises(IllegalStateError, match="has ended"):
        io.post(print)
    other = asyncio.new_event_loop()
    io = other.run_until_complete(work())
    other.close()
    asyncio.run(work())
    assert io.unusable


def test_work_that_a_loop_has_not_begun_when_it_is_closed_is_closed_too() -> None:
    loop = asyncio.new_event_loop()

    async def take() -> OwnLoop:
        return OwnLoop.running()

    io, work = loop.run_until_complete(take()), _nothing()
    answer = io.submit(work)
    loop.close()
    with pytest.raises(IllegalStateError, match="has ended"):
        io.done(answer, 60)
    assert inspect.getcoroutinestate(work) == inspect.CORO_CLOSED
