"""One connection service: it accepts clients, lets them log in, and says what they may ask.

Whoever connects says first, in a preamble, which host it wants; the accepted socket is handed to that host. Without a
host it is a control connection (``control.py``), whose Door the listener is.  Bounds: ``Bounds.arriving`` sockets whose
preamble has not come, of them ``arriving_of_address`` from one address; as many control connections that have not
logged in; clients by imq.<service>.max_threads, and by address and by user.  Clients are counted when their login
begins, so that no proof is checked for nothing, and again when they come in: many may have begun meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Final, Protocol

from raybroker.logs.audit import REFUSED, changes, shown
from raybroker.model.errors import (
    BrokerError,
    IllegalStateError,
    ProtocolError,
    ResourceAllocationError,
    SecurityError,
    ServiceClosedError,
)
from raybroker.model.naming.addresses import is_loopback
from raybroker.model.settings.setting_services import SERVICE_KINDS, SERVICE_PROTOCOLS
from raybroker.security.access_rules import AccessRequest, User
from raybroker.security.mechanism import Exchange, Identity, LoginPeer
from raybroker.security.tls import ServerTls
from raybroker.services.listening.accepting import accepting, ended, exactly, first_byte, take_over
from raybroker.services.listening.arrivals import ITSELF, MAKES_ROOM, PAUSED, RUNNING, Arrivals, Origin
from raybroker.services.listening.bounds import Bounds
from raybroker.services.listening.service_security import ServiceSecurity
from raybroker.services.native.control import ELSEWHERE, ONLY_ELSEWHERE, Control
from raybroker.system.supervision import Supervisor
from raybroker.wire.native.preamble import HEAD_BYTES, key_length, key_of

if TYPE_CHECKING:
    from raybroker.services.gateways.gateway import Gateways

LOG: Final = logging.getLogger("raybroker.services")
TLS_HANDSHAKE: Final = 0x16
"""The first byte of a client that begins with TLS; a preamble begins with another one."""
Row = dict[str, Any]


class Services(Protocol):
    """All services of a broker, as one of them needs them. ``life``: part of the ids of connections; ``now_s``: seconds
    since 1970; ``refused`` is for the log."""

    broker: str
    life: str
    handshake_s: float
    proof_s: float
    bounds: Bounds
    address_max: int
    user_max: int
    security: ServiceSecurity

    def client_refused(self, peer: str, why: str) -> None: ...

    def is_probe(self, peer: str) -> bool:
        """Whether the broker itself has looked from there whether somebody listens."""
        ...

    def now_s(self) -> float: ...

    async def hand(self, key: str, given: socket.socket, service: str) -> None: ...

    async def told(self, *, inside: bool) -> Row:
        """What every client is told that has logged in; ``inside``: a gateway that does so for its client."""
        ...

    async def answer_client(self, service: str, control: Control, method: str, args: list[Any]) -> Any:
        """Answer a client of a NORMAL service."""
        ...

    async def ask_admin(self, method: str, args: list[Any], *, inside: bool = False) -> Any:
        """Answer a client of an ADMIN service. ``inside``: it is a gateway's."""
        ...

    def end_client(self, control: Control, reason: str) -> None:
        """End a client's connections, soon."""
        ...

    def claiming(self, told: Row) -> AbstractAsyncContextManager[None]:
        """Meanwhile no other connection of the cluster gets the client id that a client says; raises
        InvalidClientIDError when one has it."""
        ...


def reachable(bound: socket.socket) -> tuple[str, int]:
    """The address of a socket that listens, for connections from its own machine."""
    host, port = bound.getsockname()[:2]
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port


