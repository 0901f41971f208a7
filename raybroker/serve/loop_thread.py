"""An event loop in a thread of its own, which other threads and other loops give work to."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from raybroker.model.errors import IllegalStateError
from raybroker.transport.loops import run_until_stopped

T = TypeVar("T")

END_S: Final = 5.0
"""How long the end of the thread is waited for."""


class LoopThread:
    """The loop runs until ``end_thread()``, or until the process ends."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=run_until_stopped, args=(self.loop,), name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start ``work`` on the loop; raises IllegalStateError once it has been closed."""
        try:
            return asyncio.run_coroutine_threadsafe(work, self.loop)
        except RuntimeError:
            work.close()
            raise IllegalStateError("the task processor is closed") from None

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """What ``work`` returns or raises, once it has ended; raises IllegalStateError in the loop's own thread, which
        would wait for itself, and TimeoutError when ``timeout_s`` seconds are over."""
        if threading.current_thread() is self._thread:
            work.close()
            raise IllegalStateError("this call blocks the event loop that it waits for: await its form with _async")
        return self.submit(work).result(timeout_s)

    async def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """What ``work`` returns or raises, for a coroutine of any loop."""
        return await asyncio.wrap_future(self.submit(work))

    def end_thread(self) -> None:
        """End the loop; what runs there is cancelled."""
        if self.loop.is_closed() or not self._thread.is_alive():
            return
        self.loop.call_soon_threadsafe(self.loop.stop)
        if threading.current_thread() is not self._thread:
            self._thread.join(END_S)
