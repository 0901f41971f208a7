"""Gateways: servers of other protocols (STOMP, HTTP), each of whose clients is a client of its own broker.

A gateway has no right of its own.  For each of its clients it opens a connection as any program outside the Ray cluster
has, which logs in with the name and password that the client gave (:meth:`Gateway.connect_as`).  So everything that
holds for such programs holds for the gateway's clients without being written again: passwords and lock-out, access
rules, bounds, listing, pausing and closing of connections, redelivery, transactions, temporary destinations.

The way to the broker is a pair of connected sockets within the process: one end goes to the service's listener as if it
had been accepted.  No port is opened for it, so that nobody else can use it, and ``peer`` is the address of the client
itself, which lock-out and listings go by.  Destinations of other brokers of a cluster are reached as from outside,
through their service ``jms``, where they have it, at the address that it listens at; a broker that is lost is left out
until it is back, and its clients do not notice more of that than native ones do.

Gateways work in a thread with an event loop of its own in the broker's process, one for all gateways of a broker.  The
loop of a broker answers heartbeats, locates destinations and agrees with the other brokers; parsing the messages of a
hundred clients there would make it late for that.  The thread's loop is also that of the connections behind it, so that
a message changes threads nowhere on its way through the gateway.  Messages do not go through the broker's loop either:
the socket to a host in another process is handed to that process.

The host of destinations with ``hosting=broker`` works on the loop of the gateways; in a loopback they work on the loop
of its one host where raybroker.hosting.default or autocreated is broker.  A client's connection to such a host has no
socket: it joins the host's guests (:class:`Near`), with the secret that every guest shows, and what holds for guests
holds for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError
from functools import partial
from typing import Any, Final, Protocol

from raybroker.client.aio.handles import Connection
from raybroker.client.cluster.service_calls import ServiceCalls, ServiceWay, way_to
from raybroker.client.connection.body_room import BodyRoom
from raybroker.client.connection.channel import Channel
from raybroker.client.connection.connection import ConnectionCore
from raybroker.client.io.io_thread import IoThread, end_thread
from raybroker.client.ways.from_outside import connected, connected_at
from raybroker.client.ways.logging_in import Credentials
from raybroker.client.ways.service_address import SERVICE, ServiceAddress
from raybroker.model.errors import BrokerError, SecurityError
from raybroker.security.checks import CheckThreads
from raybroker.services.listening.arrivals import GATEWAY, PAUSED, Origin
from raybroker.services.listening.login_turns import LoginTurns
from raybroker.transport.link import Link
from raybroker.wire.native.preamble import preamble

LOG: Final = logging.getLogger("raybroker.services")
PROVING_THREADS: Final = 2
"""Threads in which passwords are proved, of a lower priority than messages."""
CLOSE_TIMEOUT_S: Final = 5.0
OWN: Final = ServiceAddress("this process", 0, SERVICE, False)

Arrive = Callable[[socket.socket, str, Origin], None]
"""Gives a connected socket to a service's listener, as that of the client at ``"address:port"`` that comes so, from any
thread."""
Ended = Callable[[BrokerError], object]


class JoinedGuests(Protocol):
    """The guests of a host."""

    def join(self, link: Link) -> None:
        """Connect a client that works on the host's loop; it shows its secret then."""
        ...


class Near(Protocol):
    """The hosts that work on the loop of the gateways."""

    def io(self) -> IoThread:
        """The thread of both; whoever asks does not end it."""
        ...

    def guests_of(self, key: str) -> JoinedGuests | None:
        """Return, on the loop, the guests of the host with this key; None when it is not one of them."""
        ...


