"""Administration of the tables that have the messages of brokers (``imq.persist.store = sql``): ``raybroker dbmgr``.

Also what brokers themselves ask of the tables: whether they are there before a broker is started, which hosts are in
them, and that a host which is over is removed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from raybroker.broker.cluster.database_passwords import store_password
from raybroker.config import Config, store_directory
from raybroker.config.brokers import LIST, TABLE, BrokerPlan, plan_of
from raybroker.model.errors import BrokerError, ConfigError, IllegalStateError, StoreError
from raybroker.model.naming.names import check_broker_name
from raybroker.model.settings.settings import ConfigView
from raybroker.model.shared_store import StoreState
from raybroker.store.catalogue import Catalogue
from raybroker.store.sql import backup
from raybroker.store.sql.address import address_of, shared_id, store_id
from raybroker.store.sql.administration import StoreTables
from raybroker.store.sql.database import Database
from raybroker.store.sql.opening import is_sql
from raybroker.store.sql.schema import NEWEST, VERSION
from raybroker.store.sql.shared import SharedBrokers

HA: Final = "imq.cluster.ha"
ADMIN_TIMEOUT_MS = 600_000
"""Longest time of a statement that an administrator waits for: all rows are counted, copied or removed in one."""


class StoreManager:
    """The tables of the brokers of a cluster, or of ``broker`` alone.

    Every method raises ConfigError for tables that are another broker's or of another version, IllegalStateError while
    a process has them open, unless ``force``; StoreError when the database cannot be used.  The tables of one broker
    are changed whole or not at all.
    """

    def __init__(self, config: Config, cluster: str, broker: str | None = None) -> None:
        if not is_sql(config):
            raise ConfigError(
                f"imq.persist.store is {config['imq.persist.store']} ({config.origin('imq.persist.store')}): messages"
                " are not in a database; set it to sql"
            )
        self.instance = cluster
        plan = plan_of(config)
        names = plan.names
        if broker is not None:
            if config[LIST].strip() and broker not in names:
                raise ConfigError(f"broker {broker!r} is none of the brokers {', '.join(names)}")
            names = (check_broker_name(broker),)
        self._all = [_tables(config, cluster, name, ADMIN_TIMEOUT_MS) for name in names]
        self._config = config
        self._beside = store_directory(config, cluster, names[0]).parent
        self._shared: SharedBrokers | None = None
        if config[HA]:
            check_shared(config, plan)
            self._shared = shared_brokers(config, self._beside, cluster)
        self._whole = broker is None

    @property
    def shown(self) -> list[str]:
        """The tables of each broker for people, without a password."""
        return [tables.shown for tables in self._all]

    def create(self, *, database: bool) -> list[str]:
        """Make the tables, and with ``database`` first that; the tables that were made.

        Raises IllegalStateError when those of the first broker are there.
        """
        made = []
        for tables in self._all:
            with _named(tables):
                if database:
                    tables.database.create()
                try:
                    tables.create()
                except IllegalStateError:
                    if len(self._all) == 1:
                        raise
                    continue
            made.append(tables.shown)
        if self._shared is not None and self._shared.create():
            made.append(self._shared.shown)
        if not made:
            raise IllegalStateError("all of the tables are there already; recreate them, or restore backups")
        return made

    def delete(self, *, force: bool = False) -> None:
        """Remove the tables with all messages in them."""
        self._check_closed(force)
        for tables in self._all:
            with _named(tables):
                tables.drop()
        if self._shared is not None and self._whole and self._shared.exists():
            self._shared.drop()

    def delete_older(self) -> list[str]:
        """Remove tables of older versions; which there were."""
        return [f"version {version} of {tables.shown}" for tables in self._all for version in tables.drop_older()]

    def recreate(self, *, force: bool = False) -> None:
        """Empty tables in place of those that there are."""
        self._check_closed(force)
        for tables in self._all:
            with _named(tables):
                tables.recreate()

    def upgrade(self) -> list[str]:
        """Bring the tables to the newest version; those that were not."""
        return [f"{tables.shown} to version {NEWEST}" for tables in self._all if tables.upgrade()]

    def query(self) -> list[dict[str, Any]]:
        """A row a broker: version, id, where, user, whether the tables are there and what is in them, and how the
        broker is in the table that brokers share."""
        view = self._shared.view() if self._shared is not None and self._shared.exists() else None
        found = []
        for tables in self._all:
            row = view.row_of(tables.broker) if view is not None else None
            shared = {} if row is None else {"state": str(row.state), "tenure": row.tenure, "node": row.node}
            found.append({**_described(tables), **shared})
        return found

    def share(self) -> list[str]:
        """Make the store of brokers that had each its own one that others may take over; what was done.

        Raises ConfigError where the configuration does not have that, or tables are missing.
        """
        shared = self._require_shared("upgrade hastore")
        self._check_closed(force=False)
        done = [f"made table {shared.shown}"] if shared.create() else []
        for tables in self._all:
            kept = Catalogue.load(store_directory(self._config, self.instance, tables.broker))
            if shared.add(tables.broker, "" if kept is None else kept.kept()):
                done.append(f"broker {tables.broker}: others may take {tables.shown} over from its next start on")
        return done

    def remove_broker(self, *, force: bool = False) -> int:
        """Remove one broker that is over from the shared store, with its tables; how many blocks of messages these had.

        Raises IllegalStateError for one that lives, and while it has messages, unless ``force``.
        """
        tables = self._only("remove bkr")
        shared = self._require_shared("remove bkr")
        view = shared.view()
        row = view.row_of(tables.broker)
        if row is None:
            known = ", ".join(row.name for row in view.rows) or "none"
            raise ConfigError(f"the shared store {shared.shown} has no broker {tables.broker!r}; it has {known}")
        silent_ms, config = view.now_ms - row.beat_ms, self._config
        alive_ms = config["imq.cluster.monitor.interval"] * config["imq.cluster.monitor.threshold"] * 1000
        if row.state is not StoreState.BROKER_DOWN and silent_ms < alive_ms:
            raise IllegalStateError(
                f"broker {tables.broker} gave a sign of life {max(silent_ms, 0)} ms ago, and is {row.state}: stop it"
                f" first (raybroker shutdown bkr -b {tables.broker})"
            )
        blocks = 0
        if VERSION in tables.versions():
            tables.check_closed()
            blocks = sum(host.blocks for host in tables.hosts())
            if blocks and not force:
                raise IllegalStateError(
                    f"broker {tables.broker} has {blocks} blocks of messages in {tables.shown}: have them consumed, or"
                    f" moved, first: raybroker takeover bkr -n {tables.broker} starts it. With --force they are lost"
                )
            tables.drop()
        shared.remove(tables.broker)
        return blocks

    def _require_shared(self, verb: str) -> SharedBrokers:
        if self._shared is None:
            raise ConfigError(
                f"dbmgr {verb}: {HA} is false ({self._config.origin(HA)}): each broker has a store of its own, which"
                " none takes over; set it to true in the configuration of the brokers first"
            )
        return self._shared

    def backup(self, file: Path) -> tuple[int, int]:
        """Write the tables of one broker to a file; (hosts, blocks).  Brokers may run meanwhile."""
        tables = self._only("backup")
        part = file.with_name(file.name + ".part")
        try:
            with part.open("wb") as out:
                counts = backup.save(tables, out)
            part.replace(file)
        except OSError as error:
            raise StoreError(f"{file} cannot be written: {error}") from None
        finally:
            part.unlink(missing_ok=True)
        return counts

    def restore(self, file: Path, *, force: bool = False) -> tuple[int, int]:
        """Put a backup in place of the tables of one broker; (hosts, blocks)."""
        tables = self._only("restore")
        if tables.versions():
            self._check_closed(force)
        return backup.load(tables, file)

    def reset_lock(self) -> list[str]:
        """Have the tables belong to nobody; the hosts that had them open and cannot write any more. Raises ConfigError
        where brokers take over from each other, which does so by itself."""
        if self._shared is not None:
            raise ConfigError(
                f"dbmgr reset lck: with {HA} = true whoever is started, or takes over, has the tables from then on:"
                " raybroker up, or raybroker takeover bkr -n BROKER"
            )
        return [host for tables in self._all for host in tables.reset_lock()]

    def _check_closed(self, force: bool) -> None:
        for tables in self._all:
            tables.require()
            if not force:
                tables.check_closed()

    def _only(self, verb: str) -> StoreTables:
        if len(self._all) > 1:
            names = ", ".join(tables.broker for tables in self._all)
            raise ConfigError(f"{verb}: one file has the tables of one broker; say which of {names} by -b")
        return self._all[0]


def check_tables(plan: BrokerPlan, config: Config, cluster: str) -> None:
    """Raises ConfigError when brokers are to keep messages in tables that are not there, or are another broker's: they
    would not start.  A database that cannot be reached now is waited for; a file of a broker's own is made there."""
    if not is_sql(config):
        return
    for broker in plan.names:
        tables = _tables(config, cluster, broker)
        if tables.database.address.embedded:
            continue
        with suppress(StoreError):
            tables.require()


