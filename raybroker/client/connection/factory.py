"""Connection factories: reusable attributes, and the functions that connect."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

from raybroker.client.blocking.handles import Connection, XaConnection
from raybroker.client.cluster import ray_seam
from raybroker.client.cluster.addresses import ATTRIBUTE, Addresses
from raybroker.client.cluster.cluster_directory import ClusterDirectory
from raybroker.client.connection.connection import ConnectionCore, identified
from raybroker.client.connection.identity import client_id_of
from raybroker.client.connection.overrides import HOST, PORT, in_force, names_a_broker, overrides
from raybroker.client.io.io_thread import IoThread
from raybroker.client.io.own_loop import OwnLoop
from raybroker.client.ways.from_outside import connected, settings_of_cluster
from raybroker.client.ways.logging_in import Token
from raybroker.client.ways.reaching import NOBODY, Given, calls_to, checked
from raybroker.client.ways.service_address import is_service_address
from raybroker.config import Config
from raybroker.model.errors import ConfigError, IllegalStateError, NoClusterError
from raybroker.objects.administered import AdministeredObject
from raybroker.system.clock import SystemClock
from raybroker.transport.loops import sleep_waited_for

if TYPE_CHECKING:
    from raybroker.client.aio import handles

log = logging.getLogger("raybroker.client")


class FactoryAttributes:
    """The attributes of a connection factory, which hold for every connection that it makes.

    Names are those of the administered objects (imqConsumerFlowLimit, imqAckTimeout, …) and ours with dots as keys of
    ``attributes``; raises ConfigError for an unknown name or a value out of bounds.
    """

    def __init__(self, attributes: Mapping[str, object] | None = None, **named: object) -> None:
        self._values = checked({**(attributes or {}), **named})
        self._of: AdministeredObject | None = None

    @classmethod
    def of_object(cls, found: AdministeredObject) -> Self:
        """The factory that an administered object describes."""
        made = cls(found.attributes)
        made._of = found
        return made

    @property
    def attributes(self) -> Mapping[str, object]:
        """Those that were given; :meth:`set` changes them."""
        return MappingProxyType(self._values)

    @property
    def read_only(self) -> bool:
        """True of an administered object that is marked so: :meth:`set` raises, and overrides do not hold."""
        return self._of is not None and self._of.read_only

    def set(self, attributes: Mapping[str, object] | None = None, **named: object) -> None:
        """Change attributes, for connections that are made afterwards. Raises IllegalStateError for a factory that is
        read-only."""
        if self.read_only:
            raise IllegalStateError(f"{self!r} is read-only, as its administrator wants it: attributes cannot be set")
        self._values = checked({**self._values, **(attributes or {}), **named})

    def _in_force(self, url: str | None, broker: str | None) -> tuple[Mapping[str, object], str | None, str | None]:
        """Return attributes, address and broker of a connection: overrides hold in the place of the program's own."""
        found = {} if self.read_only else overrides()
        if not found:
            return self._values, url, broker
        if names_a_broker(found):
            url = broker = None
        return checked(in_force(self._values, found)), url, broker

    def _require_xa(self) -> None:
        if self._of is not None and not self._of.is_xa:
            raise IllegalStateError(
                f"{self!r} is no factory of connections for distributed transactions: its administrator makes one of"
                " type xcf, xqf or xtf"
            )

    def __repr__(self) -> str:
        name = "ConnectionFactory"
        return f"<{name}>" if self._of is None else f"<{name} {self._of.name}>"


class ConnectionFactory(FactoryAttributes):
    """Attributes for connections, checked when set: ``ConnectionFactory(imqConsumerFlowLimit=20).connect()``.

    Names are those of the administered objects (imqConsumerFlowLimit, imqAckTimeout, …) and ours with dots as keys of
    ``attributes``; raises ConfigError for an unknown name or a value out of bounds.
    """

    def connect(
        self,
        url: str | None = None,
        *,
        cluster: str = "default",
        broker: str | None = None,
        client_id: str | None = None,
        username: str | None = None,
        password: str | None = None,
        token: Token | None = None,
    ) -> Connection:
        """A connection with these attributes; see :func:`connect`."""
        return Connection(self._core(url, cluster, broker, client_id, Given(username, password, token)))

    def connect_xa(
        self,
        url: str | None = None,
        *,
        cluster: str = "default",
        broker: str | None = None,
        client_id: str | None = None,
        username: str | None = None,
        password: str | None = None,
        token: Token | None = None,
    ) -> XaConnection:
        """A connection whose sessions have ``xa``; see :func:`connect_xa`."""
        self._require_xa()
        return XaConnection(self._core(url, cluster, broker, client_id, Given(username, password, token)))

    def _core(
        self, url: str | None, cluster: str, broker: str | None, client_id: str | None, given: Given
    ) -> ConnectionCore:
        attributes, url, broker = self._in_force(url, broker)
        return _core(attributes, url, cluster, broker, client_id, given, IoThread.shared())