class ServiceListener:
    """One service. ``clients_max``: control connections that it takes; ``gateways``: serve its port, None for one of
    the native protocol; ``tls``: of one that takes clients with TLS alone."""

    def __init__(
        self,
        services: Services,
        name: str,
        bound: socket.socket,
        clients_max: int,
        gateways: Gateways | None = None,
        tls: ServerTls | None = None,
    ) -> None:
        self.name = name
        self.kind = SERVICE_KINDS[name]
        self.protocol = SERVICE_PROTOCOLS[name]
        self.port: int = bound.getsockname()[1]
        self.address = reachable(bound)
        """Where this machine itself reaches it."""
        self.of_machine_alone = is_loopback(str(bound.getsockname()[0]))
        """No other machine reaches it."""
        self.state = RUNNING
        self.clients: set[Control] = set()
        self.clients_max = clients_max
        self.threads = {"minThreads": 1, "maxThreads": 2 * clients_max}
        self.accepted = self.refused_count = 0
        self._services = services
        self._bound = bound
        self._gateways = gateways
        self._tls = tls
        self._arriving = Arrivals(services.bounds.arriving, services.bounds.arriving_of_address)
        self._loops = Supervisor(f"service {name}")
        self._accepting: asyncio.Task[None] | None = None
        self._open: dict[Control, None] = {}
        """Control connections, also of clients that have not logged in."""
        self._next = 0

    def start(self) -> None:
        self._bound.setblocking(False)
        loop = asyncio.get_running_loop()
        if self._gateways is None:
            self._accepting = self._accept(self._bound)
        else:

            def arrive(taken: socket.socket, peer: str, origin: Origin) -> None:
                loop.call_soon_threadsafe(self._arrived, taken, peer, origin)

            self._gateways.open(self.name, self.protocol, self._bound, arrive, lambda: self.state)

    async def move(self, bound: socket.socket) -> None:
        """Listen at another socket, and then at the one before no more. Clients that are there stay, and so do those
        whom the system had connected at the old port."""
        before, accepting_before = self._bound, self._accepting
        bound.setblocking(False)
        if self._gateways is not None:
            await self._gateways.move(self.name, bound)
        else:
            self._accepting = self._accept(bound)
        self._bound, self.port = bound, bound.getsockname()[1]
        if accepting_before is not None:
            await ended(accepting_before, before, self._arrived, self._services.bounds)

    def _accept(self, bound: socket.socket) -> asyncio.Task[None]:
        return self._loops.keep("accepting", lambda: accepting(bound, self._arrived, self._services.bounds))

    def _arrived(self, taken: socket.socket, peer: str, origin: Origin = ITSELF) -> None:
        def refuse(why: str) -> None:
            taken.close()
            self.client_refused(peer, why)

        address = peer.rpartition(":")[0]
        self.accepted += 1
        if not self._arriving.start(
            address, lambda: self._take_socket(taken, peer, origin), lambda: refuse(MAKES_ROOM)
        ):
            refuse(f"{len(self._arriving)} connections have not said what they want yet")

    async def _take_socket(self, taken: socket.socket, peer: str, origin: Origin) -> None:
        """Read the preamble, and give the socket to whom it is for. A control connection with TLS has none."""
        tls = self._tls
        try:
            async with asyncio.timeout(self._services.handshake_s):
                secure = tls is not None and await first_byte(taken) == TLS_HANDSHAKE
                key = "" if secure else key_of(await exactly(taken, key_length(await exactly(taken, HEAD_BYTES))))
            if key:
                if self.state == PAUSED:
                    raise IllegalStateError(f"service {self.name} is paused")
                await self._services.hand(key, taken, self.name)
            elif tls is not None and not secure:
                raise ProtocolError(f"service {self.name} takes clients with TLS alone")
            else:
                self._require_room(peer)
                await self._open_control(taken, peer, origin)
        except (OSError, TimeoutError, BrokerError) as error:
            taken.close()
            self.client_refused(peer, str(error) or "it has not said what it wants in time")
        except BaseException:
            taken.close()
            raise

    async def _open_control(self, taken: socket.socket, peer: str, origin: Origin) -> None:
        control = self._control(peer, origin)
        context = None if self._tls is None else self._tls.context()
        try:
            await take_over(lambda: control.link, taken, context, self._services.handshake_s)
        except BaseException:
            self._open.pop(control, None)  # It was never made, and is not lost either.
            raise

    def _require_room(self, peer: str) -> None:
        """Clients that have not logged in are bounded, so that they keep nobody else out: the one that has said nothing
        for the longest time makes room."""
        address = peer.rpartition(":")[0]
        unknown = [control for control in self._open if control.user is None]
        of_address = sum(control.peer.rpartition(":")[0] == address for control in unknown)
        bounds = self._services.bounds
        if of_address >= bounds.arriving_of_address:
            raise ResourceAllocationError(f"{of_address} connections of {address} have not logged in yet")
        if len(unknown) >= bounds.arriving:
            silent = next((control for control in unknown if control.silent), None)
            if silent is None:
                raise ResourceAllocationError(f"{len(unknown)} connections have not logged in yet")
            self._open.pop(silent)
            silent.give_up(MAKES_ROOM)

    def _control(self, peer: str, origin: Origin) -> Control:
        self._next += 1
        services = self._services
        control = Control(
            self,
            f"{services.broker}/{self.name}/{services.life}-{self._next}",
            peer,
            first_s=services.handshake_s,
            proof_s=services.proof_s,
            origin=origin,
            unread_s=services.bounds.unread_s,
        )
        self._open[control] = None
        return control

    # ---- the Door of control connections -------------------------------------------------------------------------

    @property
    def _closed(self) -> str:
        """Why no new clients are taken; "" when they are."""
        return "" if self.state == RUNNING else f"service {self.name} of broker {self._services.broker} is {self.state}"

    def _require_open(self, control: Control) -> None:
        services, address = self._services, control.peer.rpartition(":")[0]
        if self._closed and not (control.origin.gateway and ELSEWHERE in control.client):
            raise ServiceClosedError(f"{self._closed}; try later")
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
        # Without TLS of its own, what a service hears comes from a gateway, which knows how its client sends.
        peer = LoginPeer(address, encrypted=self.protocol != "tcp" and control.origin.encrypted)
        return self._services.security.login(self.name, mechanism, peer)

    def certified(self, control: Control, certificate: bytes) -> User:
        self._require_open(control)
        return self._services.security.certified(certificate)

    def mechanisms(self) -> list[str]:
        return self._services.security.mechanisms(self.name)

    async def admitted(self, control: Control, identity: Identity) -> Row:
        services, user = self._services, identity.user
        services.security.access(self.name).require(user, AccessRequest("connection", self.kind, ""))
        async with services.claiming(control.client):
            self._require_open(control)
            of_user = sum(client.user is not None and client.user.name == user.name for client in self.clients)
            if 0 <= services.user_max <= of_user:
                raise ResourceAllocationError(
                    f"user {user.name!r} has {of_user} clients of service {self.name} and may have {services.user_max}"
                    " (raybroker.service.user_connections_max)"
                )
            control.user = user
            control.proved = services.security.proved_by(control.mechanism, identity)
            self.clients.add(control)
        if identity.until_s is not None:
            control.expire(identity.until_s - services.now_s(), lambda: self._expired(control))
        closed = self._closed
        if closed:
            control.client[ELSEWHERE] = ONLY_ELSEWHERE
        else:
            LOG.info("[B1065] user %r connected to service %s from %s", user.name, self.name, control.peer)
        self._audit("login", control)
        return {
            "broker": services.broker,
            "kind": self.kind,
            "connection": control.id,
            "closed": closed,
            **await services.told(inside=control.origin.gateway),
        }

    async def answer_client(self, control: Control, method: str, args: list[Any]) -> Any:
        if self.kind == "ADMIN":
            return await self._ask_admin(control, method, args)
        if control.client.get(ELSEWHERE) == ONLY_ELSEWHERE and method != "taking":
            raise ServiceClosedError(f"{self._closed or 'the service was closed'}; log in again")
        try:
            return await self._services.answer_client(self.name, control, method, args)
        except SecurityError as error:
            self._audit("denied", control, REFUSED, what=method, reason=str(error))
            raise

    async def _ask_admin(self, control: Control, method: str, args: list[Any]) -> Any:
        """Changes are written to the audit log, with how they went."""
        if method != "admin" or not changes(str(args[0])):
            return await self._services.ask_admin(method, args, inside=control.origin.gateway)
        what = shown(str(args[0]), dict(args[1]))
        try:
            answer = await self._services.ask_admin(method, args)
        except BrokerError as error:
            self._audit("admin", control, REFUSED, what=what, reason=str(error))
            raise
        self._audit("admin", control, what=what)
        return answer

    def _audit(self, event: str, control: Control, result: str = "ok", **fields: str) -> None:
        self._services.security.audit.record(
            event,
            result,
            user=control.user.name if control.user is not None else fields.pop("user", ""),
            address=control.peer,
            service=self.name,
            connection=control.id,
            **fields,
        )

    def _expired(self, control: Control) -> None:
        """What a client has logged in with is over."""
        reason = "the token has expired; log in with a new one"
        LOG.info(
            "[B1067] user %r of service %s from %s: %s",
            control.user and control.user.name,
            self.name,
            control.peer,
            reason,
        )
        self._services.end_client(control, reason)

    def denied(self, control: Control, login: Exchange | None, why: str) -> None:
        reason = (login.why if login is not None else "") or why
        self.client_refused(control.peer, reason)
        locked = login is not None and login.locked
        self._audit(
            "lockout" if locked else "login",
            control,
            REFUSED,
            user=login.name if login is not None else "",
            reason=reason,
        )

    def client_refused(self, address: str, why: str) -> None:
        if self._services.is_probe(address):
            return
        self.refused_count += 1
        self._services.client_refused(address, why)

    def gone(self, control: Control) -> None:
        self._open.pop(control, None)
        if control in self.clients:
            self.clients.discard(control)
            name = control.user.name if control.user is not None else ""
            why = f": {control.why}" if control.why else ""
            LOG.info("[B1066] user %r of service %s from %s is gone%s", name, self.name, control.peer, why)
            self._audit("closed", control, reason=control.why)

    # ---- administration ----------------------------------------------------------------------------------------------

    def service_row(self) -> Row:
        return {
            "service": self.name,
            "kind": self.kind,
            "protocol": self.protocol,
            "port": self.port,
            "state": self.state,
            **self.threads,
            "connections": len(self.clients),
            "connections_max": self.clients_max,
            "accepted": self.accepted,
            "refused": self.refused_count,
        }

    def close(self) -> None:
        self._loops.close()
        if self._gateways is None:
            self._bound.close()
        self._arriving.cancel()
        for control in list(self._open):
            control.close("connection_lost", f"broker {self._services.broker} shuts down")
