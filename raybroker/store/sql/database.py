"""Connections and transactions of a store in a database; errors of the database leave as StoreError.

SQLite keeps a write-ahead log (WAL) and syncs it at every commit; PostgreSQL's own setting of synchronous_commit
counts, unless that is off.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from raybroker.model.errors import ConfigError, StoreError, StoreFullError
from raybroker.store.sql.address import DRIVERS, URLS, Address, sqlalchemy_of

SQLITE_FULL: Final = 13
DISK_FULL: Final = "53100"
"""PostgreSQL's state of an error for which there is no room on the disk."""
GONE: Final = ("57P01", "57P02", "57P03")
"""Of a server that is being shut down, has crashed, or is not ready yet; so is every state of the class 08."""
KEEPALIVE_S: Final = 5
KEEPALIVE_COUNT: Final = 3
"""PostgreSQL gives a lost machine's locks up after KEEPALIVE_S * (1 + KEEPALIVE_COUNT)."""


PAGE_BYTES: Final = 16 << 10
"""A page of SQLite; a block of messages takes several of the default size."""
LOG_BYTES: Final = 32 << 20
"""SQLite copies pages from its log to the database after so many bytes.  What was deleted meanwhile, and its pages used
again, is copied once."""


class UnreachableError(StoreError):
    """The database could not be connected to, or the connection was lost."""

    code = "store"


