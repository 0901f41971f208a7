"""Times of arrival: since when messages wait, by their order of arrival; coarse, of the latest ones alone, and bounded.

A run knows its place in the order of arrival and not its time.  Where the time matters, the end of each step notes
which places were given out since the one before; what came before the first note has waited for long enough.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

NOTES_MAX: Final = 1_024
"""Notes that are kept; the older half goes then, and what came before the oldest has waited for long enough."""
SHARE: Final = 256
"""Notes are as far apart as this part of the longest wait, or further."""


class ArrivalTimes:
    """``apart_ms``: arrivals within so many milliseconds have one time, that of the first of them."""

    __slots__ = ("_next", "_starts", "_times", "apart_ms")

    def __init__(self) -> None:
        self._next = 0
        """The first place that is not noted; 0: nothing was."""
        self._starts: list[int] = []
        self._times: list[int] = []
        self.apart_ms = 1

    def wait_for(self, longest_ms: int) -> None:
        """Somebody wants to know whether messages have waited for so long."""
        self.apart_ms = max(self.apart_ms, longest_ms // SHARE)

    def note(self, next_arrival: int, now_ms: int) -> None:
        """Messages before this place in the order of arrival are here by now."""
        if next_arrival <= self._next:
            return
        if self._next and (not self._times or now_ms >= self._times[-1] + self.apart_ms):
            self._starts.append(self._next)
            self._times.append(now_ms)
            if len(self._times) > NOTES_MAX:
                del self._starts[: NOTES_MAX // 2], self._times[: NOTES_MAX // 2]
        self._next = next_arrival

    def since_ms(self, arrival: int, now_ms: int) -> int:
        """Return when a message came; 0: long ago."""
        if arrival >= self._next:
            return now_ms if self._next else 0
        at = bisect_right(self._starts, arrival)
        return self._times[at - 1] if at else 0