class AsyncConnectionFactory(FactoryAttributes):
    """:class:`ConnectionFactory` for asyncio."""

    async def connect(
        self,
        url: str | None = None,
        *,
        cluster: str = "default",
        broker: str | None = None,
        client_id: str | None = None,
        username: str | None = None,
        password: str | None = None,
        token: Token | None = None,
    ) -> handles.Connection:
        """A connection with these attributes; see :func:`connect`."""
        from raybroker.client.aio import handles

        given = Given(username, password, token)
        return handles.Connection(await self._core(url, cluster, broker, client_id, given))

    async def connect_xa(
        self,
        url: str | None = None,
        *,
        cluster: str = "default",
        broker: str | None = None,
        client_id: str | None = None,
        username: str | None = None,
        password: str | None = None,
        token: Token | None = None,
    ) -> handles.XaConnection:
        """A connection whose sessions have ``xa``; see :func:`connect_xa`."""
        from raybroker.client.aio import handles

        self._require_xa()
        given = Given(username, password, token)
        return handles.XaConnection(await self._core(url, cluster, broker, client_id, given))

    async def _core(
        self, url: str | None, cluster: str, broker: str | None, client_id: str | None, given: Given
    ) -> ConnectionCore:
        attributes, url, broker = self._in_force(url, broker)
        io = _loop_of(attributes)
        return await asyncio.to_thread(_core, attributes, url, cluster, broker, client_id, given, io)


def _loop_of(attributes: Mapping[str, object]) -> IoThread:
    """Return what a connection of the loop that runs lives in, as ``raybroker.client.loop`` says."""
    return OwnLoop.running() if Config.from_values(attributes)["raybroker.client.loop"] == "own" else IoThread.shared()


def _core(
    attributes: Mapping[str, object],
    url: str | None,
    cluster: str,
    broker: str | None,
    client_id: str | None,
    who: Given,
    io: IoThread,
) -> ConnectionCore:
    own = Config.from_values(attributes)
    if url is None and is_service_address(own[ATTRIBUTE]):
        url = str(own[ATTRIBUTE])
    elif url is None and broker is None and not own[ATTRIBUTE] and not attributes.keys().isdisjoint((HOST, PORT)):
        host = str(own[HOST]) or "localhost"
        url = f"mq://{f'[{host}]' if ':' in host else host}:{own[PORT]}/jms"
    if url is not None:
        return _outside(attributes, own, url, broker, client_id, who, io)
    if who != NOBODY:
        raise ConfigError("username, password, token are for connections from outside: rb.connect('mq://host:port', …)")
    directory = _directory(cluster, broker, own, io)
    given = io.run(settings_of_cluster(directory, own["raybroker.reconnect.timeout_ms"] / 1000))
    config = Config.from_values({**given, **attributes})
    if broker is None and config[ATTRIBUTE] and not own[ATTRIBUTE]:
        directory = _directory(cluster, broker, config, io)
    core = ConnectionCore(
        directory,
        config,
        client_id=client_id_of(config, client_id, None),
        io=io,
        reopen=partial(_reopen, dict(attributes), cluster, broker),
    )
    core.channels.objects = ray_seam.shared_objects(cluster)
    return identified(core)


def _outside(
    attributes: Mapping[str, object],
    own: Config,
    url: str,
    broker: str | None,
    client_id: str | None,
    who: Given,
    io: IoThread,
) -> ConnectionCore:
    """Connect through the connection services at these addresses; Ray is not needed, and not imported."""
    if broker is not None:
        raise ConfigError("broker= is for connections inside Ray; from outside the address says which broker it is")
    calls, who, direct = calls_to(url, own, who, client_id)
    if not direct:
        attributes = {**attributes, "raybroker.client.direct": False}  # The IO thread has what TLS and WebSockets keep.
    reopen = partial(_reopen_outside, dict(attributes), url, who)
    return io.run(connected(calls, attributes, client_id, who.username, io, reopen=reopen))


def _reopen(attributes: Mapping[str, object], cluster: str, broker: str | None) -> ConnectionCore:
    return _core(attributes, None, cluster, broker, None, NOBODY, IoThread.shared())


def _reopen_outside(attributes: Mapping[str, object], url: str, who: Given) -> ConnectionCore:
    return _core(attributes, url, "default", None, None, who, IoThread.shared())


