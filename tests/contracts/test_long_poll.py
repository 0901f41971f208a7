"""The native protocol by plain requests: the contract of the handles, ways that let no WebSocket pass, lost answers."""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

import raybroker as rb
from raybroker.client.ways import web_way
from raybroker.errors import NoClusterError
from raybroker.services.rest.long_poll import ID_BYTES, NUMBER, PATH, SESSION
from raybroker.wire.native.preamble import preamble
from tests.contracts.handle_basics import Basics
from tests.contracts.handles import until
from tests.contracts.test_web_socket import FACES, Outside

POLL = {"raybroker.client.http.carrier": "poll"}
AUTO = {"raybroker.client.http.carrier": "auto"}
WEB_SOCKET = {"raybroker.client.http.carrier": "websocket"}


class OverHttp(Outside):
    """A broker behind its web service, for the basics; administration goes from inside."""

    def __init__(self, folder: Path, opened: ExitStack, face: str) -> None:
        super().__init__(folder, opened, face, **{"imq.accesscontrol.enabled": False})
        self._numbers = itertools.count(1)

    def name(self) -> str:
        return f"queue{next(self._numbers)}"

    def connect(self, *, started: bool = True, client_id: str | None = None, **attributes: Any) -> Any:  # type: ignore[override]
        connection = rb.connect(
            self.url,
            username="ann",
            password="secret",
            client_id=client_id,
            trust=self.authority.file,
            **self.carrier,
            **attributes,
        )
        self._opened.callback(connection.close)
        connection.admin = self.inside.admin  # type: ignore[method-assign]
        if started:
            connection.start()
        return connection


@pytest.fixture(params=FACES)
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OverHttp]:
    with ExitStack() as opened:
        yield OverHttp(tmp_path, opened, request.param)


class TestHandlesOverHttp(Basics):
    """Every test of the basics, inside of WebSockets and by requests."""


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Outside]:
    with ExitStack() as opened:
        yield Outside(tmp_path, opened, "http poll", **{"imq.httpjms.http.pullPeriod": -1})


class Proxy:
    """Passes requests on, but refuses to change to a WebSocket, or with ``pass_on`` lets that wait until it is set;
    ``cut`` ends connections in the middle of an answer."""

    def __init__(self, target: int, opened: ExitStack, pass_on: threading.Event | None = None) -> None:
        self.refused = self.cut = self.cuts = 0
        self._target = target
        self._pass_on = pass_on
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        opened.callback(self._listening.close)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                taken, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(taken,), daemon=True).start()

    def _serve(self, taken: socket.socket) -> None:
        with taken, suppress(OSError):
            first = taken.recv(65_536)
            if b"upgrade: websocket" in first.lower():
                if self._pass_on is None:
                    self.refused += 1
                    taken.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                    return
                self._pass_on.wait()
            with socket.create_connection(("127.0.0.1", self._target)) as further:
                further.sendall(first)
                threading.Thread(target=self._pass, args=(taken, further), daemon=True).start()
                while data := further.recv(65_536):
                    if self.cut and b"octet-stream" in data:
                        self.cut -= 1
                        self.cuts += 1
                        taken.sendall(data[:20])
                        taken.shutdown(socket.SHUT_RDWR)
                        return
                    taken.sendall(data)

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)


def carriers_of(connection: Any) -> set[str]:
    """The modules whose transports carry a connection."""
    channels = connection._core.channels.all()
    return {type(channel.link._transport).__module__.rpartition(".")[2] for channel in channels}


def test_where_a_proxy_lets_no_web_socket_pass_requests_are_used(outside: Outside, tmp_path: Path) -> None:
    with ExitStack() as opened:
        proxy = Proxy(outside.ports["httpjms"], opened)
        url = f"http://127.0.0.1:{proxy.port}/"
        session = outside.connect(url=url, **AUTO).session()
        session.producer("q").send("by requests")
        assert session.receive("q", timeout=20).body == "by requests"
        assert proxy.refused == 1  # The way to the host knows it by then.
        with pytest.raises(NoClusterError, match=r"no WebSocket at /native \(status 403\)"):
            outside.connect(url=url, **WEB_SOCKET)


def test_without_a_proxy_a_web_socket_is_used_unless_it_is_forbidden(outside: Outside) -> None:
    with ExitStack() as opened:
        proxy = Proxy(outside.ports["httpjms"], opened)
        outside.connect(url=f"http://127.0.0.1:{proxy.port}/", **POLL).session().producer("q").send("x")
        assert proxy.refused == 0
    for carrier, polls in ((AUTO, False), (POLL, True)):
        connection = outside.connect(**carrier)
        connection.session().producer("q").send("x")
        assert carriers_of(connection) == {"long_poll" if polls else "web_socket"}


def test_only_where_requests_can_follow_a_web_socket_has_less_time_to_begin(
    outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web_way, "AUTO_UPGRADE_S", 0.2)
    for carrier, polls in ((AUTO, True), (WEB_SOCKET, False)):
        with ExitStack() as opened:
            pass_on = threading.Event()
            opened.callback(pass_on.set)
            if not polls:
                later = threading.Timer(1, pass_on.set)
                later.start()
                opened.callback(later.join)
            proxy = Proxy(outside.ports["httpjms"], opened, pass_on)
            connection = outside.connect(url=f"http://127.0.0.1:{proxy.port}/", **carrier)
            connection.session().producer("q").send("x")
            assert carriers_of(connection) == {"long_poll" if polls else "web_socket"}


