"""Connections of HTTP and their bounds: uvicorn's, parsed by httptools, under a guard that counts them.

A connection that waits for a request (its headers have begun and not ended, or nothing has come since it was accepted)
has ``Guard.headers_s``; when there is no room for another connection, the one that waits longest makes room. The parser
keeps what is not complete, so that is bounded here: ``headers_bytes`` for the line and the headers of a request, for
what follows a body in chunks, and for any other bytes that mean nothing yet, HEADERS_MAX headers; PIPELINED_MAX
requests that came before the answer to the first of them. A client that does not read its last answer is cut off after
CLOSE_TIMEOUT_S, one that does not read an earlier one after uvicorn's time between requests, and one that takes nothing
of an answer that is still being written, or of what comes over its WebSocket, after ``unread_s``.

A WebSocket has no compression (permessage-deflate is not offered, and a compressed frame ends it). While it does not
read, nothing is read from it, so that it has no more pings answered than fit into the buffers.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from raybroker.model.settings.setting_listeners import UNREAD_S
from raybroker.services.web.problems import CONTENT_TYPE, RefusedError, problem
from raybroker.transport.unread import UnreadWatch

CERTIFICATE: Final = "raybroker.certificate"
"""Where a client's certificate is in the state of a connection."""
CONNECTIONS_MAX: Final = 2048
CONNECTIONS_OF_ADDRESS_MAX: Final = 1024
HEADERS_TIMEOUT_S: Final = 10.0
HEADERS_BYTES_MAX: Final = 16_384
HEADERS_MAX: Final = 256
PIPELINED_MAX: Final = 16
CLOSE_TIMEOUT_S: Final = 5.0
"""For the last answer to be read."""
VERSIONS: Final = ("1.1", "1.0")
ONCE: Final = frozenset({b"host", b"authorization", b"content-type", b"origin", b"content-encoding"})
"""Headers that a request has once at most."""


