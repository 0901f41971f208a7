"""Every HTTP door of metrics, discovery and analysis, as a stranger finds it, and over TLS: the endpoint of a broker,
what collect asks, and a Prometheus server behind a token."""

from __future__ import annotations

import http.server
import json
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from raybroker.config import Config
from raybroker.metrics.discovery import target_groups
from raybroker.model.settings.setting import PortRange
from raybroker.security.tls import ServerTls
from raybroker.security.user_file import UserEntry, UserFile
from raybroker.services.metrics.metrics_access import TOKEN_FILE, metrics_access
from raybroker.services.metrics.metrics_http import MetricsEndpoint
from tests.contracts.test_services import VERIFIER
from tests.unit.cli.conftest import Program
from tests.unit.security.certificates import Authority
from tests.unit.services.test_metrics_http import Broker

TOKEN = "0123456789abcdef0123456789abcdef"
PATHS = ("/metrics", "/metrics?tier=all", "/metrics/destinations?names=q*", "/sd", "/healthy")


class Door:
    """The endpoint of a broker with security on."""

    def __init__(self, folder: Path, opened: ExitStack, **more: object) -> None:
        self.folder = folder
        self.authority = Authority(folder, "authority")
        self.authority.issue("keystore")
        users = UserFile(folder / "passwd")
        users.add("root", UserEntry(VERIFIER, "admin"))
        self.token_file = folder / TOKEN_FILE
        self.token_file.write_text(f"{TOKEN}\n")
        self.token_file.chmod(0o600)
        config = Config.from_values({"imq.service.activelist": "jms", **more})
        endpoint = MetricsEndpoint(Broker(), lambda: target_groups("c", {"b1": endpoint.url}))
        endpoint.admit(metrics_access(config, folder, lambda: 0.0))
        tls = None
        if config["raybroker.metrics.tls"]:
            tls = ServerTls.from_config(config, folder, clients=False).context
        self.url = endpoint.start("127.0.0.1", PortRange(0, 0), tls)
        opened.callback(endpoint.stop)

    def get(self, path: str, header: str = f"Bearer {TOKEN}") -> tuple[int, bytes]:
        context = ssl.create_default_context(cafile=str(self.authority.file))
        asked = urllib.request.Request(self.url.removesuffix("/metrics") + path)
        if header:
            asked.add_header("Authorization", header)
        try:
            with urllib.request.urlopen(asked, timeout=30, context=context) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("path", PATHS)
def test_no_door_opens_without_credentials(tmp_path: Path, opened: ExitStack, path: str, tls: bool) -> None:
    door = Door(tmp_path, opened, **{"raybroker.metrics.tls": tls, "raybroker.metrics.probes": False})
    assert door.get(path)[0] == 200
    for header in ("", "Bearer ", f"Bearer {TOKEN[:-1]}", f"Bearer {TOKEN}x", f"Basic {TOKEN}", "Bearer"):
        status, told = door.get(path, header)
        assert (status, TOKEN.encode() in told) == (401, False), header


def test_a_probe_may_ask_whether_it_is_healthy_where_that_is_allowed(tmp_path: Path, opened: ExitStack) -> None:
    door = Door(tmp_path, opened)
    assert door.get("/healthy", "") == (200, b"ok\n")
    for path in ("/metrics", "/sd", "/healthy/../metrics", "/healthy/", "//healthy"):
        assert door.get(path, "")[0] in (401, 404)


def test_with_tls_nothing_is_answered_in_clear_and_discovery_says_https(tmp_path: Path, opened: ExitStack) -> None:
    door = Door(tmp_path, opened, **{"raybroker.metrics.tls": True})
    assert door.url.startswith("https://")
    with pytest.raises((OSError, urllib.error.URLError)):
        urllib.request.urlopen(door.url.replace("https", "http"), timeout=30)
    (group,) = json.loads(door.get("/sd")[1])
    assert group["labels"]["__scheme__"] == "https"
    assert "__scheme__" not in target_groups("c", {"b1": "http://h:1/metrics"})[0]["labels"]
    Authority(tmp_path, "authority").issue("keystore")
    with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
        urllib.request.urlopen(door.url, timeout=30)


