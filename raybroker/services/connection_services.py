"""The connection services of a broker: ports for programs outside the Ray cluster, and the port mapper that tells them.

Whoever connects says first, in a preamble, which host it wants; the accepted socket is handed to that host, so that
nobody stands between a client and its messages. Without a host it is a control connection, by which the client logs in
and asks the broker (``control.py``). Bounds: ARRIVING_MAX sockets of a service whose preamble has not come, of them
ARRIVING_OF_ADDRESS_MAX from one address; as many control connections that have not logged in; clients by
imq.<service>.max_threads.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, Protocol

from raybroker.logs.audit import REFUSED, Audit, changes, shown
from raybroker.model.errors import (
    BrokerError,
    ConfigError,
    IllegalStateError,
    InvalidDestinationError,
    NotSupportedError,
    ProtocolError,
    ResourceAllocationError,
    SecurityError,
)
from raybroker.model.listing import plain
from raybroker.model.setting import PortRange
from raybroker.model.setting_services import NATIVE, SERVICE_KINDS, SERVICE_PROTOCOLS, TLS
from raybroker.model.settings import ConfigView, lookup
from raybroker.security.access import Access
from raybroker.security.access_rules import Request, User
from raybroker.security.authentication import Authentication
from raybroker.security.certificate_users import CertificateUsers
from raybroker.security.mechanism import Exchange, Identity, Peer
from raybroker.security.tls import ServerTls
from raybroker.security.user_file import UserFile
from raybroker.services.arrivals import ARRIVING_MAX, ARRIVING_OF_ADDRESS_MAX, Arrivals, first_byte
from raybroker.services.control import Control
from raybroker.services.native import RefusalLog
from raybroker.system import entropy
from raybroker.transport.ports import bound_socket
from raybroker.wire.native.connection import TOKEN_BYTES
from raybroker.wire.native.preamble import HEAD_BYTES, key_length, key_of
from raybroker.wire.port_map import MAPPER, Door, port_map

LOG: Final = logging.getLogger("raybroker.services")
BACKLOG: Final = 512
MAPPED_MAX: Final = 64
"""Clients of the port mapper that are being answered."""
MAP_TIMEOUT_S: Final = 5.0
TLS_HANDSHAKE: Final = 0x16
"""The first byte of a client that begins with TLS; a preamble begins with another one."""
TLS_SHUTDOWN_S: Final = 5.0
RUNNING: Final = "RUNNING"
PAUSED: Final = "PAUSED"
QUIESCED: Final = "QUIESCED"
UNKNOWN: Final = "UNKNOWN"
Row = dict[str, Any]


class Backend(Protocol):
    """The broker behind the services."""

    async def locate(
        self, kind: str, name: str, create: bool, guest: bool, secret: bytes, claims: Row
    ) -> tuple[str, str, Row]:
        """(key of the host, broker, traits) of a destination; its host expects the secret from now on. ``guest``: the
        client's home is another broker."""
        ...

    def exists(self, kind: str, name: str) -> bool: ...

    async def ask(self, method: str, args: list[Any]) -> Any:
        """One of ASKED by name."""
        ...

    async def admin(self, verb: str, args: Row) -> Any: ...

    async def hand(self, key: str, given: socket.socket, service: str) -> None:
        """Give a socket to a host; raises ConnectionLostError."""
        ...

    async def guests(self) -> list[Row]: ...

    async def close_guest(self, connection: str, reason: str) -> None: ...

    async def pause_guests(self, service: str, paused: bool) -> None: ...

    def settings(self) -> Row:
        """Attributes of connections that were configured for the cluster."""
        ...

    async def doors(self) -> dict[str, tuple[str, dict[str, int]]]:
        """Broker → (address, service → port), of those that have services."""
        ...


ASKED: Final = frozenset({
    "brokers", "brokers_changed", "members", "routes", "renew_routes", "release_routes", "create_temporary",
    "destroy_temporary", "unsubscribe", "matching", "changed",
})  # fmt: skip
"""What a client of a NORMAL service may ask without a right of its own."""


