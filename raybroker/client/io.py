"""The thread that does a process's broker IO: one event loop for all connections, started when first needed.

User threads never touch sockets; they hand work over with :meth:`IoThread.post` and wait on futures.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, InvalidStateError
from typing import Any, Generic, TypeVar

from raybroker.model.errors import BrokerError, IllegalStateError
from raybroker.transport.loops import new_event_loop

T = TypeVar("T")


class IoThread:
    """An event loop in a daemon thread. :meth:`shared` is the one of this process."""

    _shared: IoThread | None = None
    _shared_pid = 0
    _guard = threading.Lock()

    def __init__(self, name: str = "raybroker-io") -> None:
        self.loop: asyncio.AbstractEventLoop = new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @classmethod
    def shared(cls) -> IoThread:
        """The process's IO thread; a forked child gets one of its own."""
        with cls._guard:
            if cls._shared is None or cls._shared_pid != os.getpid():
                cls._shared = cls()
                cls._shared_pid = os.getpid()
            return cls._shared

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine on the loop, from any thread."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and wait for it; raises IllegalStateError on the loop itself."""
        if threading.current_thread() is self._thread:
            work.close()
            raise IllegalStateError("a blocking call on the IO thread would wait for itself; make it in another thread")
        waiter: Waiter[T] = Waiter(self.loop)
        self.post(waiter.begin, work)
        return waiter.result()

    def post(self, call: Callable[..., object], *args: Any) -> None:
        self.loop.call_soon_threadsafe(call, *args)


class Waiter(Generic[T]):
    """One thread that waits for one coroutine: what ``submit(work).result()`` does, without what only a future that
    others may look at or cancel needs. A blocking commit is such a call."""

    __slots__ = ("_loop", "_task", "_turn")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._turn = threading.Lock()
        self._turn.acquire()
        self._task: asyncio.Task[T] | None = None

    def begin(self, work: Coroutine[Any, Any, T]) -> None:
        """On the loop."""
        self._task = self._loop.create_task(work)
        self._task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[T]) -> None:
        task.cancelled() or task.exception()  # Seen, even if the thread has been interrupted and waits no more.
        self._turn.release()

    def result(self) -> T:
        """Wait; raises what the coroutine raised."""
        self._turn.acquire()
        assert self._task is not None
        return self._task.result()


def tell_errors(waiting: Future[Any] | None, call: Callable[..., object], *args: Any) -> None:
    """Make a call; its error is told to whoever waits, so that nobody waits for what has failed."""
    try:
        call(*args)
    except Exception as error:
        if waiting is None:
            raise
        known = isinstance(error, BrokerError)
        refuse(waiting, error if known else BrokerError(f"{getattr(call, '__name__', call)} has failed: {error!r}"))
        if not known:
            raise


def fulfil(future: Future[T], result: T) -> None:
    """Give a future its result, unless whoever waited for it has given up."""
    try:
        future.set_result(result)
    except InvalidStateError:
        pass


def refuse(future: Future[Any], error: BaseException) -> None:
    """Give a future an error, unless whoever waited for it has given up."""
    try:
        future.set_exception(error)
    except InvalidStateError:
        pass