def hosts_of(config: ConfigView, directory: Path, cluster: str, broker: str, holder: str) -> dict[str, str]:
    """Host → its hosting, of those that the tables of a broker without a catalogue have; none where they belong to
    another holder, or there is nothing."""
    if not is_sql(config):
        return {}
    tables = tables_of_broker(config, directory, cluster, broker)
    if VERSION not in tables.versions() or tables.require() not in ("", holder):
        return {}
    return tables.names()


def remove_host(config: ConfigView, directory: Path, cluster: str, broker: str, host: str) -> None:
    """Remove what a host of a broker has stored in a database.  Raises StoreError."""
    if is_sql(config):
        tables_of_broker(config, directory, cluster, broker).remove_host(host)


def tables_of_broker(config: ConfigView, directory: Path, cluster: str, broker: str) -> StoreTables:
    """The tables of a broker with that directory.  Raises ConfigError."""
    return StoreTables(_database(config, directory), store_id(config, cluster, broker), cluster, broker)


def shared_brokers(config: ConfigView, beside: Path, cluster: str) -> SharedBrokers:
    """The table; ``beside``: the directory of the cluster's stores.  Raises ConfigError."""
    address = address_of(config, beside / "any", store_password(config, beside))
    return SharedBrokers(Database(address), shared_id(config, cluster))


