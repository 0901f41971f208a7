"""The configuration change record in a table of an SQL database that all brokers share.

Two tables: one has a single row with the cluster, the term and the base of the record; the other has one row for each
entry after the base, under (record, number).  A writer takes the lock of the single row first, so that entries come one
after the other and none is put into a record that was replaced meanwhile; the unique key guarantees it in any case.

Each call is one transaction on a connection of its own and blocks, at most about ``timeout_ms``.  It raises StoreError
when nothing was changed for sure, RequestTimeoutError when the end of its transaction was not seen.  The texts do not
name the table, which the caller knows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from raybroker.model.errors import ConfigError, IllegalStateError, RequestTimeoutError, StoreDamagedError, StoreError
from raybroker.model.shared_record import TABLE, FoundRecord, RecordHead, TableRow

T = TypeVar("T")
URL: Final = "imq.cluster.sharecc.persist.jdbc.url"
VERSION: Final = 1
ROWS_MAX: Final = 500
"""Most entries of one reading; a broker that lags further reads again."""
DRIVERS: Final = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg"}
EXAMPLES: Final = "sqlite:////var/lib/raybroker/record.db or postgresql://user@host/database"
_PYTHON: Final = "the record in a table needs SQLAlchemy and a driver: pip install 'raybroker[sql]'"


class RecordTable:
    """The table at ``url``, an address of SQLAlchemy; connects later.  Raises ConfigError for an unusable address.

    ``password``: of the user of PostgreSQL; "" leaves it to the address and to libpq.
    """

    def __init__(self, url: str, timeout_ms: int, password: str = "") -> None:
        try:
            import sqlalchemy
        except ImportError:
            raise ConfigError(f"{URL}: {_PYTHON}") from None
        self._sql: Any = sqlalchemy
        self._timeout_ms = timeout_ms
        self._password = password
        try:
            parsed = sqlalchemy.make_url(url)
        except (sqlalchemy.exc.ArgumentError, ValueError):
            raise ConfigError(f"{URL} is no address of a database; such as {EXAMPLES}") from None
        self._dialect = parsed.get_backend_name()
        if self._dialect not in DRIVERS:
            raise ConfigError(f"{URL}: {self._dialect} is not supported; such as {EXAMPLES}")
        self._file = parsed.database if self._dialect == "sqlite" else None
        if self._dialect == "sqlite" and (not self._file or ":memory:" in self._file):
            raise ConfigError(f"{URL}: SQLite needs a file that all brokers have; such as {EXAMPLES}")
        self.shown = f"{TABLE} at {parsed.set(query={}).render_as_string(hide_password=True)}"
        """Name of the table for people, without a password."""
        self._engine = self._made(parsed.set(drivername=DRIVERS[self._dialect]))
        self._head, self._entries = _tables(sqlalchemy)

    def _made(self, url: Any) -> Any:
        sql, seconds = self._sql, self._timeout_ms / 1000
        arguments: dict[str, Any] = {"timeout": seconds}
        if self._dialect == "postgresql":
            arguments = {"connect_timeout": math.ceil(seconds), "tcp_user_timeout": self._timeout_ms}
            if self._password:
                arguments["password"] = self._password
        try:
            engine = sql.create_engine(url, poolclass=sql.pool.NullPool, connect_args=arguments)
        except ImportError:
            raise ConfigError(f"{URL}: {_PYTHON}") from None
        if self._dialect == "sqlite":
            sql.event.listen(engine, "connect", _prepare_sqlite)
        sql.event.listen(engine, "begin", self._begun)
        return engine

    def _begun(self, connection: Any) -> None:
        """Begin a transaction, with its time limits."""
        if self._dialect == "sqlite":
            connection.exec_driver_sql("BEGIN")
            return
        for name in ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"):
            connection.exec_driver_sql(f"SET LOCAL {name} = {self._timeout_ms}")
        # What is acknowledged is on disk, also where the database's own default is faster than safe.
        connection.exec_driver_sql(
            "SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'"
        )

    # ---- what brokers do

    def read(self, record: str, number: int) -> FoundRecord | None:
        """The entries after ``number`` of ``record``; None when there is no table.  Raises StoreError."""
        if self._missing_file():
            return None
        try:
            return self._transaction(lambda connection: self._read(connection, record, number), snapshot=True)
        except StoreError:
            if self.exists():
                raise
            return None

    def _read(self, connection: Any, record: str, number: int) -> FoundRecord:
        sql, entries = self._sql, self._entries
        head, base_digest = self._head_row(connection)
        mine = entries.c.record == head.record
        last = connection.scalar(sql.select(sql.func.max(entries.c.number)).where(mine)) or head.base_number
        digest, base = "", ""
        start = number
        if head.record != record or number < head.base_number:
            start, base = head.base_number, connection.scalar(sql.select(self._head.c.base))
        elif number == head.base_number:
            digest = base_digest
        else:
            at = sql.select(entries.c.digest).where(mine, entries.c.number == number)
            digest = connection.scalar(at) or ""
        found = connection.execute(
            sql.select(entries.c.number, entries.c.body, entries.c.digest, entries.c.writer)
            .where(mine, entries.c.number > start)
            .order_by(entries.c.number)
            .limit(ROWS_MAX)
        )
        return FoundRecord(head, last, digest, tuple(TableRow(*row) for row in found), base)

    def _head_row(self, connection: Any) -> tuple[RecordHead, str]:
        head = self._head.c
        rows = connection.execute(
            self._sql.select(head.version, head.cluster, head.record, head.term, head.base_number, head.base_digest)
        ).all()
        if len(rows) != 1:
            raise StoreDamagedError(f"{len(rows)} rows of {TABLE} say whose record it is; there is one")
        version, cluster, record, term, base_number, base_digest = rows[0]
        if version != VERSION:
            raise ConfigError(f"it has version {version}; this release reads version {VERSION}")
        return RecordHead(cluster, record, term, base_number), base_digest

    def insert(self, record: str, rows: Sequence[TableRow]) -> bool:
        """Append entries, all or none; False when the record does not end just before them (any more)."""

        def work(connection: Any) -> bool:
            sql, entries = self._sql, self._entries
            if not self._locked(connection, record):
                return False
            last = connection.scalar(sql.select(sql.func.max(entries.c.number)).where(entries.c.record == record))
            if last is None:
                last = connection.scalar(sql.select(self._head.c.base_number))
            if last != rows[0].number - 1:
                return False
            connection.execute(
                sql.insert(entries),
                [
                    {
                        "record": record,
                        "number": row.number,
                        "body": row.body,
                        "digest": row.digest,
                        "writer": row.writer,
                    }
                    for row in rows
                ],
            )
            return True

        return self._changed(work)

    def shorten(self, record: str, before: int, number: int, digest: str, base: str) -> bool:
        """Make the record up to entry ``number`` its base instead of that up to ``before``; False when it has
        another base, or is another record, by now."""

        def work(connection: Any) -> bool:
            sql, head, entries = self._sql, self._head, self._entries
            if not self._locked(connection, record) or connection.scalar(sql.select(head.c.base_number)) != before:
                return False
            connection.execute(sql.update(head).values(base_number=number, base_digest=digest, base=base))
            connection.execute(sql.delete(entries).where(entries.c.record == record, entries.c.number <= number))
            return True

        return self._changed(work)

    def _locked(self, connection: Any, record: str) -> bool:
        """Lock the table against other writers until the transaction ends; false when it has another record."""
        head = self._head
        done = connection.execute(self._sql.update(head).where(head.c.record == record).values(version=VERSION))
        return bool(done.rowcount == 1)

    # ---- what administrators do

    def exists(self) -> bool:
        """True when the table exists.  Raises StoreError."""
        if self._missing_file():
            return False
        return bool(self._transaction(lambda connection: self._sql.inspect(connection).has_table(TABLE)))

    def create(self, head: RecordHead, digest: str, base: str) -> None:
        """Make the table, with a record.  Raises IllegalStateError when it is there, StoreError."""
        if self._file is not None:
            Path(self._file).parent.mkdir(parents=True, exist_ok=True)

        def work(connection: Any) -> None:
            if self._sql.inspect(connection).has_table(TABLE):
                raise IllegalStateError("it is there already; recreate it, or restore a backup into it")
            self._head.metadata.create_all(connection)
            self._fill(connection, head, digest, base)

        self._transaction(work)

    def replace(self, head: RecordHead, digest: str, base: str, *, before: str) -> bool:
        """Put this record in place of ``before``; false when the table has another by now.  Raises StoreError."""

        def work(connection: Any) -> bool:
            if not self._locked(connection, before):
                return False
            connection.execute(self._sql.delete(self._entries))
            connection.execute(self._sql.delete(self._head))
            self._fill(connection, head, digest, base)
            return True

        return self._transaction(work)

    def drop(self) -> None:
        """Remove the table and its rows.  Raises StoreError."""
        self._transaction(self._head.metadata.drop_all)

    def _fill(self, connection: Any, head: RecordHead, digest: str, base: str) -> None:
        connection.execute(
            self._sql.insert(self._head).values(
                id=1,
                version=VERSION,
                cluster=head.cluster,
                record=head.record,
                term=head.term,
                base_number=head.base_number,
                base_digest=digest,
                base=base,
            )
        )

    # ---- transactions

    def _missing_file(self) -> bool:
        """True when the SQLite file does not exist, which connecting would create."""
        return self._file is not None and not Path(self._file).exists()

    def _changed(self, work: Callable[[Any], bool]) -> bool:
        """The result of ``work``; false also when the unique key shows that another broker was first."""
        if self._missing_file():
            raise StoreError("there is no such table")
        try:
            return self._transaction(work)
        except _TakenError:
            return False

    def _transaction(self, work: Callable[[Any], T], *, snapshot: bool = False) -> T:
        with self._connected(snapshot) as connection:
            transaction = connection.begin()
            found = work(connection)
            try:
                transaction.commit()
            except self._sql.exc.DBAPIError as error:
                raise RequestTimeoutError(f"the end of the transaction was not seen: {_text(error)}") from None
            return found

    @contextmanager
    def _connected(self, snapshot: bool) -> Iterator[Any]:
        """A connection that ends its transaction.  ``snapshot``: all rows that it reads are of one moment."""
        exc, engine = self._sql.exc, self._engine
        if snapshot and self._dialect == "postgresql":
            engine = engine.execution_options(isolation_level="REPEATABLE READ")
        try:
            with engine.connect() as connection:
                yield connection
        except exc.IntegrityError as error:
            raise _TakenError(f"the database says: {_text(error)}") from None
        except exc.SQLAlchemyError as error:
            raise StoreError(f"the database says: {_text(error)}") from None


class _TakenError(StoreError):
    """The unique key is in use."""


def _text(error: Exception) -> str:
    """The text of the database's error on one line, without the statement and its values."""
    return " ".join(str(getattr(error, "orig", None) or error).split())