class GatewayOpener(Protocol):
    """Serves the services of other protocols, in a thread of its own; see ``gateway.py``."""

    def open(
        self, service: str, protocol: str, bound: socket.socket, arrive: Callable[[socket.socket, str], None],
        state: Callable[[], str],
    ) -> None: ...  # fmt: skip

    def close(self) -> None: ...


class Listener:
    """One service. ``clients_max``: control connections that it takes; ``gateways``: serve its port, None for one of
    the native protocol; ``tls``: of one that takes clients with TLS alone."""

    def __init__(
        self, services: ConnectionServices, name: str, bound: socket.socket, clients_max: int,
        gateways: GatewayOpener | None = None, tls: ServerTls | None = None,
    ) -> None:  # fmt: skip
        self.name = name
        self.kind = SERVICE_KINDS[name]
        self.protocol = SERVICE_PROTOCOLS[name]
        self.port: int = bound.getsockname()[1]
        self.state = RUNNING
        self.clients: set[Control] = set()
        self.clients_max = clients_max
        self.threads = {"minThreads": 1, "maxThreads": 2 * clients_max}
        self.accepted = self.refused_count = 0
        self._services = services
        self._bound = bound
        self._gateways = gateways
        self._tls = tls
        self._arriving = Arrivals()
        self._accepting: asyncio.Task[None] | None = None
        self._open: set[Control] = set()
        """Control connections, also of clients that have not logged in."""
        self._next = 0

    def start(self) -> None:
        self._bound.setblocking(False)
        loop = asyncio.get_running_loop()
        if self._gateways is None:
            self._accepting = loop.create_task(accepting(self._bound, self._arrived))
        else:

            def arrive(taken: socket.socket, peer: str) -> None:
                loop.call_soon_threadsafe(self._arrived, taken, peer)

            self._gateways.open(self.name, self.protocol, self._bound, arrive, lambda: self.state)

    def _arrived(self, taken: socket.socket, peer: str) -> None:
        address = peer.rpartition(":")[0]
        self.accepted += 1
        if not self._arriving.start(address, lambda: self._take(taken, peer)):
            taken.close()
            self.refused(peer, f"{len(self._arriving)} connections have not said what they want yet")

    async def _take(self, taken: socket.socket, peer: str) -> None:
        """Read the preamble, and give the socket to whom it is for. A control connection with TLS has none."""
        tls = self._tls
        try:
            async with asyncio.timeout(self._services.handshake_s):
                secure = tls is not None and await first_byte(taken) == TLS_HANDSHAKE
                key = "" if secure else key_of(await _exactly(taken, key_length(await _exactly(taken, HEAD_BYTES))))
            if key:
                if self.state == PAUSED:
                    raise IllegalStateError(f"service {self.name} is paused")
                await self._services.backend.hand(key, taken, self.name)
            elif tls is not None and not secure:
                raise ProtocolError(f"service {self.name} takes clients with TLS alone")
            else:
                self._require_room(peer)
                await self._open_control(taken, peer)
        except (OSError, TimeoutError, BrokerError) as error:
            taken.close()
            self.refused(peer, str(error) or "it has not said what it wants in time")
        except BaseException:
            taken.close()
            raise

    async def _open_control(self, taken: socket.socket, peer: str) -> None:
        options: dict[str, Any] = {}
        if self._tls is not None:
            options = {
                "ssl": self._tls.context(), "ssl_handshake_timeout": self._services.handshake_s,
                "ssl_shutdown_timeout": TLS_SHUTDOWN_S,
            }  # fmt: skip
        control = self._control(peer)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: control.link, taken, **options)
        except BaseException:
            self._open.discard(control)  # It was never made, and is not lost either.
            raise

    def _require_room(self, peer: str) -> None:
        """Clients that have not logged in are bounded, so that they keep nobody else out."""
        address = peer.rpartition(":")[0]
        unknown = [control for control in self._open if control.user is None]
        of_address = sum(control.peer.rpartition(":")[0] == address for control in unknown)
        if len(unknown) >= ARRIVING_MAX or of_address >= ARRIVING_OF_ADDRESS_MAX:
            raise ResourceAllocationError(f"{of_address} connections of {address} have not logged in yet")

    def _control(self, peer: str) -> Control:
        self._next += 1
        services = self._services
        control = Control(
            self, f"{services.broker}/{self.name}/{services.life}-{self._next}", peer, first_s=services.handshake_s,
            proof_s=services.proof_s,
        )  # fmt: skip
        self._open.add(control)
        return control

    # ---- the Door of control connections -------------------------------------------------------------------------

    def _require_open(self, control: Control) -> None:
        services, address = self._services, control.peer.rpartition(":")[0]
        if self.state != RUNNING:
            raise IllegalStateError(f"service {self.name} of broker {services.broker} is {self.state}; try later")
        if len(self.clients) >= self.clients_max:
            raise ResourceAllocationError(
                f"service {self.name} has {self.clients_max} clients, half of imq.{self.name}.max_threads; close some"
                " or raise it"
            )
        of_address = sum(client.peer.rpartition(":")[0] == address for client in self.clients)
        if 0 <= services.address_max <= of_address:
            raise ResourceAllocationError(
                f"{address} has {of_address} clients of service {self.name}; at most {services.address_max} are taken"
                " (raybroker.service.address_connections_max)"
            )

    def login(self, control: Control, mechanism: str) -> Exchange:
        self._require_open(control)
        address = control.peer.rpartition(":")[0]
        # A gateway's clients come over a pair of sockets in this process.
        peer = Peer(address, encrypted=self.protocol != "tcp")
        return self._services.authentication.exchange(self.name, mechanism, peer)

    def certified(self, control: Control, certificate: bytes) -> User:
        self._require_open(control)
        return self._services.certified(certificate)

    def mechanisms(self) -> list[str]:
        return self._services.authentication.names(self.name)

    async def admitted(self, control: Control, identity: Identity) -> Row:
        services, user = self._services, identity.user
        services.access(self.name).require(user, Request("connection", self.kind, ""))
        of_user = sum(client.user is not None and client.user.name == user.name for client in self.clients)
        if 0 <= services.user_max <= of_user:
            raise ResourceAllocationError(
                f"user {user.name!r} has {of_user} clients of service {self.name} and may have {services.user_max}"
                " (raybroker.service.user_connections_max)"
            )
        control.user = user
        self.clients.add(control)
        if identity.until_s is not None:
            control.expire(identity.until_s - services.now_s(), lambda: self._expired(control))
        LOG.info("[B1065] user %r connected to service %s from %s", user.name, self.name, control.peer)
        self._audit("login", control)
        return {
            "broker": services.broker, "kind": self.kind, "connection": control.id,
            "settings": services.backend.settings(), "doors": await services.backend.doors(),
        }  # fmt: skip

    async def ask(self, control: Control, method: str, args: list[Any]) -> Any:
        if self.kind == "ADMIN":
            return await self._ask_admin(control, method, args)
        try:
            return await self._services.ask(self, control, method, args)
        except SecurityError as error:
            self._audit("denied", control, REFUSED, what=method, reason=str(error))
            raise

    async def _ask_admin(self, control: Control, method: str, args: list[Any]) -> Any:
        """Changes are written to the audit log, with how they went."""
        if method != "admin" or not changes(str(args[0])):
            return await self._services.ask_admin(method, args)
        what = shown(str(args[0]), dict(args[1]))
        try:
            answer = await self._services.ask_admin(method, args)
        except BrokerError as error:
            self._audit("admin", control, REFUSED, what=what, reason=str(error))
            raise
        self._audit("admin", control, what=what)
        return answer

    def _audit(self, event: str, control: Control, result: str = "ok", **fields: str) -> None:
        self._services.audit.record(
            event, result, user=control.user.name if control.user is not None else fields.pop("user", ""),
            address=control.peer, service=self.name, connection=control.id, **fields,
        )  # fmt: skip

    def _expired(self, control: Control) -> None:
        """What a client has logged in with is over."""
        reason = "the token has expired; log in with a new one"
        LOG.info("[B1067] user %r of service %s from %s: %s", control.user and control.user.name, self.name,
                 control.peer, reason)  # fmt: skip
        self._services.end(control, reason)

    def denied(self, control: Control, login: Exchange | None, why: str) -> None:
        reason = (login.why if login is not None else "") or why
        self.refused(control.peer, reason)
        locked = login is not None and login.locked
        self._audit("lockout" if locked else "login", control, REFUSED, user=login.name if login is not None else "",
                    reason=reason)  # fmt: skip

    def refused(self, address: str, why: str) -> None:
        self.refused_count += 1
        self._services.refusals.refused(address, why)

    def gone(self, control: Control) -> None:
        self._open.discard(control)
        if control in self.clients:
            self.clients.discard(control)
            name = control.user.name if control.user is not None else ""
            LOG.info("[B1066] user %r of service %s from %s is gone", name, self.name, control.peer)
            self._audit("closed", control, reason=control.why)

    # ---- administration ----------------------------------------------------------------------------------------------

    def row(self) -> Row:
        return {
            "service": self.name, "kind": self.kind, "protocol": self.protocol, "port": self.port,
            "state": self.state, **self.threads, "connections": len(self.clients), "connections_max": self.clients_max,
            "accepted": self.accepted, "refused": self.refused_count,
        }  # fmt: skip

    def close(self) -> None:
        if self._accepting is not None:
            self._accepting.cancel()
            self._bound.close()
        self._arriving.cancel()
        for control in list(self._open):
            control.close("connection_lost", f"broker {self._services.broker} shuts down")


