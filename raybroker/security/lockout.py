"""Lock-out: wrong proofs are counted by user and address, and who has failed too often has to wait."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from raybroker.model.errors import SecurityError
from raybroker.security.mechanism import WRONG

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


class CountedExchange:
    """One login whose wrong proofs are counted; see security.mechanism.Exchange. ``address``: the client's."""

    def __init__(self, lockout: Lockout, address: str) -> None:
        self._lockout = lockout
        self._address = address
        self.name = ""
        self.why = ""
        self.locked = False

    def require_unlocked(self) -> None:
        """Raises SecurityError for a user who has to wait."""
        if self._lockout.locked(self.name, self._address):
            self.locked = True
            self.why = f"user {self.name!r:.140} has failed {FAILURES_MAX} times; it waits {LOCKED_S:g} s"
            raise SecurityError(f"too many failed logins; wait {LOCKED_S:g} s and try again")

    def wrong(self, what: str) -> SecurityError:
        """A proof is not right; ``what`` is for the log. Returns what the client is told."""
        count = self._lockout.failed(self.name, self._address)
        self.why = f"user {self.name!r:.140} {what} ({count} in a row)"
        return SecurityError(WRONG)

    def right(self) -> None:
        """The proof is right: counting begins anew."""
        self._lockout.succeeded(self.name, self._address)
