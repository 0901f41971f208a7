"""One WebSocket of uvicorn's under the guard of its HTTP connection (:mod:`raybroker.services.http.http_bounds`).

Apart from that, because it needs the package websockets, which the metrics endpoint does without.
"""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from raybroker.services.http.http_bounds import CountedTransport, Guard
from raybroker.transport.unread import UnreadWatch


class BoundedWebSocket(WebSocketsSansIOProtocol):
    """One WebSocket of uvicorn's: nothing is read from a client that does not read, and in the end it is cut off."""

    guard: Guard

    def connection_made(self, transport: Any) -> None:
        counted: Any = transport if isinstance(transport, CountedTransport) else CountedTransport(transport)
        super().connection_made(counted)
        self._full = False
        self._watch = UnreadWatch(self.guard.unread_s, counted, self._give_up)
        self._watch.start()

    def connection_lost(self, exc: Exception | None) -> None:
        self._watch.stop()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._full = True
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._full = False
        if not self.read_paused:
            self.transport.resume_reading()

    async def receive(self) -> Any:
        message = await super().receive()
        if self._full and not self.transport.is_closing():
            self.transport.pause_reading()
        return message

    def keepalive_timeout(self) -> None:
        self._refused(f"its WebSocket has not answered a ping in {self.ping_timeout:g} s")
        super().keepalive_timeout()

    def handle_parser_exception(self) -> None:
        self._refused(f"its WebSocket: {self.conn.parser_exc!s:.200}")
        super().handle_parser_exception()

    def _give_up(self, why: str) -> None:
        self._refused(why)
        self.transport.abort()

    def _refused(self, why: str) -> None:
        self.guard.refused(str(self.client[0]) if self.client else "", why)
