"""The prefetch that tunes itself: how many messages a consumer has ahead, by the pace of its application.

A consumer needs as many messages ahead as its application works off until others have come, and no more than that:
what lies here is kept from idle consumers.  So it has the work of ``HORIZON_ROUND_TRIPS`` round trips ahead, at least
of ``HORIZON_MIN_NS`` and at most of ``HORIZON_MAX_NS``, and one message more; never less than ``least`` or more than
``most`` messages.

    pace        time that the application takes for a message: from when it takes some until it comes back
    round trip  from a request for messages until the first of them is here; requests that brought less than they asked
                for waited for a producer, and count only when they were quicker than is known

No oscillation: the number is looked at once a ``PERIOD_NS`` of work or once all that was ahead is worked off, it at
most doubles or halves, what it stands on is a mean, and it changes only when it was wrong by a third, in the same
direction, twice in a row.

Pure: whoever calls says what time it is, in nanoseconds of an even clock, and holds the lock of the buffers.
"""

from __future__ import annotations

import math
from typing import Final

START: Final = 16
"""Messages at the beginning, when nothing is known."""
HORIZON_ROUND_TRIPS: Final = 4
HORIZON_MIN_NS: Final = 20_000_000
HORIZON_MAX_NS: Final = 1_000_000_000
PERIOD_NS: Final = 100_000_000
"""So much work is looked at together, at most."""
FEW: Final = 16
"""Messages that are looked at together, at least, unless they take a period."""


class PrefetchTuner:
    """``chosen``: how many messages are to be ahead, from ``least`` to ``most``."""

    __slots__ = (
        "_asked",
        "_asked_ns",
        "_count",
        "_in_hand",
        "_pace_ns",
        "_since_ns",
        "_trip_ns",
        "_work_ns",
        "_wrong",
        "chosen",
        "least",
        "most",
    )

    def __init__(self, least: int, most: int) -> None:
        assert 1 <= least <= most
        self.least = least
        self.most = most
        self.chosen = min(max(START, least), most)
        self._pace_ns = 0.0
        """Geometric mean of the time for a message, which one that took very long does not upset; 0: none."""
        self._trip_ns = 0.0
        """Mean round trip; 0: not known."""
        self._since_ns = 0
        """When the application took what it has in hand; 0: it waits."""
        self._in_hand = 0
        self._work_ns = 0
        self._count = 0
        """Work that was not looked at yet, and of how many messages."""
        self._asked_ns = 0
        """When the first of what was asked for and has not come was asked for; 0: nothing was."""
        self._asked = 0
        self._wrong = 0
        """-1 or 1: it was too many, or too few, when it was last looked at."""

    # ---- what happens ----------------------------------------------------------------------------------------------

    def took(self, count: int, now_ns: int) -> bool:
        """The application takes messages, and so is done with those before; True when another number is chosen."""
        self._worked(now_ns)
        self._since_ns, self._in_hand = now_ns, count
        if self._work_ns < PERIOD_NS and self._count < max(self.chosen, FEW):
            return False
        return self._judge_limit()

    def waits(self, now_ns: int) -> None:
        """The application is done with what it had, and there is nothing more."""
        self._worked(now_ns)
        self._since_ns = 0

    def asked(self, count: int, now_ns: int) -> None:
        """Messages are asked for."""
        if not self._asked:
            self._asked, self._asked_ns = count, now_ns

    def came(self, count: int, now_ns: int) -> None:
        """Messages come."""
        asked, self._asked = self._asked, 0
        if not asked:
            return
        trip_ns = max(now_ns - self._asked_ns, 1)
        if not self._trip_ns:
            self._trip_ns = trip_ns
        elif trip_ns < self._trip_ns:
            self._trip_ns += (trip_ns - self._trip_ns) / 2
        elif count >= asked:
            self._trip_ns += (trip_ns - self._trip_ns) / 8

    def forget_asked(self) -> None:
        """What was asked for may come at once: that says nothing of a round trip."""
        self._asked = 0

    def restart(self) -> None:
        """Nothing is here, and nothing asked for: the connection was lost, or all goes back. What is known stays."""
        self._since_ns = self._asked = self._work_ns = self._count = 0

    # ---- what comes of it ------------------------------------------------------------------------------------------

    def _worked(self, now_ns: int) -> None:
        if self._since_ns:
            self._work_ns += max(now_ns - self._since_ns, 0)
            self._count += self._in_hand

    def _judge_limit(self) -> bool:
        pace_ns = max(self._work_ns / self._count, 1.0)
        self._pace_ns = math.sqrt(self._pace_ns * pace_ns) if self._pace_ns else pace_ns
        self._work_ns = self._count = 0
        horizon_ns = min(max(HORIZON_ROUND_TRIPS * self._trip_ns, HORIZON_MIN_NS), HORIZON_MAX_NS)
        wanted = min(max(int(horizon_ns / self._pace_ns) + 1, self.least), self.most)
        wrong = 1 if 3 * wanted >= 4 * self.chosen else -1 if 4 * wanted <= 3 * self.chosen else 0
        twice, self._wrong = wrong == self._wrong, wrong
        if not wrong or not twice:
            return False
        self.chosen = min(wanted, 2 * self.chosen) if wrong > 0 else max(wanted, self.chosen // 2)
        return True