class _Ours(logging.Filter):
    """Without what clients do: a text of a WebSocket that is none, and ends while an answer is written."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        gone = isinstance(error, RuntimeError) and "unable to perform operation" in str(error)
        return not (gone or isinstance(error, UnicodeDecodeError))


_log: Final = logging.getLogger("uvicorn.error")
_log.setLevel(logging.ERROR)  # It tells of each WebSocket, and of each client's garbage.
_log.addFilter(_Ours())


class Guard:
    """Counts connections by address, and knows those whose headers have not come. ``refused``: (address, why), for the
    log."""

    def __init__(
        self,
        refused: Callable[[str, str], None] = lambda peer, why: None,
        *,
        most: int = CONNECTIONS_MAX,
        of_address: int = CONNECTIONS_OF_ADDRESS_MAX,
        headers_s: float = HEADERS_TIMEOUT_S,
        headers_bytes: int = HEADERS_BYTES_MAX,
        unread_s: float = UNREAD_S,
    ) -> None:
        self.refused = refused
        self.headers_s = headers_s
        self.headers_bytes = headers_bytes
        self.unread_s = unread_s
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


class CountedTransport:
    """A transport whose written bytes are counted."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.is_closing = transport.is_closing
        self.bytes_out = 0

    @property
    def unsent_bytes(self) -> int:
        return self._transport.get_write_buffer_size()

    def write(self, data: bytes) -> None:
        self.bytes_out += len(data)
        self._transport.write(data)

    def resume_reading(self) -> None:
        """An answer may end after its client has gone, and then there is nothing to read."""
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class JoinedWrites:
    """What one answer is written to: its head goes together with what follows, so that the client wakes up once."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head = b""
        self._begun = False
        self.is_closing = transport.is_closing

    def write(self, data: bytes) -> None:
        if self._head:
            data, self._head = self._head + data, b""
        elif not self._begun and not data.startswith(STATUS_LINE[100]):
            self._head, self._begun = data, True
            return
        self._transport.write(data)

    def close(self) -> None:
        if self._head:
            self._transport.write(self._head)
            self._head = b""
        self._transport.close()


class BoundedProtocol(HttpToolsProtocol):
    """One connection of uvicorn's, under a guard."""

    guard: Guard

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._address: str | None = None
        """None: it is not counted (any more)."""
        self._timer: asyncio.TimerHandle | None = None
        """For headers to come, or for the last answer to be read."""
        self._heading = False
        """The headers of a request have begun and not ended."""
        self._headers = self._head_bytes = 0
        """What has come of the line and headers of a request, or behind its body."""
        self._silent_bytes = 0
        """What has come since the parser has told anything: it keeps that."""
        self._too_much: tuple[str, int] | None = None
        self._refused = False
        self._watch: UnreadWatch | None = None

    # ---- the transport ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as httptools_impl has it
        name = transport.get_extra_info("peername")
        address = str(name[0]) if name else ""
        if not self.guard.arrived(address):
            self.transport = transport
            transport.abort()
            return
        self._address = address
        secured = transport.get_extra_info("ssl_object")
        if secured is not None and (shown := secured.getpeercert(True)) is not None:
            self.app_state[CERTIFICATE] = shown
        counted: Any = CountedTransport(transport)
        self._watch = UnreadWatch(self.guard.unread_s, counted, self.give_up)
        self._watch.start()
        super().connection_made(counted)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._expect_headers()

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        self._silent_bytes += len(data)
        super().data_received(data)
        answered = self.bytes_taken()
        if self._refused or self._address is None:  # Nothing more is read, or it is a WebSocket now.
            return
        if self._silent_bytes > self.guard.headers_bytes:
            self._refuse(f"it has sent more than {self.guard.headers_bytes} bytes of headers", 431)
        elif self._heading or not (answered or (self.cycle is not None and not self.cycle.response_complete)):
            self._expect_headers()
        else:
            self._headers_came()

    def bytes_taken(self) -> bool:
        """The parser has told all that is in the bytes that came. True: they had a request that no task answers."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._watch_no_more()
        self._leave()
        if self.flow is not None:  # It was let in.
            super().connection_lost(exc)

    # ---- the parser ------------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._heading = True
        self._headers = self._head_bytes = self._silent_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._head_bytes += len(url)
        self._silent_bytes = 0
        if self._head_bytes > self.guard.headers_bytes:
            self._stop_at_headers()
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """What comes behind a body in chunks is counted, and means nothing."""
        self._headers += 1
        self._head_bytes += len(name) + len(value)
        self._silent_bytes = 0
        if self._head_bytes > self.guard.headers_bytes or self._headers > HEADERS_MAX:
            self._stop_at_headers()
        if self._heading:
            name = name.lower()
            if name == b"expect" and value.lower() == b"100-continue":
                self.expect_100_continue = True
            self.headers.append((name, value))

    def _headers_ended(self) -> None:
        """The line and the headers have come. What another server on the way could read in another way is refused."""
        if self._heading:
            version = self.parser.get_http_version()
            if version not in VERSIONS:
                self._stop(f"the version HTTP/{version:.8}; there are HTTP/1.1 and HTTP/1.0", 505)
            names = [name for name, _ in self.headers if name in ONCE]
            twice = next((name for name in names if names.count(name) > 1), None)
            if twice is not None:
                self._stop(f"it has the header {twice.decode()} twice", 400)
            if b"host" not in names and version == VERSIONS[0]:
                self._stop("it has no header host", 400)
        self._heading = False
        self._headers = self._head_bytes = self._silent_bytes = 0

    def on_headers_complete(self) -> None:
        self._headers_ended()
        before = self.cycle
        super().on_headers_complete()
        if self.cycle is not before and self.scope["method"] != "HEAD":  # That has no body to wait for.
            self.cycle.transport = JoinedWrites(self.transport)  # type: ignore[assignment]  # it joins writes
        if len(self.pipeline) > PIPELINED_MAX:
            self._stop(f"it has sent more than {PIPELINED_MAX} requests before the answer to the first", 400)

    def on_body(self, body: bytes) -> None:
        self._silent_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._silent_bytes = 0
        super().on_message_complete()

    def _stop_at_headers(self) -> None:
        self._stop(f"it has sent more than {HEADERS_MAX} headers, or {self.guard.headers_bytes} bytes of them", 431)

    def _stop(self, why: str, status: int) -> None:
        """End the parser, which calls :meth:`send_400_response` then."""
        self._too_much = (why, status)
        raise ValueError(why)

    def send_400_response(self, msg: str) -> None:
        self._refuse(*(self._too_much or ("it has sent what is no HTTP/1.1", 400)))

    # ---- bounds ----------------------------------------------------------------------------------------------------

    def _refuse(self, why: str, status: int) -> None:
        """Say why, and end it."""
        self._refused = True
        text = json.dumps(problem(RefusedError(why, status))).encode()
        head = f"content-type: {CONTENT_TYPE}\r\ncontent-length: {len(text)}\r\nconnection: close\r\n\r\n"
        if not self.transport.is_closing():
            self.transport.write(STATUS_LINE[status] + head.encode() + text)
            self.transport.close()
        if self._address is not None:
            self.guard.refused(self._address, why)
        self._cut_off_later()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            self._cut_off_later()

    def timeout_keep_alive_handler(self) -> None:
        if self.transport.get_write_buffer_size():
            self.give_up(f"it has not read its answer in {self.timeout_keep_alive} s")
        else:
            super().timeout_keep_alive_handler()

    def _cut_off_later(self) -> None:
        """A connection that is being closed stays until its client has read what is left."""
        self._headers_came()
        if self._address is not None and self.transport.get_write_buffer_size():
            why = f"it has not read its last answer in {CLOSE_TIMEOUT_S:g} s"
            self._timer = self.loop.call_later(CLOSE_TIMEOUT_S, self.give_up, why)

    def _expect_headers(self) -> None:
        if self._timer is None and self._address is not None:
            self.guard.waits(self)
            self._timer = self.loop.call_later(
                self.guard.headers_s, self.give_up, f"its headers have not come in {self.guard.headers_s:g} s"
            )

    def _headers_came(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
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

    def _watch_no_more(self) -> None:
        if self._watch is not None:
            self._watch.stop()

    def handle_websocket_upgrade(self) -> None:
        self._watch_no_more()
        self._leave()
        super().handle_websocket_upgrade()
