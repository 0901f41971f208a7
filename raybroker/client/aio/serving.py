"""The task in which an asynchronous session calls its listeners."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from raybroker.client.consumer.message import Message
from raybroker.client.listener.handler import Handler, require_result


class Serving:
    """A task of the loop on which it is made; it sleeps until it is woken."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._awake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self, serve: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run ``serve()`` in the task."""
        self._task = self._loop.create_task(serve())

    def wake(self) -> None:
        """Something may have come; in any thread."""
        with contextlib.suppress(RuntimeError):  # The application's loop is closed: nobody listens any more.
            self._loop.call_soon_threadsafe(self._awake.set)

    async def woken(self) -> None:
        """Wait until it is woken."""
        await self._awake.wait()
        self._awake.clear()

    async def ended(self) -> None:
        """Wait for the end of ``serve()``, unless that is what waits."""
        if self._task is not None and self._task is not asyncio.current_task():
            await self._task

    async def call(self, handler: Handler, message: Message) -> None:
        """Call a listener, and await what it returns."""
        result = handler.function(message)
        if isinstance(result, Awaitable):
            await result
        elif result is not None:
            require_result(handler.function, result)

    def is_ended_by(self, error: BaseException) -> bool:
        """True for what ends the task; an awaited call of the listener that was cancelled has failed, and no more."""
        if isinstance(error, asyncio.CancelledError):
            return self._task is not None and self._task.cancelling() > 0
        return not isinstance(error, Exception)
