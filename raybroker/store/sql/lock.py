"""The lock of one host's rows: one process at a time has them open.

PostgreSQL keeps it for a session (an advisory lock), SQLite's is an flock on a file beside the database: both go with
the process that holds them, however it ends.  The column ``owner`` of the host's row is for people.  A process that
has lost the lock without noticing cannot write either: every commit asks for its ``incarnation``.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from raybroker.model.errors import StoreError
from raybroker.store.fileio import FileIO
from raybroker.store.sql.database import Database

_HOLDERS: Final = (
    "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    " AND classid = :high AND objid = :low"
)


_WORKING: Final = (
    "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = :name"
    " AND pid <> pg_backend_pid()"
)
_NAME_BYTES_MAX: Final = 63
"""PostgreSQL cuts longer names of applications."""


def session_name(id: str, host: str) -> str:
    """What the sessions of a host's store are called in PostgreSQL."""
    return f"raybroker {id}/{host}"[:_NAME_BYTES_MAX]


def advisory_key(id: str, host: str) -> int:
    """PostgreSQL's key of the lock, a signed number of 64 bits."""
    return int.from_bytes(hashlib.sha256(f"raybroker store {id}/{host}".encode()).digest()[:8], "big", signed=True)


class HostLock:
    """Held from :meth:`acquire` to :meth:`release`, or until ``connection`` ends."""

    def __init__(self, database: Database, connection: Any, id: str, host: str) -> None:
        self._database = database
        self._connection = connection
        self._key = advisory_key(id, host)
        self._name = session_name(id, host)
        self._io = FileIO()
        self._fd = -1
        self._held = False
        file = database.address.file
        self._path = None if file is None else Path(f"{file}.{id}.{host}.lock")

    def acquire(self) -> bool:
        """False: another process, or this one, has it.  Raises StoreError."""
        if self._path is None:
            statement = self._database.sql.text("SELECT pg_try_advisory_lock(:key)")
            with self._database.errors():
                self._held = bool(self._connection.scalar(statement, {"key": self._key}))
                return self._held
        try:
            self._fd = self._io.open(self._path) if self._io.exists(self._path) else self._io.create(self._path)
            if self._io.try_lock(self._fd):
                return True
        except OSError as error:
            self.release()
            raise StoreError(f"{self._path} cannot be locked: {error}") from None
        self.release()
        return False

    def release(self) -> None:
        """Let go of it. PostgreSQL's goes with the connection, too, but some time after that was closed: who opens the
        store next would find it held."""
        if self._held:
            self._held = False
            unlock = self._database.sql.text("SELECT pg_advisory_unlock(:key)")
            with suppress(StoreError), self._database.errors():
                self._connection.execute(unlock, {"key": self._key})
        if self._fd >= 0:
            self._io.close(self._fd)
            self._fd = -1

    def held(self) -> bool:
        """Whether somebody has it now.  Raises StoreError."""
        if self._path is None:
            return bool(self._sessions())
        taken = self.acquire()
        self.release()
        return not taken

    def break_(self) -> int:
        """End the sessions of PostgreSQL that hold it, as after the loss of their machine, and the others of their
        host, which may be in the middle of a commit; how many there were.  Raises StoreError, also where the database's
        user may not end them."""
        if self._path is not None:
            return 0
        with self._database.errors():
            working = self._connection.execute(self._database.sql.text(_WORKING), {"name": self._name})
            sessions = {*self._sessions(), *(row[0] for row in working)}
            for pid in sessions:
                self._connection.execute(
                    self._database.sql.text("SELECT pg_terminate_backend(:pid, 5000)"), {"pid": pid}
                )
        return len(sessions)

    def remove(self) -> None:
        """Remove the file of the lock, when the host is gone for good."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def _sessions(self) -> list[int]:
        key = self._key & 0xFFFF_FFFF_FFFF_FFFF
        with self._database.errors():
            found = self._connection.execute(
                self._database.sql.text(_HOLDERS), {"high": key >> 32, "low": key & 0xFFFF_FFFF}
            )
            return [row[0] for row in found]
