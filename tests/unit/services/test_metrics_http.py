"""The endpoint answers what is asked, and says so when it cannot."""

from __future__ import annotations

import gzip
import http.client
import json
import logging
import socket
import struct
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from raybroker.errors import ConfigError, ConnectionLostError, SecurityError
from raybroker.metrics.snapshot import Snapshot
from raybroker.model.settings.setting import PortRange
from raybroker.services.metrics import metrics_http
from raybroker.services.metrics.metrics_http import WORKERS_MAX, MetricsEndpoint


def until(condition: Callable[[], bool]) -> None:
    moments = threading.Event()
    for _ in range(3000):
        if condition():
            return
        moments.wait(0.01)
    raise AssertionError("it did not come")


TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
TARGETS = [{"targets": ["h:1"], "labels": {"__meta_raybroker_broker": "b1"}}]


class Broker:
    """Answers with as many destinations as a test wants; remembers what was asked."""

    def __init__(self) -> None:
        self.asked: list[str | None] = []
        self.failure: Exception | None = None
        self.destinations = 1
        self.gate: threading.Event | None = None

    def __call__(self, names: str | None) -> Snapshot:
        self.asked.append(names)
        if self.gate is not None:
            assert self.gate.wait(30)
        if self.failure is not None:
            raise self.failure
        rows = [{"name": f"q{i}", "type": "queue", "messages": i} for i in range(self.destinations if names else 0)]
        return Snapshot("c", "b1", {"connections": 2}, {"queue": {"messages": 5}}, rows)


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
def base(broker: Broker) -> Iterator[str]:
    endpoint = MetricsEndpoint(broker, lambda: TARGETS)
    url = endpoint.start("127.0.0.1", PortRange(0, 0))
    yield url.removesuffix("/metrics")
    endpoint.stop()


def get(url: str, **headers: str) -> tuple[int, bytes, Any]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10) as answer:
            return answer.status, answer.read(), answer.headers
    except urllib.error.HTTPError as error:
        return error.code, error.read(), error.headers


def test_a_scrape_gets_the_aggregate_tier(base: str, broker: Broker) -> None:
    status, body, headers = get(f"{base}/metrics")
    assert (status, headers["Content-Type"], broker.asked) == (200, TEXT, [None])
    assert b'raybroker_messages{broker="b1",cluster="c",type="queue"} 5.0\n' in body
    assert b"raybroker_destination_" not in body


@pytest.mark.parametrize(
    ("path", "asked", "tiers"),
    [
        ("/metrics?tier=destination", "*", {"destination"}),
        ("/metrics?tier=all", "*", {"aggregate", "destination"}),
        ("/metrics?tier=aggregate,destination&names=orders.*", "orders.*", {"aggregate", "destination"}),
        ("/metrics/destinations?names=q0", "q0", {"destination"}),
        ("/metrics?tier=aggregate&names=q0", None, {"aggregate"}),
    ],
)
def test_more_is_asked_for(base: str, broker: Broker, path: str, asked: str | None, tiers: set[str]) -> None:
    _, body, _ = get(base + path)
    assert broker.asked == [asked]
    found = {
        "destination" if line.startswith(b"raybroker_destination_") else "aggregate"
        for line in body.splitlines()
        if not line.startswith(b"#")
    }
    assert found == tiers


