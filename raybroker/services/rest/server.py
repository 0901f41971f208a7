"""uvicorn for the REST service, with bounds of its connections, on the loop of the gateways.

CONNECTIONS_MAX connections, CONNECTIONS_OF_ADDRESS_MAX from one address. HEADERS_TIMEOUT_S for the headers of a
request to come; when there is no room, the connection that has waited longest for headers makes room. HEADERS_BYTES_MAX
bytes of headers; IDLE_TIMEOUT_S between requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any, Final

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from raybroker.services.rest.application import HEADERS_BYTES_MAX

LOG: Final = logging.getLogger("raybroker.services")
CONNECTIONS_MAX: Final = 2048
CONNECTIONS_OF_ADDRESS_MAX: Final = 1024
HEADERS_TIMEOUT_S: Final = 10.0
IDLE_TIMEOUT_S: Final = 60
TLS_TIMEOUT_S: Final = 10.0
BACKLOG: Final = 512
WS_BYTES_MAX: Final = 4 << 20
"""Largest message of a WebSocket."""
END_S: Final = 1.0
"""How long requests under way may take when the server ends, and again when their users' connections have ended."""


class Guard:
    """Counts connections by address, and knows those whose headers have not come."""

    def __init__(
        self, refused: Callable[[str, str], None] = lambda peer, why: None, *, most: int = CONNECTIONS_MAX,
        of_address: int = CONNECTIONS_OF_ADDRESS_MAX, headers_s: float = HEADERS_TIMEOUT_S,
    ) -> None:  # fmt: skip
        self.refused = refused
        self.headers_s = headers_s
        self._most = most
        self._of_address = of_address
        self._addresses: Counter[str] = Counter()
        self._waiting: OrderedDict[BoundedProtocol, None] = OrderedDict()

    def __len__(self) -> int:
        return self._addresses.total()

    def arrived(self, address: str) -> bool:
        """One more connection; False when there is no room for it."""
        if self._addresses[address] >= self._of_address:
            self.refused(address, f"{self._of_address} connections of that address are open")
            return False
        if len(self) >= self._most:
            if not self._waiting:
                self.refused(address, f"{self._most} connections are open")
                return False
            next(iter(self._waiting)).give_up("others need the room, and its request has not come")
        self._addresses[address] += 1
        return True

    def left(self, address: str) -> None:
        self._addresses[address] -= 1
        if self._addresses[address] <= 0:
            del self._addresses[address]

    def waits(self, connection: BoundedProtocol) -> None:
        """Its headers have not come."""
        self._waiting[connection] = None

    def waits_no_longer(self, connection: BoundedProtocol) -> None:
        self._waiting.pop(connection, None)


class BoundedProtocol(H11Protocol):
    """One connection of uvicorn's, under a guard."""

    guard: Guard

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._address: str | None = None
        self._headers_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        name = transport.get_extra_info("peername")
        address = str(name[0]) if name else ""
        if not self.guard.arrived(address):
            self.transport = transport
            transport.abort()
            return
        self._address = address
        super().connection_made(transport)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._expect_headers()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]:
            self._expect_headers()
        else:
            self._headers_came()

    def _expect_headers(self) -> None:
        if self._headers_timer is None and self._address is not None:
            self.guard.waits(self)
            self._headers_timer = self.loop.call_later(
                self.guard.headers_s, self.give_up, f"its headers have not come in {self.guard.headers_s:g} s"
            )

    def _headers_came(self) -> None:
        if self._headers_timer is not None:
            self._headers_timer.cancel()
            self._headers_timer = None
            self.guard.waits_no_longer(self)

    def give_up(self, why: str) -> None:
        """End it now."""
        if self._address is not None:
            self.guard.refused(self._address, why)
        self._leave()
        self.transport.abort()

    def _leave(self) -> None:
        self._headers_came()
        if self._address is not None:
            self.guard.left(self._address)
            self._address = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        if self.flow is not None:  # It was let in.
            super().connection_lost(exc)

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self._leave()
        super().handle_websocket_upgrade(event)


class HttpServer:
    """Serves an ASGI application at a socket that listens, on the loop that :meth:`start` is called on.

    ``ended`` is awaited when it has ended: it ends what the application has open. ``tls``: gives the context for a new
    connection.
    """

    def __init__(
        self, app: Any, *, guard: Guard, ended: Callable[[], Any], tls: Callable[[], ssl.SSLContext] | None = None
    ) -> None:
        self.guard = guard
        self._ended = ended
        self._tls = tls
        self._listening: asyncio.Server | None = None
        self._ticking: asyncio.Task[None] | None = None
        protocol = type("GuardedProtocol", (BoundedProtocol,), {"guard": guard})
        self._config = uvicorn.Config(
            app, http=protocol, ws="websockets-sansio", loop="none", lifespan="off", log_config=None, access_log=False,
            proxy_headers=False, server_header=False, timeout_keep_alive=IDLE_TIMEOUT_S,
            h11_max_incomplete_event_size=HEADERS_BYTES_MAX, ws_per_message_deflate=False,
            ws_max_size=WS_BYTES_MAX,
        )  # fmt: skip
        self._server = uvicorn.Server(self._config)
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)  # It tells of each WebSocket.

    async def start(self, bound: socket.socket) -> None:
        """Accept connections of a socket that listens; it is the server's from now on."""
        loop = asyncio.get_running_loop()
        config, state = self._config, self._server.server_state
        config.load()
        protocol: Any = config.http_protocol_class
        options: dict[str, Any] = {}
        if self._tls is not None:
            options = {"ssl": _renewing(self._tls), "ssl_handshake_timeout": TLS_TIMEOUT_S}
        self._listening = await loop.create_server(
            lambda: protocol(config=config, server_state=state, app_state={}, _loop=loop), sock=bound, backlog=BACKLOG,
            **options,
        )  # fmt: skip
        self._ticking = loop.create_task(self._tick())

    async def _tick(self) -> None:
        """The header Date, which uvicorn makes once a second."""
        while True:
            await self._server.on_tick(0)
            await asyncio.sleep(1)

    async def close(self) -> None:
        """End it, with what it has open."""
        if self._ticking is not None:
            self._ticking.cancel()
        if self._listening is not None:
            self._listening.close()
        state = self._server.server_state
        for connection in list(state.connections):
            connection.shutdown()
        await _over(state.tasks)
        await self._ended()  # Whoever waits for messages is told.
        await _over(state.tasks)
        for task in list(state.tasks):
            task.cancel()
        for connection in list(state.connections):
            with contextlib.suppress(OSError):
                connection.transport.abort()


async def _over(tasks: set[asyncio.Task[None]]) -> None:
    """Wait a while for these."""
    if tasks:
        await asyncio.wait(list(tasks), timeout=END_S)


def _renewing(tls: Callable[[], ssl.SSLContext]) -> ssl.SSLContext:
    """A context that asks for the present one at each handshake: certificates are renewed."""
    first = tls()

    def chosen(connection: Any, name: str | None, context: ssl.SSLContext) -> None:
        connection.context = tls()

    first.sni_callback = chosen
    return first
