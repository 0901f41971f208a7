"""The file of users: one line each, ``name:verifier:group:active``, readable by its owner alone.

A verifier is SCRAM's (:mod:`raybroker.wire.scram`), of SHA-256 and behind a comma of SHA-512, which digest and basic
can check, or a hash of argon2 (RFC 9106), which basic alone can: passwords cannot be read from either. There are no
users to begin with: MQ's guest/guest and admin/admin would open every broker that nobody has looked at.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from raybroker.model.definitions.user import ANONYMOUS, GROUPS, check_name
from raybroker.model.errors import ConfigError
from raybroker.security.private_files import write_private
from raybroker.wire.scram import SHA512, has_verifier

PASSWORD_CHARS_MAX: Final = 1024
FILE_BYTES_MAX: Final = 64 << 20


@dataclass(frozen=True, slots=True, repr=False)
class UserEntry:
    """A user: ``verifier`` as text; ``group``: one of GROUPS; not ``active``: cannot connect, and is kept."""

    verifier: str
    group: str = "user"
    active: bool = True

    def __repr__(self) -> str:
        return f"Entry(group={self.group!r}, active={self.active})"


def check_password(password: str) -> str:
    """Raises ConfigError, which does not show it."""
    if not 1 <= len(password) <= PASSWORD_CHARS_MAX:
        raise ConfigError(f"a password has 1 to {PASSWORD_CHARS_MAX} characters; this one has {len(password)}")
    return password


def is_verifier(stored: str) -> bool:
    """Whether what is kept of a password is a verifier of SCRAM, and not a hash of argon2."""
    return stored.startswith("SCRAM-SHA-256$")


class UserFile:
    """Users by name, read again when the file has changed. Blocks for the disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known_of: tuple[Mapping[str, UserEntry], bool] | None = None
        self._seen: tuple[int, int, int] | None = None
        self._users: dict[str, UserEntry] = {}

    def users(self) -> Mapping[str, UserEntry]:
        """What the file says now; nobody while there is no file. Raises ConfigError for a file that cannot be right."""
        try:
            stat = self.path.stat()
        except FileNotFoundError:
            self._seen, self._users = None, {}
            return self._users
        seen = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
        if seen != self._seen:
            self._users = self._read(stat)
            self._seen = seen
        return self._users

    def have_sha512(self) -> bool:
        """Whether all passwords that SCRAM can check have a verifier of SHA-512, and there is one: those that were set
        before there were any have none. False for a file that cannot be right."""
        try:
            users = self.users()
        except ConfigError:
            return False
        known = self._known_of
        if known is None or known[0] is not users:
            kept = [row.verifier for row in users.values() if is_verifier(row.verifier)]
            known = self._known_of = users, bool(kept) and all(has_verifier(one, SHA512) for one in kept)
        return known[1]

    def _read(self, stat: os.stat_result) -> dict[str, UserEntry]:
        if stat.st_mode & 0o077:
            raise ConfigError(f"{self.path} may be read by others than its owner; chmod 600 {self.path}")
        if stat.st_size > FILE_BYTES_MAX:
            raise ConfigError(f"{self.path} has {stat.st_size} bytes; at most {FILE_BYTES_MAX} are read")
        found: dict[str, UserEntry] = {}
        for number, line in enumerate(self.path.read_text(encoding="utf-8").splitlines(), 1):
            if not line or line.startswith("#"):
                continue
            name, _, rest = line.partition(":")
            parts = rest.rsplit(":", 2)
            if not name or len(parts) != 3 or parts[1] not in GROUPS or parts[2] not in ("true", "false"):
                raise ConfigError(f"{self.path}, line {number}: a user is name:verifier:group:true or false")
            found[name] = UserEntry(parts[0], parts[1], parts[2] == "true")
        return found

    def add(self, name: str, entry: UserEntry) -> None:
        """Raises ConfigError for a name that there is, also one that is not active."""
        with self._changing() as users:
            if name in users:
                state = "" if users[name].active else ", not active"
                raise ConfigError(
                    f"user {name!r} exists already (group {users[name].group}{state}); update or delete it"
                )
            self._add(users, name, entry)

    def put(self, name: str, entry: UserEntry) -> None:
        """Make a user, or give the one that there is another password or state; one that is so already stays.

        Raises ConfigError for another group than it was made with.
        """
        with self._changing() as users:
            known = users.get(name)
            if known is None:
                self._add(users, name, entry)
            elif known.group != entry.group:
                raise ConfigError(f"user {name!r} is of group {known.group}, which stays as it was made; delete it")
            elif known != entry:
                self._write({**users, name: entry})

    def _add(self, users: Mapping[str, UserEntry], name: str, entry: UserEntry) -> None:
        if entry.group not in GROUPS:
            raise ConfigError(f"group {entry.group!r}; the groups are {', '.join(GROUPS)}")
        if entry.group == ANONYMOUS:
            other = next((known for known, row in users.items() if row.group == ANONYMOUS), None)
            if other is not None:
                raise ConfigError(f"group anonymous holds one user, and has {other!r}")
        self._write({**users, check_name(name): entry})

    def update(self, name: str, *, verifier: str | None = None, active: bool | None = None) -> None:
        """Another password, or whether it is active. A group stays as it was made. Raises ConfigError."""
        with self._changing() as users:
            known = self._known(users, name)
            users[name] = replace(
                known,
                verifier=known.verifier if verifier is None else verifier,
                active=known.active if active is None else active,
            )
            self._write(users)

    def delete(self, name: str) -> None:
        """Raises ConfigError when there is no such user."""
        with self._changing() as users:
            self._known(users, name)
            del users[name]
            self._write(users)

    def drop(self, name: str) -> None:
        """Delete a user; one that is not there is deleted already."""
        with self._changing() as users:
            if users.pop(name, None) is not None:
                self._write(users)

    @contextmanager
    def _changing(self) -> Iterator[dict[str, UserEntry]]:
        """The users as they are, while nobody else changes them: other brokers of this machine, or usermgr."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle = os.open(self.path.parent, os.O_RDONLY)
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be written: {error}") from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)  # Held while a small file is read and written.
            self._seen = None
            yield dict(self.users())
        finally:
            os.close(handle)

    def _known(self, users: Mapping[str, UserEntry], name: str) -> UserEntry:
        if name not in users:
            raise ConfigError(f"there is no user {name!r} in {self.path}")
        return users[name]

    def _write(self, users: Mapping[str, UserEntry]) -> None:
        text = "".join(
            f"{name}:{row.verifier}:{row.group}:{'true' if row.active else 'false'}\n" for name, row in users.items()
        )
        write_private(self.path, text.encode())
        self._seen = None