class ConnectionServices:
    """``broker``: its name; ``now_s``: seconds since 1970; ``access(service)``: what its rules are; ``now_ns``: a clock
    that never goes back; ``gateways``: serve the services whose protocol is none of NATIVE; ``keystore``: opens that of
    services with TLS; ``certificates``: whom those of clients stand for."""

    def __init__(
        self, config: ConfigView, backend: Backend, *, broker: str, version: str,
        users: UserFile, authentication: Authentication, audit: Audit, now_s: Callable[[], float],
        access: Callable[[str], Access], now_ns: Callable[[], int], gateways: GatewayOpener | None = None,
        keystore: Callable[[], ServerTls] | None = None, certificates: CertificateUsers | None = None,
    ) -> None:  # fmt: skip
        self.backend = backend
        self._keystore = keystore
        self._certificates = certificates
        self._gateways = gateways
        self.broker = broker
        self.access = access
        self.handshake_s: float = config["raybroker.handshake.timeout_ms"] / 1000
        self.proof_s: float = config["imq.authentication.client.response.timeout"]
        self.refusals = RefusalLog(now_ns)
        self.listeners: dict[str, Listener] = {}
        self._config = config
        self._version = version
        self._users = users
        self.authentication = authentication
        self.audit = audit
        self.now_s = now_s
        self.address_max: int = config["raybroker.service.address_connections_max"]
        self.user_max: int = config["raybroker.service.user_connections_max"]
        self._ending: set[asyncio.Task[None]] = set()
        self.life = entropy.token(2).hex()
        """Part of the ids of connections: hosts have some that were made before the broker was restarted."""
        self._mapper: asyncio.Task[None] | None = None
        self._mapping: set[asyncio.Task[None]] = set()
        self._mapper_socket: socket.socket | None = None
        self.port = 0
        """Of the port mapper."""

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
        tls = await self._open_keystore() if any(SERVICE_PROTOCOLS[name] == TLS for name in names) else None
        for name in names:
            self.access(name)
            protocol = SERVICE_PROTOCOLS[name]
            own = f"imq.{name}.{protocol}"
            host = self._config[f"{own}.hostname"] or self._config["imq.hostname"] or "0.0.0.0"
            port = self._config[f"{own}.port"]
            bound = bound_socket(host, PortRange(port, port), f"{own}.port=", backlog=BACKLOG)
            listener = Listener(
                self, name, bound, max(1, self._config[f"imq.{name}.max_threads"] // 2),
                self._gateways if protocol not in NATIVE else None, tls if protocol == TLS else None,
            )  # fmt: skip
            listener.threads["minThreads"] = self._config[f"imq.{name}.min_threads"]
            self.listeners[name] = listener
            listener.start()
        host = self._config["imq.portmapper.hostname"] or self._config["imq.hostname"] or "0.0.0.0"
        port, backlog = self._config["imq.portmapper.port"], self._config["imq.portmapper.backlog"]
        bound = bound_socket(host, PortRange(port, port), "imq.portmapper.port=", backlog=backlog)
        bound.setblocking(False)
        self._mapper_socket, self.port = bound, bound.getsockname()[1]
        self._mapper = asyncio.get_running_loop().create_task(accepting(bound, self._tell_map))
        LOG.info(
            "[B1039] port mapper listens on %s:%d, services: %s", host, self.port,
            ", ".join(f"{name} {row.port}" for name, row in self.listeners.items()),
        )  # fmt: skip

    async def _open_keystore(self) -> ServerTls:
        if self._keystore is None:
            raise ConfigError("imq.service.activelist: services with TLS need a keystore; there is no place for one")
        tls = await asyncio.to_thread(self._keystore)
        if self._certificates is not None:
            await asyncio.to_thread(self._certificates.users)
        return tls

    def _tell_map(self, taken: socket.socket, peer: str) -> None:
        if len(self._mapping) >= MAPPED_MAX:
            taken.close()
            return
        task = asyncio.get_running_loop().create_task(self._send_map(taken))
        self._mapping.add(task)
        task.add_done_callback(self._mapping.discard)

    async def _send_map(self, taken: socket.socket) -> None:
        doors = [Door(MAPPER, "tcp", "PORTMAPPER", self.port)]
        doors += [Door(row.name, row.protocol, row.kind, row.port) for row in self.listeners.values()]
        try:
            async with asyncio.timeout(MAP_TIMEOUT_S):
                await asyncio.get_running_loop().sock_sendall(taken, port_map(self.broker, self._version, doors))
        except (OSError, TimeoutError):
            LOG.debug("a client of the port mapper did not read the map")
        finally:
            taken.close()

    def certified(self, certificate: bytes) -> User:
        """The user that a client's certificate stands for; raises SecurityError."""
        if self._certificates is None:
            raise SecurityError("certificates stand for no users here; log in with user and password")
        name = self._certificates.user_of(certificate)
        entry = self._users.users().get(name)
        if entry is None or not entry.active:
            state = "unknown" if entry is None else "not active"
            raise SecurityError(f"the user that the certificate stands for, {name!r:.140}, is {state}")
        return User(name, frozenset({entry.group}))

    # ---- what clients ask ------------------------------------------------------------------------------------------

    async def ask_admin(self, method: str, args: list[Any]) -> Any:
        """Of a client of an ADMIN service."""
        if method == "admin":
            verb, given = args
            return plain(await self.backend.admin(str(verb), dict(given)))
        if method in ("brokers", "brokers_changed", "settings"):
            return self.backend.settings() if method == "settings" else await self.backend.ask(method, args)
        raise NotSupportedError(f"an admin service carries administration alone, not {method}; connect to jms")

    async def ask(self, listener: Listener, control: Control, method: str, args: list[Any]) -> Any:
        """Of a client of a NORMAL service."""
        user = control.user
        assert user is not None
        if method == "locate":
            return await self._locate(listener, control, user, *args)
        if method == "subscribe":
            (wanted,) = args
            topic = str(wanted["topic"])
            access = self.access(listener.name)
            access.require(user, Request("topic", topic, "consume"))
            self._require_create(access, user, "topic", topic)
            return await self.backend.ask(method, args)
        if method == "unsubscribe":
            await self._require_unsubscribe(self.access(listener.name), user, *args)
        if method == "settings":
            return self.backend.settings()
        if method == "admin":
            raise SecurityError("administration goes through an admin service: mq://host:port/admin")
        if method not in ASKED:
            raise ProtocolError(f"unknown request {method!r:.40}")
        return await self.backend.ask(method, args)

    async def _locate(
        self, listener: Listener, control: Control, user: User, kind: Any, name: Any, create: Any, guest: Any = False
    ) -> tuple[str, str, Row, bytes]:
        """The client's way to a destination: (key of its host, broker, traits, secret for the preface)."""
        kind, name = str(kind), str(name)
        if create:
            self._require_create(self.access(listener.name), user, kind, name)
        secret = entropy.token(TOKEN_BYTES)
        claims = {
            "user": user.name, "groups": sorted(user.groups), "service": listener.name, "connection": control.id,
            "rules": self.access(listener.name).source, "audit": self.audit.told(), "address": control.peer,
        }  # fmt: skip
        found = await self.backend.locate(kind, name, bool(create), bool(guest), secret, claims)
        return (*found, secret)

    async def _require_unsubscribe(self, access: Access, user: User, client_id: Any, name: Any) -> None:
        """Who may not consume from a topic may not end a subscription of it either, whatever client id he names."""
        for row in await self.backend.admin("list_subscriptions", {}):
            if row["durable"] and ((row["client_id"] or ""), row["name"]) == (client_id or "", name):
                access.require(user, Request("topic", row["topic"], "consume"))

    def _require_create(self, access: Access, user: User, kind: str, name: str) -> None:
        """Whoever uses what is not there creates it."""
        if kind not in ("queue", "topic"):
            raise InvalidDestinationError(f"destination type {kind!r:.40} is not understood")
        if not self.backend.exists(kind, name):
            access.require(user, Request(kind, "", "create"))

    # ---- what administrators ask -------------------------------------------------------------------------------------

    def named(self, name: str) -> Listener:
        """Raises ConfigError for a service that is not active."""
        found = self.listeners.get(name)
        if found is None:
            state = f"is {UNKNOWN} here: it is not in imq.service.activelist" if name in SERVICE_KINDS else "is unknown"
            raise ConfigError(f"service {name!r} {state}; services are {', '.join(SERVICE_KINDS)}")
        return found

    def rows(self) -> list[Row]:
        """All services, active or not."""
        found = {name: listener.row() for name, listener in self.listeners.items()}
        absent = {"port": 0, "state": UNKNOWN, "connections": 0, "connections_max": 0, "accepted": 0, "refused": 0}
        mapper = {**absent, "service": MAPPER, "kind": "PORTMAPPER", "protocol": "tcp", "port": self.port}
        return [{**mapper, "state": RUNNING if self.port else UNKNOWN}] + [
            found.get(name) or {"service": name, "kind": kind, "protocol": SERVICE_PROTOCOLS[name], **absent}
            for name, kind in SERVICE_KINDS.items()
        ]

    async def pause(self, name: str) -> None:
        """New clients get an error, and nothing of the others is processed. Raises ConfigError for an ADMIN service."""
        listener = self.named(name)
        if listener.kind == "ADMIN":
            raise ConfigError(f"service {name!r} is for administration and is never paused")
        listener.state = PAUSED
        await self.backend.pause_guests(name, True)

    def quiesce(self, name: str) -> None:
        """New clients get an error; the others go on."""
        self.named(name).state = QUIESCED

    async def resume(self, name: str) -> None:
        listener = self.named(name)
        paused, listener.state = listener.state == PAUSED, RUNNING
        if paused:
            await self.backend.pause_guests(name, False)

    def update(self, name: str, changes: Row) -> None:
        """Raises ConfigError, and changes nothing then."""
        listener = self.named(name)
        properties = {"minThreads": f"imq.{name}.min_threads", "maxThreads": f"imq.{name}.max_threads"}
        if not changes or not changes.keys() <= properties.keys():
            wrong = ", ".join(sorted(changes.keys() - properties.keys())) or "nothing"
            more = f"; the port is imq.{name}.tcp.port, and changes at the start" if "port" in changes else ""
            raise ConfigError(f"service {name!r}: {wrong} cannot be changed, {', '.join(properties)} can{more}")
        found = {
            attribute: lookup(key, "broker").parse(changes.get(attribute, listener.threads[attribute]))
            for attribute, key in properties.items()
        }
        least, most = found["minThreads"], found["maxThreads"]
        assert isinstance(least, int)
        assert isinstance(most, int)
        if least > most:
            raise ConfigError(f"service {name!r}: minThreads={least} is more than maxThreads={most}")
        listener.threads = {"minThreads": least, "maxThreads": most}
        listener.clients_max = most // 2

    async def connections(self, service: str | None = None) -> list[Row]:
        """One row a client: id, user, service, host, producers, consumers, client id."""
        if service is not None:
            self.named(service)
        counts: dict[str, Counter[str]] = {}
        for row in await self.backend.guests():
            counts.setdefault(row["connection"], Counter()).update(
                {"producers": row["producers"], "consumers": row["consumers"], "sockets": 1}
            )
        found = []
        for listener in self.listeners.values():
            for control in sorted(listener.clients, key=lambda control: control.id):
                if service in (None, listener.name):
                    count = counts.get(control.id, Counter())
                    found.append({
                        "id": control.id, "user": control.user.name if control.user else "",
                        "service": listener.name, "host": control.peer, "producers": count["producers"],
                        "consumers": count["consumers"], "client_id": control.client.get("client_id", ""),
                        "platform": control.client.get("platform", ""),
                    })  # fmt: skip
        return found

    async def destroy_connection(self, id: str) -> None:  # noqa: A002
        """End a client's connections; raises InvalidDestinationError when there is no such client."""
        for listener in self.listeners.values():
            for control in listener.clients:
                if control.id == id:
                    await self._end(control, "an administrator has closed the connection")
                    return
        raise InvalidDestinationError(f"there is no connection {id!r}; list them with: raybroker list cxn")

    def end(self, control: Control, reason: str) -> None:
        """End a client's connections, soon."""
        task = asyncio.get_running_loop().create_task(self._end(control, reason))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _end(self, control: Control, reason: str) -> None:
        control.close(SecurityError.code, reason)
        await self.backend.close_guest(control.id, reason)

    def close(self) -> None:
        self.authentication.close()
        if self._gateways is not None:
            self._gateways.close()
        for listener in self.listeners.values():
            listener.close()
        if self._mapper is not None:
            self._mapper.cancel()
        if self._mapper_socket is not None:
            self._mapper_socket.close()


async def accepting(bound: socket.socket, arrived: Callable[[socket.socket, str], None]) -> None:
    """Call ``arrived(socket, "address:port")`` for each connection, for ever; a machine out of descriptors waits."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            taken, address = await loop.sock_accept(bound)
        except OSError as error:
            LOG.warning("[B2099] no connection could be accepted: %s", error)
            await asyncio.sleep(0.5)
            continue
        taken.setblocking(False)
        arrived(taken, f"{address[0]}:{address[1]}")


async def _exactly(taken: socket.socket, size: int) -> bytes:
    """So many bytes and not one more: what follows belongs to who gets the socket."""
    loop, data = asyncio.get_running_loop(), b""
    while len(data) < size:
        more = await loop.sock_recv(taken, size - len(data))
        if not more:
            raise ProtocolError("it ended before it said what it wants")
        data += more
    return data


