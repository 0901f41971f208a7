"""Autoscaling of a listener: a pure decision on the number of instances for a backlog, made every LOOK_S seconds.

More are wanted at once; fewer only when that was so for SHRINK_LOOKS looks in a row, so that a pool does not end
instances that it needs again a moment later.
"""

from __future__ import annotations

from typing import Final

LOOK_S: Final = 2.0
SHRINK_LOOKS: Final = 5


class Autoscaler:
    """The number of instances between ``low`` and ``high``, one for each ``target`` messages that wait or are being
    handled."""

    def __init__(self, low: int, high: int, target: int) -> None:
        self.low = low
        self.high = high
        self.target = target
        self._recent: list[int] = []

    def wanted(self, backlog: int, instances: int) -> int:
        """How many instances there should be from now on."""
        needed = min(max(-(-backlog // self.target), self.low), self.high)
        self._recent = [*self._recent[-SHRINK_LOOKS + 1 :], needed]
        if needed >= instances:
            return needed
        if len(self._recent) < SHRINK_LOOKS:
            return min(max(instances, self.low), self.high)
        return min(instances, max(self._recent))
