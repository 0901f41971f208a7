"""Requests over HTTP that are answered at once: without a task, and without a turn of the loop before it begins.

A request with a small body that came as a whole, or nearly at once, and that nothing else of its connection waits
before, is given to the application by a plain call (:data:`TakeAtOnce`). What the application does not take goes to its
ASGI side, as if it had just come; so do all other requests. Bounds of connections, headers and answers are those of
:mod:`raybroker.services.http.http_bounds`.

A client that sends one request after another says the same before each body, but for its length. So a connection keeps
the bytes of a few heads of requests that were taken (line and headers): bytes that begin with one of them, between two
requests, mean what they meant before, and are not parsed again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from raybroker.services.http.http_bounds import BoundedProtocol

BODY_BYTES_MAX: Final = 16 << 10
"""A larger body goes to the ASGI side."""


REST_S: Final = 0.05
"""How long the rest of a small body may take, which many clients send behind the headers, before the request goes to
the ASGI side."""


HEADS_KNOWN_MAX: Final = 4
"""Heads that a connection keeps, of at most HEAD_BYTES_KNOWN_MAX bytes and HEADERS_KNOWN_MAX headers each."""
HEAD_BYTES_KNOWN_MAX: Final = 1024
HEADERS_KNOWN_MAX: Final = 32
LENGTH: Final = b"content-length"
LENGTH_DIGITS_MAX: Final = 9


class Head:
    """What comes before the body of a request, and who sends it; the same object for requests of a connection that have
    the same head. ``url``: path and query, as they came; ``headers``: each is there once, without the length of the
    body; ``peer``: address and port of the client; ``meaning``: what the application keeps with it, None at first."""

    __slots__ = ("headers", "meaning", "peer", "scheme", "url")

    def __init__(self, url: bytes, headers: Mapping[bytes, bytes], scheme: str, peer: tuple[str, int] | None) -> None:
        self.url = url
        self.headers = headers
        self.scheme = scheme
        self.peer = peer
        self.meaning: object = None


class Request(NamedTuple):
    """A request that has come as a whole; ``body``: all of its bytes."""

    head: Head
    body: bytes


class KnownHead(NamedTuple):
    """A head and its bytes. ``before``: those up to the length of the body, ``after``: those behind that length."""

    before: bytes
    after: bytes
    head: Head

    def body_at(self, data: bytes) -> int:
        """Where the body begins of a request that is all of ``data``; 0 when it has another head, or is not all."""
        before, after, _ = self
        if not data.startswith(before):
            return 0
        at = len(before)
        stop = data.find(b"\r", at, at + LENGTH_DIGITS_MAX + 1)
        if stop < 0 or not data.startswith(after, stop):
            return 0
        digits, begin = data[at:stop], stop + len(after)
        return begin if digits.isdigit() and 0 < int(digits) == len(data) - begin <= BODY_BYTES_MAX else 0


def head_in(data: bytes, head: Head) -> KnownHead | None:
    """The head that a request begins with which is all of ``data``; None when it cannot be known again by its bytes."""
    end = data.find(b"\r\n\r\n", 0, HEAD_BYTES_KNOWN_MAX) + 4
    named = data[:end].lower().find(b"\r\n%b:" % LENGTH)
    if end < 4 or named < 0 or len(head.headers) > HEADERS_KNOWN_MAX:
        return None
    at = named + len(LENGTH) + 3
    while data[at : at + 1] == b" ":
        at += 1
    stop = at
    while data[stop : stop + 1].isdigit():
        stop += 1
    if not data.startswith(b"\r", stop):
        return None
    known = KnownHead(data[:at], data[stop:end], head)
    return known if known.body_at(data) == end else None


class Answering(Protocol):
    """Takes the answer to a request."""

    def send(self, status: int, headers: bytes, body: bytes) -> None:
        """``headers``: all of them but the date, each with the end of its line. A client that has gone gets nothing."""
        ...


TakeAtOnce = Callable[[Request, Answering], bool]
"""True: the request is taken, and is answered, now or later, exactly once. False: nothing has happened."""


class _NobodyWaits:
    """In place of an event."""

    def set(self) -> None:
        """There is nobody to wake up."""


_NOBODY: Final = _NobodyWaits()


class Answer:
    """An answer to come. For its connection it stands where the cycle of a request with a task stands."""

    __slots__ = ("_connection", "_over", "disconnected", "keep_alive", "message_event", "response_complete")

    def __init__(self, connection: AtOnceProtocol) -> None:
        self.keep_alive = True
        self.response_complete = self.disconnected = False
        self.message_event = _NOBODY
        self._connection = connection
        self._over: asyncio.Future[None] | None = None

    def send(self, status: int, headers: bytes, body: bytes) -> None:
        if self.response_complete:
            return
        self.response_complete = True
        connection = self._connection
        connection.answers.discard(self)
        if self._over is not None and not self._over.done():
            self._over.set_result(None)
        transport = connection.transport
        if self.disconnected or transport.is_closing():
            return
        date = b"".join([b"%b: %b\r\n" % header for header in connection.server_state.default_headers])
        if self.keep_alive:
            transport.write(b"".join((STATUS_LINE[status], date, headers, b"\r\n", body)))
        else:
            transport.write(b"".join((STATUS_LINE[status], date, headers, b"connection: close\r\n\r\n", body)))
            transport.close()
        connection.answered()

    def over(self) -> asyncio.Future[None]:
        """Done when it has been sent."""
        self._over = self._over or asyncio.get_running_loop().create_future()
        return self._over


class AtOnceProtocol(BoundedProtocol):
    """One connection. ``answers``: those to come, of all connections of the server."""

    take_at_once: TakeAtOnce
    answers: set[Answer]

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._small: dict[bytes, bytes] | None = None
        """The headers of a request that may be answered at once, and whose end has not come."""
        self._body = b""
        self._rest_timer: asyncio.TimerHandle | None = None
        self._taken = False
        """The bytes at hand had a request that was taken."""
        self._between = True
        """The parser has seen nothing behind the end of a request that was taken, or nothing at all."""
        self._known: list[KnownHead] = []
        self._latest: Head | None = None
        """Of the last request that was parsed and taken."""
        self._idle_since_s = 0.0
        """When the last answer was over."""
        self._idle_timer: asyncio.TimerHandle | None = None
        """One for many answers: it looks how long the connection has been idle."""

    def data_received(self, data: bytes) -> None:
        between = self._between
        if between and self._known and self._take_known(data):
            return
        super().data_received(data)
        if self._latest is not None:
            if between:
                self._know(data, self._latest)
            self._latest = None

    def _take_known(self, data: bytes) -> bool:
        """Give a request whose head is known to the application, without the parser, which is between two requests.
        False: it is not such a request, or was not taken, and is for the parser."""
        if self._refused or self._address is None or self._waits():
            return False
        for known in self._known:
            at = known.body_at(data)
            if at:
                self._unset_keepalive_if_required()
                self._silent_bytes = 0
                self._headers_came()
                return self._take(Request(known.head, data[at:]))
        return False

    def _know(self, data: bytes, head: Head) -> None:
        known = head_in(data, head)
        if known is not None:
            self._known = [*self._known[1 - HEADS_KNOWN_MAX :], known]

    def _waits(self) -> bool:
        """Another request of the connection is to be answered first, or an answer to be read."""
        cycle = self.cycle
        return (cycle is not None and not cycle.response_complete) or bool(self.pipeline) or self.flow.write_paused

    def _take(self, request: Request) -> bool:
        before, answer = self.cycle, Answer(self)
        self.cycle = answer  # type: ignore[assignment]  # what answers at once is no cycle of uvicorn's
        self.answers.add(answer)
        if self.take_at_once(request, answer):
            return True
        self.answers.discard(answer)
        self.cycle = before
        return False

    def on_message_begin(self) -> None:
        self._between = False
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._small = self._headers_of_small()
        if self._small is None:
            super().on_headers_complete()
        else:
            self._body = b""
            self._headers_ended()

    def _headers_of_small(self) -> dict[bytes, bytes] | None:
        """The headers of a request that may be answered at once."""
        parser = self.parser
        if self._waits() or self.expect_100_continue or parser.get_method() != b"POST":
            return None
        if parser.get_http_version() != "1.1" or not parser.should_keep_alive() or parser.should_upgrade():
            return None
        headers = dict(self.headers)
        length = headers.get(LENGTH, b"")
        if len(headers) != len(self.headers) or not length.isdigit() or len(length) > LENGTH_DIGITS_MAX:
            return None
        return headers if 0 < int(length) <= BODY_BYTES_MAX and b"transfer-encoding" not in headers else None

    def on_body(self, body: bytes) -> None:
        if self._small is None:
            super().on_body(body)
        else:
            self._silent_bytes = 0
            self._body += body

    def on_message_complete(self) -> None:
        if self._small is None:
            super().on_message_complete()
            return
        headers = {name: value for name, value in self._small.items() if name != LENGTH}
        head = Head(self.url, headers, self.scheme or "http", self.client)
        if self._take(Request(head, self._body)):
            self._small, self._taken, self._between, self._latest = None, True, True, head
            self._rest_came()
            return
        self._begin_task()
        super().on_message_complete()

    def answered(self) -> None:
        """As :meth:`on_response_complete`, without a timer for each answer."""
        if self.pipeline or self.transport.is_closing():
            self.on_response_complete()
            return
        self.server_state.total_requests += 1
        self.flow.resume_reading()
        self._idle_since_s = self.loop.time()
        if self._idle_timer is None:
            self._idle_timer = self.loop.call_later(self.timeout_keep_alive, self._look_idle)

    def on_response_complete(self) -> None:
        self._idle_since_s = self.loop.time()
        super().on_response_complete()

    def _look_idle(self) -> None:
        """Let it go when it has been idle for too long. With a request under way, its answer begins the time anew."""
        self._idle_timer = None
        if self._timer is not None or (self.cycle is not None and not self.cycle.response_complete):
            return
        left_s = self._idle_since_s + self.timeout_keep_alive - self.loop.time()
        if left_s > 0:
            self._idle_timer = self.loop.call_later(left_s, self._look_idle)
        else:
            self.timeout_keep_alive_handler()

    def _leave(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        self._rest_came()
        super()._leave()

    def bytes_taken(self) -> bool:
        taken, self._taken = self._taken, False
        if self._small is None or self._refused:
            return taken
        if self._rest_timer is None:
            self._rest_timer = self.loop.call_later(REST_S, self._rest_late)
        return True

    def _rest_late(self) -> None:
        self._rest_timer = None
        if self._small is not None and not self._refused and self._address is not None:
            self._begin_task()

    def _rest_came(self) -> None:
        if self._rest_timer is not None:
            self._rest_timer.cancel()
            self._rest_timer = None

    def shutdown(self) -> None:
        self._rest_late()
        super().shutdown()

    def _begin_task(self) -> None:
        """It goes to the ASGI side."""
        self._rest_came()
        self._small = None
        super().on_headers_complete()
        if self._body:
            super().on_body(self._body)