class Database:
    """One database; connects when asked.  ``name``: what its sessions are called in PostgreSQL.  Raises ConfigError
    without its libraries."""

    def __init__(self, address: Address, name: str = "raybroker") -> None:
        self.address = address
        self._name = name
        self.sql = sqlalchemy_of(URLS[address.vendor])
        self._engine = self._made(address.url)
        self.sqlite = address.vendor == "sqlite"

    @property
    def shown(self) -> str:
        """The database for people, without a password."""
        return self.address.shown

    @property
    def user(self) -> str:
        """The user who connects, "" where there is none or libpq chooses one."""
        return self.sql.make_url(self.address.url).username or "" if not self.sqlite else ""

    def connect(self, *, autocommit: bool = False) -> Any:
        """A connection of the caller's own.  ``autocommit``: each statement is a transaction.  Raises StoreError."""
        if self.sqlite:
            self._make_file()
        options = {"isolation_level": "AUTOCOMMIT"} if autocommit else {}
        try:
            return self._engine.connect().execution_options(**options)
        except self.sql.exc.SQLAlchemyError as error:
            raise UnreachableError(f"{self.shown} cannot be reached: {text_of(error)}") from None

    @contextmanager
    def errors(self) -> Iterator[None]:
        """What the database says leaves as StoreError: StoreFullError when it has no room, UnreachableError when it is
        gone."""
        try:
            yield
        except self.sql.exc.SQLAlchemyError as error:
            kind: type[StoreError] = StoreFullError if _is_full(error) else StoreError
            if getattr(error, "connection_invalidated", False) or _is_gone(error):
                kind = UnreachableError
            raise kind(f"the database {self.shown} says: {text_of(error)}") from None

    @contextmanager
    def transaction(self, connection: Any, *, snapshot: bool = False) -> Iterator[Any]:
        """One transaction, committed at the end.  ``snapshot``: it only reads, all of one moment."""
        with self.errors(), connection.begin():
            if self.sqlite:
                connection.exec_driver_sql("BEGIN" if snapshot else "BEGIN IMMEDIATE")
            elif snapshot:
                connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            yield connection

    @contextmanager
    def connected(self, *, snapshot: bool = False) -> Iterator[Any]:
        """One transaction on a connection of its own."""
        connection = self.connect()
        try:
            with self.transaction(connection, snapshot=snapshot):
                yield connection
        finally:
            self.close_connection(connection)

    def close_connection(self, connection: Any) -> None:
        """Close a connection; one that is broken is given up."""
        with suppress(self.sql.exc.SQLAlchemyError):
            connection.close()

    def abandon(self, connection: Any) -> None:
        """Give up a connection that was cut, without a word to the database."""
        with suppress(self.sql.exc.SQLAlchemyError):
            connection.invalidate()
        self.close_connection(connection)

    def exists(self) -> bool:
        """False where SQLite's file is missing, which connecting would make."""
        file = self.address.file
        return file is None or file.exists()

    def create(self) -> bool:
        """Make the database itself; False when it is there.  Raises ConfigError, StoreError."""
        if self.sqlite:
            if self.exists():
                return False
            self.close_connection(self.connect())
            return True
        if not self.address.create_url:
            raise ConfigError(
                "imq.persist.jdbc.postgresql.createdburl is not set: it names a database that exists, to which one has"
                " to connect to make another; where yours exists, say create tbl"
            )
        name = self.sql.make_url(self.address.url).database
        engine = self._made(self.address.create_url)
        try:
            with self.errors(), engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                known = connection.execute(
                    self.sql.text("SELECT count(*) FROM pg_database WHERE datname = :name"), {"name": name}
                )
                if known.scalar():
                    return False
                quoted = connection.dialect.identifier_preparer.quote(name)
                connection.exec_driver_sql(f"CREATE DATABASE {quoted}")
                return True
        finally:
            engine.dispose()

    def vacuum(self, tables: Sequence[Any], budget_bytes: int) -> bool:
        """Give free space back: SQLite's to the file system, at most ``budget_bytes`` at a time, PostgreSQL's to the
        tables.  True when more is to be done.  Raises StoreError."""
        connection = self.connect(autocommit=True)
        try:
            with self.errors():
                return self._vacuum(connection, tables, budget_bytes)
        finally:
            self.close_connection(connection)

    def _vacuum(self, connection: Any, tables: Sequence[Any], budget_bytes: int) -> bool:
        if not self.sqlite:
            connection.exec_driver_sql("SET statement_timeout = 0")
            for table in tables:
                quoted = connection.dialect.identifier_preparer.format_table(table)
                connection.exec_driver_sql(f"VACUUM {quoted}")
            return False
        pages = max(budget_bytes // connection.exec_driver_sql("PRAGMA page_size").scalar(), 1)
        before = connection.exec_driver_sql("PRAGMA freelist_count").scalar()
        connection.exec_driver_sql(f"PRAGMA incremental_vacuum({pages})").all()
        after = connection.exec_driver_sql("PRAGMA freelist_count").scalar()
        if 0 < after < before:
            return True
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").all()
        return False

    def _make_file(self) -> None:
        """The file and its directory, for their owner alone."""
        file = self.address.file
        assert file is not None
        try:
            if not file.parent.exists():
                file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not file.exists():
                os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        except OSError as error:
            raise StoreError(f"{file} cannot be made: {error}") from None

    def _made(self, url: str) -> Any:
        sql, address = self.sql, self.address
        seconds = address.timeout_ms / 1000
        arguments: dict[str, Any] = {"timeout": seconds, "check_same_thread": False}
        if address.vendor == "postgresql":
            limits = ("statement_timeout", "lock_timeout")
            arguments = {
                "connect_timeout": max(2, math.ceil(seconds)),
                "tcp_user_timeout": address.timeout_ms,
                "application_name": self._name,
                "options": " ".join(f"-c {name}={address.timeout_ms}" for name in limits)
                + f" -c tcp_keepalives_idle={KEEPALIVE_S} -c tcp_keepalives_interval={KEEPALIVE_S}"
                + f" -c tcp_keepalives_count={KEEPALIVE_COUNT}",
                **({"passfile": address.passfile} if address.passfile else {}),
                **({"password": address.password} if address.password else {}),
            }
        try:
            if address.file is not None:
                parsed = sql.URL.create(DRIVERS["sqlite"], database=str(address.file))
            else:
                parsed = sql.make_url(url).set(drivername=DRIVERS[address.vendor])
            engine = sql.create_engine(parsed, poolclass=sql.pool.NullPool, connect_args=arguments)
        except ImportError:
            raise ConfigError(
                f"{URLS[address.vendor]}: {address.vendor} needs a driver: pip install 'raybroker[sql]'"
            ) from None
        sql.event.listen(engine, "connect", _prepare_sqlite if address.vendor == "sqlite" else _prepare_postgresql)
        return engine


def text_of(error: Exception) -> str:
    """The text of a database's error on one line, without the statement and its values."""
    return " ".join(str(getattr(error, "orig", None) or error).split())


def size_bytes(path: Path) -> int:
    """Bytes of a file of SQLite with its log."""
    return sum(part.stat().st_size for part in (path, Path(f"{path}-wal")) if part.exists())


def _is_full(error: Exception) -> bool:
    found = getattr(error, "orig", None)
    return getattr(found, "sqlite_errorcode", None) == SQLITE_FULL or getattr(found, "sqlstate", None) == DISK_FULL


def _is_gone(error: Exception) -> bool:
    state = str(getattr(getattr(error, "orig", None), "sqlstate", None) or "")
    return state in GONE or state.startswith("08")


def _prepare_sqlite(connection: Any, _record: object) -> None:
    # The driver begins no transactions by itself: transaction() does.
    connection.isolation_level = None
    connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"PRAGMA wal_autocheckpoint = {LOG_BYTES // PAGE_BYTES}")


def _prepare_postgresql(connection: Any, _record: object) -> None:
    # What is acknowledged is on disk, also where the database's own default is faster than safe.
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
        )
    connection.commit()
