"""The thread that does a process's broker IO: one event loop for all connections, started when first needed.

User threads never touch sockets; they hand work over with :meth:`IoThread.post` and wait on futures.

A forked child has a copy of its parent's connections, but not the thread that serves them, and locks as somebody held
them: every call there raises IllegalStateError.  When the interpreter ends, the loop ends before what its tasks use.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, InvalidStateError
from typing import Any, Final, Generic, Protocol, TypeVar

from raybroker.model.errors import BrokerError, IllegalStateError
from raybroker.transport.loops import new_event_loop

T = TypeVar("T")
EXIT_S: Final = 2.0
"""How long the tasks of the loop may take to end when the interpreter does."""
ENDED: Final = "the process is ending: its connections are closed"

log = logging.getLogger("raybroker.client")


class Inherited(Protocol):
    """What belongs to the IO thread of a process, and is of no use in a child of it."""

    def disown(self) -> None:
        """This is a forked child: refuse every call, without waiting for a lock."""
        ...


class IoThread:
    """An event loop in a daemon thread. :meth:`shared` is the one of this process."""

    _shared: IoThread | None = None
    _guard = threading.Lock()

    def __init__(self, name: str = "raybroker-io") -> None:
        self.loop: asyncio.AbstractEventLoop = new_event_loop()
        self.loop.set_exception_handler(_on_loop_error)
        self.unusable = ""
        """Why nothing can be asked of it any more."""
        self.users: weakref.WeakSet[Inherited] = weakref.WeakSet()
        """The connections that it serves."""
        self._pid = os.getpid()
        _all.add(self)
        atexit.register(self._end)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @classmethod
    def shared(cls) -> IoThread:
        """The process's IO thread; a forked child gets one of its own."""
        with cls._guard:
            if cls._shared is None or cls._shared.unusable:
                cls._shared = cls()
            return cls._shared

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine on the loop, from any thread."""
        self._require_usable(work)
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and wait for it; raises IllegalStateError on the loop itself."""
        self._require_usable(work)
        if threading.current_thread() is self._thread:
            work.close()
            raise IllegalStateError("a blocking call on the IO thread would wait for itself; make it in another thread")
        waiter: Waiter[T] = Waiter(self.loop)
        self.post(waiter.begin, work)
        return waiter.result()

    def post(self, call: Callable[..., object], *args: Any) -> None:
        if self.unusable:
            raise IllegalStateError(self.unusable)
        self.loop.call_soon_threadsafe(call, *args)

    def require_usable(self) -> None:
        """Raises IllegalStateError in a forked child, and when the process is ending."""
        if self.unusable:
            raise IllegalStateError(self.unusable)

    def _require_usable(self, work: Coroutine[Any, Any, Any]) -> None:
        if self.unusable:
            work.close()
            raise IllegalStateError(self.unusable)

    # ---- how it ends -----------------------------------------------------------------------------------------------

    def ends_first(self) -> None:
        """At the end of the interpreter, end before everything that was loaded until now."""
        atexit.unregister(self._end)
        atexit.register(self._end)

    def _end(self) -> None:
        """The interpreter ends: cancel every task, and then the loop."""
        if self.unusable or self._pid != os.getpid():
            return
        with contextlib.suppress(Exception):
            ending = asyncio.run_coroutine_threadsafe(self._cancel_all(), self.loop)
            self.unusable = ENDED
            ending.result(EXIT_S)
        with contextlib.suppress(Exception):
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(EXIT_S)

    async def _cancel_all(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def disown(self) -> None:
        """This is a forked child: the thread and the loop stayed behind."""
        self.unusable = (
            f"this connection belongs to process {self._pid}, and this is its child {os.getpid()}: a connection does"
            " not survive a fork; connect again in the child"
        )
        users = list(self.users)
        for user in users:
            user.disown()
        _left_behind.append((self, users))


_all: weakref.WeakSet[IoThread] = weakref.WeakSet()
_left_behind: list[Any] = []
"""Loops and connections of a parent: if they were finalized here, that would end what the parent's loop waits for."""


def _forked() -> None:
    IoThread._guard = threading.Lock()
    IoThread._shared = None
    for thread in list(_all):
        thread.disown()


os.register_at_fork(after_in_child=_forked)


def ending() -> bool:
    """True once the interpreter has begun to end."""
    return not threading.main_thread().is_alive()


def log_failure(what: str, error: BaseException) -> None:
    """Log a failure that no caller waits for: answers of brokers at level INFO, faults of this package as errors."""
    if isinstance(error, BrokerError):
        log.info("%s: %s", what, error)
    elif not ending():
        log.error("%s: %r", what, error, exc_info=error)


def _on_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What asyncio would print: an error that no code of ours has seen."""
    error = context.get("exception")
    if isinstance(error, BaseException):
        log_failure(str(context.get("message")), error)
    elif not ending():
        log.error("%s", context.get("message"))


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


def call_or_refuse(waiting: Future[Any] | None, call: Callable[..., object], *args: Any) -> None:
    """Make a call; its error goes to the future, so that no caller waits for what has failed."""
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
