"""Unreferenced handles: a handle that the application has no reference to any more is closed automatically.

``session.producer("orders").send(x)`` in a loop makes a producer each time; without this they would all stay open until
the session is closed, and the destination's maxNumProducers would be reached.  What such a handle has sent is settled
before it is closed, and closing the session waits for that.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from raybroker.client.io.io_thread import IoThread
from raybroker.model.errors import IllegalStateError

H = TypeVar("H")


class Handles(Generic[H]):
    """The open handles of one kind, in the order they were made; ``io`` does the closing, until the connection has
    ``ended``: that has closed them all."""

    def __init__(self, io: IoThread, ended: Callable[[], bool]) -> None:
        self._io = io
        self._ended = ended
        self._numbers = itertools.count()
        self._handles: dict[int, weakref.finalize[..., H]] = {}
        self._closing: set[Future[None]] = set()
        self._lock = threading.RLock()
        """A collection of garbage may run while it is held, in the same thread."""

    def add(self, handle: H, let_go: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """``let_go()``, on the IO loop, closes what is behind the handle; it must not refer to the handle itself."""
        number = next(self._numbers)
        self._handles[number] = gone = weakref.finalize(handle, self._let_go, number, let_go)
        gone.atexit = False

    def remove(self, handle: H) -> None:
        """It was closed."""
        for number, gone in list(self._handles.items()):
            if (alive := gone.peek()) is not None and alive[0] is handle:
                gone.detach()
                self._handles.pop(number, None)

    def __iter__(self) -> Iterator[H]:
        return iter([alive[0] for gone in list(self._handles.values()) if (alive := gone.peek()) is not None])

    def __len__(self) -> int:
        return len(self._handles)

    def _let_go(self, number: int, let_go: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Called by whatever thread dropped the last reference, which must not wait."""
        self._handles.pop(number, None)
        if self._ended():
            return
        work = let_go()
        try:
            closing = self._io.submit(work)
        except (RuntimeError, IllegalStateError):  # The process ends, or this is a forked child.
            work.close()
            return
        with self._lock:
            self._closing.add(closing)
        closing.add_done_callback(self._closed)

    def _closed(self, closing: Future[None]) -> None:
        with self._lock:
            self._closing.discard(closing)

    def closing(self) -> list[Future[None]]:
        """Return the futures of handles that were let go of and are not closed yet; each bounds itself."""
        with self._lock:
            return list(self._closing)
