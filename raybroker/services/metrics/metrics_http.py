"""The endpoint that Prometheus scrapes: one a broker, in a thread of its own, with pages made in few others.

    /metrics                       the aggregate tier; ?tier=destination or ?tier=all for more, ?names=orders.* for some
    /metrics/destinations          the destination tier, with ?names=
    /sd                            all brokers of the cluster, as Prometheus' HTTP service discovery wants them
    /healthy                       200 while the broker answers
    /health/live                   the same, as JSON
    /health/ready                  200 while clients can use the broker: it is open, its hosts answer, services listen
    /health/broker                 its graded checks, each with its text: 503 when one is critical or unknown
    /health/services               those of its connection services
    /health/cluster                those of the cluster, as this broker sees it

The methods are GET and HEAD; prometheus_client chooses the format by the header Accept.  A query that is not
understood is refused (400), and a scrape that cannot be answered in time is an error of the scrape (503), never half a
page; errors look as those of the other services over HTTP.  Requests for the same page at the same time share one: many
scrapers cost about as much as one.  With an
``MetricsAccess`` whoever asks says who he is (401), but for /healthy, /health/live and /health/ready, which say one
word, and ask as well where raybroker.metrics.probes is false.  With a context for TLS the endpoint speaks https alone.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import ssl
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from raybroker.admin.checks import Grade, failing, row, worst
from raybroker.metrics.catalogue import TIERS, Tier
from raybroker.metrics.snapshot import Snapshot
from raybroker.model.errors import BrokerError, ConfigError, NotAdmittedError, SecurityError
from raybroker.model.naming.nearest import nearest
from raybroker.model.settings.setting import PortRange
from raybroker.model.settings.setting_listeners import UNREAD_S
from raybroker.model.settings.settings import ConfigView
from raybroker.services.http.http_bounds import Guard
from raybroker.services.http.http_server import HttpServer
from raybroker.services.metrics.metrics_access import REALM, MetricsAccess
from raybroker.services.native.native import RefusalLog
from raybroker.services.web.problems import CONTENT_TYPE, RefusedError, headers_of, problem, status_of
from raybroker.system.clock import SystemClock
from raybroker.transport.loops import new_event_loop
from raybroker.transport.ports import bound_socket

log = logging.getLogger("raybroker.metrics")

GZIP_BYTES_MIN: Final = 4096
GZIP_LEVEL: Final = 1
REQUEST_TIMEOUT_S: Final = 10.0
"""A client that takes longer to say what it wants is let go."""
WORKERS_MAX: Final = 8
"""Threads that answer."""
WAITING_MAX: Final = 256
"""Requests that wait for a thread; one more is answered 503 at once."""
WAIT_S_MAX: Final = 10.0
"""A request that has waited for a thread longer is answered 503: who sent it has given up."""
BACKLOG: Final = 256
"""Connections the system may hold that are not accepted yet."""
PARAMETERS: Final[dict[str, tuple[str, ...]]] = {
    "/metrics": ("tier", "names"),
    "/metrics/destinations": ("names",),
    "/sd": (),
    "/healthy": (),
    "/health/live": (),
    "/health/ready": (),
    "/health/broker": (),
    "/health/services": (),
    "/health/cluster": (),
}
"""Paths, and what may be asked of them."""
HEALTH: Final = "/health/"
PROBES: Final = frozenset({"/health/live", "/health/ready"})
"""They say whether, and not why."""
PUBLIC: Final = PROBES | {"/healthy"}
"""Nobody is asked who he is there, where the admission says so."""
METHODS: Final = ("GET", "HEAD")
CONNECTIONS_MAX: Final = 512
CONNECTIONS_OF_ADDRESS_MAX: Final = 128
START_TIMEOUT_S: Final = 10.0
STOP_TIMEOUT_S: Final = 4.0
_TEXT: Final = "text/plain; charset=utf-8"
_FRESH: Final = {"Cache-Control": "no-store"}

Ask = Callable[[str | None], Snapshot]
"""Gives the snapshot with the destinations of those names, in any thread; raises a BrokerError or TimeoutError."""
Look = Callable[[str], list[dict[str, Any]]]
"""Gives the checks of that name (live, ready, broker, services, cluster), in any thread; raises as Ask."""


class _Wanted(NamedTuple):
    """The page of a request; equal requests share one page."""

    tiers: tuple[Tier, ...]
    names: str
    content_type: str
    packed: bool


class _Answer(NamedTuple):
    status: int
    content_type: str
    body: bytes
    headers: Mapping[str, str] = {}


def _refused(error: BrokerError) -> _Answer:
    """An error as every service over HTTP tells it."""
    return _Answer(status_of(error), CONTENT_TYPE, json.dumps(problem(error)).encode(), headers_of(error))


_BUSY: Final = _refused(RefusedError("too many scrapes at once; try again later", 503, retryable=True))
R = TypeVar("R")


class _Pages:
    """Pages, each made once for all requests at the same time or of the same snapshot."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._lock = threading.Lock()
        self._under_way: dict[_Wanted, Future[_Answer]] = {}
        self._latest: tuple[_Wanted, Snapshot, _Answer] | None = None

    def get(self, wanted: _Wanted) -> _Answer:
        """Raises what asking the broker raises."""
        with self._lock:
            found = self._under_way.get(wanted)
            mine = found is None
            future: Future[_Answer] = Future() if found is None else found
            self._under_way[wanted] = future
        if mine:
            try:
                future.set_result(self._made(wanted))
            except BaseException as error:  # noqa: BLE001 - those who wait for the page get it too
                future.set_exception(error)
            finally:
                with self._lock:
                    del self._under_way[wanted]
        return future.result()

    def _made(self, wanted: _Wanted) -> _Answer:
        from raybroker.metrics.exposition import page  # With the first scrape: a broker starts without.

        snapshot, latest = self._ask(wanted.names if "destination" in wanted.tiers else None), self._latest
        if latest is not None and latest[0] == wanted and latest[1] is snapshot:
            return latest[2]
        body = page(snapshot, wanted.tiers, wanted.content_type)
        made = _Answer(200, wanted.content_type, body)
        if wanted.packed and len(body) >= GZIP_BYTES_MIN:
            made = made._replace(body=gzip.compress(body, GZIP_LEVEL), headers={"Content-Encoding": "gzip"})
        self._latest = wanted, snapshot, made
        return made