class Gateway:
    """The gateway of the clients of one service: ``connect_as``. ``io``: the thread and loop of all gateways of the
    broker; ``state()``: of the service; ``near``: hosts on that loop, None: there are none; ``checks``: where passwords
    are proved, None: in any thread."""

    def __init__(
        self,
        service: str,
        arrive: Arrive,
        io: IoThread,
        state: Callable[[], str] = lambda: "RUNNING",
        near: Near | None = None,
        checks: CheckThreads | None = None,
    ) -> None:
        self.service = service
        self.io = io
        self.state = state
        self.arrive = arrive
        self._arrive = arrive
        self._near = near
        self._turns = LoginTurns()
        self._checks = checks

    async def connect_as(
        self,
        user: str,
        password: str,
        *,
        token: str | None = None,
        peer: str,
        client_id: str | None = None,
        client: str = "",
        attributes: Mapping[str, object] | None = None,
        ended: Ended | None = None,
        bodies_bytes: int = 0,
    ) -> Connection:
        """A connection to the own broker that has logged in as this user; not started. From any event loop.

        token       says who the user is, in place of name and password
        peer        "address:port" of the client that the gateway does this for
        client_id   of the connection, for durable subscriptions
        client      what the client is, for listings: "STOMP 1.2"
        attributes  of the connection, as for ``rb.connect``
        ended       is called once, on the gateway's loop, when the broker ends the connection; with the reason
        bodies_bytes  large bodies that its consumers may have in memory; 0: any
        Raises SecurityError for a wrong user or password, or one who may not connect to this service; what the service
        answers that is paused or full; ConfigError for a bad client id.
        """
        work = self.core_as(
            user,
            password,
            token=token,
            peer=peer,
            client_id=client_id,
            client=client,
            attributes=attributes,
            ended=ended,
            bodies_bytes=bodies_bytes,
        )
        return Connection(await asyncio.wrap_future(self.io.submit(work)))

    async def core_as(
        self,
        user: str,
        password: str,
        *,
        token: str | None = None,
        peer: str,
        client_id: str | None = None,
        client: str = "",
        attributes: Mapping[str, object] | None = None,
        ended: Ended | None = None,
        bodies_bytes: int = 0,
    ) -> ConnectionCore:
        """:meth:`connect_as` on the gateway's loop, for those who work there: the connection without its face."""
        credentials = self.credentials(user, password, token=token, peer=peer)
        calls = self._calls(credentials, peer, client_id, client, ended)
        async with self._turns.turn_of(user or str(token), peer.rpartition(":")[0]):
            return await connected(
                calls,
                {"raybroker.client.direct": False, **(attributes or {})},
                client_id,
                user or None,
                self.io,
                room=BodyRoom(bodies_bytes) if bodies_bytes else None,
            )

    def credentials(self, user: str, password: str, *, token: str | None = None, peer: str) -> Credentials:
        """What a client has given, to be proved where passwords of its address are."""
        address = peer.rpartition(":")[0]
        proving = partial(self._checks.run, address) if self._checks is not None else None
        return Credentials(user, password, token=token, sends="always", proving=proving)

    async def log_in_as(
        self,
        credentials: Credentials,
        *,
        peer: str,
        client: str,
        ended: Ended,
        turn: str | None,
        certificate: bytes | None = None,
        elsewhere: bool = False,
    ) -> LoggedIn:
        """Log in on the gateway's loop for a client that says later what its client id is; raises as
        :meth:`connect_as`.

        turn         the user whose turn it is waited for; None: the login costs the broker nothing
        certificate  the client's own, which TLS has verified
        elsewhere    a service that is not open lets it in, to be told where else it is taken: see LoggedIn.closed
        """
        calls = self._calls(credentials, peer, None, client, ended, certificate, elsewhere=elsewhere)
        if turn is None:
            return LoggedIn(calls, await calls.log_in(), self.io)
        async with self._turns.turn_of(turn, peer.rpartition(":")[0]):
            return LoggedIn(calls, await calls.log_in(), self.io)

    def _calls(
        self,
        credentials: Credentials,
        peer: str,
        client_id: str | None,
        client: str,
        ended: Ended | None,
        certificate: bytes | None = None,
        *,
        elsewhere: bool = False,
    ) -> ServiceCalls:
        dialler = _Dialler(self._arrive, peer, self._guests_of, certificate)
        observer = _Observer(ended) if ended is not None else None
        calls = ServiceCalls(
            (OWN,),
            credentials,
            client_id=client_id,
            reach=dialler.reach,
            client=client or self.service,
            observer=observer,
            elsewhere=elsewhere,
        )
        if observer is not None:
            observer.calls = calls
        return calls

    def _guests_of(self, key: str) -> JoinedGuests | None:
        """Return the guests of a host on this loop; a paused service takes no connections, which its listener says."""
        return self._near.guests_of(key) if self._near is not None and self.state() != PAUSED else None


class LoggedIn:
    """A client that has logged in at broker ``home`` and has no connection yet.

    ``closed``: why its service takes no new clients, and this one only to say where else it is taken; "": it may stay.
    """

    def __init__(self, calls: ServiceCalls, home: str, io: IoThread) -> None:
        self._calls = calls
        self.home = home
        self.closed = calls.closed(home)
        self._io = io

    async def connect(self, client_id: str | None, *, sole: bool, bodies_bytes: int) -> ConnectionCore:
        """The connection, started; once. Raises InvalidClientIDError when it is to be the ``sole`` one with its client
        id, and another one has it."""
        if client_id is not None and not sole:
            await self._calls.share_client_id(self.home, client_id)
        return await connected_at(
            self.home,
            self._calls,
            {"raybroker.client.direct": False, **({} if sole else {"ClientIdPolicy": "Unrestricted"})},
            client_id,
            None,
            self._io,
            room=BodyRoom(bodies_bytes),
            started=True,
        )

    async def others_at(self, service: str) -> list[tuple[str, int]]:
        """(address, port) of a service of the other brokers that takes new clients, as clients outside reach it."""
        return await self._calls.others_outside(self.home, service)

    def log_out(self) -> None:
        """It does not connect."""
        self._calls.close()


