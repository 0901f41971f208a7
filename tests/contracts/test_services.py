"""Programs from outside, by the connection services: logging in, the same handles, access rules, administration."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

import raybroker as rb
from raybroker.client.session.xa import XAER_DUPID, XAER_NOTA
from raybroker.errors import (
    ConfigError,
    IllegalStateError,
    InvalidDestinationError,
    NoClusterError,
    NotSupportedError,
    RequestTimeoutError,
    ResourceAllocationError,
    SecurityError,
    XAError,
)
from raybroker.security.user_file import UserEntry, UserFile
from raybroker.services.listening.arrivals import ARRIVING_OF_ADDRESS_MAX
from raybroker.wire.native.connection import preface
from raybroker.wire.native.preamble import preamble
from raybroker.wire.port_map import read_map
from raybroker.wire.scram import ScramClient, Verifier
from tests.ports import free_port

RULES = """version=JMQFileAccessControlModel/100
connection.NORMAL.allow.user=*
connection.NORMAL.deny.user=stranger
connection.ADMIN.allow.group=admin
queue.*.produce.allow.user=*
queue.*.consume.allow.user=*
queue.*.consume.deny.user=bob
queue.*.browse.allow.user=ann
topic.*.produce.allow.user=*
topic.*.consume.allow.user=*
queue.create.allow.user=ann
topic.create.allow.user=ann
"""
VERIFIER = str(Verifier.from_password("secret", b"s" * 16, 64))


class Outside:
    """A loopback broker with services, and clients that come in through them."""

    def __init__(self, folder: Path, opened: ExitStack, **more: Any) -> None:
        users = UserFile(folder / "passwd")
        for name, group in (("ann", "user"), ("bob", "user"), ("stranger", "user"), ("root", "admin")):
            users.add(name, UserEntry(VERIFIER, group))
        self.users, self.rules = users, folder / "accesscontrol.properties"
        self.rules.write_text(RULES)
        properties = {
            "imq.service.activelist": "jms,admin",
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

    def url(self, service: str = "jms") -> str:
        return f"mq://127.0.0.1:{self.ports['portmapper']}/{service}"

    def connect(self, user: str = "ann", service: str = "jms", **more: Any) -> Any:
        connection = rb.connect(self.url(service), username=user, password="secret", **more)
        self._opened.callback(connection.close)
        connection.start()
        return connection

    def socket(self, service: str = "jms") -> socket.socket:
        made = socket.create_connection(("127.0.0.1", self.ports[service]), timeout=10)
        self._opened.callback(made.close)
        return made


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Outside]:
    with ExitStack() as opened:
        yield Outside(tmp_path, opened)


def until(condition: Any) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_same_handles_work_from_outside(outside: Outside) -> None:
    client = outside.connect()
    session, work = client.session(), client.session(transacted=True)
    session.producer("orders").send({"id": 7}, {"price": 3})
    assert session.receive("orders", timeout=10).body == {"id": 7}
    session.producer("blocks").send_many(range(3000))
    assert len(list(session.browser(session.queue("blocks")))) == 3000
    assert [m.body for m in session.consumer("blocks").receive_many(10, timeout=10)] == list(range(10))
    weather = session.topic("weather")
    cold = session.consumer(weather, selector="temp < 0")
    session.producer(weather).send("warm", {"temp": 3})
    session.producer(weather).send("snow", {"temp": -3})
    assert cold.receive(10).body == "snow"
    work.producer("unit").send("one")
    work.commit()
    assert work.receive("unit", timeout=10).body == "one"
    work.rollback()

    def answer() -> None:
        question = client.session().receive("ask", timeout=20)
        question.reply(question.body * 2)

    replier = threading.Thread(target=answer)
    replier.start()
    assert session.request(session.queue("ask"), 21, timeout=20).body == 42
    replier.join()


def test_branches_from_outside_have_the_codes_of_branches_inside(outside: Outside) -> None:
    """Users who may not administer: another's XID is refused at start, and what is not there is XAER_NOTA"""
    first, second = (rb.connect_xa(outside.url(), username="ann", password="secret") for _ in range(2))
    with first, second:
        xid = rb.Xid(1, b"global", b"branch")
        one, two = first.session(), second.session()
        one.xa.start(xid)
        one.producer("orders").send("x")
        one.xa.end(xid)
        with pytest.raises(XAError) as refused:
            two.xa.start(xid)
        assert refused.value.code == XAER_DUPID
        one.xa.rollback(xid)
        for call in (one.xa.commit, one.xa.rollback, two.xa.commit, two.xa.rollback):
            with pytest.raises(XAError) as refused:
                call(xid)
            assert refused.value.code == XAER_NOTA


