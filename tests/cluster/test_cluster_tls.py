"""imq.cluster.transport=ssl in a real Ray: whoever sends and receives there has TLS, and hosts take nothing else."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import raybroker as rb
from raybroker.errors import ConfigError
from raybroker.security.tls import first_certificate, pinned_context
from raybroker.wire.native.connection import preface
from tests.cluster.rays import small_store
from tests.contracts.handles import bodies, core_of, take
from tests.unit.security.certificates import Authority

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


def secured(folder: Path) -> dict[str, object]:
    return {
        **small_store(folder),
        "imq.cluster.transport": "ssl",
        "raybroker.security.dir": str(folder / "security"),
        "raybroker.tls.client_auth": "need",  # That is for clients from outside: inside nobody is asked for one.
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("near")
    (made / "security").mkdir(mode=0o700)
    return made


@pytest.fixture(scope="module")
def pair(own_ray: str, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Two brokers with TLS, and another cluster of the same Ray without; without a key nothing of the first starts."""
    from raybroker.actors import runtime

    with pytest.raises(ConfigError, match=r"imq\.cluster\.transport=ssl: keystore .* is not there; make one"):
        rb.start("near", brokers=2, config=secured(folder))
    assert runtime.list_actors("near/") == []
    Authority(folder).issue("security/keystore", "broker.example", addresses=())
    started = rb.start("near", brokers=2, config=secured(folder))
    other = rb.start("far", config=small_store(tmp_path_factory.mktemp("far")))
    yield started
    other.stop()
    started.stop()


def addresses(connection: Any) -> list[tuple[str, int]]:
    """Of the data sockets of the hosts that it has connections to."""
    places = [channel.place.key.rpartition("@")[2] for channel in core_of(connection).channels.all()]
    return [(ip, int(port)) for ip, _, port in (place.rpartition(":") for place in places)]


def test_messages_go_over_tls_between_clients_and_the_hosts_of_all_brokers(pair: Any) -> None:
    with rb.connect(cluster="near", broker="b1") as one, rb.connect(cluster="near", broker="b2") as two:
        one.admin().create_destination("queue", "orders", hosting="dedicated")
        two.session().producer("orders").send_many(range(500))
        one.session().producer("orders").send_many(range(500, 1000))
        consumer = one.session().consumer("orders")  # A member on each broker.
        assert sorted(bodies(take(consumer, 1000))) == list(range(1000))
        with rb.connect(cluster="near") as work:
            session = work.session(transacted=True)
            session.producer("orders").send("unit")
            session.commit()
        (unit,) = take(consumer, 1)
        assert unit.body == "unit"
        links = [channel.link for connection in (one, two) for channel in core_of(connection).channels.all()]
        assert len(links) > 2
        assert all(link._transport.get_extra_info("ssl_object").version() == "TLSv1.3" for link in links)
        assert all(link._direct is None for link in links)


def said(one: socket.socket) -> bytes:
    one.settimeout(30)
    text = b""
    with suppress(ConnectionResetError):
        while more := one.recv(65_536):
            text += more
    return text


def test_a_host_takes_no_connection_in_clear_and_shows_the_brokers_certificate(pair: Any, folder: Path) -> None:
    with rb.connect(cluster="near") as client:
        client.session().producer("secret").send("x")
        core = core_of(client)
        token = core.io.run(core.directory.locate("queue", "secret", False)).token
        for address in addresses(client):
            with socket.create_connection(address, timeout=30) as plain:
                plain.sendall(preface(token))  # Right, and in clear.
                assert said(plain)[:1] in (b"", b"\x15")  # An alert of TLS, or nothing.
            pinned = pinned_context(first_certificate(folder / "security" / "keystore"))
            with socket.create_connection(address, timeout=30) as bare, pinned.wrap_socket(bare) as wrapped:
                wrapped.sendall(preface(b"x" * 32))
                assert said(wrapped) == b""  # TLS alone lets nobody in.
        client.session().producer("secret").send("y")


def test_a_host_that_was_killed_and_a_renewed_key_are_found_again(pair: Any, folder: Path) -> None:
    with rb.connect(cluster="near", broker="b1") as client:
        client.admin().create_destination("queue", "kept", hosting="dedicated")
        session = client.session()
        producer = session.producer("kept")
        producer.send("before")
        (row,) = [row for row in client.admin().list_destinations("queue") if row["name"] == "kept"]
        Authority(folder, "other").issue("security/keystore", "broker.example", addresses=())
        broker, _, host = row["host"].rpartition("/")
        os.kill(pair.pids(broker)[host], signal.SIGKILL)
        producer.send("after")
        assert bodies(take(session.consumer("kept"), 2)) == ["before", "after"]
        held = first_certificate(folder / "security" / "keystore")
        links = [channel.link for channel in core_of(client).channels.open()]
        assert held in [link.peer_certificate for link in links]


def test_messages_are_forwarded_to_another_cluster(pair: Any) -> None:
    """The agent is a client of both, of one with TLS and of one without."""
    with rb.connect(cluster="near") as near, rb.connect(cluster="far") as far:
        near.session().producer("out").send_many(range(50))
        near.admin().create_forwarding("one", "out", "far/in")
        consumer = far.session().consumer("in")
        assert bodies(take(consumer, 50)) == list(range(50))
        near.admin().destroy_forwarding("one")
        assert all(
            channel.link._transport.get_extra_info("ssl_object") is None for channel in core_of(far).channels.all()
        )