class _Dialler:
    """The way of one client to its own broker. ``guests_of``: of a host on this loop; ``certificate``: the client's."""

    def __init__(
        self,
        arrive: Arrive,
        peer: str,
        guests_of: Callable[[str], JoinedGuests | None],
        certificate: bytes | None = None,
    ) -> None:
        self._origin = GATEWAY._replace(certificate=certificate)
        self._guests_of = guests_of
        self._arrive = arrive
        self._peer = peer

    async def reach(self, address: ServiceAddress) -> ServiceWay:
        return ServiceWay(address.host, self.dial) if address is OWN else await way_to(address)

    async def dial(self, key: str, factory: Callable[[], Link]) -> object:
        link = factory()
        guests = self._guests_of(key) if key else None
        if guests is not None:
            guests.join(link)
            return link
        own, other = socket.socketpair()
        try:
            own.setblocking(False)
            other.setblocking(False)
            self._arrive(other, self._peer, self._origin)
            await asyncio.get_running_loop().create_unix_connection(lambda: link, sock=own)
        except BaseException:
            own.close()
            raise
        link.write(preamble(key))
        return link


class _Observer:
    """Tells how a client's connection ends: with the control connection to the own broker, or by another one's
    administrator. That of another broker which is lost is opened again when it is needed."""

    def __init__(self, ended: Ended) -> None:
        self.calls: ServiceCalls
        self._ended = ended

    def channel_closing(self, channel: Channel) -> None:
        """The end follows."""

    def channel_lost(self, channel: Channel) -> None:
        if channel is self.calls.first or isinstance(channel.reason, SecurityError):
            self._ended(channel.why())


class Server(Protocol):
    """What listens for the clients of a gateway; on the gateway's loop."""

    async def start(self, bound: socket.socket) -> None:
        """Accept clients of a socket that listens; it is the server's from now on."""
        ...

    async def move(self, bound: socket.socket) -> None:
        """Accept clients of another socket, and of the one before no more; those that are there stay."""
        ...

    async def close(self) -> None:
        """End the server and what it has open."""
        ...


MakeServer = Callable[[Gateway], Server]


class Gateways:
    """All gateways of a broker. ``servers``: what makes the server of a protocol; ``near``: hosts whose loop they
    share, None: they have a loop of their own; ``figures()``: what they count, as rows of the metrics' catalogue, from
    any thread."""

    def __init__(
        self,
        servers: Mapping[str, MakeServer],
        near: Near | None = None,
        figures: Callable[[], dict[str, Any]] = dict,
    ) -> None:
        self.figures = figures
        self._make = servers
        self._near = near
        self._io: IoThread | None = None
        self._checks = CheckThreads(PROVING_THREADS)
        self._open: dict[str, Server] = {}
        """By service."""

    def open(
        self,
        service: str,
        protocol: str,
        bound: socket.socket,
        arrive: Arrive,
        state: Callable[[], str] = lambda: "RUNNING",
    ) -> None:
        """Serve a service at a socket that listens; its listener gets what ``arrive`` is given."""
        near = self._near
        io = self._io = self._io or (near.io() if near is not None else IoThread("raybroker-gateways"))
        server = self._make[protocol](Gateway(service, arrive, io, state, near, self._checks))
        self._open[service] = server
        io.submit(server.start(bound)).add_done_callback(_log_failure)

    async def move(self, service: str, bound: socket.socket) -> None:
        """Serve a service at another socket that listens, and at the one before no more; its clients stay."""
        assert self._io is not None
        await asyncio.wrap_future(self._io.submit(self._open[service].move(bound)))

    def close(self) -> None:
        """End them; does not wait for it."""
        self._checks.close()
        if self._io is not None:
            io, self._io = self._io, None
            threading.Thread(target=self._close, args=(io,), name="raybroker-gateways-end", daemon=True).start()

    def _close(self, io: IoThread) -> None:
        with contextlib.suppress(BrokerError, TimeoutError, RuntimeError, CancelledError):
            io.submit(self._close_all()).result(CLOSE_TIMEOUT_S)
        if self._near is None:
            end_thread(io)

    async def _close_all(self) -> None:
        for server in self._open.values():
            try:
                await server.close()
            except Exception:
                LOG.exception("a gateway has not ended as it should")


def _log_failure(done: Any) -> None:
    if not done.cancelled() and done.exception() is not None:
        LOG.error("[B3015] a gateway does not serve: %r", done.exception())
