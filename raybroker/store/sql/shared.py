"""The brokers that share a database (``imq.cluster.ha``): a row for each, and the units of order that they have.

    raybroker1_broker_C<id>  one row a broker, see :class:`raybroker.model.shared_store.SharedRow`, and ``kept``: what
                             its catalogue has beside its hosts
    raybroker1_paths_C<id>   the map of the path service, one row a frame, in their order

Each call is a transaction on a connection of its own, and blocks.  What a broker writes, it writes for its tenure: when
the row has another one, nothing is written, and the call says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from raybroker.model.errors import ConfigError, StoreError
from raybroker.model.shared_store import SharedRow, SharedView, StoreState
from raybroker.store.sql.database import Database

VERSION: Final = 1
_CLOCKS: Final = {
    True: "SELECT CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)",
    False: "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)",
}
"""Milliseconds since 1970 by the database's clock, of SQLite and of PostgreSQL."""


class SharedBrokers:
    """The table of one cluster; ``id``: what the names of its tables end in.

    Every method raises StoreError when the database cannot be used, and ConfigError where there is no such table.
    """

    def __init__(self, database: Database, id: str) -> None:
        self.database = database
        sql = database.sql
        self._metadata = metadata = sql.MetaData()

        def number(name: str) -> Any:
            return sql.Column(name, sql.BigInteger, nullable=False)

        def text(name: str, **more: Any) -> Any:
            return sql.Column(name, sql.Text, nullable=False, **more)

        self._brokers = sql.Table(
            f"raybroker{VERSION}_broker_C{id}",
            metadata,
            text("name", primary_key=True),
            text("state"),
            *map(number, ("tenure", "beats", "beat_ms", "state_ms", "taken_ms", "takeovers")),
            *map(text, ("node", "taker", "reason", "kept")),
        )
        self._paths = sql.Table(
            f"raybroker{VERSION}_paths_C{id}",
            metadata,
            sql.Column(
                "number", sql.BigInteger().with_variant(sql.Integer(), "sqlite"), primary_key=True, autoincrement=False
            ),
            sql.Column("frame", sql.LargeBinary, nullable=False),
        )
        self.shown = f"{self._brokers.name} at {database.shown}"
        """The table for people, without a password."""

    # ---- the table itself

    def exists(self) -> bool:
        if not self.database.exists():
            return False
        with self.database.connected(snapshot=True) as connection:
            return bool(self.database.sql.inspect(connection).has_table(self._brokers.name))

    def create(self) -> bool:
        """Make the tables, empty; False when they are there."""
        if self.exists():
            return False
        with self.database.connected() as connection:
            self._metadata.create_all(connection)
        return True

    def drop(self) -> None:
        """Remove the tables."""
        with self.database.connected() as connection:
            self._metadata.drop_all(connection)

    # ---- brokers

    def view(self) -> SharedView:
        """All rows, by name."""
        with self._open(snapshot=True) as connection:
            return self._view(connection)

    def add(self, name: str, kept: str = "") -> bool:
        """A row for a broker that was never started; False when it has one."""
        with self._open() as connection:
            if self._found(connection, name) is not None:
                return False
            self._insert(connection, name, kept)
            return True

    def take(self, name: str, *, tenure: int, beats: int, node: str, taker: str = "") -> bool:
        """Give a broker's messages to the next tenure: at its start, or to its successor when ``taker`` takes it over.

        ``tenure`` and ``beats``: those of its row as the caller knows it, both 0 also where there is none; False when
        that is not so any more: somebody else was first, or it has shown a sign of life.
        """
        sql, rows = self.database.sql, self._brokers
        with self._open() as connection:
            if tenure == 0 and self._found(connection, name) is None:
                self._insert(connection, name, "")
            now_ms = self._now_ms(connection)
            values: dict[str, Any] = {
                "tenure": tenure + 1,
                "node": node,
                "reason": "",
                "state": str(StoreState.TAKEOVER_STARTED if taker else StoreState.UNKNOWN),
                "state_ms": now_ms,
                "beat_ms": now_ms,
                "beats": rows.c.beats + 1,
            }
            if taker:
                values |= {"taker": taker, "taken_ms": now_ms, "takeovers": rows.c.takeovers + 1}
            mine = (rows.c.name == name, rows.c.tenure == tenure, rows.c.beats == beats)
            return bool(connection.execute(sql.update(rows).where(*mine).values(values)).rowcount == 1)

    def beat(self, name: str, tenure: int) -> SharedView | None:
        """Give a sign of life, and see the others; None when another tenure has the messages."""
        rows = self._brokers.c
        with self._open() as connection:
            now_ms = self._now_ms(connection)
            if not self._update(connection, name, tenure, {"beats": rows.beats + 1, "beat_ms": now_ms}):
                return None
            return self._view(connection)

    def set_state(self, name: str, tenure: int, state: StoreState, reason: str = "") -> bool:
        """False when another tenure has the messages."""
        with self._open() as connection:
            values = {"state": str(state), "state_ms": self._now_ms(connection), "reason": reason}
            return self._update(connection, name, tenure, values)

    def kept(self, name: str) -> str:
        """What the broker has kept; "" for nothing."""
        with self._open(snapshot=True) as connection:
            found = connection.scalar(
                self.database.sql.select(self._brokers.c.kept).where(self._brokers.c.name == name)
            )
        return str(found or "")

    def keep(self, name: str, tenure: int, kept: str) -> bool:
        """False when another tenure has the messages."""
        with self._open() as connection:
            return self._update(connection, name, tenure, {"kept": kept})

    def remove(self, name: str) -> bool:
        """Remove the row of a broker that is over; False when it has none."""
        with self._open() as connection:
            statement = self.database.sql.delete(self._brokers).where(self._brokers.c.name == name)
            return bool(connection.execute(statement).rowcount)

    # ---- the map of units of order

    def frames(self) -> list[bytes]:
        """The frames of the path service's map, in their order."""
        with self._open(snapshot=True) as connection:
            statement = self.database.sql.select(self._paths.c.frame).order_by(self._paths.c.number)
            return [bytes(row.frame) for row in connection.execute(statement)]

    def write_frames(self, name: str, tenure: int, frames: Sequence[bytes], *, replace: bool) -> None:
        """Append to the map, or replace it; ``name``: the broker that keeps it.  Raises StoreError when another tenure
        of that has its messages, and writes nothing."""
        sql, paths = self.database.sql, self._paths
        with self._open() as connection:
            if not self._update(connection, name, tenure, {"tenure": tenure}):
                raise StoreError(f"broker {name} was taken over: its tenure {tenure} is over")
            if replace:
                connection.execute(sql.delete(paths))
            last = connection.scalar(sql.select(sql.func.max(paths.c.number))) or 0
            rows = [{"number": last + n, "frame": frame} for n, frame in enumerate(frames, 1)]
            if rows:
                connection.execute(sql.insert(paths), rows)

    # ---- inside

    @contextmanager
    def _open(self, *, snapshot: bool = False) -> Iterator[Any]:
        """One transaction.  Raises ConfigError without the table."""
        if not self.database.exists():
            raise ConfigError(self._missing())
        try:
            with self.database.connected(snapshot=snapshot) as connection:
                yield connection
        except StoreError:
            if self._is_missing():
                raise ConfigError(self._missing()) from None
            raise

    def _is_missing(self) -> bool:
        try:
            return not self.exists()
        except StoreError:
            return False

    def _missing(self) -> str:
        return (
            f"there is no table {self.shown}, in which brokers of imq.cluster.ha see each other: make it with raybroker"
            " dbmgr create tbl, or for tables with messages that are there already with raybroker dbmgr upgrade hastore"
        )

    def _now_ms(self, connection: Any) -> int:
        return int(connection.exec_driver_sql(_CLOCKS[self.database.sqlite]).scalar())

    def _found(self, connection: Any, name: str) -> Any:
        return connection.scalar(self.database.sql.select(self._brokers.c.name).where(self._brokers.c.name == name))

    def _insert(self, connection: Any, name: str, kept: str) -> None:
        fields = SharedRow(name)
        values = {key: getattr(fields, key) for key in SharedRow.__slots__}
        connection.execute(
            self.database.sql.insert(self._brokers).values(
                **{**values, "state": str(fields.state), "state_ms": self._now_ms(connection), "kept": kept}
            )
        )

    def _update(self, connection: Any, name: str, tenure: int, values: dict[str, Any]) -> bool:
        rows = self._brokers
        statement = self.database.sql.update(rows).where(rows.c.name == name, rows.c.tenure == tenure).values(values)
        return bool(connection.execute(statement).rowcount == 1)

    def _view(self, connection: Any) -> SharedView:
        rows = self._brokers.c
        columns = [getattr(rows, key) for key in SharedRow.__slots__]
        found = connection.execute(self.database.sql.select(*columns).order_by(rows.name)).all()
        return SharedView(
            self._now_ms(connection),
            tuple(SharedRow(**{**row._asdict(), "state": StoreState(row.state)}) for row in found),
        )


class SharedFrames:
    """The log of the path service's map in the table, in place of a file: see ``raybroker.store.record.RecordFile``."""

    def __init__(self, brokers: SharedBrokers, keeper: str, tenure: int) -> None:
        self._brokers = brokers
        self._keeper = keeper
        self._tenure = tenure

    def open(self) -> list[bytes]:
        return self._brokers.frames()

    def append(self, frames: Sequence[bytes]) -> None:
        self._brokers.write_frames(self._keeper, self._tenure, frames, replace=False)

    def replace(self, frames: Sequence[bytes]) -> None:
        self._brokers.write_frames(self._keeper, self._tenure, frames, replace=True)

    def close(self) -> None:
        """Nothing is open between two calls."""
