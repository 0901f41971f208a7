"""Encrypted connections to hosts (imq.cluster.transport=ssl): the same handles, and nobody else reads or speaks."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from raybroker.broker.services.link_security import cluster_tls
from raybroker.client.ways.host_way import way_to_host
from raybroker.config import Config
from raybroker.errors import ConfigError, SecurityError
from raybroker.model.settings.setting import PortRange
from raybroker.security.tls import first_certificate, pinned_context
from raybroker.transport.link import Link
from raybroker.wire.native.connection import Native, preface
from tests.contracts.handle_basics import Basics
from tests.contracts.handles import LoopbackBroker, core_of, until
from tests.unit.security.certificates import Authority

SSL = {"imq.cluster.transport": "ssl"}


class Secured(LoopbackBroker):
    """A broker whose host has a port with TLS alone; ``authority`` has issued its certificate."""

    def __init__(self, folder: Path, face: str = "sockets", **properties: object) -> None:
        self.authority = Authority(folder)
        self.keystore = self.authority.issue("keystore")
        tls = cluster_tls(Config.from_values({**SSL, "raybroker.security.dir": str(folder)}), None)
        super().__init__(None, face, tls, **properties)
        self.port: int = self._directory.port

    def socket(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=20)

    @property
    def native(self) -> Any:
        """What listens."""
        return self.core.directory._service.service  # type: ignore[attr-defined]


@pytest.fixture(params=["sockets", "direct"])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Secured]:
    """With "direct" waiting threads may serve sockets, and leave those with TLS to the loop."""
    with closing(Secured(tmp_path, request.param)) as made:
        yield made


SOCKETS = pytest.mark.parametrize("broker", ["sockets"], indirect=True)


class TestHandlesOverTls(Basics):
    """Every test of the basics."""


def said(one: socket.socket) -> bytes:
    """All that the other end says before it closes the connection."""
    one.settimeout(20)
    text = b""
    with suppress(ConnectionResetError):
        while more := one.recv(65_536):
            text += more
    return text


def test_links_with_tls_are_not_served_directly(broker: Secured) -> None:
    connection = broker.connect()
    connection.session().producer("q").send("x")
    links = [channel.link for channel in core_of(connection).channels.all()]
    assert links
    assert all(link.private and link._direct is None for link in links)
    assert all(link._transport.get_extra_info("sslcontext") is not None for link in links)


@SOCKETS
def test_who_does_not_begin_with_tls_is_refused_and_reads_nothing(broker: Secured) -> None:
    token = broker.core.directory._token  # type: ignore[attr-defined]
    refused = broker.native.refused_count
    for spoken in (preface(token), b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff" + b"x" * 1000):
        with broker.socket() as plain:
            plain.sendall(spoken)
            assert said(plain)[:1] in (b"", b"\x15")  # An alert of TLS, or nothing.
    until(lambda: broker.native.refused_count == refused + 3)
    assert not broker.native.connections


@SOCKETS
def test_the_token_is_asked_for_inside_of_tls(broker: Secured) -> None:
    context = pinned_context(first_certificate(broker.keystore))
    with broker.socket() as bare, context.wrap_socket(bare) as wrapped:
        wrapped.sendall(preface(b"x" * 32))
        assert said(wrapped) == b""
    with broker.socket() as bare, context.wrap_socket(bare) as wrapped:
        wrapped.sendall(preface(broker.core.directory._token))  # type: ignore[attr-defined]
        until(lambda: any(known.link.authenticated for known in broker.native.connections))


@SOCKETS
def test_nothing_of_a_message_is_on_the_wire(broker: Secured) -> None:
    """A proxy between the two sees the bytes of a message without TLS, and none of them with it."""
    mark = b"nobody may read this " * 20
    for port, seen in ((broker.port, False), (clear_port(broker), True)):
        with ExitStack() as opened:
            wire = Proxy(port, opened)
            certificate = b"" if seen else first_certificate(broker.keystore)
            connection = broker.connect()
            directory: Any = core_of(connection).directory
            directory.locate = partial(_located, directory.locate, way_to_host("127.0.0.1", wire.port, certificate))
            connection.session().producer("q").send(mark)
            assert connection.session().receive("q", timeout=20).body == mark
            assert (mark in b"".join(wire.passed)) is seen
            assert len(b"".join(wire.passed)) > 2 * len(mark)
            connection.close()


async def _located(ask: Any, way: Any, *args: Any, **options: Any) -> Any:
    place = await ask(*args, **options)
    return place._replace(dial=way)


def clear_port(broker: Secured) -> int:
    listening = broker.core.directory._service.service.listen("127.0.0.1", PortRange(0, 0))  # type: ignore[attr-defined]
    return int(broker.core.io.run(listening)[1])


class Proxy:
    """Passes bytes on between clients and a port, and keeps them."""

    def __init__(self, target: int, opened: ExitStack) -> None:
        self.passed: list[bytes] = []
        self._target = target
        self._opened = opened
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        opened.callback(self._listening.close)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                taken, _ = self._listening.accept()
                further = socket.create_connection(("127.0.0.1", self._target))
                for ends in ((taken, further), (further, taken)):
                    threading.Thread(target=self._pass, args=ends, daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                self.passed.append(data)
                sink.sendall(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@SOCKETS
def test_another_certificate_than_the_broker_has_told_of_is_refused(broker: Secured, tmp_path: Path) -> None:
    io = broker.core.io

    def link() -> Link:
        return Link(Native(token=None), on_frames=lambda frames: None, on_lost=lambda error: None)

    other = first_certificate(broker.authority.issue("other.pem"))
    with pytest.raises(ConnectionError, match="shows another certificate than its broker says"):
        io.run(way_to_host("127.0.0.1", broker.port, other)(link))  # type: ignore[arg-type]
    late = Authority(tmp_path / "..", "late").issue("late.pem", last=-1)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(late)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            taken, _ = listening.accept()
            with taken, suppress(OSError):
                context.wrap_socket(taken, server_side=True)

        answering = threading.Thread(target=answer)
        answering.start()
        way: Any = way_to_host("127.0.0.1", listening.getsockname()[1], first_certificate(late))
        with pytest.raises(SecurityError, match=r"has expired: renew the keystore there"):
            io.run(way(link))
        answering.join(20)


@SOCKETS
def test_a_renewed_keystore_holds_for_the_next_connection_and_the_others_go_on(broker: Secured) -> None:
    first = broker.connect().session()
    first.producer("q").send("one")
    broker.authority.issue("keystore")
    broker.connect().session().producer("q").send("two")
    first.producer("q").send("three")
    assert [message.body for message in first.browser(first.queue("q"))] == ["one", "two", "three"]


@SOCKETS
def test_handshakes_that_do_not_go_on_are_bounded_and_end(broker: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each one beyond the bound ends the one that has waited longest; the others end with the time of a handshake."""
    arriving = broker.native._server._arriving
    monkeypatch.setattr(arriving, "_most", 5)
    monkeypatch.setattr(broker.native._server, "_handshake_s", 600.0)
    refused = broker.native.refused_count
    with ExitStack() as opened:
        half = [opened.enter_context(broker.socket()) for _ in range(8)]
        assert [said(one) for one in half[:3]] == [b""] * 3, "those that came first have made room"
        until(lambda: broker.native.refused_count == refused + 3)
        assert len(arriving) == 5
        monkeypatch.setattr(broker.native._server, "_handshake_s", 2.0)
        last = [opened.enter_context(broker.socket()) for _ in range(5)]
        assert [said(one) for one in half[3:]] == [b""] * 5
        assert [said(one) for one in last] == [b""] * 5, "nobody needs their room, and their time is over"
        until(lambda: broker.native.refused_count == refused + 13)
    assert not len(arriving)
    broker.connect().session().producer("q").send("fine")


def test_a_broker_without_a_key_says_which_property_wants_one(tmp_path: Path) -> None:
    assert cluster_tls(Config.from_values({}), tmp_path) is None
    with pytest.raises(ConfigError, match=r"imq\.cluster\.transport=ssl: keystore .* is not there; make one"):
        cluster_tls(Config.from_values(SSL), tmp_path)
