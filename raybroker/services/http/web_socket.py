"""A WebSocket of the server of HTTP, for its ASGI application; the package websockets has the protocol, without IO.

There is no compression: it is not offered, and a compressed frame ends the WebSocket. While the client does not read,
nothing is read from it, so that it has no more pings answered than fit into the buffers; nor while the application has
not taken the message before. A client that takes nothing of what is written to it is cut off after
``Guard.unread_s``, and so is one that does not answer a ping.

Apart from :mod:`raybroker.services.http.http_server`, because the metrics endpoint does without the package.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from starlette.types import ASGIApp, Message
from websockets.exceptions import WebSocketException
from websockets.frames import Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import State
from websockets.server import ServerProtocol

from raybroker.services.http import http_bounds
from raybroker.services.http.http_bounds import CountedTransport, Guard
from raybroker.transport.unread import UnreadWatch

LOG: Final = logging.getLogger("raybroker.services")
PING_S: Final = 20.0
"""Between pings, and for their answers."""
PING: Final = b"raybroker"
GOES_AWAY: Final = 1012
"""The close code of a server that restarts."""
NOT_TEXT: Final = 1007
FAILED: Final = 1011
NOT_CLOSED: Final = 1006
"""What an application is told of a connection that ended without a word."""
_PROTOCOL: Final = logging.getLogger("raybroker.services.web_socket")
_PROTOCOL.setLevel(logging.ERROR)  # The library tells of each WebSocket.


class ServedWebSocket(asyncio.Protocol):
    """One WebSocket, from its request on. ``most``: bytes of a message; ``scope``: of the request; ``gone`` is called
    with it at its end."""

    def __init__(
        self,
        app: ASGIApp,
        guard: Guard,
        most: int,
        transport: CountedTransport,
        scope: dict[str, Any],
        gone: Callable[[ServedWebSocket], object],
    ) -> None:
        self._app = app
        self._guard = guard
        self._transport = transport
        self._scope = scope
        self._gone = gone
        self._protocol = ServerProtocol(max_size=most, logger=_PROTOCOL)
        self._response: Response | None = None
        """To be written when the application accepts it; nothing is read until then."""
        self._early = b""
        """What has come before."""
        self._coming: asyncio.Queue[Message] = asyncio.Queue()
        """For the application; nothing is read while there is something."""
        self._message = bytearray()
        self._is_text = False
        self._pinged = self._ended = False
        """A ping waits for its answer; the application has been told the end."""
        self._timer: asyncio.TimerHandle | None = None
        """For the next ping, for its answer, or for the end."""
        self._watch = UnreadWatch(guard.unread_s, transport, self._give_up)

    def shake_hands(
        self, target: bytes, headers: Sequence[tuple[bytes, bytes]], after: bytes
    ) -> Coroutine[Any, Any, None] | None:
        """What the application does with it; None: it was refused. ``after``: what has come behind the head."""
        self._watch.start()
        head = b"".join([b"%b: %b\r\n" % header for header in headers])
        self._protocol.receive_data(b"GET %b HTTP/1.1\r\n%b\r\n" % (target, head))
        asked = next((event for event in self._protocol.events_received() if isinstance(event, Request)), None)
        if asked is not None:
            self._response = self._protocol.accept(asked)
            if self._response.status_code != 101:
                self._protocol.send_response(self._response)
                asked = None
        if asked is None:  # It is answered that it is none.
            self._refused("its WebSocket: the request for it is not right")
            self._flush()
            self._transport.raw.close()
            return None
        self._coming.put_nowait({"type": "websocket.connect"})
        self._early = after
        self._transport.read_on(False)
        offered = [value for name, value in headers if name == b"sec-websocket-protocol"]
        subprotocols = [word.strip() for value in offered for word in value.decode("latin-1").split(",")]
        scheme = "ws" if self._scope["scheme"] == "http" else "wss"
        return self._run({**self._scope, "type": "websocket", "scheme": scheme, "subprotocols": subprotocols})

    # ---- the transport -----------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._response is not None:
            self._early += data
            return
        self._protocol.receive_data(data)
        for event in self._protocol.events_received():
            if isinstance(event, Frame):
                self._frame_came(event)
        if (fault := self._protocol.parser_exc) is not None:
            self._refused(f"its WebSocket: {fault!s:.200}")
        if self._protocol.close_expected():
            self._tell_disconnected(
                self._protocol.close_sent.code if self._protocol.close_sent is not None else NOT_CLOSED
            )
        self._flush()

    def _frame_came(self, frame: Frame) -> None:
        if frame.opcode is Opcode.PONG:
            if self._pinged:
                self._pinged = False
                self._ping_later()
            return
        if frame.opcode not in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
            return
        if frame.opcode is not Opcode.CONT:
            self._is_text = frame.opcode is Opcode.TEXT
        self._message += frame.data
        if not frame.fin or self._ended:
            return
        data, self._message = bytes(self._message), bytearray()
        try:
            told = {"text": data.decode()} if self._is_text else {"bytes": data}
        except UnicodeDecodeError:
            self._refused("its WebSocket: a text that is not UTF-8")
            self._protocol.fail(NOT_TEXT, "a text that is not UTF-8")
            return
        self._coming.put_nowait({"type": "websocket.receive", **told})
        self._transport.read_on(False)

    def _flush(self) -> None:
        """Write what the protocol has to say; at its end, close."""
        ended = False
        for data in self._protocol.data_to_send():
            self._transport.write(data)
            ended = ended or not data
        if ended:
            self._close()

    def pause_writing(self) -> None:
        self._transport.full(True)
        self._transport.read_on(False)

    def resume_writing(self) -> None:
        self._transport.full(False)
        self._transport.read_on(self._coming.empty() and self._response is None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._watch.stop()
        self._stop_timer()
        self._tell_disconnected(NOT_CLOSED)
        self._transport.full(False)
        self._gone(self)

    # ---- the ASGI interface ------------------------------------------------------------------------------------------

    async def _run(self, scope: dict[str, Any]) -> None:
        code = 1000
        try:
            await self._app(scope, self._receive, self._send)
        except OSError:
            LOG.debug("a WebSocket ended while it was written to")
        except Exception:
            LOG.exception("a WebSocket could not be served")
            code = FAILED
        if self._protocol.state is State.CONNECTING and self._response is not None:
            self._answer_with(500)
        elif self._protocol.state is State.OPEN:
            self._say_end(code, "")
        if self._protocol.state is not State.CLOSING:
            self._close()

    async def _receive(self) -> Message:
        message = await self._coming.get()
        if self._coming.empty() and not self._transport.is_full and self._response is None:
            self._transport.read_on(True)
        return message

    async def _send(self, message: Message) -> None:
        """Raises OSError when it has ended."""
        await self._transport.drained()
        kind, state = message["type"], self._protocol.state
        if state is State.CONNECTING and self._response is not None:
            if kind == "websocket.accept":
                self._accept(message)
            elif kind == "websocket.close":
                self._answer_with(403)
            else:
                raise RuntimeError(f"the message {kind!r:.80} came before the WebSocket is accepted")
        elif state is not State.OPEN or self._transport.is_closing():
            raise OSError("the WebSocket has ended")
        elif kind == "websocket.send":
            data = message.get("bytes")
            if data is not None:
                self._protocol.send_binary(data)
            else:
                self._protocol.send_text(message["text"].encode())
            self._flush()
        elif kind == "websocket.close":
            self._say_end(message.get("code", 1000), message.get("reason") or "")
        else:
            raise RuntimeError(f"the message {kind!r:.80} means nothing here")

    def _accept(self, message: Message) -> None:
        response, self._response = self._response, None
        assert response is not None
        for name, value in message.get("headers", ()):
            response.headers[name.decode("latin-1")] = value.decode("latin-1")
        if message.get("subprotocol"):
            response.headers["Sec-WebSocket-Protocol"] = message["subprotocol"]
        self._protocol.send_response(response)
        self._flush()
        self._ping_later()
        early, self._early = self._early, b""
        self._transport.read_on(True)
        if early:
            self.data_received(early)

    def _answer_with(self, status: int) -> None:
        """There is no WebSocket for it."""
        self._response = None
        self._tell_disconnected(NOT_CLOSED)
        self._protocol.send_response(self._protocol.reject(status, ""))
        self._flush()

    def _say_end(self, code: int, reason: str) -> None:
        """The client answers that, or is left."""
        self._tell_disconnected(code)
        try:
            self._protocol.send_close(code, reason)
        except WebSocketException as error:
            LOG.debug("a WebSocket could not be closed: %s", error)
            self._close()
        self._flush()
        self._transport.read_on(True)
        self._stop_timer()
        self._timer = asyncio.get_running_loop().call_later(http_bounds.CLOSE_TIMEOUT_S, self._close)

    def _tell_disconnected(self, code: int) -> None:
        """Tell the application, once."""
        if not self._ended:
            self._ended = True
            self._coming.put_nowait({"type": "websocket.disconnect", "code": code})

    # ---- bounds ------------------------------------------------------------------------------------------------------

    def _ping_later(self) -> None:
        self._stop_timer()
        self._timer = asyncio.get_running_loop().call_later(PING_S, self._ping)

    def _ping(self) -> None:
        if self._protocol.state is State.OPEN:
            self._pinged = True
            self._protocol.send_ping(PING)
            self._flush()
            self._timer = asyncio.get_running_loop().call_later(PING_S, self._unanswered)

    def _unanswered(self) -> None:
        self._refused(f"its WebSocket has not answered a ping in {PING_S:g} s")
        self._tell_disconnected(FAILED)
        self._protocol.fail(FAILED, "no answer to a ping")
        self._flush()

    def _give_up(self, why: str) -> None:
        self._refused(why)
        self._transport.raw.abort()

    def _refused(self, why: str) -> None:
        client = self._scope["client"]
        self._guard.refused(client[0] if client else "", why)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close(self) -> None:
        self._stop_timer()
        self._transport.raw.close()

    def shut_down(self) -> None:
        if self._protocol.state is State.OPEN:
            self._tell_disconnected(GOES_AWAY)
            self._protocol.send_close(GOES_AWAY)
            self._flush()
        elif self._response is not None:
            self._answer_with(503)
        self._close()

    def abort(self) -> None:
        self._transport.raw.abort()