def _prepare_sqlite(connection: Any, _record: object) -> None:
    # The driver begins no transactions by itself: _begun does.  EXTRA: a commit holds over a power cut, also with the
    # journal's removal in the directory.
    connection.isolation_level = None
    connection.execute("PRAGMA synchronous = EXTRA")


def _tables(sql: Any) -> tuple[Any, Any]:
    metadata = sql.MetaData()
    head = sql.Table(
        TABLE,
        metadata,
        sql.Column("id", sql.Integer, sql.CheckConstraint("id = 1"), primary_key=True, autoincrement=False),
        sql.Column("version", sql.Integer, nullable=False),
        sql.Column("cluster", sql.Text, nullable=False),
        sql.Column("record", sql.Text, nullable=False),
        sql.Column("term", sql.BigInteger, nullable=False),
        sql.Column("base_number", sql.BigInteger, nullable=False),
        sql.Column("base_digest", sql.Text, nullable=False),
        sql.Column("base", sql.Text, nullable=False),
    )
    entries = sql.Table(
        f"{TABLE}_entry",
        metadata,
        sql.Column("record", sql.Text, primary_key=True),
        sql.Column("number", sql.BigInteger, primary_key=True, autoincrement=False),
        sql.Column("body", sql.Text, nullable=False),
        sql.Column("digest", sql.Text, nullable=False),
        sql.Column("writer", sql.Text, nullable=False),
        sql.UniqueConstraint("record", "writer"),
    )
    return head, entries
