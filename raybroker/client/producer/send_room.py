"""Room in a producer's buffer: which messages are taken at once, which wait, and which are refused.

There is room while the producer holds less than ``raybroker.producer.buffer_bytes`` and, outside of transactions, while
its credit is not used up at a destination that slows its producers.  Nothing is taken while the destination is paused,
and nothing after the producer has ended.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol

from raybroker.client.connection.addresses import Attributes
from raybroker.client.connection.io_thread import fulfil
from raybroker.model.errors import BrokerError, DestinationPausedError, RequestTimeoutError


class Held(Protocol):
    """What a producer holds. ``credit``: messages that may be under way, 0 for no limit."""

    held_bytes: int
    credit: int

    @property
    def crowded(self) -> bool:
        """As many messages are here as the credit allows to be under way."""
        ...


class SendRoom:
    """The room of one producer of destination ``name``; ``lock`` guards it and ``held``.

    Every method is called with the lock held, in any thread; :meth:`enter` gives it up while it waits.

    transacted  messages belong to transactions: credit holds none of them back, as a commit may be what makes room
    """

    __slots__ = (
        "_changed", "_empty_futures", "_final", "_futures", "_held", "_monotonic_ns", "_name", "_timeout_ms",
        "_transacted", "_waiting", "bytes_max", "ending", "has_waiters", "slow", "stopped",
    )  # fmt: skip

    def __init__(
        self, held: Held, lock: threading.Lock, name: str, attributes: Attributes, monotonic_ns: Callable[[], int], *,
        transacted: bool,
    ) -> None:  # fmt: skip
        self.bytes_max: int = attributes["raybroker.producer.buffer_bytes"]
        self.stopped: BrokerError | None = None
        """Why nothing may be sent: it failed, was closed, its destination is paused, or no transaction is open."""
        self.ending: BrokerError | None = None
        """Why nobody waits for a slow destination any more: the session is being closed."""
        self.slow = False
        """The destination slows its producers."""
        self.has_waiters = False
        """Somebody may wait for :meth:`changed`."""
        self._held = held
        self._changed = threading.Condition(lock)
        self._name = name
        self._timeout_ms: int = attributes["imqAckTimeout"]
        self._monotonic_ns = monotonic_ns
        self._transacted = transacted
        self._final = False
        self._waiting = 0
        """Threads that wait for room."""
        self._futures: list[Future[None]] = []
        self._empty_futures: list[Future[None]] = []

    @property
    def takes_more(self) -> bool:
        """A message would be taken, or refused, without waiting."""
        return self.ending is not None or self._is_free

    @property
    def _is_free(self) -> bool:
        if self.stopped is not None:
            return True
        return self._held.held_bytes < self.bytes_max and not self._is_crowded

    @property
    def _is_crowded(self) -> bool:
        """The destination slows its producers, and this one has used up its credit."""
        return self._held.credit > 0 and not self._transacted and (self.slow or self._held.crowded)

    def enter(self, *, settled: bool = True, block: bool = True) -> bool:
        """Wait for room for a message, or for a block of them; False when there is none and ``block`` is False.

        settled  somebody waits for its settlement: the buffer alone bounds it, and not the credit

        Raises why nothing may be sent, or RequestTimeoutError when there was no room within imqAckTimeout.
        """
        crowded = self._is_crowded
        if crowded and self.ending is not None:
            raise self.ending
        if self.stopped is None and self._held.held_bytes < self.bytes_max and (settled or not crowded):
            return True
        return self.wait(block=block)

    def wait(self, *, block: bool = True) -> bool:
        """Wait until the buffer and the credit have room; as :meth:`enter`."""
        timeout_s, since_ns = (self._timeout_ms / 1000) or None, self._monotonic_ns()
        while not self._is_free:
            if self.ending is not None:
                raise self.ending
            if not block:
                return False
            left_s = timeout_s and timeout_s - (self._monotonic_ns() - since_ns) / 1e9
            if left_s is not None and left_s <= 0:
                raise RequestTimeoutError(
                    f"{self._name} made no room within imqAckTimeout={self._timeout_ms / 1000:g} s;"
                    " the message was not sent"
                )
            self.has_waiters = True
            self._waiting += 1
            try:
                self._changed.wait(left_s)
            finally:
                self._waiting -= 1
        if self.stopped is not None:
            raise self.stopped
        return True

    def future(self) -> Future[None]:
        """Done when there may be room again."""
        return self._listed(self._futures, done=self.takes_more)

    def empty_future(self) -> Future[None]:
        """Done when the producer holds nothing."""
        return self._listed(self._empty_futures, done=not self._held.held_bytes)

    def _listed(self, waiting: list[Future[None]], *, done: bool) -> Future[None]:
        future: Future[None] = Future()
        if done:
            future.set_result(None)
        else:
            self.has_waiters = True
            waiting.append(future)
        return future

    def changed(self) -> None:
        """There may be room, or nothing is held any more: tell those who wait for it."""
        if not self.has_waiters:
            return
        if (self._waiting or self._futures) and self.takes_more:
            self._changed.notify_all()
            _fulfil_all(self._futures)
        if not self._held.held_bytes:
            _fulfil_all(self._empty_futures)
        self.has_waiters = bool(self._waiting or self._futures or self._empty_futures)

    def stop(self, error: BrokerError | None) -> None:
        """Nothing may be sent because of ``error``; None: it may be again. What is final stays."""
        if not self._final:
            self.stopped = error
            self.changed()

    def finish(self, error: BrokerError) -> None:
        """Nothing is sent any more."""
        self._final = True
        self.stopped = error
        self.changed()

    def end_waiting(self, error: BrokerError) -> None:
        """Whoever waits for a slow destination gets ``error``."""
        self.ending = error
        self.changed()

    def gate(self, state: str) -> None:
        """The destination takes messages ("open"), takes them slowly ("slow"), or not at all ("paused")."""
        self.slow = state == "slow"
        if state == "paused":
            self.stop(DestinationPausedError(f"{self._name} takes no messages now: its producers are paused"))
        elif isinstance(self.stopped, DestinationPausedError):
            self.stop(None)


def _fulfil_all(futures: list[Future[None]]) -> None:
    for future in futures:
        fulfil(future, None)
    futures.clear()
