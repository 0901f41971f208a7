"""The ASGI application: requests of HTTP, answered by users' connections to the broker.

Bounds are in ``Terms``: ``requests_max`` requests at once, of them three quarters that wait for messages;
``body_bytes_max`` a body, ``bodies_bytes_max`` all bodies that are being handled; ``body_timeout_s`` for a body to
come. Bodies are never decompressed: one with a Content-Encoding is refused.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, NamedTuple

from pydantic import TypeAdapter
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketClose

from raybroker.model.errors import (
    BrokerError,
    IllegalStateError,
    InvalidDestinationError,
    MessageFormatError,
    ResourceAllocationError,
    SecurityError,
)
from raybroker.model.names import check_destination_name
from raybroker.security.mechanism import require_private
from raybroker.services.rest import models
from raybroker.services.rest.credentials import who
from raybroker.services.rest.long_poll import LongPoll
from raybroker.services.rest.openapi import OPERATIONS, Operation, description
from raybroker.services.rest.problems import CONTENT_TYPE, RefusedError, headers_of, problem, status_of
from raybroker.services.rest.relay import RELAYS_MAX, Arrive, Relay
from raybroker.services.rest.user_connection import UserConnection
from raybroker.services.rest.users import Users

LOG: Final = logging.getLogger("raybroker.services")
NATIVE: Final = "/native"
"""Where the native protocol goes over WebSocket."""
RUNNING: Final = "RUNNING"
PAUSED: Final = "PAUSED"
_JSON: Final = "application/json"
_PLAIN_HEADERS: Final = {"Cache-Control": "no-store"}
Handler = Callable[[Request, UserConnection], Awaitable[Response]]


class Terms(NamedTuple):
    """What the service is run with. ``unencrypted``: passwords may come without TLS from anywhere; ``pull_s``: seconds
    between polls of the native protocol, -1: none."""

    broker: str
    version: str
    body_bytes_max: int
    unencrypted: bool
    pull_s: int = -1
    requests_max: int = 512
    bodies_bytes_max: int = 64 << 20
    body_timeout_s: float = 20.0
    web_sockets_max: int = RELAYS_MAX

    @property
    def receives_max(self) -> int:
        """Requests that wait for messages; there is room for others beside them."""
        return self.requests_max * 3 // 4


class Application:
    """``app`` is the ASGI application. ``state()``: of the service, RUNNING, PAUSED or QUIESCED; ``arrive``: where the
    native protocol goes that comes over WebSocket and by long poll, None: nowhere."""

    def __init__(
        self, users: Users, terms: Terms, state: Callable[[], str] = lambda: RUNNING, arrive: Arrive | None = None
    ) -> None:
        self.users = users
        self._terms = terms
        self._state = state
        self._requests = self._receives = self._bodies_bytes = 0
        self._description = models.written(description(terms.version))
        self._relay = Relay(arrive, terms.web_sockets_max) if arrive is not None else None
        self._polls = LongPoll(arrive, self.read, pull_s=terms.pull_s) if arrive is not None else None
        self._routes: dict[str, dict[str, tuple[Handler, Operation]]] = {}
        """Path → method → what answers. Not HEAD: a receive would take messages that nobody sees."""
        for operation in OPERATIONS:
            handler: Handler = getattr(self, f"_{operation.name}")
            self._routes.setdefault(operation.path, {})[operation.method] = handler, operation

    async def close(self) -> None:
        """End what users and clients of the native protocol have open."""
        if self._polls is not None:
            await self._polls.close()
        await self.users.close()

    @property
    def load(self) -> dict[str, int]:
        """What is bounded, and how much of it there is now."""
        return {"requests": self._requests, "receives": self._receives, "bodies_bytes": self._bodies_bytes}

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI application. Handlers are found in a table, without the routing and middleware of a framework."""
        if scope["type"] == "http":
            request = Request(scope, receive)
            answer = await self._respond(request, *_route_of(scope["path"]))
            await answer(scope, receive, send)
        elif self._relay is not None and scope["path"] == NATIVE:
            await self._relay.serve(WebSocket(scope, receive, send))
        else:
            await WebSocketClose()(scope, receive, send)

    async def _respond(self, request: Request, route: str, name: str) -> Response:
        """``name``: of the destination, in the path."""
        there = self._routes.get(route)
        if there is None:
            step = self._polls.steps.get(request.scope["path"]) if self._polls is not None else None
            if step is not None:
                return await step(request) if request.method == "POST" else _not_understood(request, "POST")
            paths = ", ".join(sorted(self._routes))
            return answered_with(RefusedError(f"there is no {request.scope['path']:.200}; there are {paths}", 404))
        found = there.get(request.method)
        if found is None:
            return _not_understood(request, ", ".join(sorted(there)))
        handler, operation = found
        try:
            request.scope["path_params"] = {"name": name} if name else {}
            request.state.query = _query(request, operation.query)
            return await self._answer(request, handler, public=operation.public)
        except BrokerError as error:
            return answered_with(error)
        except ClientDisconnect:
            return Response(status_code=400)
        except Exception as error:  # whoever asks is told, and the log has the rest
            LOG.exception("a request over HTTP could not be answered")
            return answered_with(BrokerError(f"the broker failed: {error!r:.200}"))

    async def _answer(self, request: Request, handler: Handler, *, public: bool) -> Response:
        if public:
            return await handler(request, None)  # type: ignore[arg-type]
        if self._requests >= self._terms.requests_max:
            raise ResourceAllocationError(f"{self._terms.requests_max} requests are being answered; try again")
        self._requests += 1
        try:
            host, port = request.client or ("", 0)
            self._require_private(str(request.scope["scheme"]), host)
            given = who(request.headers.get("authorization"))
            if self._state() == PAUSED:
                raise ResourceAllocationError("the service is paused; try later")
            if "name" in request.path_params:
                _check_name(request.path_params["name"])
            async with self.users.of(given, f"{host}:{port}") as user:
                try:
                    return await handler(request, user)
                except SecurityError as error:
                    if not user.ended:
                        raise
                    raise ResourceAllocationError(f"{error}; with the next request it is opened again") from None
        finally:
            self._requests -= 1

    def _require_private(self, scheme: str, address: str) -> None:
        """Raises RefusedError, 403, for a password that others could read on its way."""
        try:
            require_private(address, self._terms.unencrypted or scheme == "https", "httpsjms")
        except SecurityError as error:
            raise RefusedError(str(error), 403) from None

    # ---- operations ------------------------------------------------------------------------------------------------

    async def _send_to_queue(self, request: Request, user: UserConnection) -> Response:
        return await self._send(request, user, "queue")

    async def _send_to_topic(self, request: Request, user: UserConnection) -> Response:
        return await self._send(request, user, "topic")

    async def _send(self, request: Request, user: UserConnection, kind: str) -> Response:
        destination = f"{kind}:{request.path_params['name']}"
        data = await self._read_json(request)
        try:
            found = models.parsed(models.SEND, data)
            if isinstance(found, list):
                ids = await user.send_all(destination, found)
            else:
                ids = [await user.send(destination, found)]
        finally:
            self._forget(len(data))
        return _json({"ids": ids}, 201)

    async def _receive(self, request: Request, user: UserConnection) -> Response:
        query, queue = request.state.query, request.path_params["name"]
        most = self._terms.receives_max
        if self._receives >= most:
            raise ResourceAllocationError(f"{most} requests wait for messages; try again, or wait shorter")
        lease_ms = query.get("lease_ms", models.LEASE_MS)
        work = user.receive(queue, query.get("max", 1), query.get("wait_ms", 0), lease_ms)
        self._receives += 1
        try:
            held = await unless_gone(request, work)
        finally:
            self._receives -= 1
        try:
            return _json({"messages": held, "lease_ms": lease_ms})
        except BrokerError:
            await user.give_up(queue, held)
            raise

    async def _acknowledge(self, request: Request, user: UserConnection) -> Response:
        return await self._settle(request, user, models.ACKNOWLEDGE, "acknowledged")

    async def _release(self, request: Request, user: UserConnection) -> Response:
        return await self._settle(request, user, models.RELEASE, "released")

    async def _settle(
        self, request: Request, user: UserConnection, adapter: TypeAdapter[Any], outcome: str
    ) -> Response:
        queue = request.path_params["name"]
        data = await self._read_json(request)
        try:
            found = models.parsed(adapter, data)
            results = await user.settle(queue, found["receipts"], outcome, found.get("delay_ms"))
        finally:
            self._forget(len(data))
        missed = [row for row in results if row["outcome"] != outcome]
        if not missed:
            return _json({"results": results})
        told = IllegalStateError(
            f"{len(missed)} of {len(results)} messages were not {outcome}; the first of them: {missed[0]['detail']}"
        )
        return answered_with(told, {"results": results})

    async def _browse(self, request: Request, user: UserConnection) -> Response:
        query = request.state.query
        queue = request.path_params["name"]
        found, more = await user.browse(queue, query.get("max", 100), query.get("selector"))
        return _json({"messages": found, "more": more})

    async def _health(self, request: Request, user: UserConnection | None) -> Response:
        state = self._state()
        return _json({"broker": self._terms.broker, "state": state}, 200 if state == RUNNING else 503)

    async def _openapi(self, request: Request, user: UserConnection | None) -> Response:
        return Response(self._description, media_type=_JSON)

    # ---- bodies ----------------------------------------------------------------------------------------------------

    def _read_json(self, request: Request) -> Awaitable[bytes]:
        """As :meth:`_read`, of a body that says that it is JSON."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != _JSON:
            raise RefusedError(f"a body of type {kind!r:.80}; it is {_JSON}", 415)
        return self._read(request, self._terms.body_bytes_max)

    @asynccontextmanager
    async def read(self, request: Request, most: int) -> AsyncIterator[bytes]:
        """The body of a request, whose bytes count for as long as it is handled."""
        data = await self._read(request, most)
        try:
            yield data
        finally:
            self._forget(len(data))

    async def _read(self, request: Request, most: int) -> bytes:
        """A body of at most so many bytes, which count until :meth:`_forget` is told how many they were."""
        encoding = request.headers.get("content-encoding", "identity")
        if encoding.strip().lower() not in ("identity", ""):
            raise RefusedError(
                f"a body with Content-Encoding {encoding!r:.80}; send it as it is", 415, {"Accept-Encoding": "identity"}
            )
        length = request.headers.get("content-length", "0")
        if length.isdecimal() and int(length[:20]) > most:
            raise _too_large(most)
        held = 0
        try:
            chunks: list[bytes] = []
            async with asyncio.timeout(self._terms.body_timeout_s):
                async for chunk in request.stream():
                    held += len(chunk)
                    self._bodies_bytes += len(chunk)
                    if held > most:
                        raise _too_large(most)
                    if self._bodies_bytes > self._terms.bodies_bytes_max:
                        raise ResourceAllocationError(
                            f"bodies of {self._terms.bodies_bytes_max} bytes are being handled; try again"
                        )
                    chunks.append(chunk)
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)
        except TimeoutError:
            self._forget(held)
            raise RefusedError(
                f"the body has not come in {self._terms.body_timeout_s:g} s", 408, {"Connection": "close"},
                retryable=True,
            ) from None
        except BaseException:
            self._forget(held)
            raise

    def _forget(self, size: int) -> None:
        self._bodies_bytes -= size


def _route_of(path: str) -> tuple[str, str]:
    """The path as the table of operations has it, and the name of the destination in it."""
    parts = path.split("/")
    if len(parts) == 4 and parts[2]:
        return f"/{parts[1]}/{{name}}/{parts[3]}", parts[2]
    return path, ""


async def unless_gone(request: Request, work: Any) -> Any:
    """The result of some work, which is ended when whoever asked has gone."""
    task = asyncio.get_running_loop().create_task(work)
    gone = asyncio.get_running_loop().create_task(_disconnected(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return task.result()
    finally:
        gone.cancel()
        if not task.done():
            task.cancel()
            with suppress(asyncio.CancelledError, BrokerError):
                await task


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        continue


def _too_large(most: int) -> RefusedError:
    return RefusedError(
        f"the body has more than {most} bytes (raybroker.http.body_bytes_max says how many a message may have); send it"
        " in several requests, or raise that", 413, {"Connection": "close"},
    )  # fmt: skip


def _check_name(name: str) -> None:
    try:
        check_destination_name(name, allow_reserved=True)
    except InvalidDestinationError as error:
        raise MessageFormatError(str(error)) from None


def _query(request: Request, adapter: TypeAdapter[Any]) -> Any:
    if not request.scope["query_string"]:
        return {}  # Nothing of it has to be there.
    pairs = request.query_params.multi_items()
    given = dict(pairs)
    if len(given) != len(pairs):
        raise MessageFormatError("a parameter of the query is given twice")
    return models.checked(adapter, given, "the query")


def _not_understood(request: Request, allowed: str) -> Response:
    text = f"{request.method:.20} is not understood at {request.scope['path']:.200}; there is {allowed}"
    return answered_with(RefusedError(text, 405, {"Allow": allowed}))


def _json(value: Any, status: int = 200) -> Response:
    return Response(models.written(value), status, _PLAIN_HEADERS, _JSON)


def answered_with(error: BrokerError, more: Mapping[str, Any] | None = None) -> Response:
    """An error as an answer."""
    body = models.written({**problem(error), **(more or {})})
    return Response(body, status_of(error), {**_PLAIN_HEADERS, **headers_of(error)}, CONTENT_TYPE)