def test_answers_that_are_lost_on_the_way_are_asked_for_again(outside: Outside) -> None:
    """Whatever connections of HTTP end in the middle of an answer, nothing is lost and nothing comes twice."""
    with ExitStack() as opened:
        proxy = Proxy(outside.ports["httpjms"], opened)
        session = outside.connect(url=f"http://127.0.0.1:{proxy.port}/", **POLL).session(ack="client")
        producer, consumer = session.producer("q"), session.consumer("q")
        for number in range(40):
            proxy.cut = 1
            producer.send({"number": number, "text": "x" * 1000})
            found = consumer.receive(timeout=60)
            assert (found.body["number"], found.redelivered) == (number, False)
            found.acknowledge()
        assert proxy.cuts > 20


def test_with_a_pull_period_what_was_sent_is_answered_at_once_and_the_rest_in_time(tmp_path: Path) -> None:
    with ExitStack() as opened:
        outside = Outside(tmp_path, opened, "http poll", **{"imq.httpjms.http.pullPeriod": 1})
        session = outside.connect().session()
        session.producer("q").send("one")
        assert session.receive("q", timeout=20).body == "one"
        consumer = session.consumer("later")
        outside.inside.session().producer("later").send("two")
        assert consumer.receive(timeout=20).body == "two"


# ---- strangers -------------------------------------------------------------------------------------------------------


@pytest.fixture
def client(outside: Outside) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=outside.url, timeout=30) as made:
        yield made


def ask(client: httpx.Client, what: str, key: str, number: object = 1, body: bytes = b"") -> httpx.Response:
    return client.post(f"{PATH}/{what}", headers={SESSION: key, NUMBER: str(number)}, content=body)


def test_a_session_is_its_id_which_nobody_can_guess_and_ends_when_its_opener_says_so(client: httpx.Client) -> None:
    opened = client.post(PATH)
    told = opened.json()
    assert (opened.status_code, len(told["session"]), told["pull_s"]) == (201, 2 * ID_BYTES, -1)
    assert opened.headers["cache-control"] == "no-store"
    assert client.post(PATH).json()["session"] != told["session"]
    for key in ("", "x", told["session"][:-1] + "g", told["session"].upper() + "0"):
        for what in ("up", "down", "end"):
            assert ask(client, what, key).status_code == 410
    assert ask(client, "up", told["session"], 1, preamble("")).status_code == 204
    assert ask(client, "end", told["session"]).status_code == 204
    assert ask(client, "up", told["session"], 2, b"x").status_code == 410


@pytest.mark.parametrize("number", ["0", "2", "-1", "x", "1" * 40, "²"])
def test_requests_of_one_way_are_numbered_without_gaps(client: httpx.Client, number: str) -> None:
    for what in ("up", "down"):
        key = client.post(PATH).json()["session"]
        refused = client.post(f"{PATH}/{what}", headers={SESSION: key, NUMBER: number.encode()}, content=b"x")  # type: ignore[dict-item]
        assert refused.status_code == 400, refused.text


def test_a_request_that_is_sent_again_counts_once(client: httpx.Client, outside: Outside) -> None:
    """The login of a real client in two halves, each sent twice: what is taken twice would be no login."""
    key = client.post(PATH).json()["session"]
    said = preamble("")
    for _ in range(2):
        assert ask(client, "up", key, 1, said[:3]).status_code == 204
    for _ in range(2):
        assert ask(client, "up", key, 2, said[3:]).status_code == 204
    assert ask(client, "up", key, 3, b"garbage" * 10).status_code == 204
    first = ask(client, "down", key, 1)  # The broker says what is wrong with that, or just ends.
    again = ask(client, "down", key, 1)
    assert first.status_code in (200, 410)
    assert (again.status_code, again.content) == (first.status_code, first.content)


@pytest.mark.parametrize("what", ["", "/up", "/down", "/end"])
def test_other_methods_than_post_are_refused(client: httpx.Client, what: str) -> None:
    refused = client.get(PATH + what)
    assert (refused.status_code, refused.headers["allow"]) == (405, "POST")
    assert client.post(f"{PATH}{what}/x").status_code == 404


def test_a_body_that_is_too_large_is_refused(client: httpx.Client) -> None:
    key = client.post(PATH).json()["session"]
    assert ask(client, "up", key, 1, b"x" * ((1 << 20) + 1)).status_code == 413


def test_whoever_says_nothing_is_ended_and_others_go_on(outside: Outside, client: httpx.Client) -> None:
    keys = [client.post(PATH).json()["session"] for _ in range(5)]
    until(lambda: all(ask(client, "down", key).status_code == 410 for key in keys))  # Handshakes take a second at most.
    session = outside.connect().session()
    session.producer("q").send("goes on")
    assert session.receive("q", timeout=20).body == "goes on"
