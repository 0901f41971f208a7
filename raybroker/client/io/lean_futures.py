"""Futures that make nothing before somebody has to wait for them.

A future of the standard library makes a condition, a lock and two lists, and takes the lock for each question, which
costs more than a send.  Nearly all are done before anybody waits, or are waited for by a thread that serves the sockets
meanwhile (``turns``).
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future, InvalidStateError
from typing import Any, Final, TypeVar

T = TypeVar("T")
PENDING: Final = "PENDING"
FINISHED: Final = "FINISHED"
"""The states of concurrent.futures that matter here."""
_PARTS: Final = ("_condition", "_waiters", "_done_callbacks")
"""What a future of the standard library has for those who wait for it."""


class _Guard:
    """Held while a future gets its condition, and while futures without one are settled; nothing is waited for
    meanwhile. A signal handler may run while it is held, in the same thread."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        """A thread of the parent may have held it."""
        self.lock = threading.RLock()


guard: Final = _Guard()


class LazyFuture(Future[T]):
    """A future for any thread, with all that one of the standard library can do."""

    _state: str = PENDING
    _result: T | None = None
    _exception: BaseException | None = None
    _raybroker_looked = False
    """Somebody has waited for it, or has added a callback."""

    __init__ = object.__init__  # Nothing is made yet.

    def __getattr__(self, name: str) -> Any:
        """Make what the methods of Future use, for the first of them that looks for any of it."""
        if name not in _PARTS:
            raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
        own = self.__dict__
        with guard.lock:
            # Each at once or not at all: a handler of a signal may come here in the middle, and use what there is.
            own.setdefault("_condition", threading.Condition())
            own.setdefault("_waiters", [])
            own.setdefault("_done_callbacks", [])
            self._raybroker_looked = True
        return own[name]

    def done(self) -> bool:
        return self._state != PENDING

    def result(self, timeout: float | None = None) -> T:
        if self._state == FINISHED and self._exception is None:
            return self._result  # type: ignore[return-value]  # it is there once the state says so
        return super().result(timeout)

    def set_result(self, result: T) -> None:
        with guard.lock:
            if self._state == PENDING and not self._raybroker_looked:
                self._result = result
                self._state = FINISHED
                return
        super().set_result(result)


class LoneWaiter(Future[str]):
    """The id of a message once the broker has it, for the thread that sent it and for no other one, which sleeps at a
    lock when it has to.

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
