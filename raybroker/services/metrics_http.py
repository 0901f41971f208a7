"""The endpoint that Prometheus scrapes: one a broker, in threads of its own.

    /metrics                       the aggregate tier; ?tier=destination or ?tier=all for more, ?names=orders.* for some
    /metrics/destinations          the destination tier, with ?names=
    /sd                            all brokers of the cluster, as Prometheus' HTTP service discovery wants them
    /healthy                       200 while the broker answers

A scrape that cannot be answered in time is an error of the scrape (503), never half a page.
"""

from __future__ import annotations

import gzip
import json
import logging
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from raybroker.metrics.catalogue import TIERS, Tier
from raybroker.metrics.exposition import CONTENT_TYPE, Snapshot, page
from raybroker.model.errors import BrokerError, ConfigError
from raybroker.model.setting import PortRange

log = logging.getLogger("raybroker.metrics")

GZIP_BYTES_MIN: Final = 4096
GZIP_LEVEL: Final = 1
REQUEST_TIMEOUT_S: Final = 30.0
"""A client that takes longer to say what it wants is let go."""

Ask = Callable[[str | None], Snapshot]
"""names → snapshot, from any thread; raises a BrokerError or TimeoutError."""


class Endpoint:
    """Listens from :meth:`start` to :meth:`stop`. ``targets``: the endpoints of all brokers, for /sd."""

    def __init__(self, ask: Ask, targets: Callable[[], list[dict[str, Any]]]) -> None:
        self._ask = ask
        self._targets = targets
        self._server: ThreadingHTTPServer | None = None
        self.url = ""

    def start(self, ip: str, ports: PortRange) -> str:
        """The address of /metrics; raises ConfigError when no port of the range is free."""
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            timeout = REQUEST_TIMEOUT_S
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                endpoint._answer(self)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
                log.debug(format, *args)

        last: OSError | None = None
        for port in range(ports.low, ports.high + 1):
            try:
                self._server = _Server((ip, port), Handler)
                break
            except OSError as error:
                last = error
        if self._server is None:
            raise ConfigError(f"no free port in raybroker.metrics.ports={ports} on {ip}: {last}")
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
            status, kind, body = self._respond(request.path)
        except ConfigError as error:
            status, kind, body = 400, "text/plain; charset=utf-8", f"{error}\n".encode()
        except (BrokerError, TimeoutError) as error:
            status, kind, body = 503, "text/plain; charset=utf-8", f"the broker cannot be asked now: {error}\n".encode()
        packed = len(body) >= GZIP_BYTES_MIN and "gzip" in request.headers.get("Accept-Encoding", "")
        if packed:
            body = gzip.compress(body, GZIP_LEVEL)
        try:
            request.send_response(status)
            request.send_header("Content-Type", kind)
            if packed:
                request.send_header("Content-Encoding", "gzip")
            request.send_header("Content-Length", str(len(body)))
            request.end_headers()
            request.wfile.write(body)
        except OSError as error:
            log.debug("a scraper left before it had its answer: %s", error)

    def _respond(self, target: str) -> tuple[int, str, bytes]:
        parts = urlsplit(target)
        query = parse_qs(parts.query)
        names = query.get("names", ["*"])[0]
        if parts.path == "/metrics":
            return 200, CONTENT_TYPE, self._page(tiers_of(query.get("tier", ["aggregate"])), names)
        if parts.path == "/metrics/destinations":
            return 200, CONTENT_TYPE, self._page(("destination",), names)
        if parts.path == "/sd":
            return 200, "application/json", json.dumps(self._targets()).encode()
        if parts.path == "/healthy":
            self._ask(None)
            return 200, "text/plain; charset=utf-8", b"ok\n"
        text = "/metrics, /metrics?tier=destination, /metrics/destinations?names=orders.*, /sd, /healthy\n"
        return 404, "text/plain; charset=utf-8", f"there is: {text}".encode()

    def _page(self, tiers: tuple[Tier, ...], names: str) -> bytes:
        return page(self._ask(names if "destination" in tiers else None), tiers).encode()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True


def tiers_of(wanted: list[str]) -> tuple[Tier, ...]:
    """Raises ConfigError for what is none."""
    given = {name for text in wanted for name in text.split(",")}
    if "all" in given:
        return TIERS
    unknown = given - set(TIERS)
    if unknown:
        raise ConfigError(f"there is no tier {min(unknown)!r}; there are aggregate, destination and all")
    return tuple(tier for tier in TIERS if tier in given)
