"""The login of an AMQP client by SASL, as a login of a client of the broker.

PLAIN           name and password; with TLS, or from this machine, as with STOMP
SCRAM-SHA-256   the proof is passed on to the broker, which has the verifiers: the gateway never knows the password
SCRAM-SHA-512   the same, when all passwords are kept for it as well
EXTERNAL        the certificate that the client has shown to TLS
XOAUTH2         a token, for authentication.type=token
ANONYMOUS       the user guest, with the password guest
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from raybroker.client.ways.logging_in import Credentials
from raybroker.model.errors import ProtocolError, SecurityError
from raybroker.wire.scram import MESSAGE_CHARS_MAX

PLAIN: Final = "PLAIN"
SCRAM: Final = "SCRAM-SHA-256"
SCRAM_512: Final = "SCRAM-SHA-512"
EXTERNAL: Final = "EXTERNAL"
XOAUTH2: Final = "XOAUTH2"
ANONYMOUS: Final = "ANONYMOUS"
GUEST: Final = "guest"
RESPONSE_CHARS_MAX: Final = 16_384


class OfferedLogins(NamedTuple):
    """``tls``: clients come with TLS; ``kinds``: by which they may log in (imq.authentication.type); ``sha512()``:
    whether all passwords are kept for SCRAM-SHA-512."""

    tls: bool
    kinds: Collection[str]
    sha512: Callable[[], bool]


class Claim(NamedTuple):
    """Who a client says that it is. ``user``: "" where only the broker can tell; ``turn``: see Gateway.log_in_as."""

    user: str
    credentials: Credentials
    turn: str | None


def login_text(data: bytes | None, most: int = MESSAGE_CHARS_MAX) -> str:
    """A message of the login; raises ProtocolError."""
    try:
        text = (data or b"").decode()
    except UnicodeDecodeError:
        raise ProtocolError("a message of the login is no UTF-8") from None
    if len(text) > most:
        raise ProtocolError(f"a message of the login has {len(text)} characters; at most {most}")
    return text


def plain_parts(data: bytes | None) -> tuple[str, str]:
    """(user, password) of PLAIN (RFC 4616); raises ProtocolError, and SecurityError for one who acts for another."""
    parts = login_text(data).split("\0")
    if len(parts) != 3 or not parts[1]:
        raise ProtocolError("a login by PLAIN is authority, user and password with NUL between")
    if parts[0] and parts[0] != parts[1]:
        raise SecurityError(f"user {parts[1]!r:.80} cannot act for {parts[0]!r:.80}")
    return parts[1], parts[2]


def scram_user(data: bytes | None) -> tuple[str, str]:
    """(user, message) of the first message of SCRAM; raises ProtocolError."""
    text = login_text(data)
    fields = text.split(",")
    if not text.startswith(("n,,", "y,,")) or len(fields) < 4 or not fields[2].startswith("n="):
        raise ProtocolError("the first message of SCRAM is malformed, or wants a channel binding, which is not offered")
    return fields[2][2:].replace("=2C", ",").replace("=3D", "="), text


def token_parts(data: bytes | None) -> tuple[str, str]:
    """(user, token) of XOAUTH2; raises ProtocolError."""
    fields = dict(part.split("=", 1) for part in login_text(data, RESPONSE_CHARS_MAX).split("\x01") if "=" in part)
    kind, _, token = fields.get("auth", "").partition(" ")
    if kind.lower() != "bearer" or not token:
        raise ProtocolError("a login by XOAUTH2 is user=…^Aauth=Bearer token^A^A")
    return fields.get("user", ""), token
