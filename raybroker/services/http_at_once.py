"""Requests over HTTP that are answered at once: without a task, and without a turn of the loop before it begins.

A request with a small body that came as a whole, or nearly at once, and that nothing else of its connection waits
before, is given to the application by a plain call (:data:`TakeAtOnce`). What the application does not take goes to its
ASGI side, as if it had just come; so do all other requests. Bounds of connections, headers and answers are those of
:mod:`raybroker.services.http_bounds`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from raybroker.services.http_bounds import BoundedProtocol

BODY_BYTES_MAX: Final = 16 << 10
"""A larger body goes to the ASGI side."""


REST_S: Final = 0.05
"""How long the rest of a small body may take, which many clients send behind the headers, before the request goes to
the ASGI side."""


class Request(NamedTuple):
    """One that has come. ``url``: path and query, as they came; ``headers``: each is there once; ``peer``: address and
    port of the client."""

    url: bytes
    headers: Mapping[bytes, bytes]
    body: bytes
    scheme: str
    peer: tuple[str, int] | None


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
        dates = connection.server_state.default_headers
        parts = [STATUS_LINE[status], *[b"%b: %b\r\n" % header for header in dates], headers]
        if not self.keep_alive:
            parts.append(b"connection: close\r\n")
        parts += (b"\r\n", body)
        transport.write(b"".join(parts))
        if not self.keep_alive:
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
        self._idle_since_s = 0.0
        """When the last answer was over."""
        self._idle_timer: asyncio.TimerHandle | None = None
        """One for many answers: it looks how long the connection has been idle."""

    def on_headers_complete(self) -> None:
        self._small = self._headers_of_small()
        if self._small is None:
            super().on_headers_complete()
        else:
            self._body = b""
            self._headers_ended()

    def _headers_of_small(self) -> dict[bytes, bytes] | None:
        """The headers of a request that may be answered at once."""
        cycle, parser = self.cycle, self.parser
        waits = (cycle is not None and not cycle.response_complete) or self.pipeline or self.flow.write_paused
        if waits or self.expect_100_continue or parser.get_method() != b"POST":
            return None
        if parser.get_http_version() != "1.1" or not parser.should_keep_alive() or parser.should_upgrade():
            return None
        headers = dict(self.headers)
        length = headers.get(b"content-length", b"")
        if len(headers) != len(self.headers) or not length.isdigit() or len(length) > 9:
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
        headers, before, answer = self._small, self.cycle, Answer(self)
        self.cycle = answer  # type: ignore[assignment]
        self.answers.add(answer)
        if self.take_at_once(Request(self.url, headers, self._body, self.scheme or "http", self.client), answer):
            self._small, self._taken = None, True
            self._rest_came()
            return
        self.answers.discard(answer)
        self.cycle = before
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
