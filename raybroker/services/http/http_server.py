"""uvicorn for an ASGI application, with bounds of its connections (:mod:`raybroker.services.http.http_bounds`).

IDLE_TIMEOUT_S between requests of a connection; TLS_TIMEOUT_S for a handshake, of which there are as many at once as
``Bounds`` say; WS_BYTES_MAX bytes a message of a WebSocket.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final

import uvicorn

from raybroker.model.errors import BrokerError
from raybroker.services.http.http_at_once import Answer, AtOnceProtocol, TakeAtOnce
from raybroker.services.http.http_bounds import BoundedProtocol, Guard
from raybroker.services.listening.accepting import accepting, ended, take_over
from raybroker.services.listening.arrivals import MAKES_ROOM, Arrivals
from raybroker.services.listening.bounds import AS_SET, Bounds
from raybroker.system.supervision import Supervisor

IDLE_TIMEOUT_S: Final = 60
TLS_TIMEOUT_S: Final = 10.0
WS_BYTES_MAX: Final = 4 << 20
"""Largest message of a WebSocket."""
END_S: Final = 1.0
"""How long requests under way may take when the server ends, and again when their users' connections have ended."""


class HttpServer:
    """Serves an ASGI application at a socket that listens, on the loop that :meth:`start` is called on.

    ``ended`` is awaited when it has ended: it ends what the application has open. ``tls``: gives the context for a new
    connection; ``web_sockets``: whether there are any, ``ws_bytes``: the largest message of one; ``bounds``: of
    connections that have not come in; ``take_at_once``: takes requests that need no task.
    """

    def __init__(
        self,
        app: Any,
        *,
        guard: Guard,
        ended: Callable[[], Any],
        tls: Callable[[], ssl.SSLContext] | None = None,
        web_sockets: bool = True,
        ws_bytes: int = WS_BYTES_MAX,
        bounds: Bounds = AS_SET,
        take_at_once: TakeAtOnce | None = None,
    ) -> None:
        self.guard = guard
        self._ended = ended
        self._tls = tls
        self._bound: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._bounds = bounds
        self._arriving = Arrivals(bounds.arriving, bounds.arriving_of_address)
        self._loops = Supervisor("a server of HTTP")
        self._answers: set[Answer] = set()
        own: dict[str, Any] = {"guard": guard}
        if take_at_once is not None:
            own |= {"take_at_once": staticmethod(take_at_once), "answers": self._answers}
        protocol = type("GuardedProtocol", (BoundedProtocol if take_at_once is None else AtOnceProtocol,), own)
        self._config = uvicorn.Config(
            app,
            interface="asgi3",
            http=protocol,
            ws=_web_socket(guard) if web_sockets else "none",
            loop="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=IDLE_TIMEOUT_S,
            ws_per_message_deflate=False,
            ws_max_size=ws_bytes,
        )
        self._server = uvicorn.Server(self._config)

    async def start(self, bound: socket.socket) -> None:
        """Accept connections of a socket that listens; it is the server's from now on."""
        self._config.load()
        self._accept(bound)
        self._loops.keep("the header Date", self._tick)

    async def move(self, bound: socket.socket) -> None:
        """Accept connections of another socket, and of the one before no more; those that are there stay."""
        before, task = self._bound, self._accepting
        self._accept(bound)
        if before is not None and task is not None:
            await ended(task, before, self._arrived, self._bounds)

    def _accept(self, bound: socket.socket) -> None:
        bound.setblocking(False)
        self._bound = bound
        self._accepting = self._loops.keep("accepting", lambda: accepting(bound, self._arrived, self._bounds))

    def _arrived(self, taken: socket.socket, peer: str) -> None:
        def refuse(why: str) -> None:
            taken.close()
            self.guard.refused(address, why)

        address = peer.rpartition(":")[0]
        if not self._arriving.start(address, lambda: self._take(taken, address), lambda: refuse(MAKES_ROOM)):
            refuse(f"{len(self._arriving)} connections have not come in yet")

    async def _take(self, taken: socket.socket, address: str) -> None:
        """With TLS, the handshake comes before there is a connection."""
        try:
            await take_over(self._protocol, taken, self._tls() if self._tls is not None else None, TLS_TIMEOUT_S)
        except (OSError, BrokerError) as error:
            taken.close()
            self.guard.refused(address, f"TLS failed: {error}" if self._tls is not None else str(error))
        except BaseException:
            taken.close()
            raise

    def _protocol(self) -> asyncio.BaseProtocol:
        made: Any = self._config.http_protocol_class
        protocol: asyncio.BaseProtocol = made(
            config=self._config, server_state=self._server.server_state, app_state={}, _loop=asyncio.get_running_loop()
        )
        return protocol

    async def _tick(self) -> None:
        """The header Date, which uvicorn makes once a second."""
        while True:
            await self._server.on_tick(0)
            await asyncio.sleep(1)

    async def close(self) -> None:
        """End it, with what it has open."""
        self._loops.close()
        if self._bound is not None:
            self._bound.close()
        self._arriving.cancel()
        state = self._server.server_state
        for connection in list(state.connections):
            connection.shutdown()
        await self._over(state.tasks)
        await self._ended()  # Whoever waits for messages is told.
        await self._over(state.tasks)
        for task in list(state.tasks):
            task.cancel()
        for connection in list(state.connections):
            with contextlib.suppress(OSError):
                connection.transport.abort()

    async def _over(self, tasks: set[asyncio.Task[None]]) -> None:
        """Wait a while for requests that are being answered."""
        waiting: list[asyncio.Future[None]] = [*tasks, *(answer.over() for answer in self._answers)]
        if waiting:
            await asyncio.wait(waiting, timeout=END_S)


def _web_socket(guard: Guard) -> Any:
    from raybroker.services.http.bounded_web_socket import BoundedWebSocket

    return type("GuardedWebSocket", (BoundedWebSocket,), {"guard": guard})
