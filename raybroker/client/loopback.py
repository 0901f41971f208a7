"""A whole broker inside this process: the same engine, protocol and handles, without Ray and without a network.

For users' own unit tests and for trying things out. Without a directory nothing is kept; with one, it is the same
journal that a cluster writes, or with ``imq.persist.store = sql`` the same tables.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import AsyncExitStack, ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from raybroker.broker.broker import Broker, BrokerHosts, BrokerKept, BrokerProcess
from raybroker.broker.services.auditing import audit_of, audited, security_directory
from raybroker.client.blocking.handles import Connection
from raybroker.client.cluster.directory import ALONE, DestinationPlace, KnownSubscription, View
from raybroker.client.connection.connection import ConnectionCore, identified
from raybroker.client.connection.identity import client_id_of
from raybroker.client.io.io_thread import IoThread
from raybroker.config import Config
from raybroker.config.live import LiveConfig
from raybroker.hosting.host_service import HostBroker, HostService, HostStorage
from raybroker.hosting.paging import directory_of
from raybroker.model.errors import ConfigError, IllegalStateError, NoClusterError
from raybroker.model.listing import DestinationCounts
from raybroker.model.naming.names import check_cluster_name
from raybroker.model.settings.setting_store import SQL_STORES
from raybroker.model.settings.setting_table import IN_BROKER
from raybroker.model.settings.settings import lookup
from raybroker.store.catalogue import Catalogue
from raybroker.store.memory import MemoryStore
from raybroker.system import entropy
from raybroker.system.clock import SystemClock
from raybroker.system.supervision import Supervisor
from raybroker.transport.link import Link, memory_pair
from raybroker.wire.native.connection import TOKEN_BYTES

if TYPE_CHECKING:  # Imported where they are opened: most loopbacks have none of them.
    from raybroker.services.clients.user_limits import Kept
    from raybroker.services.gateways.gateway import JoinedGuests
    from raybroker.services.listening.connection_services import ConnectionServices
    from raybroker.store.journal import Journal
    from raybroker.store.paging import PagingFiles
    from raybroker.store.sql.store import SqlStore

LOG: Final = logging.getLogger("raybroker.host")


LOOPBACK: Final = "loopback"
"""Key of the one host, and name of the broker and the cluster."""
HOSTING: Final = "shared"
_HOSTINGS: Final = ("raybroker.hosting.default", "raybroker.hosting.autocreated")
"""A loopback has one host for all destinations; its gateways work on the host's loop where one of these says so."""


class _Near:
    """The one host, on whose loop gateways work."""

    def __init__(self, host: HostService, io: IoThread) -> None:
        self._host = host
        self._io = io

    def io(self) -> IoThread:
        return self._io

    def guests_of(self, key: str) -> JoinedGuests | None:
        return self._host.guests if key == self._host.key else None


def _paging_files(pages: Path, file_bytes: int, post: Callable[[Callable[[], None]], object]) -> PagingFiles:
    from raybroker.store.paging import PagingFiles

    return PagingFiles(pages, file_bytes, post)


