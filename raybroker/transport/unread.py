"""Clients that do not read: a connection whose other end takes nothing of what it is sent is ended after a while.

What waits to be sent is bounded elsewhere; this is what frees it, and the connection, when nobody comes for it.  It
also ends a connection that is being closed and waits for its last bytes to go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

LOOKS: Final = 4
"""Looks at the connection within the time; it is over at the first one after the end of it."""


class Sending(Protocol):
    """A connection. ``bytes_out``: written to it so far; ``unsent_bytes``: of them those that the system has not taken
    yet."""

    bytes_out: int

    @property
    def unsent_bytes(self) -> int: ...


class UnreadWatch:
    """Calls ``give_up(why)`` once, when the other end has taken nothing for ``seconds`` and there was something to
    take; -1 seconds: never. From :meth:`start` to :meth:`stop`, on the running loop."""

    def __init__(self, seconds: float, sending: Sending, give_up: Callable[[str], None]) -> None:
        self._seconds = seconds
        self._sending = sending
        self._give_up = give_up
        self._taken = 0
        self._since_s = 0.0
        """When bytes were taken last, or nothing waited."""
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        if self._seconds > 0 and self._timer is None:
            self._moved(asyncio.get_running_loop().time())
            self._check_unread()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _moved(self, now_s: float) -> None:
        self._taken = self._sending.bytes_out - self._sending.unsent_bytes
        self._since_s = now_s

    def _check_unread(self) -> None:
        loop = asyncio.get_running_loop()
        unsent, now_s = self._sending.unsent_bytes, loop.time()
        if not unsent or self._sending.bytes_out - unsent != self._taken:
            self._moved(now_s)
        elif now_s - self._since_s >= self._seconds:
            self._timer = None
            self._give_up(
                f"it has taken nothing of {unsent} bytes or more for {self._seconds:g} s"
                " (raybroker.service.unread_timeout)"
            )
            return
        self._timer = loop.call_later(self._seconds / LOOKS, self._check_unread)