def test_a_login_that_is_too_slow_is_refused_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client needs longer for its proof than the service waits for it."""
    final = ScramClient.final

    def slowly(self: ScramClient, challenge: str) -> str:
        time.sleep(2.5)
        return final(self, challenge)

    with ExitStack() as opened:
        outside = Outside(tmp_path, opened, **{"imq.authentication.client.response.timeout": 1})
        with monkeypatch.context() as patched:
            patched.setattr(ScramClient, "final", slowly)
            with pytest.raises(RequestTimeoutError, match="took longer than 1 s: it was too slow") as caught:
                outside.connect()
        assert caught.value.retryable
        outside.connect().close()


HOLDS = """
import sys, time
import raybroker as rb
client = rb.connect(sys.argv[1], username="ann", password="secret")
client.start()
consumer = client.session(ack="client").consumer("orders")
print(consumer.receive(30).body, flush=True)
time.sleep(600)
"""


def test_what_a_stopped_client_holds_comes_again_elsewhere_flagged(tmp_path: Path) -> None:
    """Its process is stopped (SIGSTOP): its machine is there and its connections are open, and it says nothing."""
    with ExitStack() as opened:
        outside = Outside(tmp_path, opened, **{"imq.ping.interval": 1})
        session = outside.inside.session()
        outside.inside.start()
        session.producer("orders").send_many(range(50))
        with subprocess.Popen([sys.executable, "-c", HOLDS, outside.url()], stdout=subprocess.PIPE) as client:
            try:
                assert client.stdout is not None
                assert client.stdout.readline().strip() == b"0"
                client.send_signal(signal.SIGSTOP)
                messages = [session.receive("orders", timeout=60) for _ in range(50)]
                assert [message.body for message in messages] == list(range(50))
                assert messages[0].redelivered
            finally:
                client.kill()


def test_a_durable_subscription_is_its_client_ids(outside: Outside) -> None:
    client = outside.connect(client_id="me")
    session = client.session()
    news = session.topic("news")
    session.durable_consumer(news, "all").close()
    session.producer(news).send("kept")
    client.close()
    session = outside.connect(client_id="me").session()
    assert session.durable_consumer(session.topic("news"), "all").receive(10).body == "kept"


def test_nobody_ends_a_subscription_of_a_topic_that_he_may_not_consume_from(outside: Outside) -> None:
    outside.rules.write_text(RULES + "topic.news.consume.deny.user=bob\n")
    session = outside.connect("ann", client_id="me").session()
    news = session.topic("news")
    session.durable_consumer(news, "all").close()
    session.producer(news).send("kept")
    outside.admin.destroy_connection(outside.admin.list_connections()[0]["id"])
    thief = outside.connect("bob", client_id="me").session()
    with pytest.raises(SecurityError, match="user 'bob' may not consume with topic 'news'"):
        thief.unsubscribe("all")
    (row,) = outside.admin.list_subscriptions("news")
    assert (row["name"], row["messages"]) == ("all", 1)


@pytest.mark.parametrize(
    ("user", "password"), [("ann", "wrong"), ("eve", "secret"), ("", "secret"), ("stranger", "secret")]
)
def test_who_is_not_let_in(outside: Outside, user: str, password: str) -> None:
    with pytest.raises(SecurityError):
        rb.connect(outside.url(), username=user, password=password)
    assert outside.admin.list_connections() == []


def test_a_user_who_is_made_inactive_cannot_log_in(outside: Outside) -> None:
    outside.users.update("ann", active=False)
    with pytest.raises(SecurityError):
        outside.connect()
    outside.users.update("ann", active=True)
    outside.connect()


def test_rules_hold_for_each_operation_and_nothing_happens_that_they_forbid(outside: Outside) -> None:
    ann, bob = outside.connect("ann").session(), outside.connect("bob").session()
    ann.producer("q").send("here")
    bob.producer("q").send("from bob")
    forbidden = {
        "consume": lambda: bob.receive("q", timeout=5),
        "browse": lambda: list(bob.browser(bob.queue("q"))),
        "create queues": lambda: bob.producer("fresh").send("x"),
        "create topics": lambda: bob.consumer(bob.topic("fresh")),
        "consume with queue 'mq.sys.dmq'": lambda: bob.receive("mq.sys.dmq", timeout=5),
    }
    for told, attempt in forbidden.items():
        with pytest.raises(SecurityError, match=f"user 'bob' may not {told}"):
            attempt()
    assert [m.body for m in ann.browser(ann.queue("q"))] == ["here", "from bob"]
    assert not [row for row in outside.admin.list_destinations() if row["name"] == "fresh"]
    found = outside.admin.why_denied("bob", "consume", "q")
    assert (found["allowed"], found["rule"]) == (False, "queue.*.consume.deny.user=bob")


def test_rules_hold_at_once_when_their_file_changes(outside: Outside) -> None:
    ann = outside.connect().session()
    ann.producer("q").send("one")
    outside.rules.write_text(RULES + "queue.q.produce.deny.user=ann\n")
    with pytest.raises(SecurityError):
        ann.producer("q").send("two")
    outside.rules.write_text(RULES)
    ann.producer("q").send("three")


def test_administration_has_a_service_of_its_own(outside: Outside) -> None:
    with pytest.raises(SecurityError, match="goes through an admin service"):
        outside.connect("root").admin().list_destinations()
    with pytest.raises(SecurityError, match="may not connect to ADMIN services"):
        outside.connect("ann", "admin")
    root = outside.connect("root", "admin")
    root.admin().create_destination("queue", "made")
    assert "made" in [row["name"] for row in root.admin().list_destinations()]
    with pytest.raises(InvalidDestinationError):
        root.admin().query_destination("queue", "missing")
    with pytest.raises(NotSupportedError, match="administration alone"):
        root.session().producer("made").send("x")


def test_a_connection_that_was_destroyed_does_not_come_back(outside: Outside) -> None:
    ann, bob = outside.connect("ann"), outside.connect("bob")
    producer = ann.session().producer("q")
    producer.send("one")
    (row,) = [row for row in outside.admin.list_connections() if row["user"] == "ann"]
    assert (row["service"], row["producers"], row["host"].split(":")[0]) == ("jms", 1, "127.0.0.1")
    outside.admin.destroy_connection(row["id"])
    with pytest.raises(SecurityError, match="an administrator has closed the connection"):
        ann.session().producer("other").send("two")
    bob.session().producer("q").send("three")
    assert [row["user"] for row in outside.admin.list_connections()] == ["bob"]
    with pytest.raises(InvalidDestinationError, match="no connection"):
        outside.admin.destroy_connection(row["id"])


def test_a_paused_service_processes_nothing_until_it_goes_on(outside: Outside) -> None:
    session = outside.connect().session(ack="dups_ok")
    producer, consumer = session.producer("q"), session.consumer("q")
    producer.send("before")
    assert consumer.receive(10).body == "before"
    outside.admin.pause_service("jms")
    with pytest.raises(IllegalStateError, match="jms of broker loopback is PAUSED"):
        outside.connect()
    sent = producer.send_async("while paused")
    outside.inside.session().producer("q").send("from inside")
    assert consumer.receive(0.3) is None
    assert not sent.done()
    outside.admin.resume_service("jms")
    sent.result(20)
    assert {consumer.receive(10).body, consumer.receive(10).body} == {"while paused", "from inside"}
    with pytest.raises(ConfigError, match="never paused"):
        outside.admin.pause_service("admin")


def test_a_quiesced_service_takes_nobody_new(outside: Outside) -> None:
    client = outside.connect()
    outside.admin.quiesce_service("jms")
    with pytest.raises(IllegalStateError, match="QUIESCED"):
        outside.connect()
    client.session().producer("q").send("goes on")
    outside.admin.resume_service("jms")
    outside.connect()


def test_the_port_mapper_tells_its_map_to_anybody(outside: Outside) -> None:
    with outside.socket("portmapper") as plain:
        text = b""
        while more := plain.recv(65536):
            text += more
    assert {name: door.port for name, door in read_map(text).items()} == {
        name: port for name, port in outside.ports.items() if port
    }
    accepted = {row["service"]: row["accepted"] for row in outside.admin.list_services()}
    assert accepted["portmapper"] >= 1


def test_a_service_has_the_port_and_the_address_that_are_set(tmp_path: Path) -> None:
    port = free_port()
    settings = {"imq.jms.tcp.port": port, "imq.jms.tcp.hostname": "127.0.0.2"}
    with ExitStack() as opened:
        outside = Outside(tmp_path, opened, **settings)
        assert (outside.ports["jms"], outside.ports["admin"] != port) == (port, True)
        with rb.connect(f"mqtcp://127.0.0.2:{port}/jms", username="ann", password="secret") as client:
            client.session().producer("q").send("x")
        with pytest.raises(NoClusterError):
            rb.connect(f"mqtcp://127.0.0.1:{port}/jms", username="ann", password="secret")
        (tmp_path / "passwd").unlink()
        with pytest.raises(ConfigError, match=rf"imq\.jms\.tcp\.port=.*{port}"):
            Outside(tmp_path, opened, **settings)


def test_one_client_more_than_half_of_max_threads_is_told_so_and_the_others_stay(tmp_path: Path) -> None:
    with ExitStack() as opened:
        outside = Outside(tmp_path, opened, **{"imq.jms.min_threads": 2, "imq.jms.max_threads": 4})
        first = outside.connect()
        outside.connect("bob")
        with pytest.raises(ResourceAllocationError, match=r"has 2 clients, half of imq\.jms\.max_threads"):
            outside.connect()
        first.session().producer("q").send("goes on")
        outside.connect("root", "admin")
        first.close()
        until(lambda: len(outside.admin.list_connections("jms")) == 1)
        outside.connect()


def test_what_cannot_be_an_address_is_said_before_anything_is_tried(outside: Outside) -> None:
    for url, error in (("mq://h:0", ConfigError), ("", ConfigError)):
        with pytest.raises(error):
            rb.connect(url, username="ann", password="secret")
    with pytest.raises(ConfigError, match="username and a password"):
        rb.connect(outside.url())
    with pytest.raises(ConfigError, match="connections from outside"):
        rb.connect(username="ann")
    with pytest.raises(NoClusterError, match="there is no service 'stomp'"):
        rb.connect(outside.url("stomp"), username="ann", password="secret")
    with pytest.raises(NoClusterError, match="no connection service answers"):
        rb.connect("mqtcp://127.0.0.1:1/jms", username="ann", password="secret")


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
        preamble("loopback") + preface(bytes(32)),
        preamble("nobody"),
        preamble("") + preface(b"x" * 32),
        preamble("") + preface(bytes(32)) + b"\xff" * 64,
        preamble("") + preface(bytes(32)) + b"\x00\x00\x10\x00\x01" + b"x" * 4096,
    ],
    ids=[
        "http",
        "tls",
        "a secret nobody gave",
        "a host that is not there",
        "a preface of another kind",
        "no frames",
        "a frame that is too long before the login",
    ],
)
def test_a_stranger_is_cut_off_and_others_are_not(outside: Outside, said: bytes) -> None:
    with outside.socket() as stranger:
        stranger.sendall(said)
        stranger.settimeout(20)
        with suppress(ConnectionResetError):
            while stranger.recv(65536):
                """What it is told before its end."""
    outside.connect().session().producer("q").send("fine")


def test_who_says_nothing_is_cut_off_and_keeps_nobody_out(outside: Outside) -> None:
    silent = [outside.socket() for _ in range(ARRIVING_OF_ADDRESS_MAX + 5)]
    for one in silent:
        one.settimeout(20)
        try:
            assert one.recv(1) == b""
        except ConnectionResetError:
            continue
    row = next(row for row in outside.admin.list_services() if row["service"] == "jms")
    assert row["refused"] == len(silent)
    outside.connect().session().producer("q").send("fine")


def test_a_secret_is_good_for_one_connection(outside: Outside) -> None:
    client = outside.connect()
    secret = client._core.io.run(client._core.directory.locate("queue", "q", True)).token
    for expected in (True, False):
        with outside.socket() as made:
            made.sendall(preamble("loopback") + preface(secret))
            made.settimeout(0.5 if expected else 20)
            if expected:
                with pytest.raises(TimeoutError):
                    made.recv(1)
            else:
                assert made.recv(1) == b""


def test_a_client_from_outside_does_not_import_ray(outside: Outside) -> None:
    program = f"""
import sys
import raybroker as rb
with rb.connect({outside.url()!r}, username="ann", password="secret") as connection:
    connection.session().producer("q").send("from afar")
assert not [name for name in sys.modules if name.split(".")[0] == "ray"]
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    session = outside.connect().session()
    assert [m.body for m in session.browser(session.queue("q"))] == ["from afar"]


def test_services_without_a_place_for_users_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"raybroker\.security\.dir"):
        rb.loopback(properties={"imq.service.activelist": "jms"})
