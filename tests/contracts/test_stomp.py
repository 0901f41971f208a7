"""STOMP as its public client speaks it, against a real broker: the scenarios of stomp.py's own tests, and ours."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import stomp

from raybroker.services.stomp.connection import GRACE, GRACE_S
from tests.contracts.stomp_rig import Bare, StompRig, until

CLIENT_BEAT_MS = 1000
ALL = pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
LATER = pytest.mark.parametrize("version", ["1.1", "1.2"])


@pytest.fixture(params=["shared", "broker"])
def rig(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[StompRig]:
    """With gateways on a loop of their own, and on that of the host."""
    with ExitStack() as opened:
        yield StompRig(tmp_path, opened, **{"raybroker.hosting.autocreated": request.param})


def sent(client: Any, destination: str, body: str | bytes, **headers: Any) -> None:
    """Send with a receipt, and wait for it."""
    receipt = f"sent-{time.monotonic_ns()}"
    waiting = stomp.WaitingListener(receipt)
    client.set_listener(receipt, waiting)
    client.send(destination, body, headers={**headers, "receipt": receipt})
    waiting.wait_on_receipt()
    client.remove_listener(receipt)


def acknowledge(client: Any, version: str, frame: Any, *, nack: bool = False, **more: Any) -> None:
    call = client.nack if nack else client.ack
    if version == "1.2":
        call(frame.headers["ack"], **more)
    elif version == "1.1":
        call(frame.headers["message-id"], frame.headers["subscription"], **more)
    else:
        call(frame.headers["message-id"], **more)


# ---- the scenarios of stomp.py ---------------------------------------------------------------------------------------


@ALL
def test_basic(rig: StompRig, version: str) -> None:
    client, seen = rig.client(version)
    client.subscribe("/queue/test", 1, ack="auto")
    sent(client, "/queue/test", "this is a test")
    until(lambda: seen.bodies == ["this is a test"])
    assert seen.messages[0].headers["destination"] == "/queue/test"
    assert seen.connected["version"] == version
    assert not seen.errors


@ALL
def test_commit(rig: StompRig, version: str) -> None:
    client, seen = rig.client(version)
    client.subscribe("/queue/test", 1, ack="auto")
    transaction = client.begin()
    client.send("/queue/test", "this is a test1", transaction=transaction)
    client.send("/queue/test", "this is a test2", transaction=transaction)
    sent(client, "/queue/other", "a fence")
    time.sleep(0.2)
    assert seen.bodies == []
    client.commit(transaction=transaction)
    until(lambda: seen.bodies == ["this is a test1", "this is a test2"])


@ALL
def test_abort(rig: StompRig, version: str) -> None:
    client, seen = rig.client(version)
    client.subscribe("/queue/test", 1, ack="auto")
    transaction = client.begin()
    client.send("/queue/test", "this is a test1", transaction=transaction)
    client.abort(transaction=transaction)
    sent(client, "/queue/test", "after")
    until(lambda: seen.bodies == ["after"])


@ALL
def test_unsubscribe(rig: StompRig, version: str) -> None:
    client, seen = rig.client(version)
    client.subscribe("/queue/test", 1, ack="auto")
    sent(client, "/queue/test", "one")
    until(lambda: seen.bodies == ["one"])
    if version == "1.0":
        client.unsubscribe("/queue/test", id=1)
    else:
        client.unsubscribe(1)
    sent(client, "/queue/test", "two")
    time.sleep(0.2)
    assert seen.bodies == ["one"]
    assert rig.inside.session().receive("test", timeout=10).body == b"two"


@ALL
def test_client_ack(rig: StompRig, version: str) -> None:
    client, seen = rig.client(version)
    client.subscribe("/queue/test", 7, ack="client")
    for number in range(3):
        sent(client, "/queue/test", f"m{number}")
    until(lambda: len(seen.messages) == 3)
    acknowledge(client, version, seen.messages[1])
    sent(client, "/queue/other", "a fence")
    client.disconnect()
    again, later = rig.client(version)
    again.subscribe("/queue/test", 7, ack="auto")
    until(lambda: later.bodies == ["m2"])
    assert later.messages[0].headers["redelivered"] == "true"


@LATER
def test_client_individual_ack_and_nack(rig: StompRig, version: str) -> None:
    client, seen = rig.client(version)
    client.subscribe("/queue/test", 7, ack="client-individual")
    for number in range(3):
        sent(client, "/queue/test", f"m{number}")
    until(lambda: len(seen.messages) == 3)
    acknowledge(client, version, seen.messages[1])
    acknowledge(client, version, seen.messages[0], nack=True)
    until(lambda: len(seen.messages) == 4)
    assert (seen.bodies[3], seen.messages[3].headers["redelivered"]) == ("m0", "true")
    acknowledge(client, version, seen.messages[2], nack=True, requeue="false")
    until(lambda: rig.admin.query_destination("queue", "mq.sys.dmq")["messages"] == 1)
    assert not seen.errors


@LATER
def test_special_headers(rig: StompRig, version: str) -> None:
    client, seen = rig.client(version)
    client.subscribe("/queue/test", 1)
    odd = {
        "special-1": "test with colon : test",
        "special-2": "test with backslash \\ test",
        "special-3": "test with newline \n test",
        "in": "reserved",
        "9": "digit",
        "ü.b": "ä",
    }
    sent(client, "/queue/test", "body", **odd)
    until(lambda: seen.messages)
    found = seen.messages[0].headers
    assert {name: found[name] for name in odd} == odd


@LATER
def test_heart_beats_keep_a_connection_and_a_silent_client_is_closed(rig: StompRig, version: str) -> None:
    client, seen = rig.client(version, heartbeats=(CLIENT_BEAT_MS, CLIENT_BEAT_MS // 2))
    open_since = time.monotonic()
    deaf = rig.bare(version).login(**{"heart-beat": "100,100"})  # type: ignore[arg-type]
    data = b""
    while chunk := deaf.socket.recv(100):
        data += chunk
    assert set(data) == {0x0A}
    # Longer than the broker waits for a client that it does not hear.
    time.sleep(max(0.0, open_since + CLIENT_BEAT_MS / 1000 * GRACE + GRACE_S + 0.5 - time.monotonic()))
    assert (seen.beats_lost, seen.disconnections) == (0, 0)
    sent(client, "/queue/test", "alive")


@ALL
def test_a_binary_body_and_a_text(rig: StompRig, version: str) -> None:
    data = bytes(range(256)) * 10
    client, _ = rig.client(version, auto_decode=False)
    sent(client, "/queue/test", data)
    sent(client, "/queue/test", "grüße €", **{"content-type": "text/plain;charset=utf-8"})
    session = rig.inside.session()
    binary, text = session.receive("test", timeout=10), session.receive("test", timeout=10)
    assert (binary.body, binary.body_type, text.body, text.body_type) == (data, "bytes", "grüße €", "text")


@pytest.mark.parametrize("user", ["nobody", "stranger"])
def test_who_is_not_let_in(rig: StompRig, user: str) -> None:
    with pytest.raises(stomp.exception.ConnectFailedException):
        rig.client(user=user)
    assert rig.admin.list_connections("stomp") == []


# ---- ours ------------------------------------------------------------------------------------------------------------


def test_headers_and_properties_go_both_ways(rig: StompRig) -> None:
    client, seen = rig.client()
    expires = round(time.time() * 1000) + 3_600_000
    sent(
        client,
        "/queue/in",
        "x",
        price="3",
        priority=7,
        persistent="false",
        type="kind",
        JMSXGroupID="g",
        **{"correlation-id": "c-1", "reply-to": "/topic/answers", "expires": str(expires)},
    )
    session = rig.inside.session()
    got = session.receive("in", timeout=10)
    assert (got.properties, got.priority, got.persistent, got.type) == ({"price": "3"}, 7, False, "kind")
    assert (got.correlation_id, got.reply_to, got.unit_of_order) == ("c-1", "topic:answers", "g")
    assert abs(got.expiration - expires) < 60_000
    client.subscribe("/queue/out", 1)
    session.producer("out").send({"a": [1]}, {"n": 1, "ok": True}, correlation_id="k", reply_to="in", priority=2)
    until(lambda: seen.messages)
    frame = seen.messages[0]
    assert frame.body == '{"a":[1]}'
    wanted = {
        "n": "1",
        "ok": "true",
        "correlation-id": "k",
        "reply-to": "/queue/in",
        "priority": "2",
        "content-type": "application/json",
    }
    assert {name: frame.headers[name] for name in wanted} == wanted


def test_a_receipt_means_that_the_message_is_stored(tmp_path: Path) -> None:
    with ExitStack() as opened:
        rig = StompRig(tmp_path, opened)
        client = rig.user()
        for number in range(200):
            client.send("SEND", {"destination": "/queue/q", "receipt": number}, b"x")
        assert [client.expect("RECEIPT").headers["receipt-id"] for _ in range(200)] == list(map(str, range(200)))
        assert rig.admin.query_destination("queue", "q")["messages"] == 200


def test_acknowledgements_and_sends_of_a_transaction_happen_together(rig: StompRig) -> None:
    session = rig.inside.session()
    session.producer("in").send("work")
    client = rig.user()
    client.done("SUBSCRIBE", {"destination": "/queue/in", "id": 1, "ack": "client"})
    ack = client.expect("MESSAGE").headers["ack"]
    client.send("BEGIN", {"transaction": "t"})
    client.done("ACK", {"id": ack, "transaction": "t"})
    client.done("SEND", {"destination": "/queue/out", "transaction": "t"}, b"result")
    client.done("ABORT", {"transaction": "t"})
    assert rig.admin.query_destination("queue", "out")["messages"] == 0
    client.send("BEGIN", {"transaction": "t"})
    client.send("ACK", {"id": ack, "transaction": "t"})
    client.send("SEND", {"destination": "/queue/out", "transaction": "t"}, b"result")
    client.done("COMMIT", {"transaction": "t"})
    assert session.receive("out", timeout=10).body == b"result"
    client.close()
    until(lambda: rig.admin.list_connections("stomp") == [])
    assert rig.admin.query_destination("queue", "in")["messages"] == 0


def test_a_transaction_that_is_not_committed_is_aborted_with_its_connection(rig: StompRig) -> None:
    client = rig.user()
    client.send("BEGIN", {"transaction": "t"})
    client.done("SEND", {"destination": "/queue/q", "transaction": "t"}, b"x")
    client.close()
    until(lambda: rig.admin.list_connections("stomp") == [])
    assert rig.admin.query_destination("queue", "q")["messages"] == 0


def test_a_request_is_answered_over_a_temporary_queue(rig: StompRig) -> None:
    asker, answerer = rig.user(), rig.user(user="bob")
    answerer.done("SUBSCRIBE", {"destination": "/queue/ask", "id": 1})
    asker.done("SUBSCRIBE", {"destination": "/temp-queue/answers", "id": 1})
    asker.send("SEND", {"destination": "/queue/ask", "reply-to": "/temp-queue/answers"}, b"21")
    question = answerer.expect("MESSAGE")
    assert question.headers["reply-to"].startswith("/remote-temp-queue/")
    answerer.send("SEND", {"destination": question.headers["reply-to"]}, b"42")
    answer = asker.expect("MESSAGE")
    assert (answer.body, answer.headers["destination"]) == (b"42", "/temp-queue/answers")

    def reply() -> None:
        message = rig.inside.session().receive("native", timeout=20)
        message.reply(message.body + b"!")

    replier = threading.Thread(target=reply)
    replier.start()
    asker.send("SEND", {"destination": "/queue/native", "reply-to": "/temp-queue/answers"}, b"hi")
    assert asker.expect("MESSAGE").body == b"hi!"
    replier.join()
    asker.close()
    until(lambda: not [row for row in rig.admin.list_destinations() if row["name"].startswith("mq.temp.")])


def test_durable_subscriptions(rig: StompRig) -> None:
    named = {"destination": "/topic/news", "id": 1, "activemq.subscriptionName": "all"}
    client = rig.user(**{"client-id": "me"})  # type: ignore[arg-type]
    client.done("SUBSCRIBE", named)
    client.done("DISCONNECT")
    rig.user(user="bob").done("SEND", {"destination": "/topic/news"}, b"kept")
    until(lambda: len(rig.admin.list_connections("stomp")) == 1)
    client = rig.user(**{"client-id": "me"})  # type: ignore[arg-type]
    client.done("SUBSCRIBE", named)
    assert client.expect("MESSAGE").body == b"kept"
    client.done("UNSUBSCRIBE", {"id": 1, "durable-subscription-name": "all"})
    assert rig.admin.list_subscriptions("news") == []


def test_shared_subscriptions(rig: StompRig) -> None:
    clients = [rig.user(), rig.user()]
    for client in clients:
        client.done(
            "SUBSCRIBE",
            {
                "destination": "/topic/jobs",
                "id": 1,
                "shared-subscription-name": "workers",
                "prefetch-count": 1,
                "ack": "client-individual",
            },
        )
    session = rig.inside.session()
    session.producer(session.topic("jobs")).send("one")
    session.producer(session.topic("jobs")).send("two")
    assert {client.expect("MESSAGE").body for client in clients} == {b"one", b"two"}


def test_selectors_no_local_and_patterns_of_topics(rig: StompRig) -> None:
    client = rig.user()
    client.done("SUBSCRIBE", {"destination": "/topic/weather.*", "id": "all"})
    client.done("SUBSCRIBE", {"destination": "/topic/weather.rome", "id": "hot", "selector": "kind = 'hot'"})
    client.done("SUBSCRIBE", {"destination": "/topic/weather.rome", "id": "others", "no-local": "true"})
    client.send("SEND", {"destination": "/topic/weather.rome", "kind": "hot"}, b"sun")
    client.send("SEND", {"destination": "/topic/weather.rome", "kind": "cold"}, b"rain")
    found = {(frame.headers["subscription"], frame.body) for frame in (client.expect("MESSAGE") for _ in range(3))}
    assert found == {("all", b"sun"), ("all", b"rain"), ("hot", b"sun")}
    rig.user(user="bob").send("SEND", {"destination": "/topic/weather.rome"}, b"wind")
    found = {(frame.headers["subscription"], frame.body) for frame in (client.expect("MESSAGE") for _ in range(2))}
    assert found == {("all", b"wind"), ("others", b"wind")}


def test_a_prefetch_bounds_what_is_unacknowledged(rig: StompRig) -> None:
    rig.inside.session().producer("q").send_many(f"m{number}" for number in range(10))
    client = rig.user()
    client.done(
        "SUBSCRIBE", {"destination": "/queue/q", "id": 1, "ack": "client-individual", "activemq.prefetchSize": 2}
    )
    first, second = client.expect("MESSAGE"), client.expect("MESSAGE")
    client.socket.settimeout(0.3)
    with pytest.raises(TimeoutError):
        client.receive()
    client.socket.settimeout(20)
    for frame in (first, second):
        client.send("ACK", {"id": frame.headers["ack"]})
    assert client.expect("MESSAGE").body == b"m2"


def test_one_who_does_not_read_stops_his_own_deliveries_alone(rig: StompRig) -> None:
    count = 1000
    rig.inside.session().producer("big").send_many(bytes(10_000) for _ in range(count))
    slow = rig.user()
    slow.send("SUBSCRIBE", {"destination": "/queue/big", "id": 1, "prefetch-count": 10})
    left = [count]

    def stands_still() -> bool:
        left.append(rig.admin.query_destination("queue", "big")["messages"])
        time.sleep(0.2)
        return left[-1] == left[-2] < count

    until(stands_still)
    assert left[-1] > 100
    fast = rig.user(user="bob")
    fast.done("SUBSCRIBE", {"destination": "/queue/big", "id": 1})
    for _ in range(left[-1] - 10):
        fast.expect("MESSAGE")


def test_administration_sees_closes_and_pauses(rig: StompRig) -> None:
    client = rig.user(**{"client-id": "me"})  # type: ignore[arg-type]
    client.done("SUBSCRIBE", {"destination": "/queue/q", "id": 1})
    (row,) = rig.admin.list_connections("stomp")
    assert (row["user"], row["consumers"], row["client_id"], row["platform"]) == ("ann", 1, "me", "STOMP 1.2")
    rig.admin.destroy_connection(row["id"])
    error = client.expect("ERROR")
    assert "an administrator has closed the connection" in error.headers["message"]
    assert client.receive() is None
    rig.admin.quiesce_service("stomp")
    refused = rig.bare().refused("CONNECT", {"login": "ann", "passcode": "secret", "accept-version": "1.2"})
    assert "service stomp of broker loopback is QUIESCED" in refused.headers["message"]
    rig.admin.resume_service("stomp")
    client = rig.user()
    rig.admin.pause_service("stomp")
    client.send("SEND", {"destination": "/queue/q", "receipt": 1}, b"x")
    client.socket.settimeout(0.3)
    with pytest.raises(TimeoutError):
        client.receive()
    client.socket.settimeout(20)
    rig.admin.resume_service("stomp")
    client.expect("RECEIPT")


def test_clients_are_told_when_the_broker_shuts_down(tmp_path: Path) -> None:
    with ExitStack() as opened:
        rig = StompRig(tmp_path, opened)
        client = rig.user()
        rig.inside.close()
        frame = client.receive()
        assert frame is None or (frame.command == "ERROR" and "shuts down" in frame.headers["message"])
        assert frame is None or client.receive() is None


def test_a_late_ack_on_the_next_connection_settles_nothing(rig: StompRig) -> None:
    """It names a message of the connection before, and not the one that has come in its place."""
    sender = rig.user()
    for body in (b"first", b"second"):
        sender.done("SEND", {"destination": "/queue/q"}, body)

    def subscribed() -> tuple[Bare, Any]:
        client = rig.user()
        client.send("SUBSCRIBE", {"destination": "/queue/q", "id": 1, "ack": "client-individual"})
        return client, client.expect("MESSAGE")

    before, old = subscribed()
    before.expect("MESSAGE")
    before.close()
    sender.done("SEND", {"destination": "/queue/q", "priority": 9}, b"in its place")
    until(lambda: rig.admin.query_destination("queue", "q")["active_consumers"] == 0)
    after, new = subscribed()
    assert (old.body, new.body) == (b"first", b"in its place")
    after.send("ACK", {"id": old.headers["ack"], "receipt": "r"})
    *_, last = iter(after.receive, None)
    assert (last.command, last.headers["receipt-id"]) == ("ERROR", "r")
    assert "no header id of a message that came on this connection" in last.headers["message"]
    until(lambda: rig.admin.query_destination("queue", "q")["active_consumers"] == 0)
    assert rig.admin.query_destination("queue", "q")["messages"] == 3
