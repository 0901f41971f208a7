"""Mechanism ``digest``: SCRAM-SHA-256 (:mod:`raybroker.wire.scram`), which sends no password; and ``digest-512``, which
is SCRAM-SHA-512, for clients of protocols that have names for both.

MQ's digest is MD5, which nobody should trust any more; SCRAM takes its place, and proves besides that the broker knows
the password too. It costs the broker microseconds: a flood of wrong passwords keeps it from nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from raybroker.model.errors import ProtocolError, SecurityError
from raybroker.security.access_rules import User
from raybroker.security.lockout import CountedExchange, Lockout
from raybroker.security.mechanism import Identity, LoginPeer
from raybroker.security.user_file import UserEntry, is_verifier
from raybroker.wire.scram import SHA256, ScramServer, Verifier, has_verifier


class Digest:
    """``users``: those there are now; ``nonce``: new random text; ``secret``: of the broker, at least 32 bytes, for
    users that are not there; ``algorithm``: one of scram.ALGORITHMS."""

    def __init__(
        self,
        users: Callable[[], Mapping[str, UserEntry]],
        lockout: Lockout,
        *,
        nonce: Callable[[], str],
        secret: bytes,
        algorithm: str = SHA256,
    ) -> None:
        self._users = users
        self._lockout = lockout
        self._nonce = nonce
        self._secret = secret
        self._algorithm = algorithm

    def exchange(self, peer: LoginPeer) -> DigestExchange:
        return DigestExchange(
            self._users(),
            self._lockout,
            address=peer.address,
            scram=ScramServer(self._nonce()),
            secret=self._secret,
            algorithm=self._algorithm,
        )


class DigestExchange(CountedExchange):
    """One login of a client at ``address``."""

    def __init__(
        self,
        users: Mapping[str, UserEntry],
        lockout: Lockout,
        *,
        address: str,
        scram: ScramServer,
        secret: bytes,
        algorithm: str,
    ) -> None:
        super().__init__(lockout, address)
        self._users = users
        self._secret = secret
        self._scram = scram
        self._algorithm = algorithm
        self._verifiable = True

    def make_challenge(self, first: str) -> str:
        self.name = self._scram.read_first(first)
        self.require_unlocked()
        entry = self._users.get(self.name)
        self._verifiable = entry is not None and has_verifier(entry.verifier, self._algorithm)
        return self._scram.challenge(
            Verifier.parse(entry.verifier, self._algorithm)
            if entry is not None and self._verifiable
            else Verifier.nobody(self.name, self._secret, self._algorithm)
        )

    async def finish(self, final: str) -> tuple[Identity, str]:
        self.require_unlocked()
        entry = self._users.get(self.name)
        try:
            signature = self._scram.finish(final)
            if entry is None or not entry.active:
                raise SecurityError
        except (SecurityError, ProtocolError) as error:
            if isinstance(error, ProtocolError):
                what = "sent a malformed proof"
            elif entry is None:
                what = "is unknown"
            elif not entry.active:
                what = "is not active"
            elif not is_verifier(entry.verifier):
                what = "has a password for basic alone"
            elif not self._verifiable:
                what = f"has no verifier of SCRAM-{self._algorithm}; raybroker usermgr update --password makes one"
            else:
                what = "has a wrong password"
            raise self.wrong(what) from None
        self.right()
        return Identity(User(self.name, frozenset({entry.group}))), signature
