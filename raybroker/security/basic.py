"""Mechanism ``basic``: the client sends its password, and a repository says whether it is right.

Passwords are taken where nobody can read them on their way: over TLS, and from the same machine. They are checked in
few threads (:mod:`raybroker.security.checks`), because a check takes tens of milliseconds on purpose.
"""

from __future__ import annotations

from raybroker.model.errors import ProtocolError, SecurityError
from raybroker.security.checks import Checks
from raybroker.security.lockout import FAILURES_MAX, LOCKED_S, Lockout
from raybroker.security.mechanism import WRONG, Identity, Peer, RefusedError, Repository
from raybroker.security.user_file import NAME_CHARS_MAX, PASSWORD_CHARS_MAX


class Basic:
    """``unencrypted``: passwords are taken also where others can read them."""

    def __init__(self, repository: Repository, lockout: Lockout, checks: Checks, *, unencrypted: bool = False) -> None:
        self._repository = repository
        self._lockout = lockout
        self._checks = checks
        self._unencrypted = unencrypted

    def exchange(self, peer: Peer) -> BasicExchange:
        if not (self._unencrypted or peer.secrets_are_safe):
            raise SecurityError(
                "this service takes no passwords over a connection that is not encrypted; connect to one with TLS"
            )
        return BasicExchange(self._repository, self._lockout, self._checks, peer.address)


class BasicExchange:
    """One login: ``first`` is the user's name, ``final`` the password."""

    def __init__(self, repository: Repository, lockout: Lockout, checks: Checks, address: str) -> None:
        self._repository = repository
        self._lockout = lockout
        self._checks = checks
        self._address = address
        self.name = ""
        self.why = ""
        self.locked = False

    def begin(self, first: str) -> str:
        if not 1 <= len(first) <= NAME_CHARS_MAX:
            raise ProtocolError(f"a user's name has 1 to {NAME_CHARS_MAX} characters")
        self.name = first
        self._require_unlocked()
        return ""

    def _require_unlocked(self) -> None:
        if self._lockout.locked(self.name, self._address):
            self.locked = True
            self.why = f"user {self.name!r:.140} has failed {FAILURES_MAX} times; it waits {LOCKED_S:g} s"
            raise SecurityError(f"too many failed logins; wait {LOCKED_S:g} s and try again")

    async def finish(self, final: str) -> tuple[Identity, str]:
        self._require_unlocked()  # Others of the same name may have failed meanwhile.
        try:
            if not 1 <= len(final) <= PASSWORD_CHARS_MAX:
                raise RefusedError(f"sent a password of {len(final)} characters")
            user = await self._checks.run(self._address, self._repository.check, self.name, final)
        except RefusedError as refused:
            count = self._lockout.failed(self.name, self._address)
            self.why = f"user {self.name!r:.140} {refused} ({count} in a row)"
            raise SecurityError(WRONG) from None
        self._lockout.succeeded(self.name, self._address)
        return Identity(user), ""
