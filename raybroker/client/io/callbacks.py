"""Callbacks of the application run in a thread of their own, one after another, never on the IO thread.

The IO thread serves all connections of the process.  A callback that waited there, for a confirmed send for example,
would wait for itself.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeVar

E = TypeVar("E")
IDLE_S: Final = 1.0
"""The thread ends when there was nothing to run for that long; the next callback starts another one."""
CALLBACKS_MAX: Final = 100_000
"""Callbacks of one producer that may wait to be run; ``send_async`` waits while there are more."""

log = logging.getLogger("raybroker.client")


class Callbacks:
    """A queue of calls, which are made in order; what one raises is logged and harms no other."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._waiting: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def post(self, call: Callable[..., object], *args: Any) -> None:
        """Have this called after everything that was posted before; in any thread."""
        with self._changed:
            self._waiting.append((call, args))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=f"raybroker-{self._name}", daemon=True)
                self._thread.start()
            else:
                self._changed.notify_all()

    def wrap(self, handler: Callable[[E], object] | None) -> Callable[[E], None] | None:
        """The handler, to be called here; None for None."""
        return (lambda event: self.post(handler, event)) if handler is not None else None

    @property
    def full(self) -> bool:
        return len(self._waiting) >= CALLBACKS_MAX

    def wait_for_room(self) -> None:
        """Wait while it is full; a callback itself does not wait."""
        with self._changed:
            while self.full and self._thread is not threading.current_thread():
                self._changed.wait()

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._waiting:
                    self._changed.wait(IDLE_S)
                if not self._waiting:
                    self._thread = None
                    return
                was_full = self.full
                call, args = self._waiting.popleft()
                if was_full:
                    self._changed.notify_all()
            try:
                call(*args)
            except Exception:
                log.exception("a callback of the application has failed: %s", self._name)