class LoopbackDirectory:
    """The control side, in the process."""

    collocated = True
    outside = False

    def __init__(self, config: Config, store: Path | None, io: IoThread) -> None:
        self._io = io
        self._config = config
        self._store = store
        self._token = entropy.token(TOKEN_BYTES)
        self._live: LiveConfig
        self._service: HostService
        self._broker: Broker
        self._notices: Callable[[], list[str]] = list
        """What the store has to tell once it is read."""
        self._loops = Supervisor("the loopback broker")
        self._services: ConnectionServices | None = None

    async def start(self) -> None:
        """Raises what keeps it from starting; then nothing of it is left, above all no lock on the store."""
        async with AsyncExitStack() as undo:
            await self._start(undo)
            undo.pop_all()

    async def _start(self, undo: AsyncExitStack) -> None:
        """``undo``: what is to be done when it fails."""
        clock = SystemClock()
        storage = await self._open_storage(clock)
        undo.callback(storage.store.close)
        kept = (Catalogue.load(self._store) if self._store is not None else None) or Catalogue(self._token)
        config = self._live = LiveConfig(self._config, kept.properties)
        pages = directory_of(config, self._store, f"{LOOPBACK}-{os.getpid()}-{entropy.token(4).hex()}")
        if pages is not None:
            storage = storage._replace(paging=partial(_paging_files, pages, config["raybroker.paging.file_bytes"]))
        self._service = HostService(
            storage,
            clock,
            config,
            token=self._token,
            key=LOOPBACK,
            hosting=HOSTING,
            broker=HostBroker(LOOPBACK, self._forget, lease=self._lease, quotas=kept.quotas, policies=kept.policies),
        )
        await self._start_host()
        undo.pop_all()
        undo.push_async_callback(self._service.close)  # With its store.
        host = self._service

        async def make_host(hosting: str) -> HostService:
            return host

        async def drop_host(dropped: object) -> None:
            """The loopback's one host stays."""

        async def save(field: str, value: dict[str, Any]) -> None:
            setattr(kept, field, value)
            if self._store is not None:
                await asyncio.to_thread(kept.write, self._store, kept.image())

        audit = audit_of(config, self._store, LOOPBACK, lambda: clock.now_ms() / 1e3)
        undo.callback(audit.close)
        self._broker = Broker(
            config,
            BrokerHosts(make_host, drop_host),
            BrokerKept(kept.templates, kept.quotas, kept.policies, save),
            process=BrokerProcess(host.host.memory, audit=audit),
        )
        await self._broker.placement.adopt(host)
        await self._broker.placement.ready()
        undo.callback(self._loops.close)
        self._loops.keep("metrics topics", self._broker.publishing.run)
        self._loops.keep("thresholds", self._broker.thresholds.run)
        audit.record("start")
        if config["imq.service.activelist"]:
            from raybroker.broker.services.opening_services import Alone, hand_within, open_services
            from raybroker.broker.services.outside import Outside

            registry = self._broker.registry
            self._services = await open_services(
                config,
                self._broker.services,
                Outside(
                    Alone(
                        self._broker, registry.has, lambda: registry.hosts, self._given, self._broker.measuring.counts
                    ),
                    hand_within(security_directory(config, self._store)),
                    self._doors,
                ),
                self._store,
                clock=clock,
                near=_Near(self._service, self._io) if IN_BROKER in map(config.__getitem__, _HOSTINGS) else None,
                made=self._made(),
                counts=self._counts,
            )
        self._io.count_resident(1)

    async def _open_storage(self, clock: SystemClock) -> HostStorage:
        """Open the store, where the configuration says that it is."""
        if self._in_database:
            store = await asyncio.to_thread(self._open_sql, clock)
            return HostStorage(store, store.incarnation)
        if self._store is None:
            return HostStorage(MemoryStore())
        journal = self._open_journal(self._store, clock)
        return HostStorage(journal, journal.incarnation, journal.bodies, disk=self._store)

    @property
    def _in_database(self) -> bool:
        return self._config["imq.persist.store"] in SQL_STORES

    async def _start_host(self) -> None:
        sql = self._in_database
        with ExitStack() as stack:
            if self._store is not None and not sql:
                from raybroker.store.advice import advised

                stack.enter_context(advised(self._store))
            await self._service.start(threaded=sql or self._store is not None, inline=not sql)
        for line in self._notices():
            LOG.warning("%s", line)

    def _open_journal(self, directory: Path, clock: SystemClock) -> Journal:
        from raybroker.store.advice import advised
        from raybroker.store.journal import Journal
        from raybroker.store.journal.own_files import OwnFileOptions

        with advised(directory):
            journal = Journal(
                directory,
                sync=self._config["imq.persist.file.sync.enabled"],
                segment_bytes=self._config["raybroker.store.segment_bytes"],
                own_files=OwnFileOptions.from_config(self._config),
                monotonic_ns=clock.monotonic_ns,
                entropy=entropy.token,
            )
        self._notices = journal.notices
        return journal

    def _made(self) -> Kept | None:
        """Return where it is written down what users of the services have made."""
        from raybroker.store.record import RecordFile

        return None if self._store is None else RecordFile(self._store / "made-by-users")

    def _open_sql(self, clock: SystemClock) -> SqlStore:
        """Its messages are in a database: without a folder, in one that the properties name."""
        from raybroker.broker.cluster.database_passwords import store_password
        from raybroker.store.sql.address import URLS
        from raybroker.store.sql.opening import open_store

        if self._store is None and not any(self._config[url].strip() for url in URLS.values()):
            raise ConfigError(
                f"imq.persist.store = {self._config['imq.persist.store']}: give the loopback a folder for a file of"
                f" SQLite (store=…), or say where the database is ({' or '.join(URLS.values())})"
            )
        return open_store(
            self._config,
            self._store or Path(),
            cluster=LOOPBACK,
            broker=LOOPBACK,
            host=LOOPBACK,
            hosting=HOSTING,
            holder="",
            monotonic_ns=clock.monotonic_ns,
            sleep=clock.sleep,
            report=partial(LOG.warning, "%s"),
            password=store_password(self._config, self._store),
        )

    def _given(self) -> dict[str, Any]:
        return {**{name: value for name, value, _ in self._config.given}, **self._live.changed}

    async def _counts(self) -> DestinationCounts:
        return {LOOPBACK: await self._broker.measuring.counts()}

    async def _doors(self, *, inside: bool, taking: bool = False) -> dict[str, tuple[str, dict[str, int]]]:
        """No other broker has services."""
        return {}

    def _forget(self, type: str, name: str) -> None:
        self._broker.placement.forget_destination(type, name)

    async def _lease(self, row: dict[str, Any]) -> dict[str, Any]:
        return await self._broker.pools.lease(LOOPBACK, row)

    async def _dial(self, factory: Callable[[], Link]) -> object:
        protocol = factory()
        memory_pair(asyncio.get_running_loop(), protocol, self._service.service.accept())
        return protocol

    @property
    def home(self) -> str:
        return ""

    async def brokers(self, broker: str | None = None) -> View:
        return ALONE

    async def brokers_changed(self, version: int, timeout_s: float, broker: str | None = None) -> int:
        raise IllegalStateError("the loopback's broker is alone for good")

    async def doubt(self, home: str, patience_s: float) -> None:
        raise IllegalStateError("the loopback's broker is alone for good")

    async def members(self, kind: str, name: str) -> dict[str, int]:
        raise IllegalStateError("the loopback's broker is alone for good")

    async def routes(self, kind: str, name: str, units: list[str], owner: str) -> dict[str, str]:
        return dict.fromkeys(units, "")

    async def renew_routes(self, owner: str) -> bool:
        return True

    async def release_routes(self, kind: str, name: str, units: list[str], owner: str) -> None:
        """There is one place for all units."""

    async def locate(self, kind: str, name: str, create: bool, broker: str | None = None) -> DestinationPlace:
        host = await self._broker.locate(kind, name, create)
        return DestinationPlace(host.key, self._token, self._dial)

    async def create_temporary(self, kind: str, owner: str) -> str:
        return await self._broker.create_temporary(kind, owner)

    async def destroy_temporary(self, kind: str, name: str, owner: str) -> None:
        await self._broker.destroy_temporary(kind, name, owner)

    async def subscribe(self, subscription: KnownSubscription) -> None:
        await self._broker.subscribe(*subscription)

    async def identify(self, client_id: str, instance: str) -> None:
        await self._broker.identify(client_id, instance)

    async def unsubscribe(self, client_id: str | None, name: str) -> None:
        await self._broker.unsubscribe(client_id, name)

    async def matching(self, pattern: str, broker: str | None = None) -> tuple[int, list[str]]:
        return await self._broker.matching(pattern)

    async def changed(self, version: int, timeout_s: float, broker: str | None = None) -> int:
        return await self._broker.changed(version, timeout_s)

    async def branch_states(self, key: bytes) -> list[str]:
        return await self._broker.branch_states(key)

    async def settings(self) -> dict[str, Any]:
        return self._given()

    async def admin(self, verb: str, args: dict[str, Any]) -> Any:
        return await audited(self._broker.services.audit, self._broker.admin, verb, args)

    async def close(self) -> None:
        self._loops.close()
        self._broker.services.audit.record("stop")
        if self._services is not None:
            self._services.close()
        self._broker.services.audit.close()
        self._io.count_resident(-1)
        await self._service.close()


