"""Compressed blocks in tables: their version says that there are such, and it is a table that has to be made.

A database user who may use tables need not be one who may make them.  Then blocks are kept as they came, which every
release reads: no message is refused for a means of saving space.  That is known when the store is opened, and where it
turns out later, in the transaction of the first compressed block, that transaction takes the block as it came.  Once in
``LOOK_NS`` it is looked whether somebody has made the table (``raybroker dbmgr upgrade tbl``) or given the right to.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from raybroker.model.errors import StoreError, StoreFullError
from raybroker.store.sql.database import Database, UnreachableError
from raybroker.store.sql.registration import mark_compressed, versions
from raybroker.store.sql.schema import COMPRESSED, SqlTables

LOOK_NS: Final = 60_000_000_000

_MAY_CREATE: Final = "SELECT current_user, current_schema(), has_schema_privilege(current_schema(), 'CREATE')"


class CompressedBlocks:
    """The compressed blocks in the tables of one open store; all but ``because`` belongs to the thread that commits.

    because  why they get no compressed blocks, for people; "" when they do
    """

    def __init__(self, database: Database, tables: SqlTables, shown: str, monotonic_ns: Callable[[], int]) -> None:
        self._database = database
        self._tables = tables
        self._shown = shown
        self._monotonic_ns = monotonic_ns
        self._marked = self._failed = False
        self._looked_ns = 0
        self.because = ""

    def ask_database(self, connection: Any) -> None:
        """Ask the database, in a transaction of the caller's or in none.  Raises StoreError."""
        self._looked_ns = self._monotonic_ns()
        self._marked = COMPRESSED in versions(self._database, connection, self._tables)
        if self._marked:
            self.because = ""
        elif not self._failed:
            hinders = self._hinders(connection)
            self.because = self._text(hinders) if hinders else ""

    def look_again(self, connection: Any) -> None:
        """Do what :meth:`ask_database` does between two commits, where it is time to; what the database has against it
        changes nothing."""
        if self.because and self._monotonic_ns() - self._looked_ns >= LOOK_NS:
            with suppress(StoreError), self._database.transaction(connection, snapshot=True):
                self.ask_database(connection)

    def allow(self, connection: Any) -> bool:
        """Make the tables say that they have compressed blocks, in the transaction of a commit; False: they get none.

        Raises StoreFullError, UnreachableError.
        """
        if self._marked:
            return True
        if self.because:
            return False
        try:
            with self._database.errors(), connection.begin_nested():
                mark_compressed(self._database, connection, self._tables)
        except (StoreFullError, UnreachableError):
            raise
        except StoreError as error:
            self._failed, self._looked_ns, self.because = True, self._monotonic_ns(), self._text(str(error))
            return False
        return True

    def written(self) -> None:
        """The transaction of ``allow`` is durable."""
        self._marked = True

    def _hinders(self, connection: Any) -> str:
        if self._database.sqlite:
            return ""
        with self._database.errors():
            user, schema, may = connection.execute(self._database.sql.text(_MAY_CREATE)).one()
        return "" if may else f"user {user} of the database may not make tables in schema {schema}"

    def _text(self, hinders: str) -> str:
        return (
            f"{self._shown} keeps messages as they come, not compressed, though"
            f" raybroker.store.message_compression_enabled is true: its tables have to be of version {COMPRESSED} for"
            f" that, for which table {self._tables.compressed.name} is made, and {hinders}. Run raybroker dbmgr"
            " upgrade tbl as a user of the database who may make tables; messages are compressed within a minute then"
        )
