"""The owner of tables, and the row of a host: what is checked before a store is opened.

Tables belong to one broker of one cluster.  The first of its hosts that opens them writes the ``holder`` down, which
is different for each installation of that broker (it comes from the broker's token): a second installation under the
same name is refused, until ``raybroker dbmgr reset lck`` says that the first is gone.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from raybroker.model.errors import ConfigError, StoreDamagedError, StoreError
from raybroker.store.sql.database import Database
from raybroker.store.sql.schema import COMPRESSED, NEWEST, VERSION, SqlTables, version_of

TENURE: Final = "tenure "
"""What the holder begins with of tables that another broker may take over; the number of the tenure follows."""


class TakenOverError(StoreError):
    """The tables belong to another tenure of the broker, for good."""

    code = StoreError.code


def tenure_of(holder: str) -> int:
    """The number of a holder's tenure; 0 for one that is none."""
    return int(holder.removeprefix(TENURE)) if holder.startswith(TENURE) else 0


class StoreOwner(NamedTuple):
    """Who opens a store: ``holder`` is the installation of the broker, "" for any, or its tenure; ``process`` is for
    people."""

    cluster: str
    broker: str
    holder: str
    process: str


class HostRow(NamedTuple):
    """The row of a host, see ``schema``."""

    id: int
    incarnation: int
    batch: int
    blocks: int
    checkpoint: int
    chain: int
    owner: str


def versions(database: Database, connection: Any, tables: SqlTables) -> set[int]:
    """The versions of which there are tables.  Raises StoreError."""
    with database.errors():
        names = database.sql.inspect(connection).get_table_names()
        return {found for name in names if (found := version_of(name, tables.id)) is not None}


def require_tables(database: Database, connection: Any, tables: SqlTables) -> None:
    """Raises ConfigError when there are no tables, or of another version; StoreError."""
    found, shown = versions(database, connection, tables), f"{tables.names} at {database.shown}"
    if found and max(found) > NEWEST:
        raise ConfigError(
            f"the tables {shown} are of version {max(found)}, and this release reads versions {VERSION} to {NEWEST}:"
            " use the release that made them"
        )
    if VERSION in found:
        return
    if found and max(found) < VERSION:
        raise ConfigError(f"the tables {shown} are of version {max(found)}: raybroker dbmgr upgrade tbl")
    raise ConfigError(f"there are no tables {shown}: make them with raybroker dbmgr create tbl")


def create_tables(
    database: Database, connection: Any, tables: SqlTables, cluster: str, broker: str, next_host: int = 1
) -> None:
    """Make the tables, empty, in the caller's transaction.  ``next_host``: after all that the tables before had, so
    that what one of those still writes meets no row."""
    tables.metadata.create_all(connection)
    if not database.sqlite:  # Compressing bodies costs more than it saves; they may be compressed already.
        quoted = connection.dialect.identifier_preparer.format_table(tables.block)
        connection.exec_driver_sql(f"ALTER TABLE {quoted} ALTER COLUMN payload SET STORAGE EXTERNAL")
    connection.execute(
        database.sql.insert(tables.store).values(id=1, cluster=cluster, broker=broker, holder="", next_host=next_host)
    )


def remove_tables(connection: Any, tables: SqlTables) -> None:
    """Remove the tables with all rows, in the caller's transaction."""
    tables.metadata.drop_all(connection)
    tables.compressed.drop(connection, checkfirst=True)


def mark_compressed(database: Database, connection: Any, tables: SqlTables) -> None:
    """Make the version COMPRESSED, unless it is, in the caller's transaction: the one with the first such block."""
    connection.execute(database.sql.update(tables.store).values(id=1))  # Hosts take turns.
    if COMPRESSED not in versions(database, connection, tables):
        tables.compressed.create(connection)


def check_owner(database: Database, connection: Any, tables: SqlTables, cluster: str, broker: str) -> str:
    """The holder.  Raises ConfigError for the tables of another broker, StoreDamagedError, StoreError."""
    with database.errors():
        rows = connection.execute(
            database.sql.select(tables.store.c.cluster, tables.store.c.broker, tables.store.c.holder)
        ).all()
    if len(rows) != 1:
        raise StoreDamagedError(f"{tables.store.name}: {len(rows)} rows say whose tables these are; there is one")
    if (rows[0].cluster, rows[0].broker) != (cluster, broker):
        raise ConfigError(
            f"the tables {tables.names} at {database.shown} belong to broker {rows[0].broker!r} of cluster"
            f" {rows[0].cluster!r}, and this is broker {broker!r} of cluster {cluster!r}: set another imq.brokerid"
        )
    return str(rows[0].holder)


def register(
    database: Database, connection: Any, tables: SqlTables, owner: StoreOwner, host: str, hosting: str
) -> HostRow:
    """The row of a host that opens its store now, with its new incarnation; made when there is none.

    Part of the caller's transaction.  Raises ConfigError for tables of another broker, StoreError for another holder,
    TakenOverError for another tenure.
    """
    sql, rows = database.sql, tables.host
    connection.execute(sql.update(tables.store).values(id=1))  # Hosts take turns.
    holder = check_owner(database, connection, tables, owner.cluster, owner.broker)
    if owner.holder and holder != owner.holder:
        if holder:
            _refuse_tenure(f"the tables {tables.names} at {database.shown}", owner, holder)
            raise StoreError(
                f"the tables {tables.names} at {database.shown} are in use by another installation of broker"
                f" {owner.broker} of cluster {owner.cluster}: two brokers never write the same tables. When that one is"
                " gone for good: raybroker dbmgr reset lck"
            )
        connection.execute(sql.update(tables.store).values(holder=owner.holder))
    found = connection.execute(sql.select(rows).where(rows.c.name == host)).one_or_none()
    if found is None:
        number = connection.scalar(sql.select(tables.store.c.next_host))
        connection.execute(sql.update(tables.store).values(next_host=number + 1))
        connection.execute(
            sql.insert(rows).values(
                id=number,
                name=host,
                hosting=hosting,
                incarnation=1,
                batch=0,
                blocks=0,
                checkpoint=0,
                chain=0,
                owner=owner.process,
            )
        )
        return HostRow(number, 1, 0, 0, 0, 0, owner.process)
    connection.execute(
        sql.update(rows).where(rows.c.id == found.id).values(incarnation=found.incarnation + 1, owner=owner.process)
    )
    return HostRow(
        found.id, found.incarnation + 1, found.batch, found.blocks, found.checkpoint, found.chain, owner.process
    )


def _refuse_tenure(shown: str, owner: StoreOwner, holder: str) -> None:
    if not holder.startswith(TENURE):
        return
    if owner.holder.startswith(TENURE):
        raise TakenOverError(
            f"broker {owner.broker} was taken over: {shown} belong to its {holder}, and this is {owner.holder}"
        )
    raise StoreError(
        f"{shown} belong to {holder} of a broker with imq.cluster.ha = true, which another one may take over: set that"
        " here as well, or when no broker is to take over another's messages any more: raybroker dbmgr reset lck"
    )
