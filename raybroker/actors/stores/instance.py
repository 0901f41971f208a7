"""The stores of an instance on this machine, while its brokers are down: emptying them, and removing the instance.

A store that a process has open is refused before anything is changed. What a cluster keeps elsewhere, on the disks of
other nodes or in a database, is not touched.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from raybroker.actors.stores.store_tables import HA
from raybroker.client.loopback import loopback
from raybroker.config import Config, store_directory
from raybroker.config.brokers import LIST, plan_of
from raybroker.model.errors import ConfigError, IllegalStateError, StoreError
from raybroker.model.naming.names import DEAD_MESSAGE_QUEUE
from raybroker.model.settings.setting_store import SQL_STORES
from raybroker.store.catalogue import Catalogue
from raybroker.store.fileio import FileIO
from raybroker.store.journal.lockfile import LockFile

RESETS: Final = ("store", "messages", "durables", "props")
"""What of an instance can be reset at its start."""
HOSTS: Final = "hosts"
KEPT: Final = frozenset({"catalogue.json", "owner", "log", "audit"})
"""Of a broker's directory, what is no store."""
_QUIET: Final = {
    "imq.service.activelist": "",
    "imq.audit.enabled": False,
    "imq.metrics.topic.enabled": False,
    "imq.cluster.brokerlist": "",
}
"""Properties of the broker inside of this process that opens a host's store for a moment."""


class Done(NamedTuple):
    """What was done to a broker's stores; ``left``: what stays, and has to be said."""

    broker: str
    what: str
    left: tuple[str, ...] = ()


class InstanceStores:
    """One cluster's brokers that have a directory on this machine; ``broker``: that one alone.

    Raises ConfigError for a broker that is not there. Every method raises IllegalStateError while a process has one of
    the stores open, and then has changed nothing.
    """

    def __init__(self, config: Config, cluster: str, broker: str | None = None) -> None:
        self._config = config
        self.folder = store_directory(config, cluster, "b").parent
        there = sorted(path.name for path in self.folder.glob("*") if (path / "catalogue.json").is_file())
        listed = plan_of(config).names if config[LIST].strip() else ()
        if broker is not None and broker not in there and broker not in listed:
            raise ConfigError(f"there is no store of broker {broker!r} in {self.folder}; there are {_all(there)}")
        self.brokers = [name for name in there if broker in (None, name)]
        self.absent = [name for name in listed if name not in there and broker in (None, name)]
        self._whole = broker is None

    def check_whole(self) -> None:
        """Raises IllegalStateError where some brokers have their stores here and some elsewhere."""
        if self.brokers and self.absent:
            raise IllegalStateError(
                f"of the brokers of this cluster {_all(self.absent)} have no store in {self.folder}: do it on the node"
                f" of each with --broker NAME, here with {_all(self.brokers)}"
            )

    def reset(self, what: str) -> list[Done]:
        """Carry out one of RESETS but durables, which are ended once brokers run."""
        if self._config[HA]:
            raise ConfigError(
                f"reset {what}: with {HA} = true what brokers keep is in the database that they share; raybroker dbmgr"
                " recreate tbl empties its tables, and raybroker update bkr changes properties while brokers run"
            )
        with self._closed():
            if what == "props":
                return [self._reset_properties(name) for name in self.brokers]
            if what == "messages":
                if self._config["imq.persist.store"] in SQL_STORES:
                    raise ConfigError(
                        "the messages are in a database (imq.persist.store): raybroker dbmgr recreate tbl empties it"
                    )
            else:
                return [self._reset_store(name) for name in self.brokers]
        return [self._reset_messages(name) for name in self.brokers]

    def remove(self) -> list[str]:
        """Remove the directories of its brokers, and with the last of them that of the instance; what they were."""
        with self._closed():
            pass
        gone = [self.folder] if self._whole else [self.folder / name for name in self.brokers]
        gone = [path for path in gone if path.is_dir()]
        for path in gone:
            _remove(path)
        return [str(path) for path in gone]

    def outside(self) -> list[str]:
        """What the configuration has in places of its own, which stays."""
        named = ("raybroker.security.dir", "raybroker.audit.dir", "imq.log.file.dirpath")
        found = [f"{name} = {self._config[name]}" for name in named if self._config[name]]
        if self._config["imq.persist.store"] in SQL_STORES:
            found.append("tables in a database: raybroker dbmgr delete tbl")
        return found

    # ---- one broker

    def _reset_properties(self, broker: str) -> Done:
        directory = self.folder / broker
        catalogue = self._catalogue(directory)
        changed, catalogue.properties = sorted(catalogue.properties), {}
        catalogue.save(directory)
        return Done(broker, f"{_all(changed)} as the configuration says" if changed else "nothing was changed")

    def _reset_store(self, broker: str) -> Done:
        """The catalogue keeps what is no store: the cluster's token, numbers that are given, and changed properties."""
        directory = self.folder / broker
        catalogue = self._catalogue(directory)
        count = len(catalogue.hosts)
        catalogue.hosts, catalogue.templates, catalogue.quotas, catalogue.policies = {}, {}, {}, {}
        catalogue.save(directory)
        for path in sorted(directory.iterdir()):
            if path.name not in KEPT and (self._whole or path.name == HOSTS):
                _remove(path)
        return Done(broker, f"emptied, with {count} hosts")

    def _reset_messages(self, broker: str) -> Done:
        count, left = 0, list[str]()
        for host in _hosts(self.folder / broker):
            properties = {name: value for name, value, _ in self._config.given if "." in name} | _QUIET
            with loopback(host, properties=properties) as connection:
                admin = connection.admin()
                rows = admin.list_destinations(temporary=True)
                for row in sorted(rows, key=lambda row: row["name"] == DEAD_MESSAGE_QUEUE):
                    count += row["messages"]
                    admin.purge_destination(row["type"], row["name"])
                left += [f"transaction {row['id']} with its messages" for row in admin.list_transactions()]
        return Done(broker, f"{count} messages", tuple(left))

    def _catalogue(self, directory: Path) -> Catalogue:
        found = Catalogue.load(directory)
        if found is None:
            raise StoreError(f"{directory} has no catalogue any more")
        return found

    @contextmanager
    def _closed(self) -> Iterator[None]:
        """The stores, which nobody opens meanwhile."""
        io = FileIO()
        with ExitStack() as locks:
            for host in (host for name in self.brokers for host in _hosts(self.folder / name)):
                try:
                    locks.callback(LockFile(io, host).release)
                except StoreError as error:
                    raise IllegalStateError(f"{error}; stop the brokers first: raybroker down") from None
            yield


def _hosts(directory: Path) -> list[Path]:
    return sorted(path for path in (directory / HOSTS).glob("*") if path.is_dir())


def _remove(path: Path) -> None:
    """Raises StoreError where something stays. A directory is out of the way at once, under another name; of a link
    what it leads to goes as well."""
    try:
        if path.is_symlink():
            if path.is_dir():
                _remove(path.resolve())
            path.unlink()
        elif path.is_dir():
            aside = path.with_name(f"{path.name}.removed-{os.getpid()}")
            path.rename(aside)
            shutil.rmtree(aside)
        else:
            path.unlink()
    except OSError as error:
        raise StoreError(f"{path} cannot be removed: {error}") from None


def _all(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
