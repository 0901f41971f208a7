"""HTTP/1.1 for an ASGI application: connections under a guard, their requests one after another, and WebSockets.

h11 has the protocol, which is without IO. A connection has one request at a time: what a client sends ahead of its
answer is kept up to ``Guard.headers_bytes``, and then nothing is read until it is answered. What another server on the
way could read in another way is refused, as everything that is no HTTP is: with a status, and a problem as the
application would tell it. Bounds are those of :mod:`raybroker.services.http.http_bounds`; TLS_TIMEOUT_S for a
handshake, of which there are as many at once as ``Bounds`` say.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import ssl
from collections.abc import Callable, Coroutine
from email.utils import formatdate
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, cast
from urllib.parse import unquote

import h11
from starlette.types import ASGIApp, Message

from raybroker.model.errors import BrokerError
from raybroker.services.http import http_bounds
from raybroker.services.http.http_bounds import (
    BODY_AHEAD_BYTES,
    CERTIFICATE,
    HEADERS_MAX,
    IDLE_TIMEOUT_S,
    CountedTransport,
    Guard,
)
from raybroker.services.listening.accepting import accepting, ended, take_over
from raybroker.services.listening.arrivals import MAKES_ROOM, Arrivals
from raybroker.services.listening.bounds import AS_SET, Bounds
from raybroker.services.web.problems import CONTENT_TYPE, RefusedError, problem
from raybroker.system.clock import SystemClock
from raybroker.system.supervision import Supervisor
from raybroker.transport.unread import UnreadWatch

if TYPE_CHECKING:
    from raybroker.services.http.web_socket import ServedWebSocket

LOG: Final = logging.getLogger("raybroker.services")
TLS_TIMEOUT_S: Final = 10.0
END_S: Final = 1.0
"""How long requests under way may take when the server ends, and again when their users' connections have ended."""
JOINED_BYTES_MAX: Final = 64 << 10
"""A piece of an answer up to so many bytes goes together with the head before it, so that the client wakes up once."""
METHODS: Final = frozenset({b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS", b"TRACE", b"QUERY"})
VERSIONS: Final = (b"1.1", b"1.0")
ONCE: Final = frozenset({b"host", b"authorization", b"content-type", b"origin", b"content-encoding"})
"""Headers that a request has once at most."""
NO_HTTP: Final = "it has sent what is no HTTP/1.1"
HOSTS: Final = {
    "Missing mandatory Host: header": "it has no header host",
    "Found multiple Host: headers": "it has the header host twice",
}
"""What h11 says of a head → what the client is told."""


class OpenConnection(Protocol):
    """A connection of the server, whatever is spoken there."""

    def shut_down(self) -> None:
        """The server ends: no more requests."""
        ...

    def abort(self) -> None:
        """End it now."""
        ...


UpgradeTo = Callable[[CountedTransport, dict[str, Any], Callable[[Any], object]], "ServedWebSocket"]
"""``web_socket(transport, scope, gone)``: a WebSocket on a connection; ``gone`` is called at its end."""


class HttpServing(NamedTuple):
    """What all connections of a server have together. ``web_socket``: makes one of a connection; ``tasks``: the
    requests that are being answered."""

    app: ASGIApp
    guard: Guard
    web_socket: UpgradeTo | None
    connections: set[OpenConnection]
    tasks: set[asyncio.Task[None]]

    def carry_out(self, work: Coroutine[Any, Any, None]) -> None:
        """One request, or one WebSocket."""
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)


class RequestCycle:
    """One request and its answer, for the application. ``parser``: of this request alone; ``answered`` is called once,
    when the answer is written. What is sent to a client that has gone is lost."""

    def __init__(
        self,
        parser: h11.Connection,
        scope: dict[str, Any],
        transport: CountedTransport,
        answered: Callable[[], object],
    ) -> None:
        self.scope = scope
        self.answered = False
        self.closes = False
        """The connection ends with the answer."""
        self._parser = parser
        self._transport = transport
        self._tell_answered = answered
        self._body = bytearray()
        self._whole = self._told = self._gone = False
        """The body has come; the application has it; the client has gone."""
        self._came = asyncio.Event()
        self._head: bytes | None = None
        """Of the answer, until something follows."""

    # ---- from the connection -----------------------------------------------------------------------------------------

    @property
    def is_whole(self) -> bool:
        """The request has come to its end."""
        return self._whole

    def body_came(self, data: bytes) -> None:
        if self.answered:
            return  # Nobody wants it, and the next request is behind it.
        self._body += data
        if len(self._body) > BODY_AHEAD_BYTES:
            self._transport.read_on(False)
        self._came.set()

    def body_ended(self) -> None:
        self._whole = True
        self._came.set()

    def leave(self) -> None:
        """Its client has gone."""
        self._gone = True
        self._came.set()

    def answer(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> bool:
        """Answer it as a whole; False when an answer has begun."""
        if self._parser.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return False
        self._transport.write(
            self._begun(status, headers) + self._went_on(body) + self._parser.send(h11.EndOfMessage())
        )
        self.answered = True
        self._came.set()
        return True

    # ---- the ASGI interface ------------------------------------------------------------------------------------------

    async def run(self, app: ASGIApp) -> None:
        try:
            await app(self.scope, self.receive, self.send)
        except Exception:
            LOG.exception("a request over HTTP could not be answered")
        if self.answered or self._gone:
            return
        self.closes = True
        failed = problem(BrokerError("the broker failed; its log tells"))
        if self.answer(500, *told(failed)):
            self._tell_answered()
        else:
            self._transport.raw.abort()  # The client must not take what it has for the whole answer.

    async def receive(self) -> Message:
        parser = self._parser
        while not (self._gone or self.answered or self._body or (self._whole and not self._told)):
            if parser.they_are_waiting_for_100_continue and parser.our_state is h11.SEND_RESPONSE:
                self._transport.write(
                    parser.send(h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue"))
                )
            if not self._whole:
                self._transport.read_on(True)
            self._came.clear()
            await self._came.wait()
        if self._gone or self.answered:
            return {"type": "http.disconnect"}
        body, self._body = bytes(self._body), bytearray()
        self._told = self._whole
        return {"type": "http.request", "body": body, "more_body": not self._whole}

    async def send(self, message: Message) -> None:
        if self._gone:
            return
        if message["type"] == "http.response.start":
            self._head = self._begun(message["status"], list(message.get("headers", ())))
            return
        if message["type"] != "http.response.body":
            raise RuntimeError(f"the message {message['type']!r:.80} means nothing here")
        data, more = self._went_on(message.get("body", b"")), message.get("more_body", False)
        if self._head is not None:
            if len(data) > JOINED_BYTES_MAX:
                self._transport.write(self._head)
            else:
                data = self._head + data
            self._head = None
        if more:
            self._transport.write(data)
            await self._transport.drained()
            return
        self._transport.write(data + self._parser.send(h11.EndOfMessage()))
        self.answered = True
        self._came.set()
        self._tell_answered()

    def _begun(self, status: int, headers: list[tuple[bytes, bytes]]) -> bytes:
        dated = (b"date", formatdate(SystemClock().now_ms() // 1000, usegmt=True).encode())
        if self.closes or self._parser.they_are_waiting_for_100_continue:  # Nobody knows whether the body comes.
            headers = [*headers, (b"connection", b"close")]
        return self._parser.send(
            h11.Response(status_code=status, headers=[dated, *headers], reason=HTTPStatus(status).phrase.encode())
        )

    def _went_on(self, body: bytes) -> bytes:
        return self._parser.send(h11.Data(data=body)) if body and self.scope["method"] != "HEAD" else b""


class HttpConnection(asyncio.Protocol):
    """One connection. Between two requests it has no cycle; a request has its parser for itself."""

    def __init__(self, serving: HttpServing) -> None:
        self._serving = serving
        self._guard = serving.guard
        self._transport: CountedTransport
        self._about: dict[str, Any] = {}
        """What all its requests have in their scopes."""
        self._address: str | None = None
        """None: it is not counted (any more)."""
        self._watch: UnreadWatch | None = None
        self._parser = self._new_parser()
        self._cycle: RequestCycle | None = None
        self._begun = False
        """A head has begun."""
        self._ahead = b""
        """What has come behind the request that is being answered."""
        self._skipped = 0
        """Bytes of empty lines before a head."""
        self._timer: asyncio.TimerHandle | None = None
        """For a head to come, for the next request, or for the last answer to be read."""
        self._waits = False
        """The guard knows that its head has not come."""
        self._refused = self._closing = False

    def _new_parser(self) -> h11.Connection:
        return h11.Connection(h11.SERVER, max_incomplete_event_size=self._guard.headers_bytes)

    # ---- the transport -----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = counted = CountedTransport(cast(asyncio.Transport, transport))
        peer, own = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        address = str(peer[0]) if peer else ""
        if not self._guard.arrived(address):
            counted.raw.abort()
            return
        self._address = address
        secured = transport.get_extra_info("ssl_object")
        shown = secured.getpeercert(True) if secured is not None else None
        self._about = {
            "client": (address, peer[1]) if peer else None,
            "server": tuple(own[:2]) if own else None,
            "scheme": "http" if secured is None else "https",
            "state": {} if shown is None else {CERTIFICATE: shown},
        }
        self._serving.connections.add(self)
        self._watch = UnreadWatch(self._guard.unread_s, counted, self.give_up)
        self._watch.start()
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        cycle = self._cycle
        if self._refused or (self._closing and cycle is None):
            return
        if cycle is not None and cycle.is_whole:
            self._ahead += data
            if len(self._ahead) > self._guard.headers_bytes:
                self._transport.read_on(False)
            return
        self._feed(data)

    def pause_writing(self) -> None:
        self._transport.full(True)

    def resume_writing(self) -> None:
        self._transport.full(False)

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        self._transport.full(False)
        if self._cycle is not None:
            self._cycle.leave()

    # ---- requests ----------------------------------------------------------------------------------------------------

    def _feed(self, data: bytes) -> None:
        if not self._begun:
            rest = data.lstrip(b"\r\n")  # Old clients end a body with a line of its own.
            self._skipped += len(data) - len(rest)
            data, self._begun = rest, bool(rest)
        try:
            if self._skipped > self._guard.headers_bytes:
                raise self._too_long()
            if data:
                self._parser.receive_data(data)
                self._parse()
        except h11.RemoteProtocolError as error:
            status, text = error.error_status_hint, str(error)
            self._refuse(self._too_long() if status == 431 else RefusedError(HOSTS.get(text, NO_HTTP), status))
        except RefusedError as error:
            self._refuse(error)
        if self._address is not None and not self._refused and (self._cycle is None or self._cycle.answered):
            self._expect_head()

    def _parse(self) -> None:
        """Raises RefusedError, and RemoteProtocolError for what is no HTTP."""
        while True:
            event = self._parser.next_event()
            if isinstance(event, h11.Request):
                cycle = self._cycle = RequestCycle(self._parser, self._scope(event), self._transport, self._answered)
                self._check(event)
                self._head_came()
                if self._serving.web_socket is not None and wants_web_socket(event):
                    self._become(self._serving.web_socket, event)
                    return
                self._serving.carry_out(cycle.run(self._serving.app))
            elif isinstance(event, h11.Data) and self._cycle is not None:
                self._cycle.body_came(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage) and self._cycle is not None:
                if len(list(event.headers)) > HEADERS_MAX:
                    raise self._too_long()
                self._ahead = self._parser.trailing_data[0]
                self._cycle.body_ended()
                if self._cycle.answered:
                    self._next()
                return
            else:
                if self._parser.trailing_data[0].count(b"\n") > HEADERS_MAX + 1:
                    raise self._too_long()
                return

    def _check(self, request: h11.Request) -> None:
        """Raises RefusedError for a head that is too large, or that another server could read in another way."""
        headers = request.headers
        size = len(request.target) + sum(len(name) + len(value) for name, value in headers)
        if size > self._guard.headers_bytes or len(headers) > HEADERS_MAX:
            raise self._too_long()
        version = request.http_version
        if version not in VERSIONS:
            raise RefusedError(f"the version HTTP/{version.decode()}; there are HTTP/1.1 and HTTP/1.0", 505)
        names = [name for name, _ in headers]
        twice = next((name for name in names if name in ONCE and names.count(name) > 1), None)
        if twice is not None:
            raise RefusedError(f"it has the header {twice.decode()} twice", 400)
        chunked = b"transfer-encoding" in names
        if request.method not in METHODS or (chunked and (version == b"1.0" or b"content-length" in names)):
            raise RefusedError(NO_HTTP, 400)

    def _scope(self, request: h11.Request) -> dict[str, Any]:
        path, _, query = target_of(request).partition(b"?")
        return {
            **self._about,
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": request.http_version.decode(),
            "method": request.method.decode(),
            "path": unquote(path.decode("ascii")),
            "raw_path": path,
            "query_string": query,
            "root_path": "",
            "headers": list(request.headers),
            "state": dict(self._about["state"]),
        }

    def _become(self, web_socket: UpgradeTo, request: h11.Request) -> None:
        """The guard does not count it any more: there are bounds of its own."""
        serving, after = self._serving, self._parser.trailing_data[0]
        self._leave()
        self._cycle = None
        served = web_socket(self._transport, self._scope(request), serving.connections.discard)
        serving.connections.add(served)
        self._transport.raw.set_protocol(served)
        work = served.shake_hands(request.target, list(request.headers), after)
        if work is not None:
            serving.carry_out(work)

    def _answered(self) -> None:
        parser, cycle = self._parser, self._cycle
        assert cycle is not None
        if parser.our_state is not h11.DONE or cycle.closes or self._closing:
            self._transport.raw.close()
            self._cut_off_later()
        elif cycle.is_whole:
            self._next()
        else:  # The rest of its body is read, and soon.
            self._transport.read_on(True)
            self._expect_head()

    def _next(self) -> None:
        """The next request, which may be there already."""
        ahead, self._ahead = self._ahead, b""
        self._parser, self._cycle, self._begun, self._skipped = self._new_parser(), None, False, 0
        self._head_came()
        self._transport.read_on(True)
        if ahead:
            self._feed(ahead)
        else:
            self._timer = asyncio.get_running_loop().call_later(IDLE_TIMEOUT_S, self._idle)

    # ---- bounds ------------------------------------------------------------------------------------------------------

    def _too_long(self) -> RefusedError:
        most = self._guard.headers_bytes
        return RefusedError(f"it has sent more than {HEADERS_MAX} headers, or {most} bytes of them", 431)

    def _refuse(self, error: RefusedError) -> None:
        """Say why, and end it."""
        self._refused = True
        if self._cycle is None:
            self._cycle = RequestCycle(self._parser, {"method": ""}, self._transport, lambda: None)
        self._cycle.closes = True
        self._cycle.answer(error.status, *told(problem(error)))
        self._cycle.leave()
        self._transport.raw.close()
        if self._address is not None:
            self._guard.refused(self._address, str(error))
        self._cut_off_later()

    def _cut_off_later(self) -> None:
        """A connection that is being closed stays until its client has read what is left."""
        self._head_came()
        if self._address is not None and self._transport.unsent_bytes:
            after_s = http_bounds.CLOSE_TIMEOUT_S
            self._timer = asyncio.get_running_loop().call_later(
                after_s, self.give_up, f"it has not read its last answer in {after_s:g} s"
            )

    def _expect_head(self) -> None:
        if not self._waits:
            self._head_came()
            self._waits = True
            self._guard.waits(self)
            self._timer = asyncio.get_running_loop().call_later(
                self._guard.headers_s, self.give_up, f"its headers have not come in {self._guard.headers_s:g} s"
            )

    def _head_came(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waits:
            self._waits = False
            self._guard.waits_no_longer(self)

    def _idle(self) -> None:
        if self._transport.unsent_bytes:
            self.give_up(f"it has not read its answer in {IDLE_TIMEOUT_S:g} s")
        else:
            self._transport.raw.close()

    def give_up(self, why: str) -> None:
        """End it now."""
        if self._address is not None:
            self._guard.refused(self._address, why)
        self._leave()
        self._transport.raw.abort()

    def shut_down(self) -> None:
        """The server ends: a request that has begun is answered, and there is no other one."""
        self._closing = True
        if self._cycle is None or self._cycle.answered:
            self._transport.raw.close()
        else:
            self._cycle.closes = True

    def abort(self) -> None:
        self._transport.raw.abort()

    def _leave(self) -> None:
        self._head_came()
        self._serving.connections.discard(self)
        if self._watch is not None:
            self._watch.stop()
        if self._address is not None:
            self._guard.left(self._address)
            self._address = None


def told(found: dict[str, Any]) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """(headers, body) of a problem."""
    body = json.dumps(found).encode()
    return [(b"content-type", CONTENT_TYPE.encode()), (b"content-length", b"%d" % len(body))], body


def target_of(request: h11.Request) -> bytes:
    """Path and query. A target may name the server too, as proxies are asked."""
    target = request.target
    if target.startswith(b"/") or b"://" not in target:
        return target
    _, slash, rest = target.partition(b"://")[2].partition(b"/")
    return slash + rest or b"/"


def wants_web_socket(request: h11.Request) -> bool:
    """Whether a request asks for a WebSocket."""
    found: dict[bytes, bytes] = {}
    for name, value in request.headers:
        found[name] = b"%b,%b" % (found[name], value) if name in found else value
    connection = {word.strip().lower() for word in found.get(b"connection", b"").split(b",")}
    asked = b"upgrade" in connection and found.get(b"upgrade", b"").lower() == b"websocket"
    return asked and request.method == b"GET" and request.http_version == b"1.1"


class HttpServer:
    """Serves an ASGI application at a socket that listens, on the loop that :meth:`start` is called on.

    ``ended`` is awaited when it has ended: it ends what the application has open. ``tls``: gives the context for a new
    connection; ``web_socket``: makes a WebSocket of one, None: there are none; ``bounds``: of connections that have not
    come in.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        guard: Guard,
        ended: Callable[[], Any],
        tls: Callable[[], ssl.SSLContext] | None = None,
        web_socket: UpgradeTo | None = None,
        bounds: Bounds = AS_SET,
    ) -> None:
        self.guard = guard
        self._ended = ended
        self._tls = tls
        self._bound: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._bounds = bounds
        self._arriving = Arrivals(bounds.arriving, bounds.arriving_of_address)
        self._loops = Supervisor("a server of HTTP")
        self._serving = HttpServing(app, guard, web_socket, set(), set())

    async def start(self, bound: socket.socket) -> None:
        """Accept connections of a socket that listens; it is the server's from now on."""
        self._accept(bound)

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
        if not self._arriving.start(address, lambda: self._take_socket(taken, address), lambda: refuse(MAKES_ROOM)):
            refuse(f"{len(self._arriving)} connections have not come in yet")

    async def _take_socket(self, taken: socket.socket, address: str) -> None:
        """Take over a socket; with TLS, the handshake comes before there is a connection."""
        try:
            context = self._tls() if self._tls is not None else None
            await take_over(lambda: HttpConnection(self._serving), taken, context, TLS_TIMEOUT_S)
        except (OSError, BrokerError) as error:
            taken.close()
            self.guard.refused(address, f"TLS failed: {error}" if self._tls is not None else str(error))
        except BaseException:
            taken.close()
            raise

    async def close(self) -> None:
        """End it, with what it has open."""
        self._loops.close()
        if self._bound is not None:
            self._bound.close()
        self._arriving.cancel()
        serving = self._serving
        for connection in list(serving.connections):
            connection.shut_down()
        await self._over(serving.tasks)
        await self._ended()  # Whoever waits for messages is told.
        await self._over(serving.tasks)
        for task in list(serving.tasks):
            task.cancel()
        for connection in list(serving.connections):
            connection.abort()

    async def _over(self, tasks: set[asyncio.Task[None]]) -> None:
        """Wait a while for requests that are being answered."""
        if tasks:
            await asyncio.wait(list(tasks), timeout=END_S)
