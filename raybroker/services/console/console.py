"""Requests below ``/console/``: files of the pages, login and logout, verbs for the user of a session, and views.

    GET    /console/                    the page; its files beside it
    POST   /console/session             {"user", "password"} or {"token"}: log in
    GET    /console/session             who is logged in
    DELETE /console/session             log out
    *      /console/api/PATH            what PATH is for the user of the session
    GET    /console/view/destinations   a page of the destinations, sorted and filtered, with sums
    GET    /console/view/history        depth and rates over the last hour, of one destination or of all together
    GET    /console/view/NAME           what a verb answers (see REFUSABLE); ``not_now`` of a row: which changes the
                                        broker would refuse as it is, and why, in the words of the refusal

A request that changes something needs the header ``X-CSRF-Token`` with the token of the session, comes from a page of
the console itself whatever other origins the services take, and has the user's password proved once more.  No answer
may be shown within a page of others or be taken for something else than it is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from http.cookies import CookieError, SimpleCookie
from typing import Annotated, Any, Final, NotRequired
from urllib.parse import unquote

from pydantic import Field, TypeAdapter, with_config
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from raybroker.model import refusals
from raybroker.model.errors import BrokerError
from raybroker.model.listing import Listing, Row
from raybroker.services.console.figures import SORTS, Ask, Figures, page
from raybroker.services.console.history import SLOTS, HistorySampling
from raybroker.services.console.sessions import LIFETIME_S, ConsoleSession, ConsoleSessions
from raybroker.services.console.static_files import INDEX, static_files
from raybroker.services.web.application import Handler, WebApplication, answered, answered_with, not_understood
from raybroker.services.web.credentials import basic, bearer
from raybroker.services.web.json_text import DIGITS, NoQuery, checked, loaded
from raybroker.services.web.origins import OWN, READING, Origins
from raybroker.services.web.problems import RefusedError

LOG: Final = logging.getLogger("raybroker.services")
PATH: Final = "/console"
COOKIE: Final = "raybroker_console"
CSRF: Final = "x-csrf-token"
RENEWS: Final = "x-console-renews"
"""Header of a request that nobody has asked for: the page renews its figures."""
ROWS_MAX: Final = 1000
TEXT_MAX: Final = 200
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Of every answer."""
_SELF: Final = Origins()


@with_config(extra="forbid", strict=True)
class Login(TypedDict):
    """A user with a password, or a token."""

    user: NotRequired[str]
    password: NotRequired[str]
    token: NotRequired[str]


@with_config(extra="forbid")
class DestinationsQuery(TypedDict):
    """Which destinations, in which order."""

    type: NotRequired[str]
    text: NotRequired[Annotated[str, Field(max_length=TEXT_MAX)]]
    sort: NotRequired[str]
    falling: NotRequired[bool]
    start: NotRequired[Annotated[int, Field(ge=0), DIGITS]]
    max: NotRequired[Annotated[int, Field(ge=1, le=ROWS_MAX), DIGITS]]


@with_config(extra="forbid")
class HistoryQuery(TypedDict):
    """Which destination; neither: all together."""

    type: NotRequired[str]
    name: NotRequired[str]


@with_config(extra="forbid")
class OneQuery(TypedDict):
    """One destination."""

    type: str
    name: str


REFUSABLE: Final[Mapping[str, tuple[str, type, Callable[[Row], dict[str, str]]]]] = {
    "destination": ("query_destination", OneQuery, refusals.destination),
    "subscriptions": ("list_subscriptions", NoQuery, refusals.subscription),
    "transactions": ("list_transactions", NoQuery, refusals.transaction),
    "services": ("list_services", NoQuery, refusals.service),
    "brokers": ("list_brokers", NoQuery, refusals.broker),
}
"""View → verb, its query, and verb → why it would be refused, of one of its rows."""
_LOGIN: Final[TypeAdapter[Any]] = TypeAdapter(Login)


