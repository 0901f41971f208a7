"""Virtual time: an event loop on a heap, and the two clocks a host sees.

Times are whole microseconds since the world began.  Monotonic time is the loop's; wall time can jump either way.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

WALL_START_MS = 1_700_000_000_000


class Loop:
    """Events in order of time, then of arrival. ``count`` is how many have run."""

    def __init__(self) -> None:
        self.now = 0
        self.count = 0
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._number = 0

    def after(self, delay: int, run: Callable[..., None], *args: Any) -> None:
        self._number += 1
        heappush(self._heap, (self.now + delay, self._number, run, args))

    def at(self, time: int, run: Callable[..., None], *args: Any) -> None:
        self._number += 1
        heappush(self._heap, (time, self._number, run, args))

    def run(self, until: int, most: int, stop: Callable[[], bool] | None = None) -> None:
        """Run events up to time ``until``; an assertion fails when ``most`` events are not enough."""
        heap = self._heap
        while heap and heap[0][0] <= until:
            self.now, _, run, args = heappop(heap)
            self.count += 1
            assert self.count < most, f"more than {most} events: the world does not come to rest"
            run(*args)
            if stop is not None and stop():
                return
        if stop is None:
            self.now = until


class SimClock:
    """The engine's Clock."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self.offset_ms = WALL_START_MS

    def now_ms(self) -> int:
        return self._loop.now // 1000 + self.offset_ms

    def monotonic_ns(self) -> int:
        return self._loop.now * 1000
