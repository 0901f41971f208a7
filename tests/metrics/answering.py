"""A server that answers as a Prometheus does, with one series for every query."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import parse_qs


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        given = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        labels = {"broker": "b1", "destination": "orders", "le": "1"}
        if self.path.endswith("query_range"):
            start, step = float(given["start"][0]), float(given["step"][0])
            rows = [{"metric": labels, "values": [[start + number * step, str(number)] for number in range(9)]}]
        else:
            rows = [{"metric": labels, "value": [float(given["time"][0]), "7"]}]
        body = json.dumps({"status": "success", "data": {"result": rows}}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing on standard error."""


@contextlib.contextmanager
def answering() -> Iterator[str]:
    """The address of a server that runs meanwhile."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