class Console:
    """``served``: the administration that it is a part of; ``broker``, ``version``: what pages name."""

    def __init__(
        self,
        served: WebApplication[Any],
        sessions: ConsoleSessions,
        figures: Figures,
        samples: HistorySampling,
        broker: str,
        version: str,
    ) -> None:
        self._served = served
        self._sessions = sessions
        self._figures = figures
        self._samples = samples
        self._about = {"broker": broker, "version": version}
        self._files = static_files()
        self._views: dict[bytes, tuple[TypeAdapter[Any], Handler]] = {
            b"/view/destinations": (TypeAdapter(DestinationsQuery), self._destinations),
            b"/view/history": (TypeAdapter(HistoryQuery), self._history),
            **{
                f"/view/{name}".encode(): (TypeAdapter(query), _refusable(verb, refused))
                for name, (verb, query, refused) in REFUSABLE.items()
            },
        }

    @staticmethod
    def has(raw_path: bytes) -> bool:
        """Whether a path is the console's."""
        return raw_path == b"/console" or raw_path.startswith(b"/console/")

    async def respond(self, request: Request) -> Response:
        """The answer to a request at one of the console's paths."""
        try:
            answer = await self._answer(request, request.scope["raw_path"].removeprefix(b"/console"))
        except BrokerError as error:
            answer = answered_with(error)
        answer.headers.update(HEADERS)
        if "www-authenticate" in answer.headers:  # A browser would ask by itself.
            del answer.headers["www-authenticate"]
        return answer

    async def _answer(self, request: Request, path: bytes) -> Response:
        if not path:
            return Response(None, 308, {"Location": f"{PATH}/"})
        if not path.startswith((b"/api/", b"/view/")) and path != b"/session":
            return self._file(request, path)
        _require_own(request)
        if path == b"/session":
            return await self._at_session(request)
        session = self._current(request)
        if path.startswith(b"/api/"):
            return await self._verb(request, session, path.removeprefix(b"/api"))
        view = self._views.get(path)
        if view is None:
            raise RefusedError(f"there is no {request.scope['path']:.200}", 404)
        if request.method not in ("GET", "HEAD"):
            return not_understood(request, "GET, HEAD")
        answer = await self._served.serve(_as_user(request, session, path), *view)
        return self._ended(session) if answer.status_code == 401 else answer

    # ---- files -------------------------------------------------------------------------------------------------------

    def _file(self, request: Request, path: bytes) -> Response:
        found = self._files.get(unquote(path.decode("latin-1")).removeprefix("/") or INDEX)
        if found is None:
            raise RefusedError(f"there is no {request.scope['path']:.200}", 404)
        if request.method not in ("GET", "HEAD"):
            return not_understood(request, "GET, HEAD")
        headers = {"ETag": found.tag, "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == found.tag:
            return Response(None, 304, headers)
        return Response(found.data, 200, headers, found.kind)

    # ---- login and logout --------------------------------------------------------------------------------------------

    async def _at_session(self, request: Request) -> Response:
        match request.method:
            case "POST":
                return await self._log_in(request)
            case "GET" | "HEAD":
                return answered(self._told(self._current(request)))
            case "DELETE":
                session = self._current(request)
                _require_token(request, session)
                self._sessions.end_session(session)
                return Response(None, 204, {"Set-Cookie": _cookie(request, "", 0)})
        return not_understood(request, "DELETE, GET, HEAD, POST")

    async def _log_in(self, request: Request) -> Response:
        async with self._served.bodies.json(request) as data:
            login = checked(_LOGIN, loaded(data), "the login")
        header = bearer(login["token"]) if "token" in login else basic(login.get("user", ""), login.get("password", ""))
        given = self._served.users.offer.given(header)
        let_in = await self._served.respond(_internal(request, b"/broker", header))
        if let_in.status_code != 200:
            return let_in
        await self._served.users.prove(given, _peer(request))  # It may have been let in by what was proved before.
        key, session = self._sessions.open(given.user or "(by token)", given)
        LOG.info("[B1190] %r has logged in to the console from %s", given, _peer(request))
        answer = answered(self._told(session))
        answer.headers["Set-Cookie"] = _cookie(request, key, int(LIFETIME_S))
        return answer

    def _told(self, session: ConsoleSession) -> Row:
        return {"user": session.name, "token": session.token, "idle_s": self._sessions.idle_s, **self._about}

    def _current(self, request: Request) -> ConsoleSession:
        """The session of a request; raises RefusedError, 401."""
        found = self._sessions.find(_key(request), used=RENEWS not in request.headers)
        if found is None:
            raise _no_session()
        return found

    def _ended(self, session: ConsoleSession) -> Response:
        """The user's secret does not hold any more."""
        self._sessions.end_of(session.name)
        LOG.info(
            "[B1191] the sessions of %r of the console have ended: the login does not hold any more", session.given
        )
        return answered_with(_no_session())

    # ---- verbs and views ---------------------------------------------------------------------------------------------

    async def _verb(self, request: Request, session: ConsoleSession, path: bytes) -> Response:
        if self.has(path):
            raise RefusedError(f"there is no {request.scope['path']:.200}", 404)
        changes = request.method not in READING
        if changes:
            _require_token(request, session)
            try:
                await self._served.users.prove(session.given, _peer(request))
            except RefusedError as error:
                if error.status != 401:
                    raise
                return self._ended(session)
        answer = await self._served.respond(_as_user(request, session, path))
        if answer.status_code == 401:
            return self._ended(session)
        if changes:
            self._figures.changed()
            if path.startswith(b"/users/") and answer.status_code < 300:
                self._sessions.end_of(unquote(path.removeprefix(b"/users/").decode("latin-1")))
        return answer

    async def _destinations(self, request: Request, user: Any) -> Response:
        query = request.state.query
        sort = query.get("sort", "name")
        if sort not in SORTS:
            raise RefusedError(f"sort={sort!r:.80}; there are {', '.join(SORTS)}", 400)
        sampled = await self._figures.sample(_listed(user))
        count, rows = page(
            sampled.rows,
            type=query.get("type", ""),
            text=query.get("text", ""),
            sort=sort,
            falling=query.get("falling", False),
            start=query.get("start", 0),
            most=query.get("max", 50),
        )
        return answered(
            {
                "rows": rows,
                "count": count,
                "all": len(sampled.rows),
                "sums": _sums(sampled.rows),
                "missing": dict(sampled.missing),
                "at_ms": sampled.at_ms,
                "every_s": round(sampled.every_s, 1),
            }
        )

    async def _history(self, request: Request, user: Any) -> Response:
        query, samples = request.state.query, self._samples
        rows = samples.history.slot_rows((query.get("type", ""), query.get("name", "")))
        return answered({"rows": rows, "every_s": samples.every_s, "slots": SLOTS})


def _refusable(verb: str, refused: Callable[[Row], dict[str, str]]) -> Handler:
    async def handle(request: Request, user: Any) -> Response:
        found = await user.carry_out(verb, dict(request.state.query))
        if isinstance(found, list):
            rows = [{**row, "not_now": refused(row)} for row in found]
            return answered({"rows": rows, "missing": found.missing if isinstance(found, Listing) else {}})
        return answered({**found, "not_now": refused(found)})

    return handle


def _listed(user: Any) -> Ask:
    async def ask() -> Any:
        return await user.carry_out("list_destinations", {"type": None, "temporary": True})

    return ask


def _sums(rows: list[Row]) -> Row:
    """Return the sums over all destinations, None where nothing is known, as rates are at first."""
    names = ("messages", "bytes", "producers", "active_consumers", "dead", "in_rate", "out_rate")
    known = {name: [row[name] for row in rows if row[name] is not None] for name in names}
    return {name: round(sum(values), 2) if values else None for name, values in known.items()}


def _require_own(request: Request) -> None:
    """Raises RefusedError, 403, for what a page of another site asks, also when it only reads."""
    _SELF.require(request.method, request.headers)
    site = request.headers.get("sec-fetch-site")
    if site is not None and site not in OWN:
        raise RefusedError(f"a page of another site ({site!r:.40}) may not use the console", 403)


def _require_token(request: Request, session: ConsoleSession) -> None:
    if not session.wants(request.headers.get(CSRF)):
        raise RefusedError("a change needs the token of the session in the header X-CSRF-Token", 403)


def _no_session() -> RefusedError:
    return RefusedError("nobody is logged in here, or the session has ended: log in", 401)


def _cookie_name(request: Request) -> str:
    """Return the name, with the port: cookies of brokers on one machine would be the same otherwise."""
    server = request.scope.get("server")
    return f"{COOKIE}_{server[1]}" if server else COOKIE


def _key(request: Request) -> str:
    """The key of the session in the cookie; "" where there is none."""
    try:
        found = SimpleCookie(request.headers.get("cookie", "")).get(_cookie_name(request))
    except CookieError:
        return ""
    return found.value if found is not None else ""


def _cookie(request: Request, key: str, age_s: int) -> str:
    """Return the header Set-Cookie: no script can read it, no page of another site sends it, and one that came over TLS
    goes over TLS alone."""
    secure = "; Secure" if request.scope["scheme"] == "https" else ""
    return f"{_cookie_name(request)}={key}; Path={PATH}/; Max-Age={age_s}; HttpOnly; SameSite=Strict{secure}"


def _peer(request: Request) -> str:
    host, port = request.client or ("", 0)
    return f"{host}:{port}"


def _as_user(request: Request, session: ConsoleSession, path: bytes) -> Request:
    """The request as the user of the session would send it to the services themselves."""
    given = session.given
    header = bearer(given.token) if given.token is not None else basic(given.user, given.password)
    headers = [
        (name, value)
        for name, value in request.scope["headers"]
        if name not in (b"authorization", b"cookie", b"origin")
    ]
    scope = {
        **request.scope,
        "raw_path": path,
        "path": unquote(path.decode("latin-1")),
        "headers": [*headers, (b"authorization", header.encode())],
        "state": dict(request.scope.get("state", {})),
    }
    return Request(scope, request.receive)


def _internal(request: Request, path: bytes, header: str) -> Request:
    """A request for what proves a login."""
    scope = {
        **request.scope,
        "method": "GET",
        "raw_path": path,
        "path": path.decode(),
        "query_string": b"",
        "headers": [(b"authorization", header.encode())],
        "state": dict(request.scope.get("state", {})),
    }
    return Request(scope, _nothing)


async def _nothing() -> Any:
    return {"type": "http.request", "body": b"", "more_body": False}