def collected(folder: Path, *words: str) -> Any:
    return Program()("collect", str(folder / "lake"), "--interval", "0.2", "--duration", "0.5", *words)


def test_collect_shows_the_token_and_checks_the_certificate(tmp_path: Path, opened: ExitStack) -> None:
    door = Door(tmp_path, opened, **{"raybroker.metrics.tls": True})
    url = ["--url", f"b1={door.url}?tier=all"]
    token, trust = ["--token-file", str(door.token_file)], ["--trust", str(door.authority.file)]
    assert "401" in collected(tmp_path, *url, *trust).stderr
    assert "--trust FILE" in collected(tmp_path, *url, *token).stderr
    assert "--server-name NAME" in collected(tmp_path, *url, *token, *trust, "--server-name", "other").stderr
    assert not list((tmp_path / "lake").rglob("*.prom*"))
    good = collected(tmp_path, *url, *token, *trust)
    assert (good.exit_code, good.stderr) == (0, "")
    assert list((tmp_path / "lake").rglob("*.prom*"))
    assert TOKEN not in good.stdout
    door.authority.issue("keystore", "broker.example", addresses=())
    assert "--server-name NAME" in collected(tmp_path, *url, *token, *trust).stderr
    named = collected(tmp_path, *url, *token, *trust, "--server-name", "broker.example")
    assert (named.exit_code, named.stderr) == (0, "")
    for wrong in (["--token-file", str(tmp_path / "none")], ["--trust", str(tmp_path / "none")]):
        assert collected(tmp_path, *url, *wrong).exit_code == 2


class Server(http.server.BaseHTTPRequestHandler):
    """Answers as a Prometheus that wants a token, and redirects whoever asks for /away."""

    seen: list[tuple[str, str]] = []  # noqa: RUF012 - of the class that each test makes

    def do_GET(self) -> None:
        said = self.headers.get("Authorization", "")
        self.seen.append((self.path, said))
        if self.path.startswith("/away"):
            self.send_response(302)
            self.send_header("Location", f"http://127.0.0.1:{self.server.server_address[1]}/elsewhere")
            self.end_headers()
            return
        body = json.dumps({"data": {"result": []} if "query" in self.path else {}}).encode()
        self.send_response(200 if said == f"Bearer {TOKEN}" else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET  # noqa: N815 - as http.server calls it

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.fixture
def server(opened: ExitStack) -> tuple[str, list[tuple[str, str]]]:
    handler = type("Handler", (Server,), {"seen": []})
    made = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    opened.callback(made.server_close)
    opened.callback(made.shutdown)
    threading.Thread(target=made.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{made.server_address[1]}", handler.seen  # type: ignore[attr-defined]


def test_collect_asks_a_prometheus_with_a_token(tmp_path: Path, server: Any) -> None:
    url, seen = server
    token = tmp_path / "token"
    token.write_text(TOKEN)
    assert collected(tmp_path, "--prometheus", url).exit_code == 3
    good = collected(tmp_path, "--prometheus", url, "--token-file", str(token))
    assert (good.exit_code, "0 scrapes" in good.stdout) == (0, True), good.stderr
    assert {said for _, said in seen[1:]} == {f"Bearer {TOKEN}"}


def test_the_token_does_not_go_where_a_redirection_leads(tmp_path: Path, server: Any) -> None:
    url, seen = server
    token = tmp_path / "token"
    token.write_text(TOKEN)
    told = collected(tmp_path, "--url", f"b1={url}/away", "--token-file", str(token))
    assert "302" in told.stderr
    assert {path for path, _ in seen} == {"/away"}
