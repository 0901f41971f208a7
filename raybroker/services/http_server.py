"""uvicorn for an ASGI application, with bounds of its connections (:mod:`raybroker.services.http_bounds`).

IDLE_TIMEOUT_S between requests of a connection; TLS_TIMEOUT_S for a handshake; WS_BYTES_MAX bytes a message of a
WebSocket.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final, Literal

import uvicorn

from raybroker.services.http_bounds import BoundedProtocol, Guard

IDLE_TIMEOUT_S: Final = 60
TLS_TIMEOUT_S: Final = 10.0
BACKLOG: Final = 512
WS_BYTES_MAX: Final = 4 << 20
"""Largest message of a WebSocket."""
END_S: Final = 1.0
"""How long requests under way may take when the server ends, and again when their users' connections have ended."""


class HttpServer:
    """Serves an ASGI application at a socket that listens, on the loop that :meth:`start` is called on.

    ``ended`` is awaited when it has ended: it ends what the application has open. ``tls``: gives the context for a new
    connection; ``ws``: what serves WebSockets, as uvicorn names it, "none": there are none.
    """

    def __init__(
        self, app: Any, *, guard: Guard, ended: Callable[[], Any], tls: Callable[[], ssl.SSLContext] | None = None,
        ws: Literal["websockets-sansio", "none"] = "websockets-sansio",
    ) -> None:  # fmt: skip
        self.guard = guard
        self._ended = ended
        self._tls = tls
        self._listening: asyncio.Server | None = None
        self._ticking: asyncio.Task[None] | None = None
        protocol = type("GuardedProtocol", (BoundedProtocol,), {"guard": guard})
        self._config = uvicorn.Config(
            app, interface="asgi3", http=protocol, ws=ws, loop="none", lifespan="off",
            log_config=None, access_log=False, proxy_headers=False, server_header=False,
            timeout_keep_alive=IDLE_TIMEOUT_S, ws_per_message_deflate=False, ws_max_size=WS_BYTES_MAX,
        )  # fmt: skip
        self._server = uvicorn.Server(self._config)

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
