"""The ASGI application of a service over HTTP: takes a request to its operation, and what comes of it to an answer.

Bounds are in ``Terms``: ``requests_max`` requests at once; those of bodies go to :mod:`raybroker.services.web.bodies`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, Generic, NamedTuple, TypeVar

from pydantic import TypeAdapter
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocketClose

from raybroker.model.errors import BrokerError, MessageFormatError, ResourceAllocationError, SecurityError
from raybroker.security.mechanism import require_private
from raybroker.services.web.bodies import BODIES_BYTES_MAX, BODY_TIMEOUT_S, JSON, Bodies
from raybroker.services.web.credentials import RequestCredentials
from raybroker.services.web.json_text import checked, written
from raybroker.services.web.operations import About, Operation, description
from raybroker.services.web.origins import Origins
from raybroker.services.web.problems import CONTENT_TYPE, RefusedError, headers_of, problem, status_of
from raybroker.services.web.routes import Routes
from raybroker.services.web.users import Opened, WebUsers

LOG: Final = logging.getLogger("raybroker.services")
PATHS_TOLD_MAX: Final = 16
"""Paths that an error names; of more it names the description."""
RUNNING: Final = "RUNNING"
PAUSED: Final = "PAUSED"
PLAIN_HEADERS: Final = {"Cache-Control": "no-store"}
U = TypeVar("U", bound=Opened)
Handler = Callable[[Request, Any], Awaitable[Response]]
"""``handler(request, user)``; the user of a public operation is None."""


class Terms(NamedTuple):
    """What a service is run with. ``unencrypted``: passwords may come without TLS from anywhere; ``secure``: the
    service with TLS for those who may not; ``pull_s``: seconds between polls of the native protocol, -1: none."""

    broker: str
    version: str
    body_bytes_max: int
    unencrypted: bool
    pull_s: int = -1
    secure: str = "httpsjms"
    requests_max: int = 512
    bodies_bytes_max: int = BODIES_BYTES_MAX
    body_timeout_s: float = BODY_TIMEOUT_S
    web_sockets_max: int = 2048
    origins: Origins = Origins()

    @property
    def receives_max(self) -> int:
        """Requests that wait for messages; there is room for others beside them."""
        return self.requests_max * 3 // 4


class _Route(NamedTuple):
    """What a path has for a method. ``needed``: its query may not be empty; ``body``: it may have one."""

    handler: Handler
    query: TypeAdapter[Any]
    needed: bool
    public: bool
    body: bool

    def asked(self, request: Request) -> Any:
        """The query, checked; raises MessageFormatError."""
        if not request.scope["query_string"] and not self.needed:
            return {}
        pairs = request.query_params.multi_items()
        given = dict(pairs)
        if len(given) != len(pairs):
            raise MessageFormatError("a parameter of the query is given twice")
        return checked(self.query, given, "the query")


class WebApplication(Generic[U]):
    """``app`` is the ASGI application. ``state()``: of the service, RUNNING, PAUSED or QUIESCED; ``handler(operation)``
    is asked once for each operation. Operations are those of the description, and of the routes."""

    def __init__(
        self, users: WebUsers[U], terms: Terms, about: About, operations: Iterable[Operation], state: Callable[[], str]
    ) -> None:
        self.users = users
        self.bodies = Bodies(terms.body_bytes_max, terms.bodies_bytes_max, terms.body_timeout_s)
        self.requests = 0
        self._terms = terms
        self._state = state
        listed = list(operations)
        self._description = written(description(about, listed))
        self._routes: Routes[_Route] = Routes()
        """HEAD is what GET is, without the body of the answer."""
        for operation in listed:
            needed = bool(operation.query.json_schema().get("required"))
            self._routes.add(
                operation.method,
                operation.path,
                _Route(self.handler(operation), operation.query, needed, operation.public, operation.body is not None),
            )

    def handler(self, operation: Operation) -> Handler:
        """What answers: the method of the operation's name."""
        found: Handler = getattr(self, f"_{operation.name}")
        return found

    async def close(self) -> None:
        """End what users have open."""
        await self.users.close()

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI application. Handlers are found in a table, without the routing and middleware of a framework."""
        if scope["type"] != "http":
            await WebSocketClose()(scope, receive, send)
            return
        request = Request(scope, receive)
        answer = await self.respond(request)
        answer.headers.update(self.origins_told(request))
        await answer(scope, receive, send)

    def origins_told(self, request: Request) -> Mapping[str, str]:
        """Headers of an answer, for pages of other sites that may read it."""
        return self._terms.origins.told(request.headers)

    async def elsewhere(self, request: Request) -> Response | None:
        """The answer at a path that has no operation; None: there is no such path."""
        return None

    def check_path(self, given: Mapping[str, str]) -> None:
        """Raises BrokerError for a named segment that cannot be right."""

    async def serve(self, request: Request, query: TypeAdapter[Any], handler: Handler) -> Response:
        """The answer of a handler that is no operation of the description, to a request with such a query."""
        try:
            return await self._answer(request, _Route(handler, query, True, False, False))
        except BrokerError as error:
            return answered_with(error)
        except Exception as error:  # noqa: BLE001 - as in respond
            return answered_with(failed(error))

    async def respond(self, request: Request) -> Response:
        """The answer to a request; whatever is wrong is one, too."""
        try:
            self._terms.origins.require(request.method, request.headers)
            methods, given = self._routes.find(request.scope["raw_path"])
            if not methods:
                return await self.elsewhere(request) or self._nowhere(request)
            found = methods.get("GET" if request.method == "HEAD" else request.method)
            if found is None:
                return self._no_such_method(request, sorted({*methods, *(("HEAD",) if "GET" in methods else ())}))
            request.scope["path_params"] = given
            return await self._answer(request, found)
        except BrokerError as error:
            return answered_with(error)
        except ClientDisconnect:
            return Response(status_code=400)
        except Exception as error:  # noqa: BLE001 - whoever asks is told, and the log has the rest
            return answered_with(failed(error))

    def _no_such_method(self, request: Request, allowed: list[str]) -> Response:
        """405, or what a browser is told that asks before a page of another site does."""
        asked = self._terms.origins.preflight(request.headers, allowed) if request.method == "OPTIONS" else None
        return not_understood(request, ", ".join(allowed)) if asked is None else Response(None, 204, asked)

    def _nowhere(self, request: Request) -> Response:
        paths = self._routes.paths
        there = f"there are {', '.join(sorted(paths))}" if len(paths) <= PATHS_TOLD_MAX else "see /openapi.json"
        return answered_with(RefusedError(f"there is no {request.scope['path']:.200}; {there}", 404))

    async def _answer(self, request: Request, route: _Route) -> Response:
        """Who may not ask is told that, whatever else is wrong."""
        if route.public:
            request.state.query = route.asked(request)
            return await route.handler(request, None)
        self._require_room()
        self.requests += 1
        try:
            given, peer = self._asked_by(
                str(request.scope["scheme"]), request.client, request.headers.get("authorization")
            )
            self._require_open()
            async with self.users.connection_of(given, peer) as user:
                self.check_path(request.path_params)
                if has_body(request) and not route.body:
                    raise RefusedError(
                        f"{request.method:.20} takes no body here; what it is asked goes into the query", 400
                    )
                request.state.query = route.asked(request)
                try:
                    return await route.handler(request, user)
                except SecurityError as error:
                    raise (opened_again(error) if user.ended else error) from None
        finally:
            self.requests -= 1

    def _require_room(self) -> None:
        """Raises ResourceAllocationError when as many requests are being answered as may be."""
        if self.requests >= self._terms.requests_max:
            raise ResourceAllocationError(f"{self._terms.requests_max} requests are being answered; try again")

    def _asked_by(
        self, scheme: str, client: tuple[str, int] | None, authorization: str | None
    ) -> tuple[RequestCredentials, str]:
        """Who asks, and from which "address:port": the same for the same. Raises what is wrong with that."""
        host, port = client or ("", 0)
        self._require_private(scheme, host)
        return self.users.offer.given(authorization), f"{host}:{port}"

    def _require_open(self) -> None:
        """Raises ResourceAllocationError while the service is paused."""
        if self._state() == PAUSED:
            raise ResourceAllocationError("the service is paused; try later")

    def _require_private(self, scheme: str, address: str) -> None:
        """Raises RefusedError, 403, for a password that others could read on its way."""
        try:
            require_private(address, self._terms.unencrypted or scheme == "https", self._terms.secure)
        except SecurityError as error:
            raise RefusedError(str(error), 403) from None

    # ---- operations that every service has ---------------------------------------------------------------------------

    async def _health(self, request: Request, user: None) -> Response:
        state = self._state()
        return answered({"broker": self._terms.broker, "state": state}, 200 if state == RUNNING else 503)

    async def _openapi(self, request: Request, user: None) -> Response:
        return Response(self._description, media_type=JSON)


def has_body(request: Request) -> bool:
    """Whether a body comes with a request."""
    return bool(request.headers.get("content-length", "0").strip("0")) or "transfer-encoding" in request.headers


def opened_again(error: SecurityError) -> ResourceAllocationError:
    """The broker has ended the user's connection."""
    return ResourceAllocationError(f"{error}; with the next request it is opened again")


def failed(error: BaseException) -> BrokerError:
    """A fault that is none of whoever asked: he is told, and the log has the rest."""
    LOG.error("a request over HTTP could not be answered", exc_info=error)
    return BrokerError(f"the broker failed: {error!r:.200}")


def not_understood(request: Request, allowed: str) -> Response:
    """405, with what would be."""
    text = f"{request.method:.20} is not understood at {request.scope['path']:.200}; there is {allowed}"
    return answered_with(RefusedError(text, 405, {"Allow": allowed}))


def answered(value: Any, status: int = 200) -> Response:
    """An answer of JSON."""
    return Response(written(value), status, PLAIN_HEADERS, JSON)


def answered_with(error: BrokerError, more: Mapping[str, Any] | None = None) -> Response:
    """An error as an answer."""
    body = written({**problem(error), **(more or {})})
    return Response(body, status_of(error), {**PLAIN_HEADERS, **headers_of(error)}, CONTENT_TYPE)
