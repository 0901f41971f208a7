"""The native protocol and AMQP over WebSocket: what comes in binary messages goes to a listener, as from a socket.

The listener takes its end as that of the client itself: preamble, login, bounds and the way to a host are those of
every client of a connection service, or of AMQP. RELAYS_MAX connections at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable
from typing import Final

from starlette.requests import HTTPConnection
from starlette.websockets import WebSocket, WebSocketDisconnect

from raybroker.services.http.http_bounds import CERTIFICATE
from raybroker.services.listening.arrivals import Origin

LOG: Final = logging.getLogger("raybroker.services")
RELAYS_MAX: Final = 2048
READ_BYTES: Final = 256 << 10
TRY_AGAIN: Final = 1013
"""The close code of a server that has no room."""

Arrive = Callable[[socket.socket, str, Origin], None]


class Relay:
    """``arrive`` gives a socket to the listener, with the address of the client and how it comes; ``subprotocol``: what
    a client is told that has asked for one."""

    def __init__(self, arrive: Arrive, most: int = RELAYS_MAX, subprotocol: str | None = None) -> None:
        self._arrive = arrive
        self._subprotocol = subprotocol
        self._most = most
        self.open = 0

    async def serve(self, client: WebSocket) -> None:
        """One connection, until one of its ends goes."""
        await client.accept(self._subprotocol)
        if self.open >= self._most:
            await client.close(TRY_AGAIN, f"{self._most} connections are open")
            return
        self.open += 1
        try:
            await self._serve(client)
        except (OSError, WebSocketDisconnect, RuntimeError) as error:
            LOG.debug("a connection over WebSocket broke: %s", error)
        except asyncio.CancelledError:
            LOG.debug("a connection over WebSocket ends with the server")
        finally:
            self.open -= 1

    async def _serve(self, client: WebSocket) -> None:
        own, other = socket.socketpair()
        try:
            own.setblocking(False)
            other.setblocking(False)
            host, port = client.client or ("", 0)
            self._arrive(other, f"{host}:{port}", origin_of(client))
            reader, writer = await asyncio.open_unix_connection(sock=own, limit=READ_BYTES)
        except BaseException:
            own.close()
            raise
        ways = [asyncio.ensure_future(_up(client, writer)), asyncio.ensure_future(_down(client, reader))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            writer.close()
            with contextlib.suppress(RuntimeError, WebSocketDisconnect, OSError):
                await client.close()


def origin_of(client: HTTPConnection) -> Origin:
    """How the client comes: over TLS or not, and the certificate that it has shown."""
    return Origin(client.scope["scheme"] in ("https", "wss"), client.scope.get("state", {}).get(CERTIFICATE))


async def _up(client: WebSocket, writer: asyncio.StreamWriter) -> None:
    """Pass on what comes from the client to the broker; a text message ends it."""
    while True:
        message = await client.receive()
        data = message.get("bytes")
        if message["type"] != "websocket.receive" or data is None:
            return
        writer.write(data)
        await writer.drain()


async def _down(client: WebSocket, reader: asyncio.StreamReader) -> None:
    while data := await reader.read(READ_BYTES):
        await client.send_bytes(data)