class MetricsEndpoint:
    """Listens from :meth:`start` to :meth:`stop`. ``targets``: the endpoints of all brokers, for /sd; ``admission``:
    None: everybody may ask. What is given to :meth:`admit` holds from then on. ``look``: the checks of health."""

    def __init__(
        self,
        ask: Ask,
        targets: Callable[[], list[dict[str, Any]]],
        admission: MetricsAccess | None = None,
        look: Look = lambda name: [],
    ) -> None:
        self._look = look
        self._ask = ask
        self._pages = _Pages(ask)
        self._targets = targets
        self._admission = admission
        self._clock = SystemClock()
        self._refusals = RefusalLog(self._clock.monotonic_ns)
        self._workers: ThreadPoolExecutor
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: HttpServer
        self._thread: threading.Thread
        self._requests = 0
        self._most, self._of_address = CONNECTIONS_MAX, CONNECTIONS_OF_ADDRESS_MAX
        self._unread_s: float = UNREAD_S
        self._encrypted = False
        self.url = ""

    def admit(self, admission: MetricsAccess | None) -> None:
        """Set who is admitted, before :meth:`start`."""
        self._admission = admission

    def bound(self, config: ConfigView) -> None:
        """What is configured for its connections; before :meth:`start`."""
        self._most = config["raybroker.metrics.connections_max"]
        self._of_address = config["raybroker.metrics.address_connections_max"]
        self._unread_s = config["raybroker.service.unread_timeout"]

    @property
    def requests(self) -> int:
        """The requests that are being answered, or wait for a thread."""
        return self._requests

    def start(self, ip: str, ports: PortRange, tls: Callable[[], ssl.SSLContext] | None = None) -> str:
        """The address of /metrics; ``tls``: gives the context for a new connection, None: without TLS. Raises
        ConfigError when no port of the range is free."""
        self._encrypted = tls is not None
        bound = bound_socket(ip, ports, "in raybroker.metrics.ports=", backlog=BACKLOG)
        self._workers = ThreadPoolExecutor(WORKERS_MAX, thread_name_prefix="raybroker-metrics")
        guard = Guard(
            self._refusals.count_refusal,
            most=self._most,
            of_address=self._of_address,
            headers_s=REQUEST_TIMEOUT_S,
            unread_s=self._unread_s,
        )
        self._server = HttpServer(self._app, guard=guard, ended=self._ended, tls=tls)
        loop = self._loop = new_event_loop()
        self._thread = threading.Thread(target=_serve, args=(loop,), name="raybroker-metrics", daemon=True)
        self._thread.start()
        port = bound.getsockname()[1]
        asyncio.run_coroutine_threadsafe(self._server.start(bound), loop).result(START_TIMEOUT_S)
        shown = f"[{ip}]" if ":" in ip else ip
        self.url = f"http{'s' if self._encrypted else ''}://{shown}:{port}/metrics"
        return self.url

    def stop(self) -> None:
        loop, self._loop = self._loop, None
        if loop is None:
            return
        try:
            asyncio.run_coroutine_threadsafe(self._server.close(), loop).result(STOP_TIMEOUT_S)
        except TimeoutError:
            log.debug("requests for metrics were given up")
        loop.call_soon_threadsafe(loop.stop)
        self._thread.join(STOP_TIMEOUT_S)
        self._workers.shutdown(wait=False, cancel_futures=True)
        if self._admission is not None:
            self._admission.close()

    async def _ended(self) -> None:
        """Nothing of the application is open."""

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI application."""
        request = Request(scope)
        answer = await self._answer(request)
        headers = {"Content-Type": answer.content_type, **answer.headers}
        await Response(answer.body, answer.status, headers)(scope, receive, send)

    async def _answer(self, request: Request) -> _Answer:
        if self._requests >= WORKERS_MAX + WAITING_MAX:
            return _BUSY
        self._requests += 1
        try:
            return await self._respond(request)
        except SecurityError as error:
            self._refusals.count_refusal(request.client.host if request.client else "", f"metrics: {error}")
            if isinstance(error, NotAdmittedError):
                return _refused(RefusedError(str(error), 403, _FRESH))
            return _refused(RefusedError(str(error), 401, {"WWW-Authenticate": REALM, **_FRESH}))
        except (ConfigError, RefusedError) as error:
            return _refused(error)
        except (BrokerError, TimeoutError) as error:
            return _refused(RefusedError(f"the broker cannot be asked now: {error}", 503, retryable=True))
        except Exception:
            log.exception("a request for metrics failed")
            return _refused(RefusedError("the broker failed; its log tells", 500))
        finally:
            self._requests -= 1

    async def _respond(self, request: Request) -> _Answer:
        path, headers = request.scope["path"], request.headers
        if request.method not in METHODS:
            text = f"{request.method:.20} is not understood here; there are GET and HEAD"
            raise RefusedError(text, 405, {"Allow": ", ".join(METHODS)})
        if path not in PARAMETERS:
            text = "/metrics, /metrics?tier=destination, /metrics/destinations?names=orders.*, /sd, /healthy"
            health = ", ".join(known for known in PARAMETERS if known.startswith(HEALTH))
            raise RefusedError(f"there is: {text}, {health}", 404)
        admission = self._admission
        if admission is not None and not (path in PUBLIC and admission.healthy_open):
            address = request.client.host if request.client else ""
            await admission.require(headers.get("authorization"), address, encrypted=self._encrypted)
        query = parameters(path, request.url.query)
        if path == "/sd":
            return _Answer(200, "application/json", json.dumps(await self._worked(self._targets)).encode())
        if path == "/healthy":
            await self._worked(self._ask, None)
            return _Answer(200, _TEXT, b"ok\n")
        if path.startswith(HEALTH):
            return await self._health(path)
        from raybroker.metrics.exposition import content_type

        tiers = tiers_of(query.get("tier", ["aggregate"])) if path == "/metrics" else ("destination",)
        kind = content_type(", ".join(headers.getlist("accept")))
        packed = "gzip" in headers.get("accept-encoding", "")
        return await self._worked(self._pages.get, _Wanted(tiers, query.get("names", ["*"])[0], kind, packed))

    async def _health(self, path: str) -> _Answer:
        """A probe that anybody may make says one word, whatever is wrong."""
        try:
            rows = await self._worked(self._look, path.removeprefix(HEALTH))
        except (BrokerError, TimeoutError) as error:
            rows = [row("answers", "", Grade.CRITICAL, f"the broker cannot be asked now: {error}")]
        failed = failing(rows)
        told = {"status": "failing" if failed else "ok"} if path in PROBES else {"grade": worst(rows), "checks": rows}
        return _Answer(503 if failed else 200, "application/json", json.dumps(told).encode(), _FRESH)

    async def _worked(self, work: Callable[..., R], *args: Any) -> R:
        """The result of some work in a thread; raises TimeoutError when none was free for too long."""
        came_ns = self._clock.monotonic_ns()

        def done() -> R:
            if self._clock.monotonic_ns() - came_ns > WAIT_S_MAX * 1e9:
                raise TimeoutError("too many scrapes at once; try again later")
            return work(*args)

        return await asyncio.get_running_loop().run_in_executor(self._workers, done)


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    """The thread of an endpoint."""
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()


def parameters(path: str, query: str) -> dict[str, list[str]]:
    """What is asked of a path; raises ConfigError for what it does not know, and for names that are given twice."""
    given, known = parse_qs(query, keep_blank_values=True), PARAMETERS[path]
    for name in given:
        if name not in known:
            near = nearest(name, known)
            there = f"there are {', '.join(known)}" if known else "it takes none"
            raise ConfigError(f"{path} has no parameter {name!r}; {f'did you mean {near}?' if near else there}")
    if len(given.get("names", ())) > 1:
        raise ConfigError("names is given twice; one pattern is taken, with * for any text")
    return given


def tiers_of(wanted: list[str]) -> tuple[Tier, ...]:
    """Raises ConfigError for what is none."""
    given = {name for text in wanted for name in text.split(",")}
    if "all" in given:
        return TIERS
    unknown = given - set(TIERS)
    if unknown:
        raise ConfigError(f"there is no tier {min(unknown)!r}; there are aggregate, destination and all")
    return tuple(tier for tier in TIERS if tier in given)