def _directory(cluster: str, broker: str | None, config: Config, io: IoThread) -> ClusterDirectory:
    """The control side, at the broker that was named, at one of imqAddressList, or at any.

    Raises NoClusterError when none of them runs.
    """
    addresses = Addresses(config)
    if broker is not None or not addresses.names:
        return ray_seam.find(cluster, broker)
    clock = SystemClock()
    until_ns = clock.monotonic_ns() + config["raybroker.reconnect.timeout_ms"] * 1_000_000
    fault, tried = NoClusterError("none was tried"), 0
    for name, pause in addresses.tries():
        if pause:
            if clock.monotonic_ns() > until_ns:
                break
            io.run(sleep_waited_for(config["imqReconnectInterval"] / 1000))
        try:
            return ray_seam.find(cluster, name, addresses.names)
        except NoClusterError as error:
            fault, tried = error, tried + 1
            log.info("broker %s of imqAddressList was tried (%d tries): %s", name, tried, error)
    passes = addresses.passes(tried)
    raise NoClusterError(
        f"none of the brokers of imqAddressList={','.join(addresses.names)!r} runs, after {tried} tries in {passes}"
        f" {'pass' if passes == 1 else 'passes'} of the list (imqAddressListIterations, at most"
        f" raybroker.reconnect.timeout_ms): {fault}"
    )


def connect(
    url: str | None = None,
    *,
    cluster: str = "default",
    broker: str | None = None,
    client_id: str | None = None,
    username: str | None = None,
    password: str | None = None,
    token: Token | None = None,
    **attributes: object,
) -> Connection:
    """Connect to a cluster: the one that runs in this Ray, or one whose connection services are at ``url``.

    url              from outside: mq://host:port/service of a broker (localhost, 7676 and jms where they are missing),
                     mqs:// with TLS, http:// and https:// of the services httpjms and httpsjms, or several with
                     commas between; then username and password are those of a user, or token is one of an identity
                     provider (JWT), or a function that gets one for each login
    cluster, broker  inside Ray, by name; without a broker, the one of this node, or the first
    trust            over TLS (mqs://, mqssl://, https://): file of the authorities, or of the broker's certificate
    proxy            address of an HTTP proxy on the way, http://host:port, or "environment"; its user and password:
                     raybroker.client.proxy.user and .passfile
    certificate      over TLS: file of the client's own key and certificate, also in place of username and password
    attributes       as for :class:`ConnectionFactory`; imqAddressList names the brokers that will do, unless
                     ``broker`` names the only one
    Raises NoClusterError, which says how to start one, and SecurityError for a wrong user or password.
    """
    return ConnectionFactory(attributes).connect(
        url,
        cluster=cluster,
        broker=broker,
        client_id=client_id,
        username=username,
        password=password,
        token=token,
    )


def connect_xa(
    url: str | None = None,
    *,
    cluster: str = "default",
    broker: str | None = None,
    client_id: str | None = None,
    username: str | None = None,
    password: str | None = None,
    token: Token | None = None,
    **attributes: object,
) -> XaConnection:
    """:func:`connect` for programs under a transaction manager: sessions have ``xa``."""
    return ConnectionFactory(attributes).connect_xa(
        url,
        cluster=cluster,
        broker=broker,
        client_id=client_id,
        username=username,
        password=password,
        token=token,
    )


async def connect_xa_async(
    url: str | None = None,
    *,
    cluster: str = "default",
    broker: str | None = None,
    client_id: str | None = None,
    username: str | None = None,
    password: str | None = None,
    token: Token | None = None,
    **attributes: object,
) -> handles.XaConnection:
    """:func:`connect_xa` for asyncio."""
    return await AsyncConnectionFactory(attributes).connect_xa(
        url,
        cluster=cluster,
        broker=broker,
        client_id=client_id,
        username=username,
        password=password,
        token=token,
    )


async def connect_async(
    url: str | None = None,
    *,
    cluster: str = "default",
    broker: str | None = None,
    client_id: str | None = None,
    username: str | None = None,
    password: str | None = None,
    token: Token | None = None,
    **attributes: object,
) -> handles.Connection:
    """:func:`connect` for asyncio."""
    return await AsyncConnectionFactory(attributes).connect(
        url,
        cluster=cluster,
        broker=broker,
        client_id=client_id,
        username=username,
        password=password,
        token=token,
    )


async def loopback_async(
    store: str | Path | None = None,
    *,
    client_id: str | None = None,
    properties: Mapping[str, Any] | None = None,
    broker: str | None = None,
) -> handles.Connection:
    """:func:`raybroker.loopback` for asyncio."""
    from raybroker.client.aio import handles

    return handles.Connection(
        await asyncio.to_thread(_loopback_core, store, properties, client_id, IoThread.shared(), broker)
    )


def _loopback_core(*args: Any) -> ConnectionCore:
    """The loopback is a whole broker: who connects to another one does not import it."""
    from raybroker.client.loopback import make_core

    return make_core(*args)
