"""Requests over HTTP, at every service that speaks it: pages of other sites, heads that two servers could read in two
ways, bodies that would not be looked at, methods, and what a refusal looks like."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from raybroker.config import Config
from raybroker.model.errors import ConfigError
from raybroker.model.settings.setting import PortRange
from raybroker.services.metrics.metrics_access import TOKEN_FILE, metrics_access
from raybroker.services.metrics.metrics_http import MetricsEndpoint
from raybroker.services.web.origins import Origins
from tests.contracts.test_http_admin import Administered
from tests.unit.services.test_metrics_http import Broker

PAGE: Final = "https://app.example"
FOREIGN: Final[tuple[dict[str, str], ...]] = (
    {"origin": "https://evil.example"},
    {"origin": "null"},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
    {"origin": "https://evil.example", "sec-fetch-site": "cross-site"},
)
MESSAGES: Final[dict[str, tuple[str, str, dict[str, Any]]]] = {
    "send": ("POST", "/queues/q/messages", {"json": {"body": "evil"}}),
    "publish": ("POST", "/topics/t/messages", {"json": {"body": "evil"}}),
    "receive": ("POST", "/queues/q/receive", {}),
    "receive with a form": ("POST", "/queues/q/receive?lease_ms=43200000", {"data": {"a": "b"}}),
    "acknowledge": ("POST", "/queues/q/acknowledge", {"json": {"receipts": ["r"]}}),
    "release": ("POST", "/queues/q/release", {"json": {"receipts": ["r"]}}),
    "the native protocol": ("POST", "/native/poll", {}),
}
ADMINISTRATION: Final[dict[str, tuple[str, str, dict[str, Any]]]] = {
    "purge": ("POST", "/destinations/queue/q/purge", {}),
    "pause": ("POST", "/destinations/pause", {}),
    "destroy": ("DELETE", "/destinations/queue/q", {}),
    "a user": ("PUT", "/users/eve", {"json": {"group": "admin", "password": "x"}}),
    "a broker": ("PATCH", "/brokers", {"json": {"properties": {}}}),
}


class Doors:
    """A broker with the services httpjms and httpadmin, where pages of PAGE may ask; ``ann`` and ``root`` are clients
    of them.  An endpoint of metrics for those with a token, ``scraper``."""

    def __init__(self, folder: Path, opened: ExitStack) -> None:
        self.served = Administered(folder, opened, **{"raybroker.http.cors.origins": PAGE})
        self.ports = {"ann": self.served.ports["httpjms"], "root": self.served.ports["httpadmin"]}
        self.ann, self.root = (
            self.served.client(user, base_url=f"http://127.0.0.1:{port}") for user, port in self.ports.items()
        )
        endpoint = MetricsEndpoint(Broker(), list)
        token = folder / TOKEN_FILE
        token.write_text("0123456789abcdef0123456789abcdef\n")
        token.chmod(0o600)
        endpoint.admit(metrics_access(Config.from_values({"imq.service.activelist": "jms"}), folder, lambda: 0.0))
        self.ports["scraper"] = urlsplit(endpoint.start("127.0.0.1", PortRange(0, 0))).port or 0
        opened.callback(endpoint.stop)
        assert self.ann.post("/queues/q/messages", json={"body": "stays"}).status_code == 201

    def of(self, what: str) -> httpx.Client:
        return self.root if what in ADMINISTRATION else self.ann

    def said(self, user: str, request: bytes) -> tuple[int, bytes, bytes]:
        """(status, headers, body) of the answer to some bytes."""
        with socket.create_connection(("127.0.0.1", self.ports[user]), timeout=30) as connection:
            connection.sendall(request)
            answer = b""
            while data := connection.recv(65_536):
                answer += data
        head, _, body = answer.partition(b"\r\n\r\n")
        return int(head.split(b" ", 2)[1]), head.lower(), body


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    with ExitStack() as opened:
        yield Doors(Path(tmp_path_factory.mktemp("requests")), opened)


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
@pytest.mark.parametrize("what", {**MESSAGES, **ADMINISTRATION})
def test_a_page_of_another_site_changes_nothing(doors: Doors, what: str, headers: dict[str, str]) -> None:
    method, path, options = {**MESSAGES, **ADMINISTRATION}[what]
    answer = doors.of(what).request(method, path, headers=headers, **options)
    assert (answer.status_code, answer.headers["content-type"]) == (403, "application/problem+json"), answer.text
    assert "may not ask for changes here" in answer.json()["detail"]
    waiting = doors.ann.get("/queues/q/messages").json()["messages"]
    assert [message["body"] for message in waiting] == ["stays"], "nothing was sent, taken or destroyed"


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
def test_a_page_of_another_site_opens_no_web_socket(doors: Doors, headers: dict[str, str]) -> None:
    with pytest.raises(InvalidStatus) as caught:
        connect(f"ws://127.0.0.1:{doors.ports['ann']}/native", additional_headers=headers)
    assert caught.value.response.status_code == 403


@pytest.mark.parametrize("user", ["ann", "root"])
def test_own_pages_and_those_that_a_property_names_may_ask(doors: Doors, user: str) -> None:
    client, path = {
        "ann": (doors.ann, "/queues/other/messages"),
        "root": (doors.root, "/destinations/queue/other/pause"),
    }[user]
    body = {"body": 1} if user == "ann" else {"which": "producers"}
    doors.ann.post("/queues/other/messages", json={"body": 0})
    own = {"origin": str(client.base_url).rstrip("/"), "sec-fetch-site": "same-origin"}
    for headers in ({}, {"sec-fetch-site": "none"}, own, {"origin": PAGE, "sec-fetch-site": "cross-site"}):
        answer = client.post(path, json=body, headers=headers)
        assert answer.is_success, answer.text
        shown = answer.headers.get("access-control-allow-origin")
        assert shown == (PAGE if headers.get("origin") == PAGE else None)
    doors.root.post("/destinations/queue/other/resume", json={})


@pytest.mark.parametrize("user", ["ann", "root"])
def test_a_browser_is_told_what_a_page_may_ask(doors: Doors, user: str) -> None:
    client, path = {"ann": (doors.ann, "/queues/q/messages"), "root": (doors.root, "/destinations")}[user]
    asks = {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}
    answer = client.options(path, headers={"origin": PAGE, **asks})
    assert (answer.status_code, answer.content) == (204, b"")
    assert answer.headers["access-control-allow-origin"] == PAGE
    assert answer.headers["access-control-allow-methods"] == "GET, HEAD, POST"
    assert "Authorization" in answer.headers["access-control-allow-headers"]
    for headers in ({"origin": "https://evil.example", **asks}, {}):
        answer = client.options(path, headers=headers)
        assert answer.status_code == 405
        assert "access-control-allow-origin" not in answer.headers
    answer = client.get("/health", headers={"origin": "https://evil.example"})
    assert (answer.status_code, answer.headers.get("access-control-allow-origin")) == (200, None)
    assert answer.headers["vary"] == "Origin"


@pytest.mark.parametrize("text", ["*", "app.example", "https://app.example/", "ftp://a", "https://a b,x", "https://"])
def test_what_is_no_origin_is_named(text: str) -> None:
    with pytest.raises(ConfigError, match=r"raybroker\.http\.cors\.origins"):
        Origins.parse(text)
    assert Origins.parse(f" {PAGE}, http://a:8080 ").others == {PAGE, "http://a:8080"}


HEAD: Final = b"Connection: close\r\nAuthorization: Basic YW5uOnNlY3JldA==\r\n"
HOST: Final = b"Host: x\r\n"
HEALTH: Final = {"ann": b"/health", "root": b"/health", "scraper": b"/healthy"}
ASKS: Final = {"ann": b"/queues/q/messages", "root": b"/destinations", "scraper": b"/metrics"}


@pytest.mark.parametrize("user", ["ann", "root", "scraper"])
@pytest.mark.parametrize(
    ("request_bytes", "status", "told"),
    [
        (b"BREW /health HTTP/1.1\r\nConnection: close\r\n" + HOST + b"\r\n", 400, "no HTTP"),
        (b"GET /health HTTP/1.1\r\n" + HOST + HEAD + HEAD + b"\r\n", 400, "authorization twice"),
        (b"GET /health HTTP/1.1\r\n" + HOST + HOST + HEAD + b"\r\n", 400, "host twice"),
        (b"GET /health HTTP/1.1\r\n" + HEAD + b"\r\n", 400, "no header host"),
        (
            b"POST /queues/q/messages HTTP/1.1\r\n" + HEAD + b"Content-Type: application/json\r\nContent-Length: 10\r\n"
            b'\r\n{"body":1}',
            400,
            "no header host",
        ),
        (b"GET /health HTTP/2.0\r\n" + HOST + HEAD + b"\r\n", 505, "HTTP/2.0"),
        (b"GET /health HTTP/1.1\r\n" + HOST + b"X: " + b"y" * 20_000 + b"\r\n\r\n", 431, "bytes of"),
        (b"GET /health HTTP/1.1\r\n" + HOST + b"a: b\r\n" * 300 + b"\r\n", 431, "headers"),
        (b"\x16\x03\x01\x02\0\x01\0", 400, "no HTTP"),
    ],
)
def test_a_head_that_is_not_right_is_refused_as_every_request_is(
    doors: Doors, user: str, request_bytes: bytes, status: int, told: str
) -> None:
    health = HEALTH[user]
    found, head, body = doors.said(user, request_bytes.replace(b"/health", health))
    assert (found, b"content-type: application/problem+json" in head, b"connection: close" in head) == (
        status,
        True,
        True,
    )
    problem = json.loads(body)
    assert (problem["status"], told in problem["detail"]) == (status, True), problem
    assert doors.said(user, b"GET " + health + b" HTTP/1.0\r\nConnection: close\r\n\r\n")[0] == 200, "1.0 has no Host"
    assert doors.said(user, b"GET " + health + b" HTTP/1.1\r\nConnection: close\r\n" + HOST + b"\r\n")[0] == 200


@pytest.mark.parametrize("user", ["ann", "root", "scraper"])
@pytest.mark.parametrize(
    ("line", "more", "status", "with_header"),
    [
        (b"GET /nowhere", b"", 404, b""),
        (b"DELETE /health", b"", 405, b"allow: get, head\r\n"),
        (b"GET /asks", b"", 401, b"www-authenticate: "),
        (b"GET /asks", b"Authorization: Basic bm9ib2R5OndoYXQ=\r\n", 401, b"www-authenticate: "),
        (b"GET /asks", b"Authorization: Bearer x\r\n", 401, b"www-authenticate: "),
        (b"GET /asks", b"Authorization: Nonsense\r\n", 401, b"www-authenticate: "),
    ],
)
def test_every_listener_refuses_in_the_same_words(
    doors: Doors, user: str, line: bytes, more: bytes, status: int, with_header: bytes
) -> None:
    asked = line.replace(b"/health", HEALTH[user]).replace(b"/asks", ASKS[user])
    rest = b" HTTP/1.1\r\nConnection: close\r\n" + HOST + more + b"\r\n"
    found, head, body = doors.said(user, asked + rest)
    assert (found, b"content-type: application/problem+json" in head, with_header in head) == (status, True, True), head
    problem = json.loads(body)
    assert (problem["status"], problem["retryable"]) == (status, False)
    assert {"type", "title", "detail", "code", "definite"} <= problem.keys()
    if line.startswith(b"GET"):  # HEAD is GET without the body.
        again, its_head, nothing = doors.said(user, asked.replace(b"GET", b"HEAD") + rest)
        assert (again, nothing) == (status, b"")
        assert b"content-length: %d\r\n" % len(body) in its_head + b"\r\n"


def test_head_is_get_without_the_body_and_get_changes_nothing(doors: Doors) -> None:
    for client, path in (
        (doors.ann, "/queues/q/messages"),
        (doors.ann, "/health"),
        (doors.ann, "/openapi.json"),
        (doors.root, "/destinations"),
        (doors.root, "/destinations/queue/q"),
        (doors.root, "/health/broker"),
    ):
        head, get = client.head(path), client.get(path)
        assert (head.status_code, head.content) == (200, b""), path
        assert head.headers["content-type"] == get.headers["content-type"]
        assert int(head.headers["content-length"]) > 0
    assert doors.ann.head("/queues/q/receive").status_code == 405
    answer = doors.ann.get("/queues/q/receive?max=5")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    for path, item in doors.ann.get("/openapi.json").json()["paths"].items():
        assert "get" not in item or path in ("/queues/{name}/messages", "/health", "/openapi.json")
    assert len(doors.ann.get("/queues/q/messages").json()["messages"]) == 1


def test_what_is_asked_in_a_body_is_obeyed_or_refused(doors: Doors) -> None:
    doors.ann.post("/queues/three/messages", json=[{"body": n} for n in range(3)])
    for asked in (
        {"json": {"max": 2, "lease_ms": 1000, "wait_ms": 2000}},
        {"json": {"max": 2, "lease_ms": 1000}},
        {"json": {"lease_ms": 1000}, "params": {"max": 2, "wait_ms": 2000}},
    ):
        answer = doors.ann.post("/queues/three/receive", **asked)  # type: ignore[arg-type]
        found = answer.json()
        assert (answer.status_code, len(found["messages"]), found["lease_ms"]) == (200, 2, 1000), found
        receipts = [message["receipt"] for message in found["messages"]]
        assert doors.ann.post("/queues/three/release", json={"receipts": receipts}).status_code == 200
    refusals: tuple[tuple[dict[str, Any], int, str], ...] = (
        ({"json": {"max": 2}, "params": {"max": 1}}, 400, "max is in the query and in the body"),
        ({"json": {"maxx": 2}}, 400, "maxx"),
        ({"json": {"max": "2"}}, 400, "max"),
        ({"json": {"max": 0}}, 400, "max"),
        ({"json": [1]}, 400, "body of the request"),
        ({"data": {"max": 2}}, 415, "application/json"),
        ({"content": b"{}"}, 415, "application/json"),
    )
    for asked, status, told in refusals:
        answer = doors.ann.post("/queues/three/receive", **asked)
        assert (answer.status_code, told in answer.json()["detail"]) == (status, True), (asked, answer.text)
    answer = doors.ann.request("GET", "/queues/three/messages", json={"max": 1})
    assert (answer.status_code, "takes no body" in answer.json()["detail"]) == (400, True)
    assert len(doors.ann.get("/queues/three/messages").json()["messages"]) == 3, "no refusal has taken anything"


@pytest.mark.parametrize("number", [str(1 << 64), str(-(1 << 63) - 1), "1" + "0" * 300], ids=["2^64", "low", "10^300"])
@pytest.mark.parametrize(
    "body",
    ['{"body": %s}', '{"body": {"a": ["12\\"", {"n": %s}]}}', '[{"body": 1}, {"body": %s}]'],
    ids=["alone", "within", "of an array"],
)
def test_a_whole_number_that_would_lose_digits_is_refused(doors: Doors, body: str, number: str) -> None:
    answer = doors.ann.post(
        "/queues/numbers/messages", content=body % number, headers={"content-type": "application/json"}
    )
    assert (answer.status_code, "64 bits" in answer.json()["detail"]) == (400, True), answer.text


def test_numbers_that_lose_nothing_and_long_digits_of_texts_are_taken(doors: Doors) -> None:
    values = [(1 << 63) - 1, -(1 << 63), 1.5e300, 0.1234567890123456789, "1" * 100, {"1" * 30: f'\\"{"9" * 40}'}]
    answer = doors.ann.post("/queues/taken/messages", json=[{"body": value} for value in values])
    assert answer.status_code == 201, answer.text
    found = doors.ann.post("/queues/taken/receive", json={"max": 10, "wait_ms": 5000}).json()["messages"]
    assert [message["body"] for message in found] == values


@pytest.mark.parametrize("value", [None, 1, {"a": "b"}, "no base64!"])
def test_what_is_no_base64_is_named_as_json_names_it(doors: Doors, value: Any) -> None:
    for body in ({"body": value, "encoding": "base64"}, [{"body": value, "encoding": "base64"}]):
        answer = doors.ann.post("/queues/q/messages", json=body)
        assert (answer.status_code, "base64" in answer.json()["detail"]) == (400, True)
        assert "NoneType" not in answer.text


def test_who_may_not_is_told_so_and_who_is_unknown_is_asked(doors: Doors) -> None:
    for port, user, password, status in (
        (doors.ports["root"], "ann", "secret", 403),
        (doors.ports["root"], "ann", "wrong", 401),
        (doors.ports["ann"], "stranger", "secret", 403),
        (doors.ports["ann"], "nobody", "secret", 401),
    ):
        client = doors.served.client(user, password, base_url=f"http://127.0.0.1:{port}")
        answer = client.get("/destinations" if port == doors.ports["root"] else "/queues/q/messages")
        assert (answer.status_code, "www-authenticate" in answer.headers) == (status, status == 401), answer.text
