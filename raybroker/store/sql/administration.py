"""Administration of the tables of one broker's store: making, removing, looking, unlocking.

The brokers need not run.  Whatever changes rows of a host that runs all the same makes its next commit fail, after
which it stops: it never writes into tables that it does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from raybroker.model.errors import ConfigError, IllegalStateError, StoreError, StoreFullError
from raybroker.store.sql.database import KEEPALIVE_COUNT, KEEPALIVE_S, Database, UnreachableError, size_bytes
from raybroker.store.sql.lock import HostLock
from raybroker.store.sql.registration import (
    TakenOverError,
    check_owner,
    create_tables,
    mark_compressed,
    remove_tables,
    require_tables,
    tenure_of,
    versions,
)
from raybroker.store.sql.schema import COMPRESSED, NEWEST, NUMBER_MAX, PARTS, VERSION, key, table_name, tables_of

HAND_OVER_S: Final = float(KEEPALIVE_S * (2 + KEEPALIVE_COUNT))
"""How long a hand-over waits for sessions of the one before that cannot be ended: by then the database has noticed the
loss of their machine."""
HAND_OVER_LOOK_S: Final = 0.1
FENCE_LOCK_MS: Final = 1000
"""How long one attempt waits for a commit that is under way."""


class HostState(NamedTuple):
    """``held``: a process has its store open now. ``owner``: the last one that did not close it."""

    name: str
    hosting: str
    held: bool
    owner: str
    blocks: int
    nbytes: int


class StoreTables:
    """The tables of a broker.  Every method raises StoreError when the database cannot be used, and ConfigError for
    tables of another broker or version, and then has changed nothing."""

    def __init__(self, database: Database, id: str, cluster: str, broker: str) -> None:
        self.database = database
        self.tables = tables_of(database.sql, id)
        self.cluster = cluster
        self.broker = broker
        self.shown = f"{self.tables.names} at {database.shown}"

    @contextmanager
    def _session(self) -> Iterator[Any]:
        connection = self.database.connect(autocommit=True)
        try:
            with self.database.errors():
                yield connection
        finally:
            self.database.close_connection(connection)

    def versions(self) -> set[int]:
        """The versions of which there are tables."""
        if not self.database.exists():
            return set()
        with self._session() as connection:
            return versions(self.database, connection, self.tables)

    def require(self) -> str:
        """The holder of the tables.  Raises ConfigError when there are none, or they are not this broker's."""
        if not self.database.exists():
            raise ConfigError(f"there are no tables {self.shown}: make them with raybroker dbmgr create tbl")
        with self._session() as connection:
            require_tables(self.database, connection, self.tables)
            return check_owner(self.database, connection, self.tables, self.cluster, self.broker)

    def create(self) -> None:
        """Make the tables, empty.  Raises IllegalStateError when they are there, or newer ones."""
        found = self.versions()
        if VERSION in found or (found and max(found) > NEWEST):
            raise IllegalStateError(
                f"there are tables {self.shown} already, of version {max(found)}; recreate them, or restore a backup"
            )
        with self.database.connected() as connection:
            create_tables(self.database, connection, self.tables, self.cluster, self.broker)

    def drop(self) -> None:
        """Remove the tables and all that is in them."""
        self.require()
        names = self._host_names()
        with self.database.connected() as connection:
            remove_tables(connection, self.tables)
        with self._session() as connection:
            for name in names:
                self._lock(connection, name).remove()

    def recreate(self) -> None:
        """Empty tables instead of those that there are, in one transaction."""
        self.require()
        with self.database.connected() as connection:
            self.replace(connection)

    def replace(self, connection: Any) -> int:
        """Empty tables instead of those that there are, in the caller's transaction; their ``next_host``."""
        used = connection.scalar(self.database.sql.select(self.tables.store.c.next_host))
        remove_tables(connection, self.tables)
        create_tables(self.database, connection, self.tables, self.cluster, self.broker, used)
        return int(used)

    def drop_older(self) -> list[int]:
        """Remove tables of older versions; which there were."""
        older = sorted(version for version in self.versions() if version < VERSION)
        if older:
            with self.database.connected() as connection:
                quote = connection.dialect.identifier_preparer.quote
                for version in older:
                    for part in PARTS:
                        name = table_name(part, self.tables.id, version)
                        connection.exec_driver_sql(f"DROP TABLE IF EXISTS {quote(name)}")
        return older

    def upgrade(self) -> bool:
        """Bring the tables to version NEWEST; false when they are of that version.  Hosts may have them open.

        For tables in which a release before has compressed blocks without that version, and where the user of brokers
        may not make tables.  Raises ConfigError for a version that no release has made.
        """
        found = self.versions()
        if found and max(found) < VERSION:
            raise ConfigError(
                f"the tables {self.shown} are of version {max(found)}, which this release cannot bring to version"
                f" {NEWEST}"
            )
        self.require()
        if COMPRESSED in found:
            return False
        try:
            with self.database.connected() as connection:
                mark_compressed(self.database, connection, self.tables)
        except (StoreFullError, UnreachableError):
            raise
        except StoreError as error:
            raise StoreError(
                f"the tables {self.shown} stay of version {max(found)}: version {NEWEST} takes a table"
                f" {self.tables.compressed.name}, which could not be made: {error}. Run it as a user who may make"
                " tables there: the address of the database names the user, or imq.persist.jdbc.postgresql.user does"
            ) from None
        return True

    def hosts(self) -> list[HostState]:
        """The hosts that have rows."""
        self.require()
        sql, tables = self.database.sql, self.tables
        rows, block = tables.host.c, tables.block.c
        found = []
        with self._session() as connection:
            statement = sql.select(rows.id, rows.name, rows.hosting, rows.owner).order_by(rows.id)
            for row in connection.execute(statement).all():
                mine = block.id.between(key(row.id, 0), key(row.id, NUMBER_MAX))
                count, nbytes = connection.execute(
                    sql.select(sql.func.count(), sql.func.coalesce(sql.func.sum(block.nbytes), 0)).where(mine)
                ).one()
                held = self._lock(connection, row.name).held()
                found.append(HostState(row.name, row.hosting, held, row.owner, count, int(nbytes)))
        return found

    def names(self) -> dict[str, str]:
        """Host → its hosting, of those that have rows."""
        rows = self.tables.host.c
        with self._session() as connection:
            found = connection.execute(self.database.sql.select(rows.name, rows.hosting).order_by(rows.id)).all()
        return {row.name: row.hosting for row in found}

    def size_bytes(self) -> int:
        """What the tables take, of SQLite the whole file."""
        file = self.database.address.file
        if file is not None:
            return size_bytes(file)
        statement = self.database.sql.text("SELECT coalesce(pg_total_relation_size(to_regclass(:name)), 0)")
        with self._session() as connection:
            quote = connection.dialect.identifier_preparer.quote
            names = [quote(table.name) for table in self.tables.metadata.sorted_tables]
            return sum(int(connection.scalar(statement, {"name": name})) for name in names)

    def check_closed(self) -> None:
        """Raises IllegalStateError while a process has the store of a host open."""
        held = [f"{host.name} (process {host.owner})" for host in self.hosts() if host.held]
        if held:
            raise IllegalStateError(f"the tables {self.shown} are open: {', '.join(held)}; stop the broker first")

    def reset_lock(self) -> list[str]:
        """Have the tables belong to nobody: sessions that hold their locks end, and whoever still has them open
        cannot commit any more.  The hosts that were open.

        Raises StoreError when a process of this machine has a file of SQLite open: its lock cannot be taken away.
        """
        self.require()
        sql, tables = self.database.sql, self.tables
        with self._session() as session:
            locks = [(name, self._lock(session, name)) for name in self._host_names()]
            held = [(name, lock) for name, lock in locks if lock.held()]
            if held and self.database.sqlite:
                raise StoreError(f"host {held[0][0]} of {self.shown} is open in a process that runs; stop it first")
            with self.database.connected() as connection:  # First: whoever loses its session would come back otherwise.
                connection.execute(sql.update(tables.store).values(holder=""))
                rows = tables.host
                connection.execute(sql.update(rows).values(incarnation=rows.c.incarnation + 1, owner=""))
            for _, lock in held:
                lock.break_()
        return [name for name, _ in held]

    def hand_over(
        self, holder: str, *, monotonic_ns: Callable[[], int], sleep: Callable[[float], None], patience_s: float
    ) -> list[str]:
        """Have the tables belong to ``holder`` alone; on return nobody else can commit, or has a lock.  The hosts that
        were open.  Raises TakenOverError when they belong to a later tenure.

        First the rows change, so that whoever loses its session does not come back; a commit that is under way is let
        end, or its session is ended.  Sessions that the database's user may not end are waited for, up to
        ``patience_s``.  Raises StoreError after that: the tables belong to ``holder`` then or not, and nothing else has
        changed.
        """
        self.require()
        deadline_ns = monotonic_ns() + round(patience_s * 1e9)
        why = ""
        with self._session() as session:
            locks = {name: self._lock(session, name) for name in self._host_names()}
            held = [name for name, lock in locks.items() if lock.held()]
            fenced = asked = False
            while True:
                try:
                    if not fenced:
                        self._fence(holder)
                        fenced = True
                except (UnreachableError, TakenOverError):
                    raise
                except StoreError as error:
                    why = str(error)
                left = [name for name, lock in locks.items() if not fenced or lock.held()]
                if not left:
                    return held
                if asked and monotonic_ns() > deadline_ns:  # Each session is ended once at least, however late it is.
                    break
                asked = True
                for name in left:
                    try:
                        locks[name].break_()
                    except StoreError as error:
                        why = str(error)
                sleep(HAND_OVER_LOOK_S)
        raise StoreError(
            f"{self.shown} could not be taken from who writes them in {patience_s:g} s: {', '.join(left)}"
            f" {'still open' if fenced else 'not to be changed'}{f'; {why}' if why else ''}"
        )

    def _fence(self, holder: str) -> None:
        """Give the tables to ``holder``, and every host another incarnation, which all commits ask for."""
        sql, tables = self.database.sql, self.tables
        with self.database.connected() as connection:
            if not self.database.sqlite:
                connection.exec_driver_sql(f"SET LOCAL lock_timeout = {FENCE_LOCK_MS}")
            connection.execute(sql.update(tables.store).values(id=1))  # Until the end nobody else changes it.
            before = str(connection.scalar(sql.select(tables.store.c.holder)))
            if tenure_of(before) > tenure_of(holder):
                raise TakenOverError(
                    f"broker {self.broker} was taken over: {self.shown} belong to its {before} already"
                )
            connection.execute(sql.update(tables.store).values(holder=holder))
            rows = tables.host
            connection.execute(sql.update(rows).values(incarnation=rows.c.incarnation + 1, owner=""))

    def remove_host(self, name: str) -> None:
        """Remove what a host has stored, which is over."""
        sql, tables = self.database.sql, self.tables
        rows = tables.host
        with self.database.connected() as connection:
            number = connection.scalar(sql.select(rows.c.id).where(rows.c.name == name))
            if number is None:
                return
            connection.execute(sql.delete(rows).where(rows.c.id == number))
            for table in (tables.log, tables.block):
                mine = table.c.id.between(key(number, 0), key(number, NUMBER_MAX))
                connection.execute(sql.delete(table).where(mine))
        with self._session() as connection:
            self._lock(connection, name).remove()

    def _host_names(self) -> list[str]:
        return list(self.names())

    def _lock(self, connection: Any, host: str) -> HostLock:
        return HostLock(self.database, connection, self.tables.id, host)
