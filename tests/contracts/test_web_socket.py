"""The native protocol inside of WebSockets: rb.connect("http://…") has the same handles, rights and bounds, and
"https://…" has them over TLS; so have plain requests that poll, where no WebSocket passes."""

from __future__ import annotations

import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect as web_socket

import raybroker as rb
from raybroker.errors import ConfigError, NoClusterError, SecurityError
from raybroker.security.user_file import UserEntry, UserFile
from raybroker.wire.native.preamble import preamble
from raybroker.wire.scram import Verifier
from tests.unit.security.certificates import Authority

RULES = """version=JMQFileAccessControlModel/100
connection.NORMAL.allow.user=*
queue.*.produce.allow.user=*
queue.*.consume.allow.user=ann
queue.create.allow.user=ann
topic.*.produce.allow.user=*
topic.*.consume.allow.user=*
topic.create.allow.user=ann
"""


WAYS = {"http": "httpjms", "https": "httpsjms"}
"""Scheme of the address → the service."""
FACES = ("http", "https", "http poll", "https poll")
"""The scheme, and what carries the protocol: a WebSocket where nothing is said."""
CLEAR = pytest.mark.parametrize("outside", ["http"], indirect=True)
"""For tests that speak with the server themselves: what they are about is the same with TLS."""


class Outside:
    """A loopback broker with the service of that scheme, and clients that come in through it."""

    def __init__(self, folder: Path, opened: ExitStack, face: str = "http", **more: object) -> None:
        scheme, _, carrier = face.partition(" ")
        self.service = WAYS[scheme]
        self.carrier = {"raybroker.client.http.carrier": carrier or "websocket"}
        self.authority = Authority(folder)
        self.authority.issue("keystore")
        shutil.copyfile(self.authority.file, folder / "truststore")
        users = UserFile(folder / "passwd")
        for name in ("ann", "bob"):
            users.add(name, UserEntry(str(Verifier.from_password("secret", b"s" * 16, 64)), "user"))
        (folder / "accesscontrol.properties").write_text(RULES)
        properties = {
            "imq.service.activelist": self.service,
            "imq.hostname": "127.0.0.1",
            "imq.portmapper.port": 0,
            "raybroker.security.dir": str(folder),
            "raybroker.handshake.timeout_ms": 1000,
            **more,
        }
        self._opened = opened
        self.inside = rb.loopback(properties=properties)
        opened.callback(self.inside.close)
        self.admin = self.inside.admin()
        self.ports = {row["service"]: row["port"] for row in self.admin.list_services()}
        self.url = f"{scheme}://127.0.0.1:{self.ports[self.service]}/"

    def connect(
        self, user: str | None = "ann", url: str | None = None, password: str = "secret", **more: object
    ) -> Any:
        login = {"username": user, "password": password} if user else {}
        connection = rb.connect(url or self.url, **{"trust": self.authority.file, **self.carrier, **login, **more})  # type: ignore[arg-type]
        self._opened.callback(connection.close)
        connection.start()
        return connection

    def web_socket(self) -> Any:
        return self._opened.enter_context(web_socket(f"{self.url.replace('http', 'ws')}native", open_timeout=30))


@pytest.fixture(params=FACES)
def outside(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Outside]:
    with ExitStack() as opened:
        yield Outside(tmp_path, opened, request.param)


def test_the_same_handles_work_over_http(outside: Outside) -> None:
    client = outside.connect()
    session, work = client.session(), client.session(transacted=True)
    session.producer("orders").send({"id": 7}, {"price": 3})
    assert session.receive("orders", timeout=20).body == {"id": 7}
    session.producer("blocks").send_many(range(3000))
    assert [m.body for m in session.receive_many("blocks", 10, timeout=20)] == list(range(10))
    cold = session.consumer(session.topic("weather"), selector="temp < 0")
    for temp in (3, -3):
        session.producer(session.topic("weather")).send(temp, {"temp": temp})
    assert cold.receive(20).body == -3
    work.producer("unit").send("one")
    work.commit()
    assert work.receive("unit", timeout=20).body == "one"
    work.rollback()


def test_a_message_of_many_pieces_passes_both_ways(outside: Outside) -> None:
    outside.admin.create_destination("queue", "large", maxBytesPerMsg=-1)
    session = outside.connect().session()
    body = bytes(range(256)) * 40_000
    session.producer("large").send(body)
    assert session.receive("large", timeout=30).body == body


def test_the_port_mapper_names_the_service_too(outside: Outside) -> None:
    session = outside.connect(url=f"mq://127.0.0.1:{outside.ports['portmapper']}/{outside.service}").session()
    session.producer("q").send("by the map")
    assert session.receive("q", timeout=20).body == "by the map"


def test_passwords_rules_and_administration_hold(outside: Outside) -> None:
    with pytest.raises(SecurityError):
        outside.connect(password="wrong")
    ann, bob = outside.connect(), outside.connect("bob")
    ann.session().producer("q").send("one")
    with pytest.raises(SecurityError, match="user 'bob' may not consume"):
        bob.session().receive("q", timeout=20)
    with pytest.raises(SecurityError, match="create queues"):
        bob.session().producer("fresh").send("x")
    rows = {row["user"]: row for row in outside.admin.list_connections(outside.service)}
    assert rows.keys() == {"ann", "bob"}
    assert rows["ann"]["host"].startswith("127.0.0.1:")
    outside.admin.destroy_connection(rows["ann"]["id"])
    with pytest.raises(SecurityError, match="an administrator has closed the connection"):
        ann.session().producer("other").send("two")
    bob.session().producer("q").send("three")


@CLEAR
def test_a_server_without_web_sockets_and_a_port_without_a_server_are_told(outside: Outside) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:

        def refuse() -> None:
            taken, _ = silent.accept()
            with taken:
                taken.recv(65_536)
                taken.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")

        thread = threading.Thread(target=refuse)
        thread.start()
        with pytest.raises(NoClusterError, match="no WebSocket at /native"):
            outside.connect(url=f"http://127.0.0.1:{silent.getsockname()[1]}")
        thread.join()
        port = silent.getsockname()[1]
    with pytest.raises(NoClusterError):
        outside.connect(url=f"http://127.0.0.1:{port}/")
    with pytest.raises(ConfigError, match="nothing behind it"):
        outside.connect(url=f"{outside.url}jms")


def until_closed(client: Any) -> None:
    with suppress(ConnectionClosed):
        for _ in range(1000):
            client.recv(timeout=30)


@CLEAR
@pytest.mark.parametrize(
    "said",
    [b"GET / HTTP/1.1\r\n\r\n", "text", b"", preamble("no such host"), b"\xff" * 100_000],
    ids=["http", "text", "nothing", "a host that is not there", "garbage"],
)
def test_whoever_speaks_something_else_or_nothing_is_closed_and_others_go_on(
    outside: Outside, said: bytes | str
) -> None:
    stranger = outside.web_socket()
    with suppress(ConnectionClosed):
        stranger.send(said)
    until_closed(stranger)
    session = outside.connect().session()
    session.producer("q").send("goes on")
    assert session.receive("q", timeout=20).body == "goes on"
