"""The linger time: messages that nobody waits for leave at the latest raybroker.producer.linger_ms after they came.

They leave at once while nothing that left before them is unconfirmed, which the producer sees to; else they collect
until it is, for so long at most.  What the host does not confirm, and what belongs to a transaction, waits for it.
While messages keep coming the time begins anew by itself, so that the IO thread is woken for the first of them only.
Messages of a transaction leave when they have been there for the whole of it: most are taken along by a commit before.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Final, Protocol

from raybroker.client.producer.producer_state import ProducerState
from raybroker.model.blocks.block import BLOCK_BYTES_TARGET

LINGERING_BYTES_MAX: Final = BLOCK_BYTES_TARGET // 2
"""More than this in a transaction does not wait for its commit."""


class Timers(Protocol):
    """The IO loop, as the linger time of a producer sees it."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...

    def post(self, call: Callable[..., object], /) -> None: ...

    def call_lazily(self, delay_s: float, call: Callable[..., object], /) -> None: ...


class Linger:
    """The linger time of one producer, whose ``state`` is guarded by ``lock``; ``flush`` writes what is there."""

    __slots__ = ("_flush", "_io", "_linger_s", "_lock", "_seq", "_state", "_transacted", "bytes_max", "running")

    def __init__(
        self,
        state: ProducerState,
        lock: threading.Lock,
        flush: Callable[[], None],
        io: Timers,
        linger_s: float,
        bytes_max: int = LINGERING_BYTES_MAX,
        *,
        transacted: bool,
    ) -> None:
        self._state = state
        self._lock = lock
        self._flush = flush
        self._io = io
        self._linger_s = linger_s
        self._transacted = transacted
        self.bytes_max = bytes_max
        """More than this in a transaction does not wait for its commit."""
        self.running = False
        """The time has begun, and is not over."""
        self._seq = 0
        """Of the next message, when the time was over the last time."""

    def start_time(self) -> None:
        """A message is here; with the lock held, in any thread."""
        if not self.running:
            self.running = True
            self._io.post(self._wait)

    def _wait(self) -> None:
        if self._transacted:  # The commit takes them along: no thread that waits for one is kept from the sockets.
            self._io.call_lazily(self._linger_s, self._over)
        else:
            self._io.loop.call_later(self._linger_s, self._over)

    def _over(self) -> None:
        if self._state.held_bytes and (not self._transacted or self._state.floor < self._seq):
            self._flush()
        with self._lock:
            before, self._seq = self._seq, self._state.next_seq
            self.running = before != self._seq
        if self.running:
            self._wait()