class _Named:
    """A loopback broker with a name, for all connections to it; it ends with the last of them."""

    def __init__(self, directory: LoopbackDirectory, config: Config, store: Path | None) -> None:
        self.directory = directory
        self.config = config
        self.store = store
        self.users = 0
        self.ended: Future[None] | None = None
        """Set when it is ending, done when it has ended."""


class _Shared:
    """The directory of one of the connections to a named broker."""

    def __init__(self, name: str, named: _Named) -> None:
        self._name = name
        self._named = named
        self._inner = named.directory

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._inner, attribute)

    async def close(self) -> None:
        named = self._named
        with _guard:
            named.users -= 1
            if named.users:
                return
            ended: Future[None] = Future()
            named.ended = ended
        try:
            await self._inner.close()
        finally:
            with _guard:
                _brokers.pop(self._name, None)
            ended.set_result(None)


_brokers: dict[str, _Named] = {}
_guard = threading.Lock()
"""Of ``_brokers``; never held while anything is waited for."""
_making = threading.Lock()
"""Held by whoever makes a named broker; never on the IO thread."""


def _forked() -> None:
    """This is a forked child: the named brokers stayed behind, and its locks are as somebody held them."""
    global _guard, _making
    _brokers.clear()
    _guard, _making = threading.Lock(), threading.Lock()


