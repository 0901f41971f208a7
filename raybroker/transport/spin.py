"""Spinning: looking again for a moment before sleeping, since to be woken up takes longer than a short wait.

It pays while a processor has nothing else to do.  Where it has, spinning takes from those who are waited for: so it is
for machines with processors to spare, and each wait in which nothing came makes it rarer.

Pure: whoever waits reads the clock and tells what came of it.
"""

from __future__ import annotations

import os
from typing import Final

AUTO: Final = -1
PROCESSORS_LEAST: Final = 4
"""With fewer, ``auto`` never spins: client, host and what else there is have no processor to spare."""
AUTO_NS: Final = 100_000
"""How long ``auto`` spins at most: about two wake-ups."""
SKIPPED_MAX: Final = 256
"""After spins in which nothing came so many waits at most are slept through before the next one."""
LATE: Final = 2
"""A spin that took so many times as long as it was to: another one had the processor meanwhile."""


def processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def spin_ns(setting_us: int, processors: int) -> int:
    """How long to spin at most, by a setting in microseconds or AUTO; 0: never."""
    if setting_us == AUTO:
        return AUTO_NS if processors >= PROCESSORS_LEAST else 0
    return setting_us * 1000


class Spin:
    """The spins of one waiter. ``count``: how many there were, ``paid``: in how many something came, ``spent_ns``: the
    time that they took."""

    __slots__ = ("_most_ns", "_pause", "_skip", "count", "paid", "spent_ns")

    def __init__(self, most_ns: int) -> None:
        self._most_ns = most_ns
        self._pause = 0
        """So many waits are slept through after a spin that did not pay; twice as many after the next."""
        self._skip = 0
        self.count = self.paid = self.spent_ns = 0

    def start_spin(self) -> int:
        """A wait begins: how long to spin at most; 0: sleep at once."""
        if self._skip:
            self._skip -= 1
            return 0
        return self._most_ns

    def count_spin(self, spent_ns: int, *, came: bool) -> None:
        """A spin is over; ``came``: what was waited for has come."""
        self.count += 1
        self.spent_ns += spent_ns
        late = spent_ns > LATE * self._most_ns
        if came and not late:
            self.paid += 1
            self._pause = 0
            return
        self._pause = SKIPPED_MAX if late else min(max(2 * self._pause, 1), SKIPPED_MAX)
        self._skip = self._pause
