"""Send futures: what ``send_async`` returns, made for the many that nobody looks at before they are done.

A future of the standard library has a condition, a lock and two lists of its own, which cost more than the send.  Here
they are made when somebody first waits or adds a callback; a block of futures without them is settled in one pass.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Final

from raybroker.client.io.callbacks import Callbacks
from raybroker.client.io.io_thread import IoThread, fulfil

PENDING: Final = "PENDING"
FINISHED: Final = "FINISHED"
"""The states of concurrent.futures that a send can have."""

Looked = tuple[threading.Condition, list[Any], list[Callable[[Any], object]]]
"""Condition, waiters and callbacks of a future that somebody looks at."""


class _Guard:
    """Held while a future gets its condition, and while futures without one are settled; nothing is waited for
    meanwhile. A signal handler may run while it is held, in the same thread."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        """A thread of the parent may have held it."""
        self.lock = threading.RLock()


_guard: Final = _Guard()


class SendFuture(Future[str]):
    """What ``send_async`` returns: the id of the message, once the broker has it.

    A message that was handed over cannot be taken back: ``cancel()`` returns False.  Callbacks are called in order of
    completion in a thread of the producer's own, in which any call may be made.  In a forked child nobody completes it:
    there waiting for it raises IllegalStateError.
    """

    _state: str = PENDING
    _result: str | None = None
    _exception: BaseException | None = None
    _raybroker_looked: Looked | None = None

    def __init__(self, callbacks: Callbacks, io: IoThread) -> None:
        self._raybroker_callbacks = callbacks
        self._raybroker_io = io

    # What the methods of Future use, made by the first of them that does.

    def _waiting_parts(self) -> Looked:
        found = self._raybroker_looked
        if found is None:
            made: Looked = threading.Condition(), [], []
            with _guard.lock:
                found = self.__dict__.setdefault("_raybroker_looked", made)
        assert found is not None
        return found

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]  # made when somebody asks
        return self._waiting_parts()[0]

    @property
    def _waiters(self) -> list[Any]:  # type: ignore[override]  # made when somebody asks
        return self._waiting_parts()[1]

    @property
    def _done_callbacks(self) -> list[Callable[[Any], object]]:
        return self._waiting_parts()[2]

    def cancel(self) -> bool:
        return False

    def cancelled(self) -> bool:
        return False

    def running(self) -> bool:
        return False

    def done(self) -> bool:
        return self._state == FINISHED

    def result(self, timeout: float | None = None) -> str:
        if self._state == FINISHED and self._exception is None:
            assert self._result is not None
            return self._result
        self._require_completion()
        if not self._raybroker_io.done(self, timeout):
            raise TimeoutError
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        if self._state == FINISHED:
            return self._exception
        self._require_completion()
        if not self._raybroker_io.done(self, timeout):
            raise TimeoutError
        return super().exception(timeout)

    def add_done_callback(self, fn: Callable[[Future[str]], object]) -> None:
        self._require_completion()
        if getattr(fn, "__module__", "") == "asyncio.futures":  # It only wakes a loop: asyncio.wrap_future.
            super().add_done_callback(fn)
        else:
            super().add_done_callback(lambda _: self._raybroker_callbacks.post(fn, self))

    def _require_completion(self) -> None:
        """Raises IllegalStateError when it is not done and nobody is left to complete it."""
        if self._raybroker_io.unusable and self._state != FINISHED:
            self._raybroker_io.require_usable()


def fulfil_all(waiters: Sequence[Future[str]], indexes: Sequence[int], prefix: str, first_seq: int) -> None:
    """Give each of these, in order, the id of its message, ``prefix`` and its sequence number, unless it has ended
    before.

    ``indexes``: of their messages, from ``first_seq`` on; below 0 is the first one.
    """
    at, end = 0, len(waiters)
    while at < end:
        with _guard.lock:
            while at < end:
                waiter = waiters[at]
                if type(waiter) is not SendFuture or waiter._raybroker_looked is not None:
                    break
                if waiter._state == PENDING:
                    waiter._result = f"{prefix}{first_seq + indexes[at]}"
                    waiter._state = FINISHED
                at += 1
        if at < end:  # Without the guard: whoever holds the condition of this one may wait for the guard.
            fulfil(waiters[at], f"{prefix}{first_seq + max(indexes[at], 0)}")
            at += 1
