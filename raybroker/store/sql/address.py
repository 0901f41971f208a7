"""The address of the database that has the messages of a broker, and the names of the broker's tables there, from the
properties."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from raybroker.model.errors import ConfigError
from raybroker.model.settings.settings import ConfigView

VENDOR: Final = "imq.persist.jdbc.dbVendor"
BROKER_ID: Final = "imq.brokerid"
URLS: Final = {vendor: f"imq.persist.jdbc.{vendor}.opendburl" for vendor in ("sqlite", "postgresql")}
CREATE_URL: Final = "imq.persist.jdbc.postgresql.createdburl"
DRIVERS: Final = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg"}
EXAMPLES: Final = {"sqlite": "sqlite:////var/lib/raybroker/store.db", "postgresql": "postgresql://user@host/database"}
FILE: Final = "store.db"
"""The file of SQLite in a broker's directory."""
ID_BYTES_MAX: Final = 45
"""PostgreSQL's names have at most 63 bytes, of which 18 are ours."""

_ID = re.compile(r"[A-Za-z0-9_]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Address:
    """A database.

    url         as SQLAlchemy writes it, without a password
    create_url  of another database of the same server; "" for none
    passfile    for libpq; "" for its own
    password    of the user; "" leaves it to libpq, which reads PGPASSWORD or a passfile
    embedded    a file of the broker's own, which is made when it is not there
    timeout_ms  longest time of a statement
    """

    vendor: str
    url: str
    create_url: str = ""
    passfile: str = ""
    embedded: bool = False
    timeout_ms: int = 10_000
    password: str = field(default="", repr=False)

    @property
    def file(self) -> Path | None:
        """The file of SQLite."""
        return Path(self.url.removeprefix("sqlite:///")) if self.vendor == "sqlite" else None

    @property
    def shown(self) -> str:
        """The address for people."""
        return self.url if self.vendor == "sqlite" else self.url.partition("?")[0]


def address_of(config: ConfigView, directory: Path, password: str | None = None) -> Address:
    """The database of a broker with that directory; ``password``: that of the user, where a file of passwords has it.
    Raises ConfigError, also where ``raybroker[sql]`` is missing."""
    vendor: str = config[VENDOR]
    given: str = config[URLS[vendor]].strip()
    for other, name in URLS.items():
        if other != vendor and config[name].strip() and not given:
            raise ConfigError(f"{name} is set, and {VENDOR} is {vendor}: set {VENDOR} = {other}, or leave out {name}")
    timeout_ms: int = config["raybroker.store.database_timeout_ms"]
    if vendor == "sqlite":
        file = _file(given) if given else directory / FILE
        return Address(vendor, f"sqlite:///{file}", embedded=not given, timeout_ms=timeout_ms)
    if not given:
        raise ConfigError(f"{URLS[vendor]} is not set: it says where the database is; such as {EXAMPLES[vendor]}")
    user, passfile = config["imq.persist.jdbc.postgresql.user"].strip(), config["imq.persist.jdbc.postgresql.passfile"]
    if password and passfile.strip():
        raise ConfigError(
            "imq.persist.jdbc.postgresql.password is in the passfile, and imq.persist.jdbc.postgresql.passfile names"
            " another file of passwords; leave one out"
        )
    create = config[CREATE_URL].strip()
    return Address(
        vendor,
        _server(URLS[vendor], given, user),
        _server(CREATE_URL, create, user) if create else "",
        str(Path(passfile.strip()).expanduser()) if passfile.strip() else "",
        timeout_ms=timeout_ms,
        password=password or "",
    )


def store_id(config: ConfigView, cluster: str, broker: str) -> str:
    """What the names of a broker's tables end in, without the S.  Raises ConfigError."""
    given: str = config[BROKER_ID].strip()
    if not _ID.fullmatch(given):
        raise ConfigError(f"{BROKER_ID} = {given!r} has other signs than letters, digits and '_'")
    found = f"{given or cluster}_{broker}"
    if len(found.encode()) > ID_BYTES_MAX:
        raise ConfigError(
            f"{BROKER_ID}: names of tables would end in {found!r}, which has {len(found.encode())} bytes; at most"
            f" {ID_BYTES_MAX} are allowed: set a short {BROKER_ID}"
        )
    return found


def shared_id(config: ConfigView, cluster: str) -> str:
    """What the names end in, without the C, of the tables that the brokers of a cluster have together."""
    return store_id(config, cluster, "")[:-1]


def sqlalchemy_of(name: str) -> Any:
    """The library; raises ConfigError where it is not installed."""
    try:
        import sqlalchemy
    except ImportError:
        raise ConfigError(f"{name}: a store in a database needs SQLAlchemy: pip install 'raybroker[sql]'") from None
    return sqlalchemy


def _file(given: str) -> Path:
    parsed = _parsed(URLS["sqlite"], given, "sqlite")
    if not parsed.database or ":memory:" in parsed.database or parsed.query or parsed.host:
        raise ConfigError(f"{URLS['sqlite']} has to name a file and nothing else; such as {EXAMPLES['sqlite']}")
    return Path(parsed.database).absolute()


def _server(name: str, given: str, user: str) -> str:
    parsed = _parsed(name, given, "postgresql")
    if parsed.password is not None or {"password", "passfile", "service"} & set(parsed.query):
        raise ConfigError(
            f"{name} has a password in it, which everybody would see; leave it out, and put it into the passfile"
            " (imq.persist.jdbc.postgresql.password)"
        )
    if not parsed.database:
        raise ConfigError(f"{name} names no database; such as {EXAMPLES['postgresql']}")
    if user and not parsed.username:
        parsed = parsed.set(username=user)
    return str(parsed.render_as_string(hide_password=True))


def _parsed(name: str, given: str, vendor: str) -> Any:
    sql = sqlalchemy_of(name)
    try:
        parsed = sql.make_url(given.removeprefix("jdbc:"))
    except (sql.exc.ArgumentError, ValueError):
        raise ConfigError(f"{name} is no address of a database; such as {EXAMPLES[vendor]}") from None
    if parsed.get_backend_name() != vendor:
        raise ConfigError(f"{name} is no address of {vendor}; such as {EXAMPLES[vendor]}")
    return parsed
