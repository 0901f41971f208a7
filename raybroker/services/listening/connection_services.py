"""The connection services of a broker: ports for programs outside the Ray cluster, and the port mapper that tells them.

Each service has a listener (``listener.py``). Here is what all of them share: who may ask what of the broker, and
administration: listing, pausing, changing, closing.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from importlib import metadata
from typing import TYPE_CHECKING, Any, Final, Protocol

from raybroker.model import refusals
from raybroker.model.errors import (
    ConfigError,
    ConnectionEndedError,
    InvalidDestinationError,
    NotSupportedError,
    ProtocolError,
    SecurityError,
)
from raybroker.model.listing import plain
from raybroker.model.naming.addresses import is_loopback
from raybroker.model.naming.names import check_client_id, is_metrics_topic
from raybroker.model.settings.setting import PortRange
from raybroker.model.settings.setting_services import (
    NATIVE,
    PORT_MAPPER,
    SERVICE_KINDS,
    SERVICE_PROTOCOLS,
    TLS,
    WITH_TLS,
    address_property,
)
from raybroker.model.settings.settings import ConfigView, lookup
from raybroker.security.access import Access
from raybroker.security.access_rules import AccessRequest, User
from raybroker.security.tls import ServerTls
from raybroker.security.user_file import UserEntry
from raybroker.services.clients.client_ids import ClientIds
from raybroker.services.clients.client_rows import ALL, Wanted, client_row
from raybroker.services.clients.user_limits import CONSUMERS, DESTINATIONS, SUBSCRIPTIONS, TEMPORARY, Kept, UserLimits
from raybroker.services.listening.accepting import BACKLOG
from raybroker.services.listening.arrivals import PAUSED, QUIESCED, RUNNING
from raybroker.services.listening.bounds import Bounds
from raybroker.services.listening.listener import Row, ServiceListener
from raybroker.services.listening.port_mapper import PortMapper
from raybroker.services.listening.service_security import ServiceSecurity
from raybroker.services.native.control import Control
from raybroker.services.native.guest import TRAFFIC
from raybroker.services.native.native import RefusalLog
from raybroker.system import entropy
from raybroker.system.clock import SystemClock
from raybroker.system.supervision import Supervisor
from raybroker.transport.ports import bound_socket
from raybroker.wire.native.connection import TOKEN_BYTES
from raybroker.wire.port_map import MAPPER, ServicePort

if TYPE_CHECKING:
    from raybroker.services.gateways.gateway import Gateways

LOG: Final = logging.getLogger("raybroker.services")
WEB: Final = ("http", "https")
ALL_ADDRESSES: Final = ("", "0.0.0.0", "::")
RIGHTS_S: Final = 1.0
"""How often users and access rules are looked at for who is connected."""
PROBES_KNOWN_MAX: Final = 64
"""Addresses of the broker's own probes that are remembered: a listener may notice one only after it is over."""


class Backend(Protocol):
    """The broker behind the services."""

    async def locate(
        self, kind: str, name: str, create: bool, guest: bool, secret: bytes, claims: Row
    ) -> tuple[str, str, Row]:
        """(key of the host, broker, traits) of a destination; its host expects the secret from now on. ``guest``: the
        client's home is another broker."""
        ...

    def exists(self, kind: str, name: str) -> bool: ...

    def whole(self) -> bool:
        """All hosts have said what they serve: what is not known is not there."""
        ...

    async def answer_service(self, method: str, args: list[Any]) -> Any:
        """One of ASKED by name."""
        ...

    async def admin(self, verb: str, args: Row) -> Any: ...

    async def hand(self, key: str, given: socket.socket, service: str) -> None:
        """Give a socket to a host; raises ConnectionLostError."""
        ...

    async def guests(self) -> list[Row]: ...

    async def guest_traffic(self) -> dict[str, Row]:
        """Service → what its connections to hosts carried."""
        ...

    async def close_guest(self, connection: str, reason: str) -> None: ...

    async def pause_guests(self, service: str, paused: bool) -> None: ...

    def settings(self) -> Row:
        """Attributes of connections that were configured for the cluster."""
        ...

    async def vouched(self, broker: str, args: Row) -> str:
        """The user of a voucher that another broker has given out; raises SecurityError, and BrokerGoneError when that
        does not answer."""
        ...

    async def doors(self, *, inside: bool, taking: bool = False) -> dict[str, tuple[str, dict[str, int]]]:
        """Broker → (address, service → port), of those that have services. ``inside``: for gateways, which reach them
        at the addresses that they listen at; ``taking``: services that take new clients now, and no others."""
        ...


