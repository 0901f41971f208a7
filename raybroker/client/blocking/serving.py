"""The thread in which a blocking session calls its listeners.

Written by hand, with the names of :mod:`raybroker.client.aio.serving`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

from raybroker.client.consumer.message import Message
from raybroker.client.listener.handler import Handler, require_result


class Serving:
    """A thread that sleeps until it is woken; a coroutine that a listener returns runs on an event loop of its own."""

    def __init__(self) -> None:
        self._awake = threading.Event()
        self._thread: threading.Thread | None = None
        self._runner: asyncio.Runner | None = None

    def start(self, serve: Callable[[], None]) -> None:
        """Run ``serve()`` in the thread."""

        def whole() -> None:
            try:
                serve()
            finally:
                if self._runner is not None:
                    self._runner.close()

        self._thread = threading.Thread(target=whole, name="raybroker-session", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Something may have come; in any thread."""
        self._awake.set()

    def woken(self) -> None:
        """Wait until it is woken."""
        self._awake.wait()
        self._awake.clear()

    def ended(self) -> None:
        """Wait for the end of ``serve()``, unless that is what waits."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def call(self, handler: Handler, message: Message) -> None:
        """Call a listener, and run what it returns to its end."""
        result = handler.function(message)
        if isinstance(result, Awaitable):
            if self._runner is None:
                self._runner = asyncio.Runner()
            self._runner.run(_awaited(result))
        elif result is not None:
            require_result(handler.function, result)

    def is_ended_by(self, error: BaseException) -> bool:
        """Return False: whatever ends a call is its message's failure, not the thread's."""
        return False


async def _awaited(result: Awaitable[object]) -> None:
    await result