os.register_at_fork(after_in_child=_forked)


def _make_directory(config: Config, store: Path | None, io: IoThread) -> LoopbackDirectory:
    directory = LoopbackDirectory(config, store, io)
    io.run(directory.start())
    return directory


def _join(name: str) -> _Named | None:
    """The named broker, with one more connection; None when there is none. Waits for one that is ending."""
    while True:
        with _guard:
            found = _brokers.get(name)
            if found is None:
                return None
            if found.ended is None:
                found.users += 1
                return found
            ended = found.ended
        ended.result()


def _named_core(
    name: str,
    store: Path | None,
    properties: Mapping[str, object],
    config: Config | None,
    client_id: str | None,
    io: IoThread,
) -> ConnectionCore:
    """A connection to the broker of that name; ``config`` is for making it, None: it must be there."""
    check_cluster_name(name)
    with _making:
        named, made = _join(name), False
        if named is None:
            if config is None:
                there = ", ".join(sorted(_brokers)) or "none"
                raise NoClusterError(
                    f"no loopback broker named {name!r} in this process (there is: {there}); make it with"
                    f" rb.loopback(broker={name!r}), and keep that connection open"
                )
            named, made = _Named(_make_directory(config, store, io), config, store), True
            named.users = 1
            with _guard:
                _brokers[name] = named
    try:
        if not made and store is not None and named.store != store:
            raise ConfigError(f"store={str(store)!r}: the loopback broker {name!r} runs with store={named.store!s}")
        for setting in properties if not made else ():
            lookup(setting, "factory")  # Raises for what is the broker's own, which runs already.
        values = {**{key: value for key, value, _ in named.config.given}, **properties}
        attributes = named.config if made else Config.from_values(values)
        directory: Any = _Shared(name, named)
        core = ConnectionCore(
            directory,
            attributes,
            client_id=client_id_of(attributes, client_id, None),
            io=io,
            reopen=partial(_reopen, name, dict(properties)),
        )
    except BaseException:
        io.run(_Shared(name, named).close())
        raise
    return identified(core)


def _reopen(name: str, properties: Mapping[str, object]) -> ConnectionCore:
    return _named_core(name, None, properties, None, None, IoThread.shared())


_OF_CLUSTERS: Final = {
    "imq.instancename": "broker=… is the name and store=… the folder",
    "imq.cluster.url": "properties=… takes what such a file would say",
}


def make_core(
    store: str | Path | None,
    properties: Mapping[str, object] | None,
    client_id: str | None,
    io: IoThread,
    broker: str | None = None,
) -> ConnectionCore:
    """The connection of a new loopback broker, or to the one named ``broker``; ``properties`` are broker and factory
    settings."""
    for name, instead in _OF_CLUSTERS.items():
        if name in (properties or {}):
            raise ConfigError(f"{name} is for brokers in Ray; of a loopback, {instead}")
    config = Config.from_values({"raybroker.hosting.default": "shared", **(properties or {})})
    folder = Path(store) if store is not None else None
    if broker is not None:
        return _named_core(broker, folder, properties or {}, config, client_id, io)
    client_id = client_id_of(config, client_id, None)
    return identified(ConnectionCore(_make_directory(config, folder, io), config, client_id=client_id, io=io))


def attach_loopback(broker: str, client_id: str | None) -> Connection:
    """A further connection to a named loopback broker of this process; raises NoClusterError when there is none."""
    return Connection(_named_core(broker, None, {}, None, client_id, IoThread.shared()))


def loopback(
    store: str | Path | None = None,
    *,
    client_id: str | None = None,
    properties: Mapping[str, object] | None = None,
    broker: str | None = None,
) -> Connection:
    """A connection to a broker that lives in this process, and ends with it.

    store       a directory for the journal; without one nothing is kept
    properties  broker and connection factory settings by name; raises ConfigError for an unknown one
    broker      a name, by which further connections of this process reach the same broker, and ``rb.deploy`` with
                ``loopback=name``; it ends with the last of them. What makes it decides its store and its settings:
                later ones may give connection factory settings only, else ConfigError. None: a broker of its own
    """
    return Connection(make_core(store, properties, client_id, IoThread.shared(), broker))
