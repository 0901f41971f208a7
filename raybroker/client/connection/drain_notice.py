"""The notice that the node of this program is drained, as hosts tell the consumers of a connection."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

DRAINING: Final = "draining"
STAYING: Final = "staying"


class DrainTold(NamedTuple):
    """``kind``: of the event that the application gets; ``text``: in words."""

    kind: str
    text: str


class DrainNotice:
    """Which consumers were told, and until when; on a monotonic clock in seconds.  A consumer that has ended is told
    nothing any more: it goes from here with :meth:`consumer_ended`."""

    def __init__(self) -> None:
        self._until_s: dict[int, float] = {}

    def left_s(self, now_s: float) -> float | None:
        """Seconds until the node goes, 0 when that is over, inf when nobody has said; None: it is not drained."""
        ends = list(self._until_s.values())
        return max(min(ends) - now_s, 0.0) if ends else None

    def told(self, consumer: int, *, leaving: bool, left_ms: int | None, now_s: float) -> DrainTold | None:
        """A host has told a consumer; returns what is new for the application, if anything is."""
        before = self.left_s(now_s)
        if leaving:
            self._until_s[consumer] = math.inf if left_ms is None else now_s + left_ms / 1000
        else:
            self._until_s.pop(consumer, None)
        left_s = self.left_s(now_s)
        if left_s is None:
            return None if before is None else DrainTold(STAYING, "the node of this program is not drained any more")
        if before is not None and (left_s >= before or math.isclose(left_s, before, abs_tol=1.0)):
            return None
        when = "soon" if math.isinf(left_s) else f"in {left_s:.0f} s"
        return DrainTold(DRAINING, f"the node of this program is drained and goes {when}: nothing more comes here")

    def consumer_ended(self, consumer: int) -> None:
        """A consumer has ended, or attaches anew."""
        self._until_s.pop(consumer, None)
