"""The event loop of an application as the IO loop of its connections: ``raybroker.client.loop = own``.

What the handles of ``raybroker.aio`` do runs on the loop that awaits it, without the changes of thread that the IO
thread of the process costs.  The price is that nothing is read, written or answered while the application keeps its
loop busy.

    a call on the loop                        no change of thread
    a call from another thread, another loop  handed over with ``call_soon_threadsafe``, as to the IO thread
    a call that blocks, on the loop           IllegalStateError: it would wait for itself
    the loop ends with ``asyncio.run``        its connections are closed, with a warning, and every later call fails
    the loop is closed otherwise              every later call fails, as does whoever waits in another thread; sockets
                                              end with the connection
    a forked child                            every call fails, as with the IO thread
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, Final, TypeVar

from raybroker.client.io.io_thread import Inherited, IoThread, Unwanted
from raybroker.model.errors import BrokerError, IllegalStateError
from raybroker.system.clock import SystemClock
from raybroker.transport.direct import DirectSockets
from raybroker.transport.loops import running_loop

T = TypeVar("T")
ENDED: Final = "the event loop of this connection has ended, and the connection with it; connect again on a running one"
WAITS: Final = "a blocking call on the event loop of its connection would wait for itself; await it"
CLOSING_S: Final = 2.0
"""How long connections that nobody has closed may take to close when their loop ends."""
LOOK_S: Final = 0.5
"""A thread that waits looks so often whether the loop is still there."""

log = logging.getLogger("raybroker.client")


class OwnLoop(IoThread):
    """An IoThread without a thread: the loop is the application's. :meth:`running` is that of the running loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Take over ``loop``, on which it is called."""
        self._set_up(loop)
        self._watcher: asyncio.Task[None] | None = None
        """Learns that the loop ends, while there are connections that are not closed."""

    @classmethod
    def running(cls) -> OwnLoop:
        """The one of the loop that runs; all connections of a loop share it."""
        loop = asyncio.get_running_loop()
        for other in [known for known in _of if known.is_closed()]:
            _of[other]._ended()
        found = _of.get(loop)
        if found is None or found.unusable:
            found = _of[loop] = cls(loop)
        return found

    # ---- calls -----------------------------------------------------------------------------------------------------

    def start_work(self, work: Coroutine[Any, Any, T]) -> Awaitable[T]:
        """Start a coroutine, on the loop, after what was posted before and after what that posts."""
        self._require_usable(work)
        if self._posted:
            return asyncio.wrap_future(self.submit(work))
        return self.loop.create_task(work)

    def run(self, work: Coroutine[Any, Any, T], unwanted: Unwanted[T] | None = None) -> T:
        """Run a coroutine on the loop and wait for it, in another thread."""
        if self._is_here:
            work.close()
            raise IllegalStateError(WAITS)
        future = self.submit(work, unwanted)
        self._wait(future, None)
        try:
            return future.result(0)
        except CancelledError:
            raise IllegalStateError(self.unusable or ENDED) from None

    def done(self, future: Future[Any], timeout_s: float | None = None) -> bool:
        """Wait for a future, whatever becomes of it, in another thread; False when the time is over."""
        if future.done():
            return True
        if self._is_here and timeout_s != 0:
            raise IllegalStateError(WAITS)
        return self._wait(future, timeout_s)

    def _wait(self, future: Future[Any], timeout_s: float | None) -> bool:
        until_ns = None if timeout_s is None else SystemClock.monotonic_ns() + round(timeout_s * 1e9)
        while True:
            left_s = None if until_ns is None else max(until_ns - SystemClock.monotonic_ns(), 0) / 1e9
            try:
                Future.exception(future, LOOK_S if left_s is None else min(left_s, LOOK_S))
            except CancelledError:
                return True
            except TimeoutError:
                if future.done():
                    return True
                if self.unusable or self.loop.is_closed():
                    self._ended()
                    raise IllegalStateError(self.unusable) from None
                if left_s is not None and left_s <= LOOK_S:
                    return False
                continue
            return True

    @property
    def _is_here(self) -> bool:
        """The caller is on the loop."""
        return running_loop() is self.loop

    def _ring(self) -> None:
        with self._lock:
            if self._rung:
                return
            try:
                if self._is_here:
                    self.loop.call_soon(self._call_posted)
                else:
                    self.loop.call_soon_threadsafe(self._call_posted)
            except RuntimeError:  # It is closed.
                self._ended()
                raise IllegalStateError(self.unusable) from None
            self._rung = True

    def call_lazily(self, delay_s: float, call: Any, *args: Any) -> None:
        self.loop.call_later(delay_s, call, *args)

    def serve_directly(self) -> DirectSockets | None:
        """No thread serves the sockets in place of an application's loop."""
        return None

    # ---- how it ends -----------------------------------------------------------------------------------------------

    def join(self, user: Inherited, *, resident: bool = False) -> None:
        """Serve a new connection; the application ends its loop, and a task has to learn of it."""
        self.users.add(user)
        self.post(self._watch)

    def _watch(self) -> None:
        if self._watcher is None and not self.unusable:
            self._watcher = self.loop.create_task(self._until_cancelled(), name="raybroker: connections of this loop")

    async def left(self, leaving: Inherited) -> None:
        """A connection was closed. The last one takes the task along, or a loop that is closed now has it pending."""
        guard = self._watcher
        if guard is not None and all(user.closed for user in list(self.users)):
            self._watcher = None
            guard.cancel()
            await asyncio.wait([guard])

    def disown(self) -> None:
        """This is a forked child. What the loop was about to run here is not run: it may be run again."""
        super().disown()
        _of.clear()

    async def _until_cancelled(self) -> None:
        """Wait until whoever runs the loop cancels its tasks, as ``asyncio.run`` does at its end."""
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            if self._watcher is not None and not self.unusable:
                self._watcher = None
                await self._close_all()

    async def _close_all(self) -> None:
        users = list(self.users)
        open_ = [user for user in users if not user.closed]
        if open_:
            log.warning(
                "%d connection%s not closed before the event loop ended; use `async with`, or await close()",
                len(open_),
                " was" if len(open_) == 1 else "s were",
            )
        for user in open_:
            with contextlib.suppress(BrokerError, TimeoutError, asyncio.CancelledError):
                await asyncio.wait_for(user.close(), CLOSING_S)
        self._ended()

    def _ended(self) -> None:
        """The loop runs no more: whoever calls is refused, and nobody waits for messages."""
        if not self.unusable:
            self.unusable = ENDED
            for user in list(self.users):
                user.disown()
            for _, given in self._posted:
                for work in filter(asyncio.iscoroutine, given):
                    work.close()  # Nobody will begin it; Python would warn of that wherever it is collected.
            self._posted.clear()
            _of.pop(self.loop, None)


def begun(io: object, work: Coroutine[Any, Any, T]) -> Awaitable[T] | None:
    """Work that was started on the loop that runs; None when the connection lives elsewhere."""
    return io.start_work(work) if isinstance(io, OwnLoop) and io._is_here else None


_of: dict[asyncio.AbstractEventLoop, OwnLoop] = {}
"""Of loops that have one; those that were closed are let go of by whoever makes the next one."""
