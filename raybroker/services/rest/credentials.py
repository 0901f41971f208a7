"""Credentials of a request: user and password, by HTTP Basic (RFC 7617)."""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import Final, NamedTuple

from raybroker.services.rest.problems import REALM, RefusedError
from raybroker.system import entropy

HEADER_CHARS_MAX: Final = 1024
_KEY_BYTES: Final = 32


class Credentials(NamedTuple):
    """Of one request."""

    user: str
    password: str

    def __repr__(self) -> str:
        return f"Credentials({self.user!r:.140})"


class Digests:
    """Passwords that were proved are remembered as this, under a key of this process."""

    def __init__(self) -> None:
        self._key = entropy.token(_KEY_BYTES)

    def of(self, password: str) -> bytes:
        """To be compared in constant time."""
        return hashlib.blake2b(password.encode(), key=self._key).digest()


def who(header: str | None) -> Credentials:
    """The credentials of the header Authorization; raises RefusedError, 401, when there are none."""
    if header is None:
        raise asked("say who you are: HTTP Basic with a user of the broker (raybroker usermgr add makes users)")
    scheme, _, rest = header.partition(" ")
    if scheme.lower() != "basic" or len(header) > HEADER_CHARS_MAX:
        raise asked(f"the header Authorization has the scheme Basic, and at most {HEADER_CHARS_MAX} characters")
    try:
        user, found, password = base64.b64decode(rest.strip(), validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        raise asked("the header Authorization is malformed: Basic, then base64 of user:password in UTF-8") from None
    if not found or not user or not password or not user.isprintable():
        raise asked("the header Authorization has no user and password")
    return Credentials(user, password)


def asked(text: str) -> RefusedError:
    """401, with what is asked for."""
    return RefusedError(text, 401, {"WWW-Authenticate": REALM})
