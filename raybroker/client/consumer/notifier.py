"""The notifier of a consumer: where threads and tasks of the application wait for messages, of all its members."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Final, Generic, Protocol, TypeVar

from raybroker.client.io.io_thread import fulfil
from raybroker.system.clock import SystemClock

_now_ns: Final = SystemClock.monotonic_ns


class Listed(Protocol):
    """A buffer in the list of those that have something."""

    def unlisted(self) -> bool:
        """Take it off the list if it is empty; with the lock held, for the first one of the list."""
        ...


class Sockets(Protocol):
    """Those who serve the sockets, as whoever waits for something from there sees them: an IoThread."""

    def lead(self, done: Callable[[], bool], timeout_s: float | None = None, /) -> bool:
        """Serve them in this thread until ``done``; False when it has to be waited for otherwise."""
        ...

    def follow(self) -> None: ...

    def followed(self) -> None: ...


B = TypeVar("B", bound=Listed)


class Notifier(Generic[B]):
    """A lock that buffers share, and those who wait for something to come into one of them."""

    __slots__ = ("_condition", "_futures", "_waiting", "filled", "lock")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.filled: deque[B] = deque()
        """Buffers with something in them, and maybe some that were emptied since; each once."""
        self._condition = threading.Condition(self.lock)
        self._futures: list[Future[None]] = []
        self._waiting = 0

    @property
    def has_waiters(self) -> bool:
        """True while somebody waits."""
        return self._waiting > 0 or bool(self._futures)

    def wait(
        self,
        ready: Callable[[], bool],
        poll: Callable[[], None],
        timeout_s: float | None,
        sockets: Sockets | None = None,
    ) -> bool:
        """Wait until ``ready``; False when the time is over. ``poll`` is called once, before waiting.

        ``sockets``: which this thread may serve meanwhile; None: others do.
        """
        with self.lock:
            if ready():
                return True
            self._waiting += 1
            try:
                poll()
            except BaseException:
                self._waiting -= 1
                raise
        try:
            if sockets is not None and timeout_s != 0:
                return self._wait_at(sockets, ready, timeout_s)
            with self.lock:
                return self._condition.wait_for(ready, timeout_s)
        finally:
            with self.lock:
                self._waiting -= 1

    def _wait_at(self, sockets: Sockets, ready: Callable[[], bool], timeout_s: float | None) -> bool:
        """Serve the sockets, and then wait for those who do."""
        since_ns = _now_ns()
        if sockets.lead(partial(self._holds, ready), timeout_s):
            return True
        try:
            sockets.follow()
            left_s = None if timeout_s is None else timeout_s - (_now_ns() - since_ns) / 1e9
            with self.lock:
                return self._condition.wait_for(ready, left_s)
        finally:
            sockets.followed()

    def _holds(self, ready: Callable[[], bool]) -> bool:
        with self.lock:
            return ready()

    def future(self, ready: Callable[[], bool], poll: Callable[[], None]) -> Future[None]:
        """Done when :meth:`wait` would return True."""
        future: Future[None] = Future()
        with self.lock:
            if ready():
                future.set_result(None)
            else:
                poll()
                self._futures.append(future)
        return future

    def first(self) -> B | None:
        """The first of the filled ones; called with the lock held."""
        filled = self.filled
        while filled and filled[0].unlisted():
            pass
        return filled[0] if filled else None

    def notify(self, *, everybody: bool = False) -> None:
        """Something came, or it is over; called with the lock held."""
        if everybody:
            self._condition.notify_all()
        else:
            self._condition.notify()
        for future in self._futures:
            fulfil(future, None)
        self._futures.clear()
