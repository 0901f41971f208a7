"""Mechanism ``basic``: the client sends its password, and a repository says whether it is right.

Passwords are taken where nobody can read them on their way: over TLS, and from the same machine. They are checked in
few threads (:mod:`raybroker.security.checks`), because a check takes tens of milliseconds on purpose.
"""

from __future__ import annotations

from raybroker.model.definitions.user import NAME_CHARS_MAX
from raybroker.model.errors import ProtocolError
from raybroker.security.checks import CheckThreads
from raybroker.security.lockout import CountedExchange, Lockout
from raybroker.security.mechanism import Identity, LoginPeer, LoginRefusedError, Repository, require_safe
from raybroker.security.user_file import PASSWORD_CHARS_MAX


class Basic:
    """``unencrypted``: passwords are taken also where others can read them."""

    def __init__(
        self, repository: Repository, lockout: Lockout, checks: CheckThreads, *, unencrypted: bool = False
    ) -> None:
        self._repository = repository
        self._lockout = lockout
        self._checks = checks
        self._unencrypted = unencrypted

    def exchange(self, peer: LoginPeer) -> BasicExchange:
        require_safe(peer, "passwords", self._unencrypted)
        return BasicExchange(self._repository, self._lockout, self._checks, peer.address)


class BasicExchange(CountedExchange):
    """One login: ``first`` is the user's name, ``final`` the password."""

    def __init__(self, repository: Repository, lockout: Lockout, checks: CheckThreads, address: str) -> None:
        super().__init__(lockout, address)
        self._repository = repository
        self._checks = checks

    def make_challenge(self, first: str) -> str:
        if not 1 <= len(first) <= NAME_CHARS_MAX:
            raise ProtocolError(f"a user's name has 1 to {NAME_CHARS_MAX} characters")
        self.name = first
        self.require_unlocked()
        return ""

    async def finish(self, final: str) -> tuple[Identity, str]:
        self.require_unlocked()  # Others of the same name may have failed meanwhile.
        try:
            if not 1 <= len(final) <= PASSWORD_CHARS_MAX:
                raise LoginRefusedError(f"sent a password of {len(final)} characters")
            user = await self._checks.run(self._address, self._repository.check, self.name, final)
        except LoginRefusedError as refused:
            self.require_unlocked()
            raise self.wrong(str(refused)) from None
        self.require_unlocked()
        self.right()
        return Identity(user), ""
