"""Asynchronous sends whose answer does not come: their futures end after imqAsyncSendCompletionWaitTimeout.

Only the waiting ends.  The message itself is held, sent again after a lost connection and settled as any other, since
nobody can know whether the broker has it already.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Final

from raybroker.client.io.io_thread import refuse
from raybroker.client.producer.producer_state import ProducerState
from raybroker.model.errors import RequestTimeoutError

ATTRIBUTE: Final = "imqAsyncSendCompletionWaitTimeout"


class SendTimeout:
    """Ends the waiting of one producer's sends; on the IO loop. ``state`` of the producer is guarded by ``lock``."""

    __slots__ = ("_lock", "_name", "_state", "_timeout_ns", "_timer", "idle", "monotonic_ns")

    def __init__(
        self, state: ProducerState, lock: threading.Lock, name: str, timeout_ms: int, monotonic_ns: Callable[[], int]
    ) -> None:
        self._state = state
        self._lock = lock
        self._name = name
        self.monotonic_ns = monotonic_ns
        self._timeout_ns = timeout_ms * 1_000_000
        self._timer: asyncio.TimerHandle | None = None
        self.idle = timeout_ms > 0
        """It is to be told when something may wait."""

    def watch(self) -> None:
        """Something may wait."""
        if self.idle:
            self._wait(self._timeout_ns)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self.idle = None, True

    def _wait(self, wait_ns: int) -> None:
        self._timer = asyncio.get_running_loop().call_later(wait_ns / 1e9, self._due)
        self.idle = False

    def _due(self) -> None:
        self._timer, self.idle = None, True
        now_ns = self.monotonic_ns()
        with self._lock:
            late, first_ns = self._state.late(now_ns - self._timeout_ns)
        if first_ns:
            self._wait(max(first_ns + self._timeout_ns - now_ns, 1_000_000))
        if late:
            error = RequestTimeoutError(
                f"no answer from {self._name} within {ATTRIBUTE}={self._timeout_ns // 1_000_000} ms; the message is"
                " still on its way"
            )
            for waiter in late:
                refuse(waiter, error)