def test_a_large_page_is_compressed_for_those_who_can_read_that(base: str, broker: Broker) -> None:
    broker.destinations = 500
    plain = get(f"{base}/metrics/destinations")
    packed = get(f"{base}/metrics/destinations", **{"Accept-Encoding": "gzip"})
    assert packed[2]["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed[1]) == plain[1]
    assert len(packed[1]) < len(plain[1]) / 5


@pytest.mark.parametrize("error", [ConnectionLostError("gone"), TimeoutError()])
def test_a_broker_that_cannot_answer_fails_the_scrape(base: str, broker: Broker, error: Exception) -> None:
    broker.failure = error
    assert get(f"{base}/metrics")[0] == 503
    assert get(f"{base}/healthy")[0] == 503
    broker.failure = None
    assert get(f"{base}/healthy")[:2] == (200, b"ok\n")


def test_a_tier_that_there_is_not_is_refused(base: str) -> None:
    status, body, _ = get(f"{base}/metrics?tier=everything")
    assert (status, b"there is no tier 'everything'" in body) == (400, True)
    assert get(f"{base}/other")[0] == 404


def test_all_brokers_are_found_through_one(base: str) -> None:
    status, body, headers = get(f"{base}/sd")
    assert (status, headers["Content-Type"], json.loads(body)) == (200, "application/json", TARGETS)


def test_a_port_that_is_taken_is_an_error_that_names_the_setting(base: str, broker: Broker) -> None:
    port = int(base.rpartition(":")[2])
    with pytest.raises(ConfigError, match=r"raybroker\.metrics\.ports"):
        MetricsEndpoint(broker, list).start("127.0.0.1", PortRange(port, port))


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("", TEXT),
        ("*/*", TEXT),
        ("text/plain;version=0.0.4", TEXT),
        ("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1", OPENMETRICS),
        ("application/openmetrics-text", OPENMETRICS),
    ],
)
@pytest.mark.parametrize("path", ["/metrics", "/metrics?tier=all"])
def test_the_format_is_the_one_that_is_accepted(base: str, path: str, accept: str, content_type: str) -> None:
    _, body, headers = get(base + path, **({"Accept": accept} if accept else {}))
    assert headers["Content-Type"].startswith(content_type)  # Some releases of the library add the escaping.
    assert body.count(b"# EOF\n") == body.endswith(b"# EOF\n") == ("openmetrics" in content_type)


def test_an_accept_header_with_a_wrong_version_is_refused(base: str) -> None:
    status, body, _ = get(f"{base}/metrics", Accept="application/openmetrics-text;version=new")
    assert (status, b"Accept" in body) == (400, True)


@pytest.mark.parametrize("path", ["/metrics", "/sd", "/healthy", "/other", "/metrics?tier=x"])
def test_head_is_get_without_the_body(base: str, path: str) -> None:
    with socket.create_connection(("127.0.0.1", int(base.rpartition(":")[2])), timeout=10) as connection:
        connection.sendall(f"HEAD {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        head, _, body = connection.makefile("rb").read().partition(b"\r\n\r\n")
    status, whole, _ = get(base + path)
    assert int(head.split()[1]) == status
    assert f"content-length: {len(whole)}\r\n".encode() in head.lower() + b"\r\n"
    assert body == b""


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_other_methods_are_refused_with_those_there_are(base: str, method: str) -> None:
    request = urllib.request.Request(f"{base}/metrics", method=method, data=b"")
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=10)
    assert (caught.value.code, caught.value.headers["Allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("/metrics/destinations?name=orders", "no parameter 'name'; did you mean names?"),
        ("/metrics?teir=all", "no parameter 'teir'; did you mean tier?"),
        ("/metrics?x=", "no parameter 'x'; there are tier, names"),
        ("/sd?names=a", "no parameter 'names'; it takes none"),
        ("/metrics?names=a&names=b", "names is given twice"),
        ("/metrics?tier=", "there is no tier ''"),
    ],
)
def test_a_query_that_is_not_understood_is_refused(base: str, broker: Broker, query: str, text: str) -> None:
    status, body, _ = get(base + query)
    assert (status, text in body.decode()) == (400, True)
    assert broker.asked == []


