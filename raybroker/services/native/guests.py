"""A host's guests: connections that came in through a connection service of the broker.

The broker authenticates a client once.  For each connection to a host it makes a secret, tells the host which user it
stands for, and gives it to the client, which shows it in the preface.  A secret is good for one connection, within
EXPECTED_S.  From then on the host checks what the client asks for against the access rules, and the messages go between
the two without anybody in the middle.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import Counter, OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from raybroker.logs.audit import Audit
from raybroker.model.errors import BrokerError, ConfigError, ProtocolError
from raybroker.model.settings.setting_services import SERVICE_PROTOCOLS, TLS
from raybroker.security.access import Access
from raybroker.services.listening.accepting import take_over
from raybroker.services.listening.arrivals import MAKES_ROOM, Arrivals
from raybroker.services.listening.socket_handing import SocketReceiver
from raybroker.services.native.guest import TRAFFIC, Guest, Traffic
from raybroker.services.native.native import NativeService
from raybroker.system import entropy
from raybroker.system.supervision import Supervisor
from raybroker.transport.link import Link, memory_pair

if TYPE_CHECKING:
    from raybroker.security.tls import ServerTls

EXPECTED_S: Final = 60.0
"""How long a secret is good for."""
RIGHTS_S: Final = 1.0
"""How often the access rules are looked at for what is open by them."""
EXPECTED_MAX: Final = 16_384
"""Secrets that are not used yet; the oldest goes first. A client that is connected to the host already uses none."""


class Guests:
    """The guests of a host, on the loop of the native service. What is asynchronous is a role of hosting.host_port."""

    def __init__(
        self,
        service: NativeService,
        now_s: Callable[[], float],
        keystore: Callable[[Path], ServerTls],
        utc_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """``now_s``: a clock that never goes back; ``utc_s``: seconds since 1970, for the audit log."""
        self._service = service
        self._utc_s = utc_s
        self._audits: dict[str, Audit] = {}
        """By the path of the broker's audit log, of which there is one, or none."""
        self._keystore = keystore
        self._tls: dict[Path, ServerTls] = {}
        """By the security directory, of which a broker has one."""
        self._access: dict[str, Access] = {}
        """By the source of the rules, of which a broker has one, or none."""
        self._rules: dict[str, object] = {}
        """What they were when somebody looked last, by their source."""
        self._now_s = now_s
        self._gone: dict[str, Counter[str]] = {}
        """What connections carried that have ended, by service."""
        self._expected: OrderedDict[bytes, tuple[float, dict[str, Any]]] = OrderedDict()
        self._arriving = Arrivals(service.limits.arriving, service.limits.arriving_of_address)
        self._receiver: SocketReceiver | None = None

    async def expect(self, secret: bytes, claims: dict[str, Any]) -> None:
        """A client will come with this secret. ``claims``: user, groups, connection, service, and the source of the
        access rules (``rules``)."""
        expected, now_s = self._expected, self._now_s()
        expected[bytes(secret)] = now_s + EXPECTED_S, claims
        while len(expected) > EXPECTED_MAX or next(iter(expected.values()))[0] <= now_s:
            expected.popitem(last=False)

    def redeem(self, secret: bytes) -> dict[str, Any] | None:
        """Whom the secret stands for, once; None for one that nobody expects any more."""
        until_s, claims = self._expected.pop(bytes(secret), (0.0, None))
        return claims if until_s > self._now_s() else None

    def _access_of(self, source: str) -> Access:
        found = self._access.get(source)
        if found is None:
            found = self._access[source] = Access.parse(source)
            self._rules[source] = found.state()
        return found

    def start(self, loops: Supervisor) -> None:
        """Rights that are taken away end what is open by them from now on, within the time of RIGHTS_S."""
        loops.keep("rights of guests", self._watch_rights)

    def stop(self) -> None:
        """Take no more sockets from other processes."""
        if self._receiver is not None:
            self._receiver.close()

    async def _watch_rights(self) -> None:
        while True:
            await asyncio.sleep(RIGHTS_S)
            self.look_at_rights()

    async def address(self, security: str) -> str:
        """Return where sockets are taken from another process of the machine: see services.listening.socket_handing.

        ``security``: the broker's security directory, where the keystore is."""
        if self._receiver is None:
            address = f"raybroker-{entropy.token(16).hex()}"
            self._receiver = SocketReceiver(
                address, lambda taken, service: self.take_socket(taken, service, Path(security))
            )
            self._receiver.start()
        return self._receiver.address

    def look_at_rights(self) -> None:
        """Look again at what guests have open by access rules that have changed."""
        changed = set()
        for source, access in self._access.items():
            try:
                state = access.state()
            except ConfigError:  # Nothing was opened by rules that could not be read.
                continue
            if state is not self._rules.get(source):
                self._rules[source] = state
                changed.add(source)
        if not changed:
            return
        for connection in list(self._service.connections):
            guest = connection.guest
            if guest is not None and guest.claims is not None and guest.claims["rules"] in changed:
                connection.revoke(guest.why_denied)

    def _audit_of(self, claims: dict[str, Any]) -> Audit:
        told = claims.get("audit") or {}
        path = str(told.get("path", ""))
        found = self._audits.get(path)
        if found is None:
            found = self._audits[path] = Audit.of_host(told, str(claims.get("host", "")), self._utc_s)
        return found

    def take_socket(self, taken: socket.socket, service: str, security: Path | None) -> None:
        """A socket whose preamble has been read; it is closed when the client does not go on in time.

        What a service with TLS hands over has to begin with it. ``security``: the broker's security directory.
        """

        def refuse(why: str) -> None:
            taken.close()
            self._service.refused_at(peer, f"service {service}: {why}")

        peer = peer_of(taken)
        address = peer.rpartition(":")[0]
        if not self._arriving.start(
            address, lambda: self._serve_socket(taken, peer, service, security), lambda: refuse(MAKES_ROOM)
        ):
            refuse(f"{len(self._arriving)} connections have not come in yet")

    async def _serve_socket(self, taken: socket.socket, peer: str, service: str, security: Path | None) -> None:
        try:
            protocol = SERVICE_PROTOCOLS.get(service)
            if protocol is None:
                raise ProtocolError(f"there is no service {service!r:.40}")
            context = self._context(security) if protocol == TLS else None
            link = self._service.accept(self._guest())
            await take_over(lambda: link, taken, context, self._service.handshake_s)
        except (OSError, BrokerError) as error:
            taken.close()
            self._service.refused_at(peer, f"service {service}: {error}")
        except BaseException:
            taken.close()
            raise

    def join(self, link: Link) -> None:
        """Connect a client that works on this loop, without a socket; it shows its secret as every guest does."""
        memory_pair(asyncio.get_running_loop(), link, self._service.accept(self._guest()))

    def _guest(self) -> Guest:
        return Guest(self.redeem, self._access_of, self._audit_of, self._has_gone, self._consumers_of)

    def _consumers_of(self, user: str) -> int:
        """How many the guests of a user have here."""
        return sum(
            connection.consumer_count
            for connection in self._service.connections
            if connection.guest is not None and (connection.guest.claims or {}).get("user") == user
        )

    def _context(self, security: Path | None) -> ssl.SSLContext:
        if security is None:
            raise ConfigError("no directory of a keystore is known")
        found = self._tls.get(security)
        if found is None:
            found = self._tls[security] = self._keystore(security)
        return found.context()

    async def connection_rows(self) -> list[dict[str, Any]]:
        """One for each connection that is in: connection, user, service, producers, consumers, and what it carried."""
        return [
            {**connection.guest.claims, **connection.counts(), **connection.traffic()}
            for connection in self._service.connections
            if connection.guest is not None and connection.guest.claims is not None
        ]

    def _has_gone(self, service: str, traffic: Traffic) -> None:
        self._gone.setdefault(service, Counter()).update(traffic)

    async def traffic(self) -> dict[str, Traffic]:
        """Service → what its connections carried since the host was started, those that have ended too."""
        found = {service: Counter(counts) for service, counts in self._gone.items()}
        for row in await self.connection_rows():
            found.setdefault(row["service"], Counter()).update({key: row[key] for key in TRAFFIC})
        return {service: dict(counts) for service, counts in found.items()}

    async def end_connections(self, connection: str, reason: str) -> int:
        """End the connections of a client; returns how many there were."""
        gone = [
            known
            for known in self._service.connections
            if known.guest is not None and (known.guest.claims or {}).get("connection") == connection
        ]
        for known in gone:
            known.end_for_good(reason)
        return len(gone)

    async def pause(self, service: str, paused: bool) -> None:
        """Stop or go on reading from the connections of a service."""
        for known in list(self._service.connections):
            if known.guest is not None and (known.guest.claims or {}).get("service") == service:
                known.pause(paused)


def peer_of(taken: socket.socket) -> str:
    try:
        name = taken.getpeername()
    except OSError:
        return "an address that is gone"
    return f"{name[0]}:{name[1]}" if isinstance(name, tuple) else f"in-process-{taken.fileno()}:0"
