"""The native protocol inside of a WebSocket, for clients whose way to the broker is HTTP.

What a link writes goes as binary messages of at most PIECE_BYTES, and what comes in such messages goes to the link:
where one ends means nothing. The protocol itself is that of the library websockets, without IO.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping
from typing import Any, Final

from websockets.client import ClientProtocol
from websockets.exceptions import WebSocketException
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import State
from websockets.uri import parse_uri

from raybroker.client.ways.target import Target
from raybroker.model.errors import ConnectionLostError, NoClusterError
from raybroker.transport.link import Link
from raybroker.wire.native.preamble import preamble

PATH: Final = "/native"
PIECE_BYTES: Final = 1 << 20
TAKEN_BYTES_MAX: Final = 8 << 20
"""Largest message that is taken from the server, which sends smaller ones."""
UPGRADE_TIMEOUT_S: Final = 10.0


async def dial(
    target: Target,
    key: str,
    factory: Callable[[], Link],
    tls: Mapping[str, Any],
    upgrade_s: float = UPGRADE_TIMEOUT_S,
) -> object:
    """Connect a link to the host with that key, by the service at ``target``. ``tls``: options of ``create_connection``
    for TLS; none without. ``upgrade_s``: for the answer to the WebSocket.

    Raises OSError, TimeoutError, NoClusterError for a server that speaks no WebSocket there, and ConnectionLostError
    for one that ends the connection.
    """
    loop = asyncio.get_running_loop()
    link, sock = factory(), await target.socket()
    shown = f"[{target.host}]" if ":" in target.host else target.host
    carrier = _SocketCarrier(f"{'wss' if tls else 'ws'}://{shown}:{target.port}{PATH}", link, loop.create_future())
    try:
        transport, _ = await loop.create_connection(lambda: carrier, sock=sock, **tls)
    except BaseException:
        sock.close()
        raise
    try:
        async with asyncio.timeout(upgrade_s):
            await carrier.upgraded
    except BaseException:
        transport.abort()
        raise
    link.write(preamble(key))
    return link


class _SocketCarrier(asyncio.Protocol):
    """The connection; ``upgraded`` is done when the link may be used."""

    def __init__(self, uri: str, link: Link, upgraded: asyncio.Future[None]) -> None:
        self.upgraded = upgraded
        self._link = link
        self._socket = ClientProtocol(parse_uri(uri), max_size=TAKEN_BYTES_MAX)
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.send_request(self._socket.connect())
        self._flush()

    def data_received(self, data: bytes) -> None:
        self._socket.receive_data(data)
        for event in self._socket.events_received():
            if isinstance(event, Response):
                self._answered(event)
            elif isinstance(event, Frame) and event.opcode in (Opcode.BINARY, Opcode.CONT) and not self._link.lost:
                self._link.data_received(bytes(event.data))
        self._flush()

    def _answered(self, response: Response) -> None:
        if self.upgraded.done():
            return
        fault = self._socket.handshake_exc
        if fault is not None:
            text = f"it speaks HTTP, and no WebSocket at {PATH} (status {response.status_code}): {fault}"
            self.upgraded.set_exception(NoClusterError(text))
            return
        self._link.connection_made(_Transport(self, self._transport))
        self.upgraded.set_result(None)

    def write(self, data: bytes | memoryview) -> None:
        """Send some bytes of the link."""
        if self._socket.state is not State.OPEN:
            return
        view = memoryview(data)
        for start in range(0, len(view), PIECE_BYTES):
            self._socket.send_binary(view[start : start + PIECE_BYTES])
        self._flush()

    def _flush(self) -> None:
        for data in self._socket.data_to_send():
            if self._transport.is_closing():
                return  # It has ended, and connection_lost is to come.
            if data:
                self._transport.write(data)
            else:  # The end of the stream.
                self._transport.close()

    def close(self) -> None:
        """Say goodbye, and end when all is sent."""
        try:
            self._socket.send_close()
            self._flush()
        except WebSocketException:
            pass  # It is ending.
        self._transport.close()

    def pause_writing(self) -> None:
        self._link.pause_writing()

    def resume_writing(self) -> None:
        self._link.resume_writing()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.upgraded.done():
            why = f": {exc}" if exc is not None else ""
            self.upgraded.set_exception(ConnectionLostError(f"it ended the connection before the WebSocket began{why}"))
        elif not self.upgraded.cancelled() and self.upgraded.exception() is None:
            self._link.connection_lost(exc)


class _Transport(asyncio.Transport):
    """What the link writes to."""

    def __init__(self, carrier: _SocketCarrier, under: Any) -> None:
        super().__init__()
        self._carrier = carrier
        self._under = under

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """The socket is not given away: bytes on it are frames."""
        return default if name == "socket" else self._under.get_extra_info(name, default)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._under.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return int(self._under.get_write_buffer_size())

    def write(self, data: Any) -> None:
        self._carrier.write(data)

    def writelines(self, list_of_data: Any) -> None:
        self._carrier.write(b"".join(list_of_data))

    def is_reading(self) -> bool:
        return bool(self._under.is_reading())

    def pause_reading(self) -> None:
        self._under.pause_reading()

    def resume_reading(self) -> None:
        self._under.resume_reading()

    def is_closing(self) -> bool:
        return bool(self._under.is_closing())

    def close(self) -> None:
        self._carrier.close()

    def abort(self) -> None:
        self._under.abort()
