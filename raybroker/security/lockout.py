"""Wrong proofs are counted by user and address: who has failed too often has to wait."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

FAILURES_MAX: Final = 5
"""Wrong proofs of one user from one address in a row, after which that pair has to wait."""
LOCKED_S: Final = 30.0
"""How long it waits, from its last wrong proof on."""
REMEMBERED_MAX: Final = 65_536
"""Pairs of user and address of which failures are remembered; those that failed least recently are forgotten."""


class Lockout:
    """Failures by (user, address). ``now_s``: a clock that never goes back."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._failed: OrderedDict[tuple[str, str], tuple[int, float]] = OrderedDict()

    def locked(self, user: str, address: str) -> bool:
        """Whether this pair has to wait."""
        count, last_s = self._failed.get((user, address), (0, 0.0))
        return count >= FAILURES_MAX and self._now_s() - last_s < LOCKED_S

    def failed(self, user: str, address: str) -> int:
        """A wrong proof; how many there were in a row."""
        count, last_s = self._failed.pop((user, address), (0, 0.0))
        if self._now_s() - last_s >= LOCKED_S:
            count = 0
        self._failed[user, address] = count + 1, self._now_s()
        while len(self._failed) > REMEMBERED_MAX:
            self._failed.popitem(last=False)
        return count + 1

    def succeeded(self, user: str, address: str) -> None:
        """It starts from nothing again."""
        self._failed.pop((user, address), None)