ASKED: Final = frozenset(
    {
        "brokers",
        "brokers_changed",
        "members",
        "routes",
        "renew_routes",
        "release_routes",
        "create_temporary",
        "destroy_temporary",
        "unsubscribe",
        "matching",
        "changed",
        "branch_states",
    }
)
"""What a client of a NORMAL service may ask without a right of its own."""


class ConnectionServices:
    """``broker``: its name; ``client_ids``: of the broker; ``gateways``: serve the services whose protocol is none of
    NATIVE; ``made``: where it is written down what users have made."""

    def __init__(
        self,
        config: ConfigView,
        backend: Backend,
        security: ServiceSecurity,
        client_ids: ClientIds,
        clock: SystemClock,
        gateways: Gateways | None = None,
        made: Kept | None = None,
        *,
        broker: str,
    ) -> None:
        self._backend = backend
        self.security = security
        self._client_ids = client_ids
        self._clock = clock
        self._gateways = gateways
        self.broker = broker
        self.handshake_s: float = config["raybroker.handshake.timeout_ms"] / 1000
        self.proof_s: float = config["imq.authentication.client.response.timeout"]
        self._refusals = RefusalLog(clock.monotonic_ns)
        self.listeners: dict[str, ServiceListener] = {}
        self._config = config
        self.bounds = Bounds.from_config(config)
        self.address_max: int = config["raybroker.service.address_connections_max"]
        self.user_max: int = config["raybroker.service.user_connections_max"]
        self._loops = Supervisor(f"the services of broker {broker}")
        self._tls: ServerTls | None = None
        self._probes: deque[str] = deque(maxlen=PROBES_KNOWN_MAX)
        self.life = entropy.token(2).hex()
        """Part of the ids of connections: hosts have some that were made before the broker was restarted."""
        security.begin_vouching(broker, backend.vouched, clock)
        self._moving = asyncio.Lock()
        self._unreadable = ""
        self._mapper_of_machine_alone = False
        self._limits = UserLimits(config, made)
        self._mapper = PortMapper(
            broker,
            metadata.version("raybroker"),
            self._doors,
            self.client_refused,
            most=config["raybroker.portmapper.connections_max"],
            of_address=config["raybroker.portmapper.address_connections_max"],
        )

    def figures(self) -> Row:
        """Rows of the metrics' catalogue that the services count."""
        return self._gateways.figures() if self._gateways is not None else {}

    @property
    def port(self) -> int:
        """The port of the port mapper."""
        return self._mapper.port

    @staticmethod
    def active(config: ConfigView) -> list[str]:
        """The services that the configuration asks for; raises ConfigError for one that there is not."""
        names = [name.strip() for name in config["imq.service.activelist"].split(",") if name.strip()]
        unknown = [name for name in names if name not in SERVICE_KINDS]
        if unknown:
            raise ConfigError(
                f"imq.service.activelist: there is no service {unknown[0]!r}; there are {', '.join(SERVICE_KINDS)}"
            )
        return names

    async def start(self) -> None:
        """Listen; raises ConfigError for a port that is taken, or a file of rules that cannot be right."""
        names = self.active(self._config)
        if not names:
            return
        await self._limits.start()
        secure = any(SERVICE_PROTOCOLS[name] in WITH_TLS for name in names)
        tls = self._tls = await self.security.open_keystore() if secure else None
        for name in names:
            self._read_rules(name)
            protocol = SERVICE_PROTOCOLS[name]
            try:
                bound = self._bound(name, self._config[address_property(name, "port")])
            except ConfigError as error:
                raise ConfigError(f"service {name} does not listen: {error}") from None
            listener = ServiceListener(
                self,
                name,
                bound,
                max(1, self._config[f"imq.{name}.max_threads"] // 2),
                self._gateways if protocol not in NATIVE else None,
                tls if protocol == TLS else None,
            )
            listener.threads["minThreads"] = self._config[f"imq.{name}.min_threads"]
            self.listeners[name] = listener
            listener.start()
        self._loops.keep("rights of clients", self._watch_rights)
        try:
            bound = self._bound_mapper(self._config[PORT_MAPPER])
        except ConfigError as error:
            raise ConfigError(f"the port mapper does not listen: {error}") from None
        host = str(bound.getsockname()[0])
        self._mapper_of_machine_alone = is_loopback(host)
        self._mapper.start(bound)
        for address in self.consoles().values():
            LOG.info("[B1192] the console is at %s", address)
        LOG.info(
            "[B1039] port mapper listens on %s:%d, services: %s",
            host,
            self._mapper.port,
            ", ".join(f"{name} {row.port}" for name, row in self.listeners.items()),
        )

    def _read_rules(self, name: str) -> None:
        """Read the access rules at the start, so that the log says soon what is wrong with them, or that there are
        none."""
        try:
            self.security.access(name).state()
        except ConfigError as error:
            LOG.error("[B2174] the access rules of service %s cannot be read, and nobody is let in: %s", name, error)

    def _bound(self, name: str, port: int) -> socket.socket:
        """A socket of the service that listens; raises ConfigError for a port that is taken."""
        host = self._config[address_property(name, "hostname")] or self._config["imq.hostname"] or "0.0.0.0"
        return bound_socket(host, PortRange(port, port), f"{address_property(name, 'port')}=", backlog=BACKLOG)

    def _bound_mapper(self, port: int) -> socket.socket:
        host = self._config["imq.portmapper.hostname"] or self._config["imq.hostname"] or "0.0.0.0"
        backlog = self._config["imq.portmapper.backlog"]
        return bound_socket(host, PortRange(port, port), f"{PORT_MAPPER}=", backlog=backlog)

    def loopback_only(self) -> list[str]:
        """What keeps services, and the port mapper, at an address that is reached from this machine alone:
        property=value."""
        alone = (name for name, listener in self.listeners.items() if listener.of_machine_alone)
        own = [address_property(name, "hostname") for name in alone]
        if self._mapper_of_machine_alone:
            own.append("imq.portmapper.hostname")
        names = dict.fromkeys(name if self._config[name] else "imq.hostname" for name in own)
        return [f"{name}={self._config[name]}" for name in names]

    def consoles(self) -> dict[str, str]:
        """Service → where a browser finds its console; a service at all addresses of the machine is told by the
        advertised one, or by localhost."""
        found = {}
        for name, listener in self.listeners.items():
            if listener.kind == "ADMIN" and listener.protocol in WEB and self._config["raybroker.console.enabled"]:
                host = self._config[address_property(name, "hostname")] or self._config["imq.hostname"]
                if host in ALL_ADDRESSES:
                    host = self._config["raybroker.service.advertised"] or "localhost"
                shown = f"[{host}]" if ":" in host else host
                found[name] = f"{listener.protocol}://{shown}:{listener.port}/console/"
        return found

    def _doors(self) -> list[ServicePort]:
        return [ServicePort(row.name, row.protocol, row.kind, row.port) for row in self.listeners.values()]

    # ---- what a service asks ---------------------------------------------------------------------------------------

    def client_refused(self, peer: str, why: str) -> None:
        """A client was not let in."""
        self._refusals.count_refusal(peer, why)

    def probing(self, address: str) -> None:
        """The broker looks from there whether somebody listens, and says nothing."""
        self._probes.append(address)

    def is_probe(self, peer: str) -> bool:
        return peer in self._probes

    def certificate_days(self, service: str) -> int | None:
        """Whole days until the certificate of a service is over; None for one without TLS."""
        if self._tls is None or SERVICE_PROTOCOLS[service] not in WITH_TLS:
            return None
        return self._tls.days_left(self._clock.now_ms())

    def now_s(self) -> float:
        """Return the seconds since 1970."""
        return self._clock.now_ms() / 1e3

    async def hand(self, key: str, given: socket.socket, service: str) -> None:
        await self._backend.hand(key, given, service)

    async def told(self, *, inside: bool) -> Row:
        """What every client is told that has logged in."""
        return {"settings": self._backend.settings(), "doors": await self._backend.doors(inside=inside)}

    async def _watch_rights(self) -> None:
        """Who is deleted, made inactive, given another password, or may not connect any more, is ended within the time
        of RIGHTS_S."""
        while True:
            await asyncio.sleep(RIGHTS_S)
            try:
                users = self.security.users.users()
                self.security.access(next(iter(self.listeners))).state()
            except ConfigError as error:
                if str(error) != self._unreadable:
                    LOG.error("[B2174] users and access rules stay as they were: %s", error)
                self._unreadable = str(error)
                continue
            for listener in self.listeners.values():
                for control in list(listener.clients):
                    why = self._why_no_more(listener, control, users)
                    if why:
                        LOG.info("[B1069] connection %s from %s: %s", control.id, control.peer, why)
                        self.end_client(control, why)

    def _why_no_more(self, listener: ServiceListener, control: Control, users: Mapping[str, UserEntry]) -> str:
        """Why a client may not stay, "" when he may."""
        user, proved = control.user, control.proved
        if user is None or control.why:
            return ""
        if proved is not None:
            entry = users.get(user.name)
            if entry is None:
                return f"user {user.name!r} was deleted"
            if not entry.active:
                return f"user {user.name!r} is not active any more"
            if entry != proved and control.mechanism:  # Not by a certificate.
                return f"user {user.name!r} has another password now; log in with it"
        if not self.security.access(listener.name).decide(user, AccessRequest("connection", listener.kind, "")).allowed:
            return f"user {user.name!r} may not connect to {listener.kind} services any more"
        return ""

    def rules_missing(self) -> str:
        """The path of the access rules where there is no such file, and the default rules hold; "" for all is well."""
        return next((path for name in self.listeners if (path := self.security.access(name).missing)), "")

    def claiming(self, told: Row) -> AbstractAsyncContextManager[None]:
        """Meanwhile no other connection of the cluster gets the client id that a client says; raises
        InvalidClientIDError when one has it."""
        client_id = told.get("client_id")
        if not client_id or "unrestricted" in told or self._config["ClientIdPolicy"] == "Unrestricted":
            return nullcontext()
        return self._client_ids.claiming(str(client_id), str(told.get("instance", "")))

    def held(self, client_id: str) -> set[str]:
        """The clients of services that have a client id for themselves, by their instances."""
        known = (client.client for listener in self.listeners.values() for client in listener.clients)
        return {
            str(told.get("instance", ""))
            for told in known
            if told.get("client_id") == client_id and "unrestricted" not in told
        }

    async def _identify(self, control: Control, client_id: Any, instance: Any, unrestricted: Any = False) -> None:
        """The client says after its login what client id it has, which the cluster may have given it. ``unrestricted``:
        other connections may have it as well."""
        told = {**control.client, "client_id": check_client_id(client_id), "instance": str(instance)}
        told |= {"unrestricted": "true"} if unrestricted else {}
        async with self.claiming(told):
            control.client = told

    # ---- what clients ask ------------------------------------------------------------------------------------------

    async def ask_admin(self, method: str, args: list[Any], *, inside: bool = False) -> Any:
        """Answer a client of an ADMIN service. ``inside``: it is a gateway's."""
        if method == "admin":
            verb, given = args
            return plain(await self._backend.admin(str(verb), dict(given)))
        if method == "doors":
            return await self._backend.doors(inside=inside)
        if method in ("brokers", "brokers_changed", "settings"):
            return (
                self._backend.settings() if method == "settings" else await self._backend.answer_service(method, args)
            )
        raise NotSupportedError(f"an admin service carries administration alone, not {method}; connect to jms")

    async def answer_client(self, service: str, control: Control, method: str, args: list[Any]) -> Any:
        """Answer a client of a NORMAL service."""
        user = control.user
        assert user is not None
        if method == "locate":
            return await self._locate(service, control, user, *args)
        if method == "subscribe":
            (wanted,) = args
            topic = str(wanted["topic"])
            access = self.security.access(service)
            access.require(user, AccessRequest("topic", topic, "consume"))
            self._require_create(access, user, "topic", topic)
            return await self._subscribe(user, wanted, lambda: self._backend.answer_service(method, args))
        if method == "unsubscribe":
            await self._require_unsubscribe(self.security.access(service), user, *args)
        if method == "settings":
            return self._backend.settings()
        if method == "doors":
            return await self._backend.doors(inside=control.origin.gateway and not args)
        if method == "taking":
            return await self._backend.doors(inside=False, taking=True)
        if method == "vouch":
            if not control.origin.gateway:
                raise SecurityError("brokers vouch for clients of gateways; a program logs in everywhere itself")
            return self.security.vouchers.give_out(user.name)
        if method == "identify":
            return await self._identify(control, *args)
        if method == "admin":
            raise SecurityError("administration goes through an admin service: mq://host:port/admin")
        if method not in ASKED:
            raise ProtocolError(f"unknown request {method!r:.40}")
        if method == "create_temporary":
            kind = str(args[0])
            return await self._limits.making(
                TEMPORARY,
                user.name,
                ("", ""),
                lambda: self._backend.answer_service(method, args),
                self._there,
                lambda name: (kind, str(name)),
            )
        return await self._backend.answer_service(method, args)

    async def _there(self, keys: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
        """Return the destinations that there are, or may be."""
        whole = self._backend.whole()
        return {key for key in keys if not whole or self._backend.exists(*key)}

    async def _subscribe(self, user: User, wanted: Row, make: Callable[[], Awaitable[Any]]) -> Any:
        """A durable subscription counts among those that the user has made."""
        if not wanted.get("durable", True):
            return await make()

        async def there(keys: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
            rows = await self._backend.admin("list_subscriptions", {})
            if rows.missing:
                return set(keys)
            return set(keys) & {(str(row["client_id"] or ""), str(row["name"])) for row in rows if row["durable"]}

        key = str(wanted.get("client_id") or ""), str(wanted["name"])
        return await self._limits.making(SUBSCRIPTIONS, user.name, key, make, there)

    async def _locate(
        self, service: str, control: Control, user: User, kind: Any, name: Any, create: Any, guest: Any = False
    ) -> tuple[str, str, Row, bytes]:
        """The client's way to a destination: (key of its host, broker, traits, secret for the preface)."""
        kind, name = str(kind), str(name)
        if create:
            self._require_create(self.security.access(service), user, kind, name)
        secret = entropy.token(TOKEN_BYTES)
        claims = {
            "user": user.name,
            "groups": sorted(user.groups),
            "service": service,
            "connection": control.id,
            "rules": self.security.access(service).source,
            "audit": self.security.audit.told(),
            "address": control.peer,
            "consumers_max": self._config[CONSUMERS],
        }

        def locate() -> Awaitable[tuple[str, str, Row]]:
            return self._backend.locate(kind, name, bool(create), bool(guest), secret, claims)

        makes = create and self.would_create(kind, name)
        found = await (
            self._limits.making(DESTINATIONS, user.name, (kind, name), locate, self._there) if makes else locate()
        )
        return (*found, secret)

    async def _require_unsubscribe(self, access: Access, user: User, client_id: Any, name: Any) -> None:
        """Who may not consume from a topic may not end a subscription of it either, whatever client id he names."""
        for row in await self._backend.admin("list_subscriptions", {}):
            if row["durable"] and ((row["client_id"] or ""), row["name"]) == (client_id or "", name):
                access.require(user, AccessRequest("topic", row["topic"], "consume"))

    def _require_create(self, access: Access, user: User, kind: str, name: str) -> None:
        """Whoever uses what is not there creates it; a topic of metrics, who may consume from it."""
        if kind not in ("queue", "topic"):
            raise InvalidDestinationError(f"destination type {kind!r:.40} is not understood")
        if self.would_create(kind, name):
            access.require(user, AccessRequest(kind, "", "create"))
        elif kind == "topic" and is_metrics_topic(name):
            access.require(user, AccessRequest(kind, name, "consume"))

    def would_create(self, kind: str, name: str) -> bool:
        """Whether using a destination needs the right to create one. Topics of metrics do not: they are the broker's,
        which makes them for who may consume from them."""
        return not (self._backend.exists(kind, name) or (kind == "topic" and is_metrics_topic(name)))

    # ---- what administrators ask -------------------------------------------------------------------------------------

    def named(self, name: str) -> ServiceListener:
        """Raises ConfigError for a service that is not active."""
        found = self.listeners.get(name)
        if found is None:
            raise ConfigError(refusals.of_absent_service(name))
        return found

    def service_rows(self) -> list[Row]:
        """All services, active or not."""
        consoles = self.consoles()
        found = {
            name: {**listener.service_row(), "console": consoles.get(name, "")}
            for name, listener in self.listeners.items()
        }
        absent = {
            "port": 0,
            "state": refusals.ABSENT,
            "connections": 0,
            "connections_max": 0,
            "accepted": 0,
            "refused": 0,
            "console": "",
        }
        mapper = {
            **absent,
            "service": MAPPER,
            "kind": "PORTMAPPER",
            "protocol": "tcp",
            "port": self._mapper.port,
            "accepted": self._mapper.accepted,
            "refused": self._mapper.refused_count,
        }
        return [{**mapper, "state": RUNNING if self._mapper.port else refusals.ABSENT}] + [
            found.get(name) or {"service": name, "kind": kind, "protocol": SERVICE_PROTOCOLS[name], **absent}
            for name, kind in SERVICE_KINDS.items()
        ]

    async def counted_rows(self) -> list[Row]:
        """Return what :meth:`service_rows` does, with what the services' connections to hosts carried, since the
        hosts were started."""
        traffic = await self._backend.guest_traffic()
        return [{**row, **dict.fromkeys(TRAFFIC, 0), **traffic.get(row["service"], {})} for row in self.service_rows()]

    async def pause(self, name: str) -> None:
        """New clients get an error, and nothing of the others is processed. Raises ConfigError for an ADMIN service."""
        listener = self.named(name)
        if why := refusals.of_pausing_service(name, listener.kind):
            raise ConfigError(why)
        listener.state = PAUSED
        await self._backend.pause_guests(name, True)

    def quiesce(self, name: str) -> None:
        """New clients get an error; the others go on."""
        self.named(name).state = QUIESCED

    async def resume(self, name: str) -> None:
        listener = self.named(name)
        paused, listener.state = listener.state == PAUSED, RUNNING
        if paused:
            await self._backend.pause_guests(name, False)

    async def update(self, name: str, changes: Row) -> None:
        """Change ``port``, ``minThreads`` or ``maxThreads``. Raises ConfigError, and changes nothing then."""
        listener = self.named(name)
        properties = {
            "port": address_property(name, "port"),
            "minThreads": f"imq.{name}.min_threads",
            "maxThreads": f"imq.{name}.max_threads",
        }
        if not changes or not changes.keys() <= properties.keys():
            wrong = ", ".join(sorted(changes.keys() - properties.keys())) or "nothing"
            raise ConfigError(f"service {name!r}: {wrong} cannot be changed, {', '.join(properties)} can")
        now = {"port": listener.port, **listener.threads}
        found = {
            attribute: lookup(key, "broker").parse(changes.get(attribute, now[attribute]))
            for attribute, key in properties.items()
        }
        least, most = found["minThreads"], found["maxThreads"]
        assert isinstance(least, int)
        assert isinstance(most, int)
        if least > most:
            raise ConfigError(f"service {name!r}: minThreads={least} is more than maxThreads={most}")
        async with self._moving:
            if "port" in changes and found["port"] != listener.port:
                await self._move(listener, found["port"])
            listener.threads = {"minThreads": least, "maxThreads": most}
            listener.clients_max = most // 2

    @asynccontextmanager
    async def port_mapper_at(self, port: int) -> AsyncIterator[None]:
        """The port mapper listens at that port once the block has gone well, and then at the old one no more.

        Raises ConfigError for a port that is taken. Then, and when the block fails, it stays where it is.
        """
        async with self._moving:
            if port == self._mapper.port:
                yield
                return
            before, bound = self._mapper.port, self._bound_mapper(port)
            try:
                yield
            except BaseException:
                bound.close()
                raise
            await self._mapper.move(bound)
        LOG.info("[B1195] the port mapper listens at port %d now, no more at %d", self._mapper.port, before)

    async def _move(self, listener: ServiceListener, port: Any) -> None:
        """The new port is listened at before the old one is given up; a port that is taken changes nothing."""
        before, bound = listener.port, self._bound(listener.name, port)
        try:
            await listener.move(bound)
        except BaseException:
            bound.close()
            raise
        LOG.info("[B1071] service %s listens at port %d now, no more at %d", listener.name, listener.port, before)

    async def connections(self, wanted: Wanted = ALL) -> list[Row]:
        """One row a client that is wanted: id, user, service, host, producers, consumers, client id, what these are of,
        and what it carried."""
        if wanted.service is not None:
            self.named(wanted.service)
        return [row for _, row in await self._wanted(wanted)]

    async def _wanted(self, wanted: Wanted) -> list[tuple[Control, Row]]:
        guests: dict[str, list[Row]] = {}
        for guest in await self._backend.guests():
            guests.setdefault(guest["connection"], []).append(guest)
        rows = (
            (control, client_row(listener.name, control, guests.get(control.id, ())))
            for listener in self.listeners.values()
            for control in sorted(listener.clients, key=lambda control: control.id)
        )
        return [(control, row) for control, row in rows if wanted.fits(row)]

    async def end_all(self, ids: Iterable[str], why: str) -> list[str]:
        """End the connections of clients; those that were there."""
        wanted = frozenset(ids)
        found = [
            control for listener in self.listeners.values() for control in listener.clients if control.id in wanted
        ]
        for control in sorted(found, key=lambda control: control.id):
            LOG.info(
                "[B1069] connection %s of user %r from %s: %s",
                control.id,
                control.user and control.user.name,
                control.peer,
                why,
            )
            await self._end_connections(control, why)
        return [control.id for control in found]

    def end_client(self, control: Control, reason: str) -> None:
        """End a client's connections, soon."""
        self._loops.once(f"the end of connection {control.id}", self._end_connections(control, reason))

    async def _end_connections(self, control: Control, reason: str) -> None:
        control.close(ConnectionEndedError.code, reason)
        await self._backend.close_guest(control.id, reason)

    def close(self) -> None:
        self.security.close()
        if self._gateways is not None:
            self._gateways.close()
        for listener in self.listeners.values():
            listener.close()
        self._mapper.close()
        self._limits.close()
