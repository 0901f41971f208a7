"""TLS services: the same handles behind verified certificates, what each end refuses, certificates as logins."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

import raybroker as rb
from raybroker.errors import ConfigError, NoClusterError, SecurityError
from raybroker.services.listening.arrivals import ARRIVING_OF_ADDRESS_MAX
from raybroker.wire.native.connection import preface
from raybroker.wire.native.preamble import preamble
from tests.contracts.test_services import RULES, Outside, until
from tests.unit.security.certificates import Authority

SERVICES = "jms,ssljms,admin,ssladmin"


class Secured(Outside):
    """A broker whose services have TLS; ``authority`` has issued its certificate."""

    def __init__(self, folder: Path, opened: ExitStack, **more: object) -> None:
        self.folder = folder
        self.authority = Authority(folder)
        self.authority.issue("keystore")
        shutil.copyfile(self.authority.file, folder / "truststore")
        super().__init__(folder, opened, **{"imq.service.activelist": SERVICES, **more})
        self._stack = opened

    def url(self, service: str = "ssljms") -> str:
        return super().url(service)

    def secure(self, user: str | None = "ann", service: str = "ssljms", **more: Any) -> Any:
        """A client that trusts the authority."""
        login = {"username": user, "password": "secret"} if user else {}
        connection = rb.connect(self.url(service), **{"trust": self.authority.file, **login, **more})
        self._stack.callback(connection.close)
        connection.start()
        return connection

    def row(self, service: str = "ssljms") -> dict[str, Any]:
        return next(row for row in self.admin.list_services() if row["service"] == service)


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def secured(tmp_path: Path, opened: ExitStack) -> Secured:
    return Secured(tmp_path, opened)


def ended(one: socket.socket) -> bool:
    """Whether the broker has closed it, whatever it has said before."""
    one.settimeout(20)
    with suppress(ConnectionResetError, ssl.SSLError):
        while one.recv(65536):
            """What it is told."""
    return True


def test_the_same_handles_work_over_tls(secured: Secured) -> None:
    client = secured.secure()
    session, work = client.session(), client.session(transacted=True)
    session.producer("orders").send({"id": 7}, {"price": 3})
    assert session.receive("orders", timeout=10).body == {"id": 7}
    body = bytes(range(256)) * 20_000
    secured.admin.create_destination("queue", "large", maxBytesPerMsg=-1, maxTotalMsgBytes=-1)
    session.producer("large").send(body)
    assert session.receive("large", timeout=20).body == body
    session.producer("blocks").send_many(range(30_000))
    consumer = session.consumer("blocks")
    found: list[int] = []
    while len(found) < 30_000:
        found += [m.body for m in consumer.receive_many(5000, timeout=10)]
    assert found == list(range(30_000))
    work.producer("unit").send("one")
    work.commit()
    assert work.receive("unit", timeout=10).body == "one"
    work.rollback()
    (row,) = secured.admin.list_connections("ssljms")
    assert (row["user"], row["service"]) == ("ann", "ssljms")


def test_every_form_of_address_that_means_tls(secured: Secured) -> None:
    mapper, port = secured.ports["portmapper"], secured.ports["ssljms"]
    for number, url in enumerate(
        (
            f"mq://127.0.0.1:{mapper}/ssljms",
            f"mqs://127.0.0.1:{mapper}",
            f"mqssl://localhost:{port}",
            f"mqssl://127.0.0.1:{port}/ssljms",
            f"mqssl://127.0.0.1:{mapper}",
        )
    ):
        with rb.connect(url, username="ann", password="secret", trust=secured.authority.file) as client:
            client.session().producer("q").send(number)
    session = secured.secure().session()
    assert [m.body for m in session.browser(session.queue("q"))] == [0, 1, 2, 3, 4]


def test_administration_over_tls(secured: Secured) -> None:
    root = secured.secure("root", "ssladmin")
    root.admin().create_destination("queue", "made")
    assert "made" in [row["name"] for row in root.admin().list_destinations()]
    with pytest.raises(SecurityError):
        secured.secure("ann", "ssladmin")


def test_a_client_says_what_is_wrong_with_the_brokers_certificate(secured: Secured) -> None:
    with pytest.raises(SecurityError, match=r"authority that is not trusted here .* keytool export"):
        secured.secure(trust=Authority(secured.folder, "other").file)
    with pytest.raises(SecurityError, match="authority that is not trusted here"):
        rb.connect(secured.url(), username="ann", password="secret")
    secured.secure(trust="", imqSSLIsHostTrusted=True)


@pytest.mark.parametrize("scheme", ["mqssl", "https"])
@pytest.mark.parametrize(
    ("issued", "says"),
    [
        ({"last": -1}, "has expired: renew it there"),
        ({"first": 1}, "is not valid yet: is the clock right"),
        ({"name": "broker.example", "addresses": ()}, r"is not for 127\.0\.0\.1: connect by a name that it has"),
    ],
)
def test_a_client_sends_nothing_to_who_shows_such_a_certificate(
    tmp_path: Path, issued: dict[str, Any], says: str, scheme: str
) -> None:
    """Brokers refuse to start with the first two: so it is somebody else who answers."""
    authority = Authority(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.issue("key.pem", **issued))
    came: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            taken, _ = listening.accept()
            with taken, suppress(OSError), context.wrap_socket(taken, server_side=True) as wrapped:
                came.append(wrapped.recv(1000))

        answering = threading.Thread(target=answer)
        answering.start()
        with pytest.raises(SecurityError, match=says):
            rb.connect(
                f"{scheme}://127.0.0.1:{listening.getsockname()[1]}",
                username="ann",
                password="secret",
                trust=authority.file,
            )
        answering.join(20)
    assert b"".join(came) == b""


def test_a_password_goes_only_to_a_broker_that_is_trusted(secured: Secured) -> None:
    secured.authority.issue("keystore", "broker.example", addresses=())
    with pytest.raises(SecurityError, match=r"is not for 127\.0\.0\.1.*server_name.*keytool make -n 127\.0\.0\.1"):
        secured.secure()
    secured.secure(**{"raybroker.client.tls.server_name": "broker.example"})


def test_clear_text_on_a_port_with_tls_is_refused(secured: Secured) -> None:
    secret = b"x" * 32
    for said in (
        preamble("") + preface(bytes(32)),
        preamble("loopback") + preface(secret),
        b"GET / HTTP/1.1\r\n\r\n",
        preamble("loopback") + b"\x16\x03\x01\xff\xff" + b"x" * 1000,
        b"\x16\x03\x01\x00\x01\x00",
    ):
        with secured.socket("ssljms") as plain:
            plain.sendall(said)
            assert ended(plain)
    client = secured.secure()
    secret = client._core.io.run(client._core.directory.locate("queue", "q", True)).token
    with secured.socket("ssljms") as plain:  # A good secret helps nobody without TLS.
        plain.sendall(preamble("loopback") + preface(secret))
        assert ended(plain)
    with secured.socket("jms") as plain:
        plain.sendall(b"\x16\x03\x01\x02\x00\x01\x00")
        assert ended(plain)
    client.session().producer("q").send("fine")
    with pytest.raises(NoClusterError, match="does not speak TLS"):
        rb.connect(f"mqssl://127.0.0.1:{secured.ports['jms']}", username="ann", password="secret")


def test_openssl_sees_the_certificate_and_only_new_versions(secured: Secured) -> None:
    def client(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [
                "openssl",
                "s_client",
                "-connect",
                f"127.0.0.1:{secured.ports['ssljms']}",
                "-CAfile",
                str(secured.authority.file),
                "-verify_return_error",
                "-servername",
                "localhost",
                *more,
            ],
            input="",
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    for version in ("-tls1_2", "-tls1_3"):
        done = client(version, "-verify_hostname", "localhost")
        assert "Verify return code: 0 (ok)" in done.stdout, done.stderr
    old = client("-tls1_1", "-cipher", "ALL:@SECLEVEL=0")
    assert old.returncode != 0
    assert "Cipher is (NONE)" in old.stdout
    secured.secure()


def test_handshakes_that_do_not_go_on_are_bounded(secured: Secured) -> None:
    before = secured.row()["refused"]
    half = [secured.socket("ssljms") for _ in range(ARRIVING_OF_ADDRESS_MAX + 5)]
    for one in half:
        with suppress(OSError):
            one.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
    assert all(ended(one) for one in half)
    until(lambda: secured.row()["refused"] - before == len(half))
    secured.secure().session().producer("q").send("fine")


def test_handshakes_with_a_host_that_do_not_go_on_are_bounded(secured: Secured) -> None:
    secured.inside.session().producer("q").send("first")
    service = secured.inside._core.directory._service.service

    def refused() -> int:
        """By the service, and by the host that it gave the socket to."""
        rows = {row["service"]: row["refused"] for row in secured.admin.list_services()}
        return int(service.refused_count + rows["ssljms"])

    before, half = refused(), [secured.socket("ssljms") for _ in range(ARRIVING_OF_ADDRESS_MAX + 5)]
    for one in half:
        with suppress(OSError):
            one.sendall(preamble("loopback") + b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
    assert all(ended(one) for one in half)
    until(lambda: refused() - before == len(half))
    assert not service.connections - {known for known in service.connections if known.guest is None}
    session = secured.secure().session()
    assert [m.body for m in session.browser(session.queue("q"))] == ["first"]


def test_clients_with_and_without_tls_work_in_one_process(secured: Secured) -> None:
    """Threads that wait serve the sockets of those without; the IO thread has to go on for the other."""
    tls, tcp = secured.secure().session(), secured.connect("ann", "jms").session()
    for number in range(20):
        tcp.producer("q").send(number)
        assert tls.receive("q", timeout=20).body == number
        tls.producer("p").send(number)
        assert tcp.receive("p", timeout=20).body == number


def test_a_connection_comes_back_over_tls(secured: Secured) -> None:
    client = secured.secure()
    session = client.session(ack="client")
    producer, consumer = session.producer("q"), session.consumer("q")
    producer.send("before")
    before = consumer.receive(10)
    assert before.body == "before"
    before.acknowledge()
    for channel in client._core.channels.all():
        client._core.io.loop.call_soon_threadsafe(channel.link.abort)
    producer.send("after")
    assert consumer.receive(20).body == "after"


def test_a_renewed_certificate_holds_for_the_next_client(secured: Secured) -> None:
    first = secured.secure()
    first.session().producer("q").send("one")
    other = Authority(secured.folder, "other")
    other.issue("keystore")
    secured.secure(trust=other.file).session().producer("q").send("two")
    first.session().producer("q").send("three")
    with pytest.raises(SecurityError, match="not trusted"):
        secured.secure()


def test_a_certificate_stands_for_its_user(tmp_path: Path, opened: ExitStack) -> None:
    secured = Secured(tmp_path, opened, **{"raybroker.tls.client_auth": "want"})
    issue = secured.authority.issue
    ann = secured.secure(None, certificate=issue("ann.pem", cn="ann"))
    ann.session().producer("q").send("by certificate")
    assert [row["user"] for row in secured.admin.list_connections("ssljms")] == ["ann"]
    secured.rules.write_text(RULES + "queue.q.produce.deny.user=ann\n")
    with pytest.raises(SecurityError, match="user 'ann' may not produce"):
        ann.session().producer("q").send("denied")
    secured.rules.write_text(RULES)
    with pytest.raises(SecurityError, match="'nobody', is unknown"):
        secured.secure(None, certificate=issue("nobody.pem", cn="nobody"))
    with pytest.raises(SecurityError, match="stranger"):
        secured.secure(None, certificate=issue("stranger.pem", cn="stranger"))
    secured.users.update("ann", active=False)
    with pytest.raises(SecurityError, match="'ann', is not active"):
        secured.secure(None, certificate=tmp_path / "ann.pem")
    secured.users.update("ann", active=True)
    with pytest.raises(NoClusterError, match="does not accept the client's certificate: its log"):
        secured.secure(None, certificate=Authority(tmp_path, "forger").issue("forged.pem", cn="ann"))
    with pytest.raises(NoClusterError, match="does not accept the client's certificate: its log"):
        secured.secure(None, certificate=issue("late.pem", cn="ann", last=-1))
    secured.secure("bob").session().producer("q").send("by password")
    (tmp_path / "certificates").write_text("bob: CN=orders\n")
    secured.secure(None, certificate=issue("orders.pem", cn="orders"))
    assert "bob" in [row["user"] for row in secured.admin.list_connections("ssljms")]
    with pytest.raises(SecurityError, match="stands for no user"):
        secured.secure(None, certificate=tmp_path / "ann.pem")


def test_without_a_certificate_nobody_comes_in_where_one_is_needed(tmp_path: Path, opened: ExitStack) -> None:
    secured = Secured(tmp_path, opened, **{"raybroker.tls.client_auth": "need"})
    with pytest.raises(NoClusterError, match="asks for a certificate of the client: give certificate="):
        secured.secure()
    certificate = secured.authority.issue("program.pem", cn="program")
    secured.inside.session().producer("q").send("first")
    client = secured.secure("bob", certificate=certificate)
    client.session().producer("q").send("both")
    assert [row["user"] for row in secured.admin.list_connections("ssljms")] == ["bob"]
    with secured.socket("ssljms") as bare:  # The host asks for it as well.
        bare.sendall(preamble("loopback"))
        context = ssl.create_default_context(cafile=str(secured.authority.file))
        with context.wrap_socket(bare, server_hostname="localhost") as wrapped:
            assert ended(wrapped)


def test_a_broker_that_asks_for_no_certificates_takes_none_as_a_login(secured: Secured) -> None:
    with pytest.raises(SecurityError, match="has shown no certificate"):
        secured.secure(None, certificate=secured.authority.issue("ann.pem", cn="ann"))
    with pytest.raises(ConfigError, match="username and a password"):
        rb.connect(secured.url("jms"), certificate=secured.folder / "ann.pem")


def test_services_that_cannot_have_tls_are_refused_at_the_start(tmp_path: Path, opened: ExitStack) -> None:
    properties = {"imq.service.activelist": "ssljms", "raybroker.security.dir": str(tmp_path), "imq.portmapper.port": 0}
    with pytest.raises(ConfigError, match=r"keystore .* is not there; make one"):
        rb.loopback(properties=properties)
    Authority(tmp_path).issue("keystore", last=-1)
    with pytest.raises(ConfigError, match="has expired at"):
        rb.loopback(properties=properties)


def test_stomp_clients_come_in_over_tls_and_not_without(tmp_path: Path, opened: ExitStack) -> None:
    stomp = pytest.importorskip("stomp")
    secured = Secured(tmp_path, opened, **{"imq.service.activelist": "sslstomp"})
    assert (secured.row("sslstomp")["protocol"], secured.row("sslstomp")["state"]) == ("stomps", "RUNNING")
    place = ("127.0.0.1", secured.ports["sslstomp"])
    client = stomp.Connection12([place], reconnect_attempts_max=1)
    client.set_ssl([place], ca_certs=str(secured.authority.file))
    client.connect("ann", "secret", wait=True)
    client.send("/queue/q", "over TLS", receipt="r")
    session = secured.inside.session()
    secured.inside.start()
    assert session.receive("q", timeout=20).body == b"over TLS"
    assert [row["user"] for row in secured.admin.list_connections("sslstomp")] == ["ann"]
    client.disconnect()

    clear = secured.socket("sslstomp")
    clear.sendall(b"CONNECT\naccept-version:1.2\nlogin:ann\npasscode:secret\n\n\0")
    assert ended(clear)
    until(lambda: secured.admin.list_connections("sslstomp") == [])
