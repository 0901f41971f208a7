"""A table of an SQL database as an object store: a row for each object, in SQLite or PostgreSQL.

A change says what it replaces, so that of two at once the second one changes nothing and is made again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from raybroker.model.errors import ConfigError
from raybroker.objects.addresses import OBJECTS_MAX, PASSWORD_IN_URL, URL, StoreAddress
from raybroker.objects.administered import NAME_CHARS_MAX

TABLE: Final = "raybroker_objects"
TIMEOUT_S: Final = 10


class DatabaseStore:
    """See :class:`raybroker.objects.addresses.ObjectStore`. The table is made by the first object."""

    def __init__(self, address: StoreAddress) -> None:
        try:
            import sqlalchemy as sql
        except ImportError:
            raise ConfigError("an object store in a database needs SQLAlchemy: pip install 'raybroker[sql]'") from None
        self._sql = sql
        try:
            url = sql.make_url(address.url)
        except (sql.exc.ArgumentError, ValueError):
            raise ConfigError(f"{URL}: it is no address of a database, such as sqlite:////var/lib/objects.db") from None
        if url.password is not None or {"password", "passfile", "service"} & set(url.query):
            raise ConfigError(PASSWORD_IN_URL)
        self._file: Path | None = None
        if url.get_backend_name() == "sqlite":
            if not url.database or ":memory:" in url.database or url.query or url.host:
                raise ConfigError(f"{URL} has to name a file and nothing else; such as sqlite:////var/lib/objects.db")
            self._file = Path(url.database).absolute()
            url = url.set(database=str(self._file))
            options: dict[str, Any] = {"timeout": TIMEOUT_S}
        else:
            url = url.set(
                drivername="postgresql+psycopg",
                username=address.principal or url.username,
                password=address.password or None,
            )
            options = {"connect_timeout": TIMEOUT_S, "options": f"-c statement_timeout={TIMEOUT_S * 1000}"}
        shown = sql.URL.create(url.get_backend_name(), url.username, None, url.host, url.port, url.database)
        self.shown = shown.render_as_string()
        self._engine = sql.create_engine(url, poolclass=sql.pool.NullPool, connect_args=options, hide_parameters=True)
        self._table = sql.Table(
            TABLE,
            sql.MetaData(),
            sql.Column("name", sql.String(NAME_CHARS_MAX), primary_key=True),
            sql.Column("object", sql.Text, nullable=False),
        )

    def __enter__(self) -> DatabaseStore:
        return self

    def __exit__(self, *_: object) -> None:
        self._engine.dispose()

    def canonical(self, name: str) -> str:
        return name

    def get(self, name: str) -> str | None:
        table = self._table
        found = self._read(self._sql.select(table.c.object).where(table.c.name == name))
        return str(found[0][0]) if found else None

    def all(self) -> Iterator[tuple[str, str]]:
        found = self._read(self._sql.select(self._table).limit(OBJECTS_MAX + 1))
        if len(found) > OBJECTS_MAX:
            raise ConfigError(f"object store {self.shown} has more than {OBJECTS_MAX} objects")
        for name, text in found:
            yield str(name), str(text)

    def exchange(self, name: str, old: str | None, new: str | None) -> bool:
        sql, table = self._sql, self._table
        if old is None and new is None:
            return self.get(name) is None
        here = table.c.name == name
        statement: Any
        if old is None:
            statement = table.insert().values(name=name, object=new)
        elif new is None:
            statement = table.delete().where(here, table.c.object == old)
        else:
            statement = table.update().where(here, table.c.object == old).values(object=new)
        self._make()
        try:
            with self._engine.begin() as connection:
                done = connection.execute(statement)
                return old is None or int(done.rowcount) == 1  # Drivers do not count what is inserted.
        except sql.exc.IntegrityError:
            return False  # Somebody else has put one there.
        except sql.exc.SQLAlchemyError as error:
            raise self._failed(error) from None

    def _make(self) -> None:
        """Make the table, if it is not there."""
        sql = self._sql
        try:
            if self._file is not None and not self._file.exists():
                os.close(os.open(self._file, os.O_WRONLY | os.O_CREAT, 0o600))
            if not self._is_made():
                self._table.metadata.create_all(self._engine)
        except OSError as error:
            raise ConfigError(f"object store {self.shown} cannot be made: {error.strerror}") from None
        except sql.exc.SQLAlchemyError as error:
            if not self._is_made():
                raise self._failed(error) from None

    def _is_made(self) -> bool:
        return bool(self._sql.inspect(self._engine).has_table(TABLE))

    def _read(self, statement: Any) -> list[Any]:
        if self._file is not None and not self._file.exists():
            return []
        try:
            if not self._is_made():
                return []
            with self._engine.connect() as connection:
                return list(connection.execute(statement))
        except self._sql.exc.SQLAlchemyError as error:
            raise self._failed(error) from None

    def _failed(self, error: Exception) -> ConfigError:
        why = str(getattr(error, "orig", None) or error).strip().splitlines()
        return ConfigError(f"object store {self.shown}: {why[0] if why else type(error).__name__:.200}")
