"""Mechanisms by which a client proves who it is: a service offers one or several.

A login has two steps for every mechanism: the client names the mechanism and says something first, the broker answers
with a challenge, the client proves, and the broker says who that is.  A mechanism makes one ``Exchange`` a login.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from raybroker.model.errors import SecurityError
from raybroker.security.access_rules import User
from raybroker.system.own_address import is_own

DIGEST: Final = "digest"
DIGEST_512: Final = "digest-512"
"""There where digest is, without a word of its own in the configuration."""
VOUCHED: Final = "vouched"
"""Another broker of the cluster has seen who the client is (:mod:`raybroker.security.vouching`)."""
BASIC: Final = "basic"
TOKEN: Final = "token"
UNENCRYPTED: Final = "raybroker.authentication.unencrypted"
MECHANISMS: Final = (DIGEST, BASIC, TOKEN)
WRONG: Final = "wrong user or password, or the user may not connect now"
"""What every client is told that was not let in: whether there is such a user is nobody's business."""


class LoginPeer(NamedTuple):
    """The place that a login comes from. ``address``: without the port; ``encrypted``: the connection is."""

    address: str
    encrypted: bool = False

    @property
    def secrets_are_safe(self) -> bool:
        """Whether nobody else can read what the client sends."""
        return self.encrypted or is_own(self.address)


class Identity(NamedTuple):
    """Who has logged in. ``until_s``: when that ends, seconds since 1970; None: when the connection does."""

    user: User
    until_s: float | None = None


class LoginRefusedError(Exception):
    """A proof is not right. The text is for the log; the client is told ``WRONG``."""


class Exchange(Protocol):
    """One login. ``name``: the user that the client claims to be, once it has; ``why``: for the log, what was wrong
    when a method has raised; ``locked``: the user has to wait now."""

    name: str
    why: str
    locked: bool

    def make_challenge(self, first: str) -> str:
        """The challenge. Raises ProtocolError, or SecurityError for a user who has to wait."""
        ...

    async def finish(self, final: str) -> tuple[Identity, str]:
        """Who it is, and the broker's own proof, "" where the mechanism has none.

        Raises SecurityError, ProtocolError, and IllegalStateError or ResourceAllocationError when that cannot be found
        out now.
        """
        ...


def require_safe(peer: LoginPeer, what: str, unencrypted: bool) -> None:
    """Raises SecurityError for a client whose ``what`` others could read, unless that is allowed."""
    if not (unencrypted or peer.secrets_are_safe):
        raise SecurityError(
            f"this service takes no {what} over a connection that is not encrypted; connect to one with TLS"
        )


def require_private(address: str, allowed: bool, secure: str) -> None:
    """Raises SecurityError for a client of a gateway that sends its password in clear from another machine, unless that
    is ``allowed``; ``secure``: the service with TLS that it can use."""
    if not allowed and not is_own(address):
        raise SecurityError(
            f"a password would go over the network in clear: use the service {secure}, or set"
            f" {UNENCRYPTED}=true where the network is trusted"
        )


class Mechanism(Protocol):
    """One way of logging in."""

    def exchange(self, peer: LoginPeer) -> Exchange:
        """Begin the exchange of one login; raises SecurityError when this client may not use the mechanism."""
        ...


class Repository(Protocol):
    """The place of users and passwords."""

    def check(self, name: str, password: str) -> User:
        """The user with that password. Blocks. Raises RefusedError, and IllegalStateError when it cannot tell."""
        ...
