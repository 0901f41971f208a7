"""The endpoint that Prometheus scrapes: one a broker, in a bounded number of threads of its own.

    /metrics                       the aggregate tier; ?tier=destination or ?tier=all for more, ?names=orders.* for some
    /metrics/destinations          the destination tier, with ?names=
    /sd                            all brokers of the cluster, as Prometheus' HTTP service discovery wants them
    /healthy                       200 while the broker answers

The methods are GET and HEAD; prometheus_client chooses the format by the header Accept.  A query that is not
understood is refused (400).  A scrape that cannot be answered in time is an error of the scrape (503), never half a
page.  Requests for the same page at the same time share one: many scrapers cost about as much as one.
"""

from __future__ import annotations

import difflib
import gzip
import json
import logging
import socket
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qs, urlsplit

from raybroker.metrics.catalogue import TIERS, Tier
from raybroker.metrics.exposition import content_type, page
from raybroker.metrics.snapshot import Snapshot
from raybroker.model.errors import BrokerError, ConfigError
from raybroker.model.setting import PortRange
from raybroker.system.clock import SystemClock
from raybroker.transport.ports import bound_socket

log = logging.getLogger("raybroker.metrics")

GZIP_BYTES_MIN: Final = 4096
GZIP_LEVEL: Final = 1
REQUEST_TIMEOUT_S: Final = 10.0
"""A client that takes longer to say what it wants, or to take a part of the answer, is let go."""
WORKERS_MAX: Final = 8
"""Threads that answer."""
WAITING_MAX: Final = 256
"""Connections that wait for a thread; one more is answered 503 at once."""
WAIT_S_MAX: Final = 10.0
"""A request that has waited for a thread longer is answered 503: who sent it has given up."""
BACKLOG: Final = 256
"""Connections the system may hold that are not accepted yet."""
PARAMETERS: Final[dict[str, tuple[str, ...]]] = {
    "/metrics": ("tier", "names"), "/metrics/destinations": ("names",), "/sd": (), "/healthy": (),
}  # fmt: skip
"""Paths, and what may be asked of them."""
METHODS: Final = ("GET", "HEAD")
_TEXT: Final = "text/plain; charset=utf-8"

Ask = Callable[[str | None], Snapshot]
"""Gives the snapshot with the destinations of those names, in any thread; raises a BrokerError or TimeoutError."""


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
        snapshot, latest = self._ask(wanted.names if "destination" in wanted.tiers else None), self._latest
        if latest is not None and latest[0] == wanted and latest[1] is snapshot:
            return latest[2]
        body = page(snapshot, wanted.tiers, wanted.content_type)
        made = _Answer(200, wanted.content_type, body)
        if wanted.packed and len(body) >= GZIP_BYTES_MIN:
            made = made._replace(body=gzip.compress(body, GZIP_LEVEL), headers={"Content-Encoding": "gzip"})
        self._latest = wanted, snapshot, made
        return made


