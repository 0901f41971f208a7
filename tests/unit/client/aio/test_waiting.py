"""Waiting for futures of the IO loop: on that loop itself, and on another one."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from raybroker.client.aio import waiting
from raybroker.client.io.io_thread import IoThread
from tests.contracts.handles import WAIT_S, until


class Io:
    """An IO thread, as far as waiting needs it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize(
    ("end", "found"),
    [
        (lambda future: future.set_result("id"), "id"),
        (lambda future: future.set_exception(ValueError("no")), ValueError),
        (lambda future: future.cancel(), asyncio.CancelledError),
    ],
)
@pytest.mark.parametrize("elsewhere", [True, False])
def test_who_waits_gets_what_became_of_it(
    end: Callable[[Future[str]], Any], found: Any, same: bool, elsewhere: bool
) -> None:
    """``same``: on the IO loop; ``elsewhere``: another thread ends the future."""

    async def work() -> Any:
        loop = asyncio.get_running_loop()
        io: Any = Io(loop if same else asyncio.new_event_loop())
        future: Future[str] = Future()
        task = loop.create_task(waiting.result(io, future))
        await asyncio.sleep(0)
        if elsewhere:
            thread = threading.Thread(target=end, args=(future,))
            thread.start()
            thread.join()
        else:
            end(future)
        if not same:
            io.loop.close()
        try:
            return await task
        except (ValueError, asyncio.CancelledError) as error:
            return type(error)

    assert asyncio.run(work()) == found


@pytest.mark.parametrize("same", [True, False])
def test_who_gives_up_takes_the_future_back(same: bool) -> None:
    async def work() -> bool:
        loop = asyncio.get_running_loop()
        other = asyncio.new_event_loop()
        io: Any = Io(loop if same else other)
        future: Future[str] = Future()
        with pytest.raises(TimeoutError):
            await waiting.result(io, future, 0.01)
        other.close()
        return future.cancelled()

    assert asyncio.run(work())


@pytest.mark.parametrize("when", ["while", "after", "told"])
def test_what_is_opened_for_somebody_who_gave_up_is_let_go(when: str) -> None:
    """``when`` the wait is cancelled: while the work is under way, when it is over and nobody has been told, and never,
    since whoever waits has it."""
    io = IoThread.shared()
    begun, go_on, let_go = threading.Event(), threading.Event(), []

    async def work() -> str:
        begun.set()
        while not go_on.is_set():
            try:
                await asyncio.sleep(0.001)
            except asyncio.CancelledError:
                break  # It was done already.
        return "opened"

    async def leave(found: str) -> None:
        let_go.append(found)

    async def wait() -> None:
        if when in ("after", "told"):
            go_on.set()
        task = asyncio.ensure_future(waiting.opened(io, work(), leave))
        await asyncio.sleep(0)
        begun.wait(WAIT_S)
        if when == "after":
            time.sleep(0.05)  # noqa: ASYNC251 - this loop is not to be told meanwhile
        if when == "told":
            await asyncio.wait([task])
            assert task.result() == "opened"
            return
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    try:
        asyncio.run(wait())
        until(lambda: let_go == ([] if when == "told" else ["opened"]))
    finally:
        go_on.set()
