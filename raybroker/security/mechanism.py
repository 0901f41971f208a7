"""How a client proves who it is: a mechanism, of which a service offers one or several.

A login has two steps for every mechanism: the client names the mechanism and says something first, the broker answers
with a challenge, the client proves, and the broker says who that is.  A mechanism makes one ``Exchange`` a login.
"""

from __future__ import annotations

import ipaddress
from typing import Final, NamedTuple, Protocol

from raybroker.security.access_rules import User

DIGEST: Final = "digest"
BASIC: Final = "basic"
TOKEN: Final = "token"
MECHANISMS: Final = (DIGEST, BASIC, TOKEN)
WRONG: Final = "wrong user or password, or the user may not connect now"
"""What every client is told that was not let in: whether there is such a user is nobody's business."""


class Peer(NamedTuple):
    """Where a login comes from. ``address``: without the port; ``encrypted``: the connection is."""

    address: str
    encrypted: bool = False

    @property
    def secrets_are_safe(self) -> bool:
        """Whether nobody else can read what the client sends."""
        if self.encrypted:
            return True
        try:
            return ipaddress.ip_address(self.address.strip("[]").partition("%")[0]).is_loopback
        except ValueError:
            return False


class Identity(NamedTuple):
    """Who has logged in. ``until_s``: when that ends, seconds since 1970; None: when the connection does."""

    user: User
    until_s: float | None = None


class RefusedError(Exception):
    """A proof is not right. The text is for the log; the client is told ``WRONG``."""


class Exchange(Protocol):
    """One login. ``name``: the user that the client claims to be, once it has; ``why``: for the log, what was wrong
    when a method has raised; ``locked``: the user has to wait now."""

    name: str
    why: str
    locked: bool

    def begin(self, first: str) -> str:
        """The challenge. Raises ProtocolError, or SecurityError for a user who has to wait."""
        ...

    async def finish(self, final: str) -> tuple[Identity, str]:
        """Who it is, and the broker's own proof, "" where the mechanism has none.

        Raises SecurityError, ProtocolError, and IllegalStateError or ResourceAllocationError when that cannot be found
        out now.
        """
        ...


class Mechanism(Protocol):
    """One way of logging in."""

    def exchange(self, peer: Peer) -> Exchange:
        """For one login; raises SecurityError when this client may not use the mechanism."""
        ...


class Repository(Protocol):
    """Where users and passwords are."""

    def check(self, name: str, password: str) -> User:
        """The user with that password. Blocks. Raises RefusedError, and IllegalStateError when it cannot tell."""
        ...
