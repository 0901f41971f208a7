"""What is refused over STOMP: by name, with ERROR and the end of the connection, and nothing happens."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from raybroker.services.listening.arrivals import ARRIVING_OF_ADDRESS_MAX
from raybroker.services.stomp.limits import HEAD_BYTES_UNKNOWN
from raybroker.system.process_memory import resident_bytes
from raybroker.wire.stomp.frame import StompFrame, encode
from tests.contracts.stomp_rig import BODY_MAX, WAIT_S, StompRig, until

pytestmark = pytest.mark.xdist_group("stomp_refusals")  # One worker makes what they share.

Q = "/queue/q"


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StompRig]:
    """For all tests here: what is refused leaves nothing behind."""
    with ExitStack() as opened:
        made = StompRig(Path(tmp_path_factory.mktemp("stomp")), opened)
        made.inside.session().producer("there").send("kept")
        made.inside.session().topic("news")
        yield made


@pytest.mark.parametrize(
    ("command", "headers", "told"),
    [
        ("SEND", {"destination": "/queue/there"}, "may not produce with queue 'there'"),
        ("SEND", {"destination": "/topic/news"}, "may not create topics"),
        ("SEND", {"destination": "/queue/fresh"}, "may not create queues"),
        ("SUBSCRIBE", {"destination": "/queue/there", "id": 1}, "may not consume with queue 'there'"),
        ("SUBSCRIBE", {"destination": "/topic/fresh", "id": 1, "durable-subscription-name": "s"}, "may not consume"),
        ("SUBSCRIBE", {"destination": "/queue/mq.sys.dmq", "id": 1}, "may not consume with queue 'mq.sys.dmq'"),
    ],
)
def test_a_user_without_rights_can_do_nothing(rig: StompRig, command: str, headers: Any, told: str) -> None:
    error = rig.user(user="mute", **{"client-id": "mute"}).refused(command, {**headers, "receipt": "r"}, b"")  # type: ignore[arg-type]
    assert f"user 'mute' {told}" in error.headers["message"]
    assert (error.headers["error-code"], error.headers["receipt-id"]) == ("security", "r")
    assert [row["name"] for row in rig.admin.list_destinations() if row["name"] == "fresh"] == []
    assert rig.admin.query_destination("queue", "there")["messages"] == 1
    assert rig.admin.list_subscriptions() == []


@pytest.mark.parametrize(
    ("command", "headers", "told"),
    [
        ("FETCH", {}, "FETCH is no command for a client"),
        ("CONNECT", {}, "CONNECT is no command for a client"),
        ("SEND", {}, "the frame has no header destination"),
        ("SEND", {"destination": "q"}, "destination:q is no destination: it begins with /queue/, /topic/"),
        ("SEND", {"destination": "/queue/mq.temp.q"}, "mq.temp.q"),
        ("SEND", {"destination": "/remote-temp-queue/q"}, "is no temporary destination"),
        ("SEND", {"destination": Q, "priority": 10}, "priority:10 is none: it is 0 to 9"),
        ("SEND", {"destination": Q, "expires": "soon"}, "expires:soon is no whole number"),
        ("SEND", {"destination": Q, "persistent": "maybe"}, "persistent:maybe is neither true nor false"),
        ("SEND", {"destination": Q, "transaction": "t"}, "there is no transaction 't'; BEGIN it first"),
        ("SEND", {"destination": Q, "AMQ_SCHEDULED_CRON": "* * * * *"}, "AMQ_SCHEDULED_CRON is not supported"),
        ("SUBSCRIBE", {"destination": Q}, "SUBSCRIBE has no header id"),
        ("SUBSCRIBE", {"destination": Q, "id": 1, "ack": "never"}, "ack:never is no mode"),
        ("SUBSCRIBE", {"destination": Q, "id": 1, "selector": "a ="}, "selector"),
        ("SUBSCRIBE", {"destination": Q, "id": 1, "browser": "true"}, "browser of SUBSCRIBE is not supported"),
        ("SUBSCRIBE", {"destination": Q, "id": 1, "activemq.exclusive": "true"}, "activemq.exclusive of SUBSCRIBE"),
        ("SUBSCRIBE", {"destination": Q, "id": 1, "prefetch-count": 0}, "a prefetch of 0 is none"),
        ("SUBSCRIBE", {"destination": Q, "id": 1, "durable-subscription-name": "s"}, "has no subscriptions"),
        ("SUBSCRIBE", {"destination": "/topic/t", "id": 1, "durable-subscription-name": "s"}, "needs a client id"),
        ("UNSUBSCRIBE", {"id": 9}, "there is no subscription '9'"),
        ("ACK", {"id": "1-1"}, "ACK has no header id of a message"),
        ("NACK", {"id": "x" * 1000}, "NACK has no header id of a message"),
        ("BEGIN", {}, "BEGIN has no header transaction"),
        ("COMMIT", {"transaction": "t"}, "there is no transaction 't'; BEGIN it first"),
        ("ABORT", {"transaction": "t"}, "there is no transaction 't'; BEGIN it first"),
    ],
)
def test_a_frame_that_cannot_be(rig: StompRig, command: str, headers: Any, told: str) -> None:
    error = rig.user().refused(command, {**headers, "receipt": "r"})
    assert told in error.headers["message"]
    assert error.headers["receipt-id"] == "r"
    assert f"The frame {command} could not be processed" in error.body.decode()
    until(lambda: rig.admin.list_connections("stomp") == [])


def test_a_second_subscription_and_transaction_of_one_name(rig: StompRig) -> None:
    for command, headers, told in (
        ("SUBSCRIBE", {"destination": Q, "id": 1}, "there is a subscription '1' already"),
        ("BEGIN", {"transaction": "t"}, "transaction 't' has begun already"),
    ):
        client = rig.user()
        client.done(command, headers)
        assert told in client.refused(command, headers).headers["message"]


def test_an_acknowledgement_of_what_is_acknowledged(rig: StompRig) -> None:
    client = rig.user()
    client.done("SUBSCRIBE", {"destination": "/queue/acks", "id": 1, "ack": "client"})
    client.send("SEND", {"destination": "/queue/acks"}, b"x")
    ack = client.expect("MESSAGE").headers["ack"]
    client.done("ACK", {"id": ack})
    assert "waits for an acknowledgement" in client.refused("ACK", {"id": ack}).headers["message"]


def test_a_version_that_there_is_not(rig: StompRig) -> None:
    error = rig.bare().refused("CONNECT", {"accept-version": "2.0,3.1", "login": "ann", "passcode": "secret"})
    assert error.headers["version"] == "1.0,1.1,1.2"
    assert "no version that is supported: 1.0, 1.1, 1.2" in error.headers["message"]
    assert "heart-beat:x is no pair" in rig.bare().refused("CONNECT", {"heart-beat": "x"}).headers["message"]
    assert "the first frame is CONNECT" in rig.bare().refused("SEND", {"destination": Q}).headers["message"]


def test_a_wrong_password_says_nothing_about_it(rig: StompRig, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    error = rig.bare().refused("CONNECT", {"login": "bob", "passcode": "hush-hush"})
    assert error.headers["message"].startswith("wrong user or password")
    assert error.headers["error-code"] == "security"
    assert "hush-hush" not in caplog.text + error.body.decode()


def test_a_message_that_is_too_large(rig: StompRig) -> None:
    client = rig.user()
    client.socket.sendall(f"SEND\ndestination:{Q}\ncontent-length:{BODY_MAX + 1}\n\n".encode())
    assert f"{BODY_MAX} are allowed" in client.expect("ERROR").headers["message"]
    assert client.receive() is None
    assert "exceeds maxBytesPerMsg" in rig.user().refused("SEND", {"destination": Q}, bytes(20_000)).headers["message"]


def test_before_the_login_little_is_taken_and_not_for_long(rig: StompRig) -> None:
    for data, told in (
        (b"CONNECT\n" + b"a" * (HEAD_BYTES_UNKNOWN + 1), f"more than {HEAD_BYTES_UNKNOWN} bytes"),
        (b"CONNECT\ncontent-length:1\n\n", "0 are allowed"),
        (b"CONN", "no login came in time"),
    ):
        client = rig.bare()
        client.socket.sendall(data)
        assert told in client.expect("ERROR").headers["message"]
        assert client.receive() is None


def test_one_address_cannot_hold_all_places_of_those_who_have_not_logged_in(rig: StompRig) -> None:
    idle = [rig.bare() for _ in range(ARRIVING_OF_ADDRESS_MAX)]
    until(lambda: _is_refused(rig))
    for one in idle:
        one.close()
    until(lambda: not _is_refused(rig))
    client = rig.user()
    client.done("SEND", {"destination": "/queue/after"}, b"x")
    client.close()


def _is_refused(rig: StompRig) -> bool:
    """Whether a new connection is closed instead of let in."""
    with socket.create_connection(("127.0.0.1", rig.port), timeout=WAIT_S) as made:
        try:
            made.sendall(_LOGIN)
            return made.recv(1) == b""
        except ConnectionError:
            return True


_LOGIN = encode(StompFrame("CONNECT", {"accept-version": "1.2", "login": "ann", "passcode": "secret"}), "1.2")
_commands = st.sampled_from(["SEND", "SUBSCRIBE", "UNSUBSCRIBE", "ACK", "NACK", "BEGIN", "COMMIT", "ABORT", "X"])
_names = st.sampled_from(
    [
        "destination",
        "id",
        "ack",
        "transaction",
        "receipt",
        "selector",
        "content-length",
        "message-id",
        "reply-to",
        "priority",
        "prefetch-count",
        "durable-subscription-name",
        "foo",
    ]
)
_values = st.sampled_from(
    [
        Q,
        "/topic/t",
        "/topic/a.>",
        "/temp-queue/t",
        "1",
        "1-1",
        "t",
        "client",
        "-1",
        "a = 1",
        "(",
        "",
        "99999999",
    ]
) | st.text(max_size=8)
_frames = st.builds(StompFrame, _commands, st.dictionaries(_names, _values, max_size=5), st.binary(max_size=30)).map(
    lambda frame: encode(frame, "1.2")
)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.booleans(), st.lists(_frames | st.binary(max_size=60), max_size=6))
def test_whatever_comes_the_listener_lives_and_its_memory_is_bounded(
    rig: StompRig, login: bool, pieces: list[bytes]
) -> None:
    before = resident_bytes()
    with socket.create_connection(("127.0.0.1", rig.port), timeout=20) as made:
        try:
            made.sendall((_LOGIN if login else b"") + b"".join(pieces))
            made.shutdown(socket.SHUT_WR)
            while made.recv(65_536):
                pass
        except ConnectionError:
            pass
    assert resident_bytes() - before < 64 << 20


def test_after_all_that_the_listener_serves_and_nothing_is_left(rig: StompRig) -> None:
    until(lambda: rig.admin.list_connections("stomp") == [])
    rig.user().done("SEND", {"destination": "/queue/after"}, b"x")
    assert rig.inside.session().receive("after", timeout=10).body == b"x"
