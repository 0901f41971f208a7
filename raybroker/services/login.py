"""Logins: who a client is, and how often one may be wrong about it.

The exchange is SCRAM-SHA-256 (:mod:`raybroker.wire.scram`), so that no password goes over the wire. It costs the broker
microseconds: a flood of wrong passwords keeps it from nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final

from raybroker.model.errors import ProtocolError, SecurityError
from raybroker.security.access_rules import User
from raybroker.security.user_file import Entry
from raybroker.wire.scram import ScramServer, Verifier

FAILURES_MAX: Final = 5
"""Wrong passwords of one user from one address in a row, after which that pair has to wait."""
LOCKED_S: Final = 30.0
"""How long it waits, from its last wrong password on."""
REMEMBERED_MAX: Final = 65_536
"""Pairs of user and address of which failures are remembered; those that failed least recently are forgotten."""
WRONG: Final = "wrong user or password, or the user may not connect now"
"""What every client is told that was not let in: whether there is such a user is nobody's business."""


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
        """A wrong password; how many there were in a row."""
        count, last_s = self._failed.pop((user, address), (0, 0.0))
        if self._now_s() - last_s >= LOCKED_S:
            count = 0
        self._failed[user, address] = count + 1, self._now_s()
        while len(self._failed) > REMEMBERED_MAX:
            self._failed.popitem(last=False)
        return count + 1

    def succeeded(self, user: str, address: str) -> None:
        self._failed.pop((user, address), None)


class Login:
    """One login of a client at ``address``. ``secret``: of the broker, at least 32 bytes, for users that are not there.

    ``why`` says for the log what was wrong, once :meth:`finish` or :meth:`begin` has raised.
    """

    def __init__(
        self, users: Mapping[str, Entry], lockout: Lockout, *, address: str, nonce: str, secret: bytes
    ) -> None:
        self._users = users
        self._lockout = lockout
        self._address = address
        self._secret = secret
        self._scram = ScramServer(nonce)
        self.name = ""
        self.why = ""

    def begin(self, first: str) -> str:
        """The challenge. Raises ProtocolError for a malformed message, SecurityError for a user who has to wait."""
        self.name = self._scram.begin(first)
        if self._lockout.locked(self.name, self._address):
            self.why = f"user {self.name!r:.140} has failed {FAILURES_MAX} times; it waits {LOCKED_S:g} s"
            raise SecurityError(f"too many failed logins; wait {LOCKED_S:g} s and try again")
        entry = self._users.get(self.name)
        verifier = Verifier.parse(entry.verifier) if entry is not None else Verifier.nobody(self.name, self._secret)
        return self._scram.challenge(verifier)

    def finish(self, final: str) -> tuple[User, str]:
        """The user and the broker's signature. Raises SecurityError, or ProtocolError."""
        entry = self._users.get(self.name)
        try:
            signature = self._scram.finish(final)
            if entry is None or not entry.active:
                raise SecurityError
        except (SecurityError, ProtocolError) as error:
            count = self._lockout.failed(self.name, self._address)
            what = "is not active" if entry is not None and not entry.active else "is unknown"
            self.why = f"user {self.name!r:.140} " + (
                "sent a malformed proof" if isinstance(error, ProtocolError)
                else "has a wrong password" if entry is not None and entry.active else what
            ) + f" ({count} in a row)"  # fmt: skip
            raise SecurityError(WRONG) from None
        self._lockout.succeeded(self.name, self._address)
        return User(self.name, frozenset({entry.group})), signature
