"""Starting the connection services of a broker, with its users and access rules."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from raybroker.broker.services.auditing import security_directory
from raybroker.broker.services.outside import Hand, Outside
from raybroker.broker.services.service_administration import ServiceAdministration
from raybroker.hosting.host_port import HostPort, Row
from raybroker.model.errors import ConfigError, ConnectionLostError
from raybroker.model.listing import DestinationCount, DestinationCounts
from raybroker.model.settings.setting_services import NATIVE, SERVICE_KINDS, SERVICE_PROTOCOLS, WITH_TLS
from raybroker.model.settings.settings import ConfigView
from raybroker.security.tls import ServerTls
from raybroker.services.clients.user_limits import Kept
from raybroker.services.listening.connection_services import ConnectionServices
from raybroker.services.listening.service_security import ServiceSecurity
from raybroker.system.clock import SystemClock

if TYPE_CHECKING:
    from raybroker.services.gateways.gateway import Gateway, Gateways, MakeServer, Near, Server

log = logging.getLogger("raybroker.services")

T = TypeVar("T")
Counts = Callable[[], Coroutine[Any, Any, DestinationCounts]]
ALONE_VERSION: Final = 0
"""Of the view that a broker without others gives, which never changes."""
TAKEN: Final = "no free port"
RETRY_FIRST_S: Final = 0.5
RETRY_MOST_S: Final = 5.0
"""Pauses between attempts to listen at a port that is taken."""
CHANGED_WAIT_S_MAX: Final = 20.0
"""A client that waits for another view is answered after so long at most."""


async def open_services(
    config: ConfigView,
    administration: ServiceAdministration,
    outside: Outside,
    beside: Path | None,
    *,
    clock: SystemClock,
    near: Near | None = None,
    made: Kept | None = None,
    counts: Counts,
) -> ConnectionServices:
    """Listen as the configuration says; raises ConfigError when that cannot be done.

    ``administration``: learns what runs; ``beside``: the directory of the cluster's stores, None where nothing is
    stored; ``near``: hosts on whose loop gateways work; ``made``: where it is written down what users have made;
    ``counts()``: what the destinations of all brokers hold and have counted.
    """
    directory = security_directory(config, beside)
    if directory is None:
        raise ConfigError(
            "imq.service.activelist: services need users, and nothing is stored here; name raybroker.security.dir"
        )
    security = ServiceSecurity(config, directory, administration.audit)
    await security.open(ConnectionServices.active(config), clock)
    gateways = await _gateways(
        config, administration.broker, directory, clock.monotonic_ns, near, counts, sha512=security.users.have_sha512
    )
    services = ConnectionServices(
        config,
        outside,
        security,
        administration.client_ids,
        clock,
        gateways,
        made,
        broker=administration.broker,
    )
    try:
        await services.start()
    except BaseException:
        services.close()  # Some may listen already.
        raise
    administration.services, administration.users, administration.failure = services, security.users, ""
    return services


class Opening:
    """Opens the services of a broker, and tries again for as long as a port is taken: its owner may end, as the
    broker's predecessor does. A broker whose services cannot listen works without and says so.

    open    opens them; raises ConfigError
    failed  is told why they do not listen
    """

    def __init__(self, broker: str, open: Callable[[], Awaitable[None]], failed: Callable[[str], None]) -> None:
        self._broker = broker
        self._open = open
        self._failed = failed
        self.tried = asyncio.Event()
        """Set when they listen, or when it is known why not."""

    async def run(self) -> None:
        pause_s, told = RETRY_FIRST_S, ""
        try:
            while True:
                try:
                    await self._open()
                except ConfigError as error:
                    self._failed(str(error))
                    taken = TAKEN in str(error)
                    if str(error) != told:
                        again = "; it is tried again until the port is free" if taken else ""
                        log.error("[B3004] broker %s has no connection services: %s%s", self._broker, error, again)
                    told = str(error)
                    if not taken:
                        return
                else:
                    if told:
                        log.info("[B1176] the connection services of broker %s listen now", self._broker)
                    return
                self.tried.set()
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, RETRY_MOST_S)
        finally:
            self.tried.set()


async def _gateways(
    config: ConfigView,
    broker: str,
    directory: Path,
    now_ns: Callable[[], int],
    near: Near | None,
    counts: Counts,
    *,
    sha512: Callable[[], bool],
) -> Gateways | None:
    """What serves the active services of other protocols; None where there is none. Raises ConfigError. ``sha512()``:
    see OfferedLogins."""
    protocols = {SERVICE_PROTOCOLS[name] for name in ConnectionServices.active(config)} - NATIVE
    if not protocols:
        return None
    from raybroker.services.gateways.gateway import Gateways

    servers: dict[str, MakeServer] = {}
    version = metadata.version("raybroker")
    tls = await asyncio.to_thread(ServerTls.from_config, config, directory) if protocols & WITH_TLS else None
    from raybroker.services.amqp.counts import AmqpCounts

    counted = AmqpCounts()
    if protocols & {"http", "https"}:
        try:
            from raybroker.services.administration.opening import administration_server, console_samples
            from raybroker.services.amqp.server import amqp_server
            from raybroker.services.rest.opening import http_server
        except ImportError as error:
            raise ConfigError(f"services over HTTP need {error.name}: pip install 'raybroker[http]'") from None
        loop = asyncio.get_running_loop()
        samples = console_samples(config, lambda: on_loop(loop, counts))
        for protocol in sorted(protocols & {"http", "https"}):
            context = tls.context if tls is not None and protocol in WITH_TLS else None
            amqp = amqp_server(config, version, now_ns, sha512=sha512, counts=counted, inside_tls=context is not None)
            messages = http_server(config, broker, version, context, amqp)
            administration = administration_server(config, broker, version, context, samples)
            servers[protocol] = partial(_of_kind, {"NORMAL": messages, "ADMIN": administration})
    if protocols & {"stomp", "stomps"}:
        from raybroker.services.stomp.server import stomp_server

        servers["stomp"] = stomp_server(config, version, now_ns)
        if tls is not None:
            servers["stomps"] = stomp_server(config, version, now_ns, tls.context)
    if protocols & {"amqp", "amqps"}:
        from raybroker.services.amqp.server import amqp_server

        servers["amqp"] = amqp_server(config, version, now_ns, sha512=sha512, counts=counted)
        if tls is not None:
            servers["amqps"] = amqp_server(config, version, now_ns, tls.context, sha512=sha512, counts=counted)
    serves_amqp = not protocols.isdisjoint({"amqp", "amqps", "http", "https"})
    return Gateways(servers, near, counted.figures if serves_amqp else dict)


async def on_loop(loop: asyncio.AbstractEventLoop, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """What ``ask()`` brings, which has to run on that loop; raises ConnectionLostError when the loop has ended."""
    work = ask()
    try:
        asked = asyncio.run_coroutine_threadsafe(work, loop)
    except RuntimeError as error:
        work.close()
        raise ConnectionLostError(f"the broker ends: {error}") from None
    return await asyncio.wrap_future(asked)


def _of_kind(makers: Mapping[str, MakeServer], gateway: Gateway) -> Server:
    """The server of a gateway, by the kind of its service."""
    return makers[SERVICE_KINDS[gateway.service]](gateway)


class LoneBroker(Protocol):
    """A broker without others."""

    name: str

    async def locate(self, type: str, name: str, create: bool) -> HostPort: ...

    async def subscribe(self, topic: str, client_id: str | None, name: str) -> None: ...

    async def admin(self, verb: str, args: Row) -> Any: ...


class Alone:
    """A broker without others, as its services ask it.

    exists  takes a type and a name: whether the broker has that destination
    hosts   gives those of the broker
    given   gives the properties that the configuration sets
    counts  gives what its destinations hold and have counted
    """

    def __init__(
        self,
        broker: LoneBroker,
        exists: Callable[[str, str], bool],
        hosts: Callable[[], Iterable[HostPort]],
        given: Callable[[], Row],
        counts: Callable[[], Coroutine[Any, Any, list[DestinationCount]]],
    ) -> None:
        self._broker = broker
        self.exists = exists
        self.hosts = hosts
        self.given = given
        self.counts = counts

    def whole(self) -> bool:
        return True

    async def placed(self, kind: str, name: str, create: bool, guest: bool) -> tuple[HostPort, str, Row]:
        return await self._broker.locate(kind, name, create), self._broker.name, {}

    async def admin(self, verb: str, args: Row) -> Any:
        return await self._broker.admin(verb, args)

    async def answer_service(self, method: str, args: list[Any]) -> Any:
        broker = self._broker
        match method:
            case "brokers":
                return ALONE_VERSION, broker.name, [(broker.name, "UP", True, "")]
            case "brokers_changed":
                return await _unchanged(*args)
            case "members":
                return {broker.name: 0}
            case "routes":
                return dict.fromkeys(args[2], broker.name)
            case "renew_routes":
                return True
            case "release_routes":
                return None
            case "subscribe":
                return await broker.subscribe(**args[0])
        return await getattr(broker, method)(*args)


async def _unchanged(version: int, timeout_s: float) -> int:
    """The version of a view that stays as it is: the answer takes the time that the client waits for another one, or
    it would ask again at once, and again."""
    if version == ALONE_VERSION and timeout_s > 0:
        await asyncio.sleep(min(CHANGED_WAIT_S_MAX, timeout_s))
    return ALONE_VERSION


def hand_within(security: Path | None) -> Hand:
    """Hands sockets to hosts that are objects of this process."""

    async def hand(host: HostPort, given: socket.socket, service: str) -> None:
        host.guests.take_socket(given, service, security)

    return hand