def test_a_hundred_scrapes_at_once_are_answered_by_few_threads_and_few_questions(base: str, broker: Broker) -> None:
    held, together = threading.Event(), threading.Barrier(101)
    broker.gate = held

    def scrape(_: int) -> int:
        together.wait(30)
        return get(f"{base}/metrics")[0]

    with ThreadPoolExecutor(100) as scrapers:
        answers = scrapers.map(scrape, range(100))
        together.wait(30)
        until(lambda: len(broker.asked) == 1)
        workers = [thread for thread in threading.enumerate() if thread.name.startswith("raybroker-metrics_")]
        assert len(workers) <= WORKERS_MAX
        held.set()
        assert list(answers) == [200] * 100


def test_more_than_may_wait_are_refused_at_once(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_http, "WAITING_MAX", 0)
    broker.gate = threading.Event()
    endpoint = MetricsEndpoint(broker, list)
    url = endpoint.start("127.0.0.1", PortRange(0, 0))
    try:
        with ThreadPoolExecutor(WORKERS_MAX) as scrapers:
            answered = [scrapers.submit(get, url) for _ in range(WORKERS_MAX)]
            until(lambda: endpoint.requests == WORKERS_MAX)
            status, body, _ = get(url)
            assert (status, b"too many scrapes" in body) == (503, True)
            broker.gate.set()
            assert [future.result()[0] for future in answered] == [200] * WORKERS_MAX
        until(lambda: get(url)[0] == 200)
    finally:
        endpoint.stop()


class Admission:
    """Lets those in who say a word; remembers who asked."""

    def __init__(self) -> None:
        self.healthy_open = True
        self.asked: list[tuple[str | None, str]] = []
        self.closed = False

    async def require(self, header: str | None, address: str, *, encrypted: bool = False) -> None:
        assert not encrypted
        self.asked.append((header, address))
        if header != "Bearer word":
            raise SecurityError("say the word")

    def close(self) -> None:
        self.closed = True


def test_with_an_admission_everything_asks_for_credentials_and_health_unless_it_is_open(broker: Broker) -> None:
    admission = Admission()
    endpoint = MetricsEndpoint(broker, lambda: TARGETS, admission)
    admission.healthy_open = False
    base = endpoint.start("127.0.0.1", PortRange(0, 0)).removesuffix("/metrics")
    try:
        for path in ("/metrics", "/metrics?tier=all", "/metrics/destinations", "/sd", "/healthy"):
            status, body, headers = get(base + path)
            assert (status, json.loads(body)["detail"]) == (401, "say the word")
            assert headers["WWW-Authenticate"].startswith("Basic ")
            assert broker.asked == []
            assert get(base + path, Authorization="Bearer word")[0] == 200
            broker.asked.clear()
        admission.healthy_open = True
        assert (get(f"{base}/healthy")[0], get(f"{base}/sd")[0]) == (200, 401)
        assert set(admission.asked) == {(None, "127.0.0.1"), ("Bearer word", "127.0.0.1")}
    finally:
        endpoint.stop()
    assert admission.closed


OK = {"check": "hosts", "of": "b1", "grade": "ok", "text": "1 of 1 hosts answer"}
BAD = {"check": "hosts", "of": "b1/h1", "grade": "critical", "text": "host b1/h1 does not answer: secret"}


