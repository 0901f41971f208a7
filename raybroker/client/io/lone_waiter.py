"""A future for one thread that waits for one answer, without what only several threads need.

A future of the standard library makes a condition and a lock and takes them for each question.  Here a lock is made
when the thread has to sleep, which it has not when it serves the sockets itself (``turns``).
"""

from __future__ import annotations

import threading
from concurrent.futures import Future, InvalidStateError
from typing import Any


class LoneWaiter(Future[str]):
    """The id of a message once the broker has it, for the thread that sent it and for no other one.

    Without callbacks, and without taking back.  It may be fulfilled in any thread: of the end and the lock, each side
    writes its own before it looks at that of the other one, so that no end is missed.
    """

    _ended = False
    _outcome = ""
    _error: BaseException | None = None
    _asleep: Any = None
    """The lock at which the thread sleeps."""

    __init__ = object.__init__  # Nothing is made yet.

    def done(self) -> bool:
        return self._ended

    def cancelled(self) -> bool:
        return False

    def cancel(self) -> bool:
        return False

    def wait(self, timeout_s: float | None) -> None:
        """Sleep until it has ended; raises TimeoutError when the time is over."""
        asleep = threading.Lock()
        asleep.acquire()
        self._asleep = asleep
        if not self._ended and not asleep.acquire(timeout=-1 if timeout_s is None else timeout_s):
            raise TimeoutError

    def result(self, timeout: float | None = None) -> str:
        if not self._ended:
            self.wait(timeout)
        if self._error is not None:
            raise self._error
        return self._outcome

    def set_result(self, result: str) -> None:
        if self._ended:
            raise InvalidStateError
        self._outcome = result
        self._ended = True
        if self._asleep is not None:
            self._asleep.release()

    def set_exception(self, exception: BaseException | None) -> None:
        if self._ended:
            raise InvalidStateError
        self._error = exception
        self._ended = True
        if self._asleep is not None:
            self._asleep.release()
