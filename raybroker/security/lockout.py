"""Lock-out: wrong proofs are counted by user and address, and who has failed too often has to wait.

They are counted by address alone as well: after OF_ADDRESS_MAX of them in OF_ADDRESS_S seconds, whoever they claimed to
be, logins from there are refused until that time is over, before anything is looked at, but for users who have logged
in from there before.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

from raybroker.model.errors import LoginLimitError, SecurityError
from raybroker.security.mechanism import WRONG

FAILURES_MAX: Final = 5
"""Wrong proofs of one user from one address in a row, after which that pair has to wait."""
LOCKED_S: Final = 30.0
"""How long it waits, from its last wrong proof on."""
OF_ADDRESS_MAX: Final = 20
OF_ADDRESS_S: Final = 10.0
REMEMBERED_MAX: Final = 65_536
"""Pairs of user and address of which failures are remembered; those that failed least recently are forgotten."""


class Lockout:
    """Failures by (user, address). ``now_s``: a clock that never goes back."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._failed: OrderedDict[tuple[str, str], tuple[int, float]] = OrderedDict()
        self._addresses: OrderedDict[str, tuple[int, float]] = OrderedDict()
        """Address → wrong proofs since a time."""
        self._known: OrderedDict[tuple[str, str], None] = OrderedDict()

    def locked(self, user: str, address: str) -> bool:
        """Whether this pair has to wait."""
        count, last_s = self._failed.get((user, address), (0, 0.0))
        return count >= FAILURES_MAX and self._now_s() - last_s < LOCKED_S

    def flooded(self, user: str, address: str) -> bool:
        """Whether others have failed so often at that address that this user, who is not known there, has to wait."""
        count, since_s = self._addresses.get(address, (0, 0.0))
        busy = count >= OF_ADDRESS_MAX and self._now_s() - since_s < OF_ADDRESS_S
        return busy and (user, address) not in self._known

    def failed(self, user: str, address: str) -> int:
        """A wrong proof; how many there were in a row."""
        failures, since_s = self._addresses.pop(address, (0, self._now_s()))
        if self._now_s() - since_s >= OF_ADDRESS_S:
            failures, since_s = 0, self._now_s()
        self._addresses[address] = failures + 1, since_s
        _bounded(self._addresses)
        count, last_s = self._failed.pop((user, address), (0, 0.0))
        if self._now_s() - last_s >= LOCKED_S:
            count = 0
        self._failed[user, address] = count + 1, self._now_s()
        _bounded(self._failed)
        return count + 1

    def succeeded(self, user: str, address: str) -> None:
        """It starts from nothing again."""
        self._failed.pop((user, address), None)
        self._known[user, address] = None
        self._known.move_to_end((user, address))
        _bounded(self._known)


def _bounded(remembered: OrderedDict[Any, Any]) -> None:
    while len(remembered) > REMEMBERED_MAX:
        remembered.popitem(last=False)


class CountedExchange:
    """One login whose wrong proofs are counted; see security.mechanism.Exchange. ``address``: the client's."""

    def __init__(self, lockout: Lockout, address: str) -> None:
        self._lockout = lockout
        self._address = address
        self.name = ""
        self.why = ""
        self.locked = False

    def require_unlocked(self) -> None:
        """Raises SecurityError for a user who has to wait, LoginLimitError for one whose address has to. Who has sent a
        proof is asked again before it is told: others may have failed since it began, and many that began at once are
        told no more than as many one after another."""
        if self._lockout.flooded(self.name, self._address):
            self.why = f"{OF_ADDRESS_MAX} logins from {self._address} have failed within {OF_ADDRESS_S:g} s"
            raise LoginLimitError(f"{self.why}; wait {OF_ADDRESS_S:g} s and try again")
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
