"""The file of users as a repository that a sent password is compared with: argon2 hashes, and verifiers of SCRAM."""

from __future__ import annotations

import hmac
from functools import cache
from typing import Any, Final

from raybroker.model.errors import IllegalStateError
from raybroker.security.access_rules import User
from raybroker.security.mechanism import LoginRefusedError
from raybroker.security.user_file import UserFile, is_verifier
from raybroker.wire.scram import Verifier

MISSING: Final = "passwords for basic need the package argon2-cffi: pip install 'raybroker[login]'"


@cache
def _hasher() -> Any:
    try:
        from argon2 import PasswordHasher
    except ImportError:
        raise IllegalStateError(MISSING) from None
    return PasswordHasher()


def argon2_hash(password: str) -> str:
    """What the file of users keeps of a password for basic: argon2id with the parameters of RFC 9106 for little
    memory, 64 MiB. Raises IllegalStateError where argon2-cffi is missing."""
    return str(_hasher().hash(password))


class FileRepository:
    """``users``: the file."""

    def __init__(self, users: UserFile) -> None:
        self._users = users
        self._nobodys = ""
        """A hash for users that are not there, so that they take as long as others."""

    def check(self, name: str, password: str) -> User:
        """See security.mechanism.Repository."""
        entry = self._users.users().get(name)
        stored = entry.verifier if entry is not None else self._hash_of_nobody()
        right = is_right(stored, password)
        if entry is None:
            raise LoginRefusedError("is unknown")
        if not right:
            raise LoginRefusedError("has a wrong password")
        if not entry.active:
            raise LoginRefusedError("is not active")
        return User(name, frozenset({entry.group}))

    def _hash_of_nobody(self) -> str:
        """Return a hash of the kind that most users have, which is the kind that takes the same time."""
        if not self._nobodys:
            kinds = [is_verifier(entry.verifier) for entry in self._users.users().values()]
            if sum(kinds) * 2 >= len(kinds):
                self._nobodys = str(Verifier.nobody("", b"nobody knows this password"))
            else:
                self._nobodys = argon2_hash("nobody knows this password")
        return self._nobodys


def is_right(stored: str, password: str) -> bool:
    """Whether a password is the one that something is kept of; compares in constant time."""
    if is_verifier(stored):
        known = Verifier.parse(stored)
        shown = Verifier.from_password(password, known.salt, known.iterations)
        return hmac.compare_digest(shown.stored_key, known.stored_key)
    hasher = _hasher()
    from argon2.exceptions import InvalidHashError, VerificationError

    try:
        return bool(hasher.verify(stored, password))
    except (InvalidHashError, VerificationError):
        return False
