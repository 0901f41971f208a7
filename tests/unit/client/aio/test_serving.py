"""The task that calls listeners: it sleeps until it is woken, in any thread, and awaits what listeners return."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from raybroker.client.aio.serving import Serving
from raybroker.client.listener.handler import Handler, Retries
from tests.unit.client.fakes import run, turns

MESSAGE: Any = "message"


def test_it_serves_in_a_task_each_time_it_is_woken_in_any_thread() -> None:
    async def work() -> None:
        serving, rounds = Serving(), []

        async def serve() -> None:
            for number in range(2):
                await serving.woken()
                rounds.append(number)
            await serving.ended()  # What serves does not wait for itself.

        serving.start(serve)
        await turns()
        assert rounds == []
        waking = threading.Thread(target=serving.wake)
        waking.start()
        waking.join()
        await turns()
        assert rounds == [0]
        serving.wake()
        await serving.ended()
        assert rounds == [0, 1]

    run(work)


def test_what_a_listener_returns_is_awaited() -> None:
    async def work() -> None:
        called: list[object] = []

        async def listener(message: object) -> None:
            await asyncio.sleep(0)
            called.append(message)

        serving, retries = Serving(), Retries.checked((), (), None)
        await serving.call(Handler(listener, retries), MESSAGE)
        await serving.call(Handler(called.append, retries), MESSAGE)
        assert called == [MESSAGE, MESSAGE]

    run(work)


def test_only_its_own_cancellation_ends_it() -> None:
    async def work() -> None:
        serving, seen = Serving(), []
        tasks: list[asyncio.Task[Any]] = []

        async def serve() -> None:
            tasks.extend(task for task in [asyncio.current_task()] if task is not None)
            seen.append(serving.is_ended_by(asyncio.CancelledError()))
            try:
                await asyncio.sleep(10)
            except asyncio.CancelledError as error:
                seen.append(serving.is_ended_by(error))

        serving.start(serve)
        await turns()
        tasks[0].cancel()
        await serving.ended()
        assert seen == [False, True], "a cancelled call of a listener has failed, and no more"
        assert not serving.is_ended_by(ValueError())
        assert serving.is_ended_by(KeyboardInterrupt())

    run(work)