def test_health_says_one_word_to_anybody_and_all_to_who_may_see_metrics(broker: Broker) -> None:
    found: dict[str, Any] = {name: [OK] for name in ("live", "ready", "broker", "services", "cluster")}

    def look(name: str) -> list[dict[str, Any]]:
        if isinstance(found[name], Exception):
            raise found[name]
        rows: list[dict[str, Any]] = found[name]
        return rows

    endpoint = MetricsEndpoint(broker, lambda: TARGETS, Admission(), look)
    base = endpoint.start("127.0.0.1", PortRange(0, 0)).removesuffix("/metrics")
    allowed = {"Authorization": "Bearer word"}
    try:
        for name in ("live", "ready"):
            assert get(f"{base}/health/{name}")[:2] == (200, b'{"status": "ok"}')
        for name in ("broker", "services", "cluster"):
            assert get(f"{base}/health/{name}")[0] == 401
            status, body, _ = get(f"{base}/health/{name}", **allowed)
            assert (status, json.loads(body)) == (200, {"grade": "ok", "checks": [OK]})
        found["ready"] = found["broker"] = [OK, BAD]
        found["live"] = found["cluster"] = ConnectionLostError("secret")
        for name in ("live", "ready"):
            assert get(f"{base}/health/{name}")[:2] == (503, b'{"status": "failing"}')
        for name in ("broker", "cluster"):
            status, body, _ = get(f"{base}/health/{name}", **allowed)
            assert (status, json.loads(body)["grade"], b"secret" in body) == (503, "critical", True)
        found["broker"] = [{**OK, "grade": "warning"}]
        assert get(f"{base}/health/broker", **allowed)[0] == 200, "a warning fails no probe"
        assert get(f"{base}/health/live?verbose=1")[0] == 400
        assert get(f"{base}/health")[0] == get(f"{base}/health/")[0] == get(f"{base}/health/other")[0] == 404
    finally:
        endpoint.stop()


def test_scrapes_of_one_connection_are_answered_on_it(base: str, broker: Broker) -> None:
    connection = http.client.HTTPConnection(base.removeprefix("http://"), timeout=30)
    try:
        for _ in range(3):
            connection.request("GET", "/healthy")
            first = connection.sock
            assert connection.getresponse().read() == b"ok\n"
            assert connection.sock is first
    finally:
        connection.close()


def test_an_endpoint_that_was_stopped_does_not_listen_and_leaves_no_thread(broker: Broker) -> None:
    endpoint = MetricsEndpoint(broker, list)
    url = endpoint.start("127.0.0.1", PortRange(0, 0))
    assert get(url)[0] == 200
    endpoint.stop()
    with pytest.raises(urllib.error.URLError):
        get(url)
    assert not endpoint._thread.is_alive()


@pytest.mark.parametrize(
    "said",
    [b"\0" * 4096, b"GET\r\n\r\n", b"\x16\x03\x01\x02\0\x01\0", b"GET / HTTP/1.1\r\nX: " + b"y" * 17_000 + b"\r\n\r\n"],
)
def test_garbage_is_refused_and_others_are_answered(base: str, broker: Broker, said: bytes) -> None:
    host, _, port = base.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=30) as one:
        one.sendall(said)
        assert one.recv(65_536).split(b" ")[1] in (b"400", b"431")
    assert get(f"{base}/healthy")[0] == 200


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize("destinations", [1, 5_000], ids=["short", "long"])
def test_an_answer_whose_client_has_gone_leaves_no_error_and_later_scrapes_work(
    base: str, broker: Broker, caplog: pytest.LogCaptureFixture, reset: bool, destinations: int
) -> None:
    broker.gate, broker.destinations = threading.Event(), destinations
    address = ("127.0.0.1", int(base.rpartition(":")[2]))
    gone = [socket.create_connection(address, timeout=30) for _ in range(3)]
    for one in gone:
        one.sendall(b"GET /metrics/destinations?names=* HTTP/1.1\r\nHost: h\r\n\r\n")
    until(lambda: bool(broker.asked))
    for one in gone:
        if reset:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        one.close()
    until(lambda: not established(address[1]))
    broker.gate.set()
    for _ in range(3):
        with urllib.request.urlopen(f"{base}/metrics", timeout=30) as answer:
            assert answer.status == 200
            assert b"raybroker_" in answer.read()
    warned = [record for record in caplog.records if record.levelno >= logging.WARNING]
    # A broker of another test may be ending in this process, and says of its own what is wrong with it.
    assert [record.getMessage() for record in warned if record.name != "raybroker.security"] == []


def established(port: int) -> bool:
    """Whether the endpoint still believes that a client is there."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(row[1].endswith(f":{port:04X}") and row[3] == "01" for row in rows)
