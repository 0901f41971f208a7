"""Credentials of a request: user and password by HTTP Basic (RFC 7617), or a token by Bearer (RFC 6750)."""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import Final, NamedTuple

from raybroker.services.web.problems import RefusedError
from raybroker.system import entropy

HEADER_CHARS_MAX: Final = 1024
TOKEN_CHARS_MAX: Final = 12_288
"""A control connection takes a frame of 16 KiB before the login is over."""
BASIC: Final = 'Basic realm="raybroker", charset="UTF-8"'
BEARER: Final = 'Bearer realm="raybroker"'
_KEY_BYTES: Final = 32


class RequestCredentials(NamedTuple):
    """The credentials of one request: a user with a password, or a token, which names its user itself."""

    user: str
    password: str
    token: str | None = None

    def __repr__(self) -> str:
        return f"Credentials({self.user!r:.140})" if self.token is None else "Credentials(a token)"

    @property
    def secret(self) -> str:
        """What proves it."""
        return self.password if self.token is None else self.token


class Digests:
    """Secrets that were proved are remembered as this, under a key of this process."""

    def __init__(self) -> None:
        self._key = entropy.token(_KEY_BYTES)

    def digest(self, secret: str) -> bytes:
        """Return a digest of the secret, to be compared in constant time."""
        return hashlib.blake2b(secret.encode(), key=self._key).digest()


class Offer(NamedTuple):
    """Which credentials a service takes."""

    passwords: bool = True
    tokens: bool = False

    @property
    def schemes(self) -> tuple[str, ...]:
        """Return the schemes of HTTP, as a description names them."""
        return ("basic",) * self.passwords + ("bearer",) * self.tokens

    @property
    def challenge(self) -> str:
        """The header WWW-Authenticate."""
        return ", ".join([BASIC] * self.passwords + [BEARER] * self.tokens)

    def asked(self, text: str) -> RefusedError:
        """401, with what is asked for."""
        return RefusedError(text, 401, {"WWW-Authenticate": self.challenge})

    def given(self, header: str | None) -> RequestCredentials:
        """The credentials of the header Authorization; raises RefusedError, 401, when there are none that count."""
        if header is None:
            raise self.asked(f"say who you are: {self._words}")
        scheme, _, rest = header.partition(" ")
        if self.tokens and scheme.lower() == "bearer":
            token = rest.strip()
            if not token or len(token) > TOKEN_CHARS_MAX or not (token.isascii() and token.isprintable()):
                raise self.asked(f"the header Authorization has no token, or more than {TOKEN_CHARS_MAX} characters")
            return RequestCredentials("", "", token)
        if not self.passwords or scheme.lower() != "basic" or len(header) > HEADER_CHARS_MAX:
            raise self.asked(f"the header Authorization has {self._schemes}; say who you are: {self._words}")
        try:
            user, found, password = base64.b64decode(rest.strip(), validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            raise self.asked(
                "the header Authorization is malformed: Basic, then base64 of user:password in UTF-8"
            ) from None
        if not found or not user or not password or not user.isprintable():
            raise self.asked("the header Authorization has no user and password")
        return RequestCredentials(user, password)

    @property
    def _schemes(self) -> str:
        basic = f"the scheme Basic and at most {HEADER_CHARS_MAX} characters"
        return " or ".join([basic] * self.passwords + ["the scheme Bearer"] * self.tokens)

    @property
    def _words(self) -> str:
        basic = "HTTP Basic with a user of the broker (raybroker usermgr add makes users)"
        return ", or ".join([basic] * self.passwords + ["Bearer with a token"] * self.tokens)


def basic(user: str, password: str) -> str:
    """The header Authorization of a user with a password."""
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


def bearer(token: str) -> str:
    """The header Authorization of a token."""
    return f"Bearer {token}"


def who(header: str | None) -> RequestCredentials:
    """User and password of the header Authorization; raises RefusedError, 401, when there are none."""
    return Offer().given(header)
