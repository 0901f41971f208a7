"""Futures made for the many that are done before anybody waits for them.

A future of the standard library has a condition, a lock and two lists of its own, which cost more than a send.  Here
they are made when somebody first waits or adds a callback.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, TypeVar

T = TypeVar("T")
PENDING: Final = "PENDING"
FINISHED: Final = "FINISHED"
"""The states of concurrent.futures that matter here."""

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


guard: Final = _Guard()


class LazyFuture(Future[T]):
    """A future in any thread, with all that one of the standard library can do."""

    _state: str = PENDING
    _result: T | None = None
    _exception: BaseException | None = None
    _raybroker_looked: Looked | None = None

    __init__ = object.__init__  # Nothing is made yet.

    # What the methods of Future use, made by the first of them that does.

    def _waiting_parts(self) -> Looked:
        found = self._raybroker_looked
        if found is None:
            made: Looked = threading.Condition(), [], []
            with guard.lock:
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

    def done(self) -> bool:
        return self._state != PENDING

    def result(self, timeout: float | None = None) -> T:
        if self._state == FINISHED and self._exception is None:
            return self._result  # type: ignore[return-value]  # it is there once the state says so
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        return self._exception if self._state == FINISHED else super().exception(timeout)

    def set_result(self, result: T) -> None:
        with guard.lock:
            if self._raybroker_looked is None and self._state == PENDING:
                self._result = result
                self._state = FINISHED
                return
        super().set_result(result)
