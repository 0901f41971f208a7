"""Keeps the ack deadline of what a consumer holds and has not given to the application from passing.

The broker takes a delivery back that is not acknowledged within the consumer's ``ack_timeout_ms``.  What waits in the
buffer, and what a running listener has in hand, is extended here, at a third of the deadline; what a program received
and keeps is the program's own affair (``m.extend()``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

PARTS: Final = 3
"""Extended so many times within one deadline: two chances may be missed."""
SHORTEST_S: Final = 0.005


class AckDeadline:
    """Calls ``extend`` at intervals, on the IO loop, from :meth:`start` to :meth:`stop`."""

    __slots__ = ("_extend", "_interval_s", "_timer")

    def __init__(self, deadline_ms: int, extend: Callable[[], None]) -> None:
        self._interval_s = max(deadline_ms / 1000 / PARTS, SHORTEST_S)
        self._extend = extend
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self.stop()
        self._timer = asyncio.get_running_loop().call_later(self._interval_s, self._due)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _due(self) -> None:
        self.start()  # First: deadlines are kept from passing also when it fails once.
        self._extend()