class Endpoint:
    """Listens from :meth:`start` to :meth:`stop`. ``targets``: the endpoints of all brokers, for /sd."""

    def __init__(self, ask: Ask, targets: Callable[[], list[dict[str, Any]]]) -> None:
        self._ask = ask
        self._pages = _Pages(ask)
        self._targets = targets
        self._server: _Server | None = None
        self.url = ""

    def start(self, ip: str, ports: PortRange) -> str:
        """The address of /metrics; raises ConfigError when no port of the range is free."""
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            timeout = REQUEST_TIMEOUT_S
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                endpoint._answer(self)

            do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_GET  # noqa: N815 - their names there

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
                log.debug(format, *args)

        self._server = _Server(bound_socket(ip, ports, "in raybroker.metrics.ports=", backlog=BACKLOG), Handler)
        threading.Thread(target=self._server.serve_forever, name="raybroker-metrics", daemon=True).start()
        shown = f"[{ip}]" if ":" in ip else ip
        self.url = f"http://{shown}:{self._server.server_address[1]}/metrics"
        return self.url

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        try:
            answer = self._respond(request)
        except ConfigError as error:
            answer = _Answer(400, _TEXT, f"{error}\n".encode())
        except (BrokerError, TimeoutError) as error:
            answer = _Answer(503, _TEXT, f"the broker cannot be asked now: {error}\n".encode())
        _write(request, answer)

    def _respond(self, request: BaseHTTPRequestHandler) -> _Answer:
        parts, headers = urlsplit(request.path), request.headers
        if request.command not in METHODS:
            text = f"{request.command} is not understood here; there are GET and HEAD\n"
            return _Answer(405, _TEXT, text.encode(), {"Allow": ", ".join(METHODS)})
        if parts.path not in PARAMETERS:
            text = "/metrics, /metrics?tier=destination, /metrics/destinations?names=orders.*, /sd, /healthy\n"
            return _Answer(404, _TEXT, f"there is: {text}".encode())
        query = parameters(parts.path, parts.query)
        if parts.path == "/sd":
            return _Answer(200, "application/json", json.dumps(self._targets()).encode())
        if parts.path == "/healthy":
            self._ask(None)
            return _Answer(200, _TEXT, b"ok\n")
        tiers = tiers_of(query.get("tier", ["aggregate"])) if parts.path == "/metrics" else ("destination",)
        kind = content_type(", ".join(headers.get_all("Accept", [])))
        packed = "gzip" in headers.get("Accept-Encoding", "")
        return self._pages.get(_Wanted(tiers, query.get("names", ["*"])[0], kind, packed))


def _write(request: BaseHTTPRequestHandler, answer: _Answer) -> None:
    """The whole answer, without its body for HEAD; the connection ends, so that an idle scraper keeps no thread."""
    request.close_connection = True
    try:
        request.send_response(answer.status)
        length = str(len(answer.body))
        own = {"Content-Type": answer.content_type, "Connection": "close", "Content-Length": length}
        for name, value in {**own, **answer.headers}.items():
            request.send_header(name, value)
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(answer.body)
    except OSError as error:
        log.debug("a scraper left before it had its answer: %s", error)


class _Server(TCPServer):
    """Accepts in its own thread and answers in ``WORKERS_MAX`` others."""

    def __init__(self, listening: socket.socket, handler: type[BaseHTTPRequestHandler]) -> None:
        self._workers = ThreadPoolExecutor(WORKERS_MAX, thread_name_prefix="raybroker-metrics")
        self._room = threading.Semaphore(WORKERS_MAX + WAITING_MAX)
        self._clock = SystemClock()
        super().__init__(listening.getsockname(), handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening

    def process_request(self, request: Any, client_address: Any) -> None:
        """Called in the accepting thread: hand it to a worker, or refuse it."""
        if not self._room.acquire(blocking=False):
            self._busy(request)
            return
        self._workers.submit(self._work, request, client_address, self._clock.monotonic_ns())

    def _work(self, request: Any, client_address: Any, came_ns: int) -> None:
        try:
            if self._clock.monotonic_ns() - came_ns > WAIT_S_MAX * 1e9:
                self._busy(request)
                return
            try:
                self.finish_request(request, client_address)
            except OSError as error:
                log.debug("a scraper left before it had its answer: %s", error)
            except Exception:  # one request that fails must not end the thread, nor be silent
                log.exception("a request for metrics failed")
            self.shutdown_request(request)
        finally:
            self._room.release()

    def _busy(self, request: Any) -> None:
        text = b"too many scrapes at once; try again later\n"
        head = f"HTTP/1.1 503 Busy\r\nContent-Type: {_TEXT}\r\nContent-Length: {len(text)}\r\nConnection: close\r\n\r\n"
        try:
            request.setblocking(False)
            request.send(head.encode() + text)
        except OSError as error:
            log.debug("a scraper left before it was refused: %s", error)
        self.shutdown_request(request)

    def server_close(self) -> None:
        super().server_close()
        self._workers.shutdown(wait=False, cancel_futures=True)


def parameters(path: str, query: str) -> dict[str, list[str]]:
    """What is asked of a path; raises ConfigError for what it does not know, and for names that are given twice."""
    given, known = parse_qs(query, keep_blank_values=True), PARAMETERS[path]
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            there = f"there are {', '.join(known)}" if known else "it takes none"
            raise ConfigError(f"{path} has no parameter {name!r}; {f'did you mean {near[0]}?' if near else there}")
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