def check_shared(config: ConfigView, plan: BrokerPlan) -> None:
    """Raises ConfigError where ``imq.cluster.ha`` asks for what cannot be with the other properties."""
    if not config[HA]:
        return
    if not is_sql(config) or config["imq.persist.jdbc.dbVendor"] != "postgresql":
        found = config["imq.persist.store"]
        raise ConfigError(
            f"{HA} = true needs messages where every broker reaches them, and imq.persist.store is {found}"
            + (f" with imq.persist.jdbc.dbVendor {config['imq.persist.jdbc.dbVendor']}" if is_sql(config) else "")
            + ": set imq.persist.store = sql and imq.persist.jdbc.dbVendor = postgresql, or leave it out"
        )
    if not plan.table:
        raise ConfigError(
            f"{HA} = true needs the configuration change record where no lost broker takes it along: set"
            f" imq.cluster.nomasterbroker = true and {TABLE}, or leave it out"
        )


def _database(config: ConfigView, directory: Path) -> Database:
    return Database(address_of(config, directory, store_password(config, directory.parent)))


def _tables(config: Config, cluster: str, broker: str, timeout_ms: int = 0) -> StoreTables:
    directory = store_directory(config, cluster, broker)
    found = address_of(config, directory, store_password(config, directory.parent))
    address = replace(found, timeout_ms=timeout_ms or found.timeout_ms)
    return StoreTables(Database(address), store_id(config, cluster, broker), cluster, broker)


def _described(tables: StoreTables) -> dict[str, Any]:
    address = tables.database.address
    row: dict[str, Any] = {
        "broker": tables.broker,
        "cluster": tables.cluster,
        "id": tables.tables.id,
        "vendor": address.vendor,
        "url": address.shown,
        "user": tables.database.user,
        "version": VERSION,
        "tables": "missing",
    }
    found = tables.versions()
    known = {version for version in found if VERSION <= version <= NEWEST}
    others = sorted(found - known)
    if others:
        row["other_versions"] = ", ".join(map(str, others))
    if VERSION not in found or others[-1:] > [NEWEST]:
        return row
    row["version"] = max(known)
    hosts = tables.hosts()
    return {
        **row,
        "tables": "there",
        "bytes": tables.size_bytes(),
        "blocks": sum(host.blocks for host in hosts),
        "hosts": [host._asdict() for host in hosts],
    }


@contextmanager
def _named(tables: StoreTables) -> Iterator[None]:
    """Errors name the tables."""
    try:
        yield
    except BrokerError as error:
        if tables.shown in str(error):
            raise
        raise type(error)(f"{tables.shown}: {error}") from None
