"""Clients inside the cluster are listed, found by what is known of them, and ended for good with a reason."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from raybroker.errors import (
    BrokerError,
    ConfigError,
    ConnectionEndedError,
    ConnectionLostError,
    InvalidDestinationError,
    SecurityError,
)
from tests.contracts.cluster_rig import ClusterRig
from tests.contracts.conftest import TWO_FACES
from tests.contracts.handles import LoopbackBroker, bodies, take, until

WHY = "an administrator has closed the connection: call 4711"


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[ClusterRig]:
    with ClusterRig(tmp_path, 2) as made:
        yield made


def rows(admin: Any, **wanted: Any) -> list[dict[str, Any]]:
    return list(admin.list_connections(**wanted))


def in_thread(work: Callable[[], object]) -> list[object]:
    """What ``work`` returned or raised, once it has."""
    found: list[object] = []

    def run() -> None:
        try:
            found.append(work())
        except BrokerError as error:
            found.append(error)

    threading.Thread(target=run, daemon=True).start()
    return found


def identity(connection: Any) -> str:
    core: Any = connection._core
    return str(getattr(core, "connection", core).identity)


# ---- one broker


def test_it_is_listed_from_its_first_handle_on_and_found_by_what_is_known_of_it(broker: LoopbackBroker) -> None:
    nameless, other = broker.connect(), broker.connect()
    admin, name = other.admin(), broker.name()
    nameless.session()
    assert rows(admin) == []
    billing = broker.connect(client_id="billing")
    (row,) = rows(admin)
    assert (row["service"], row["client_id"], row["producers"], row["destinations"]) == ("inside", "billing", 0, [])
    session = billing.session()
    _kept = session.producer(name), session.consumer(name)
    (row,) = rows(admin)
    assert (row["service"], row["client_id"], row["producers"], row["consumers"]) == ("inside", "billing", 1, 1)
    assert (row["user"], row["hosts"], row["destinations"]) == ("", ["loopback"], [f"queue {name}"])
    assert "Python" in row["platform"]
    assert row["pid"].isdigit()
    (consumer,) = admin.list_consumers(name)
    fits: list[dict[str, Any]] = [
        {"service": "inside"},
        {"client_id": "billing"},
        {"destination": name},
        {"consumer": consumer["id"]},
        {"destination": name, "type": "q", "client_id": "billing"},
    ]
    for wanted in fits:
        assert [one["id"] for one in rows(admin, **wanted)] == [row["id"]], wanted
    misses: list[dict[str, Any]] = [
        {"user": "ann"},
        {"client_id": "x"},
        {"destination": name, "type": "t"},
        {"address": "192.0.2.0/24"},
    ]
    for wanted in misses:
        assert rows(admin, **wanted) == [], wanted
    billing.close()
    until(lambda: rows(admin) == [])


def test_one_that_is_ended_is_told_why_and_does_not_come_back(broker: LoopbackBroker) -> None:
    ended, admin = broker.connect(), broker.connect().admin()
    name, told, failed = broker.name(), [], []
    ended.on_event(lambda event: told.append((event.kind, event.code, event.text)))
    ended.on_exception(failed.append)
    session = ended.session(ack="client")
    producer, consumer = session.producer(name), session.consumer(name)
    producer.send_many("abc")
    assert bodies(take(consumer, 3)) == ["a", "b", "c"]
    waiting = in_thread(lambda: consumer.receive(timeout=60))
    (row,) = rows(admin)
    admin.destroy_connection(row["id"], "call 4711")
    until(lambda: waiting)
    assert isinstance(waiting[0], ConnectionEndedError)
    assert str(waiting[0]) == WHY
    until(lambda: ("closing", "connection_ended", WHY) in told and failed)
    assert all(isinstance(error, ConnectionEndedError) and str(error) == WHY for error in failed)
    for work in (
        lambda: producer.send("x"),
        lambda: consumer.receive(timeout=1),
        ended.session,
        ended.start,
        lambda: session.producer(broker.name()),
        lambda: ended.admin().list_brokers(),
    ):
        with pytest.raises(SecurityError, match="call 4711"):
            work()
    until(lambda: rows(admin) == [])
    with pytest.raises(InvalidDestinationError, match="no connection"):
        admin.destroy_connection(row["id"])
    fresh = broker.connect().session()
    again = take(fresh.consumer(name), 3)
    assert [(message.body, message.redelivered) for message in again] == [("a", True), ("b", True), ("c", True)]
    ended.close()
    assert not [kind for kind, _, _ in told if kind == "reconnected"]


def test_an_open_transaction_is_rolled_back_and_says_why(broker: LoopbackBroker) -> None:
    ended, admin, name, other = broker.connect(), broker.connect().admin(), broker.name(), broker.name()
    before = broker.connect().session()
    before.producer(name).send("taken")
    session = ended.session(transacted=True)
    producer, consumer = session.producer(other), session.consumer(name)
    producer.send("never seen")
    assert take(consumer, 1)[0].body == "taken"
    assert admin.destroy_connections("call 4711", destination=other) == 1
    with pytest.raises(BrokerError, match="call 4711"):
        until(session.commit)
    assert take(before.consumer(name), 1)[0].body == "taken"
    assert admin.query_destination("queue", other)["messages"] == 0
    assert admin.list_transactions() == []


def test_a_send_that_waits_for_room_and_a_listener_end_too(broker: LoopbackBroker) -> None:
    ended, admin, full, heard = broker.connect(), broker.connect().admin(), broker.name(), broker.name()
    admin.create_destination("queue", full, maxNumMsgs=1, limitBehavior="FLOW_CONTROL")
    got: list[object] = []
    failed: list[BrokerError] = []
    ended.on_exception(failed.append)
    session = ended.session()
    ended.session().consumer(heard).listener = lambda message: got.append(message.body)
    producer = session.producer(full)
    producer.send("fills it")
    waiting = in_thread(lambda: producer.send("waits"))
    until(lambda: admin.list_connections(destination=full))
    assert not waiting
    assert admin.destroy_connections("call 4711", service="inside", destination=full) == 1
    until(lambda: waiting)
    assert isinstance(waiting[0], ConnectionEndedError)
    until(lambda: any("call 4711" in str(error) for error in failed))
    broker.connect().session().producer(heard).send("for others")
    assert bodies(take(broker.connect().session().consumer(heard), 1)) == ["for others"]
    assert got == []


def test_a_consumer_of_a_pattern_of_topics_is_ended_although_others_may_join(broker: LoopbackBroker) -> None:
    ended, admin, name = broker.connect(), broker.connect().admin(), broker.name()
    broker.connect().session().producer(f"topic:{name}.a").send("nobody hears it")
    failed: list[BrokerError] = []
    ended.on_exception(failed.append)
    consumer = ended.session().consumer(f"topic:{name}>")
    waiting = in_thread(lambda: consumer.receive(timeout=60))
    until(admin.list_connections)
    assert admin.destroy_connections("call 4711", destination=f"{name}.a") == 1
    until(lambda: waiting)
    assert isinstance(waiting[0], ConnectionEndedError)
    until(lambda: len(failed) == 1)


@TWO_FACES
def test_bad_reasons_and_those_who_fit_nothing_end_nobody(broker: LoopbackBroker) -> None:
    connection, admin = broker.connect(), broker.connect().admin()
    producer = connection.session().producer(broker.name())
    (row,) = rows(admin)
    for reason in ("two\nlines", "x" * 10_000_000, "", "\x1b[2J", "x" * 201):
        with pytest.raises(ConfigError, match="reason"):
            admin.destroy_connection(row["id"], reason)
        with pytest.raises(ConfigError, match="reason"):
            admin.destroy_connections(reason, service="inside")
    for nobody in ({"user": "eve"}, {"address": "192.0.2.0/24"}, {"destination": "not-there"}, {"consumer": "7"}):
        assert admin.destroy_connections("why", **nobody) == 0
    with pytest.raises(ConfigError, match="say whose"):
        admin.destroy_connections("why", type="q")
    for unknown in ("x" * 10_000_000, "", "0" * 24):
        with pytest.raises(InvalidDestinationError):
            admin.destroy_connection(unknown)
    producer.send("it goes on")
    assert [one["id"] for one in rows(admin)] == [row["id"]]


def test_everybody_is_ended_but_whoever_has_no_handle(broker: LoopbackBroker) -> None:
    clients = [broker.connect() for _ in range(5)]
    producers = [client.session().producer(broker.name()) for client in clients]
    admin = broker.connect().admin()
    assert admin.destroy_connections("all of you", service="inside") == 5
    for producer in producers:
        with pytest.raises(ConnectionEndedError, match="all of you"):
            until(lambda producer=producer: producer.send("x") and None)
    until(lambda: rows(admin) == [])
    assert admin.destroy_connections("all of you", service="inside") == 0


def test_who_ends_its_own_connection_is_told_as_others_are(broker: LoopbackBroker) -> None:
    own = broker.connect()
    producer = own.session().producer(broker.name())
    admin = own.admin()
    (row,) = rows(admin)
    with suppress(ConnectionEndedError):  # The answer may come, or the end before it.
        admin.destroy_connection(row["id"], "my own")
    with pytest.raises(ConnectionEndedError, match="my own"):
        until(lambda: producer.send("x") and None)
    assert broker.connect().admin().list_connections() == []


# ---- several brokers


def test_a_client_of_several_brokers_is_one_row_and_is_ended_at_all_of_them(rig: ClusterRig) -> None:
    name = rig.name()
    rig.connect("b1").admin().create_destination("queue", name)
    ended, admin = rig.connect("b1", client_id="billing"), rig.connect("b2").admin()
    consumer = ended.session().consumer(name)
    until(lambda: [row["hosts"] for row in rows(admin, client_id="billing")] == [["b1/h1", "b2/h1"]])
    (row,) = rows(admin, destination=name)
    assert (row["consumers"], row["broker"], row["id"]) == (1, "b1", identity(ended))
    waiting = in_thread(lambda: consumer.receive(timeout=60))
    admin.destroy_connection(row["id"], "call 4711")
    until(lambda: waiting)
    assert isinstance(waiting[0], ConnectionEndedError)
    until(lambda: rows(admin, client_id="billing") == [])
    for broker in rig.brokers.values():
        until(lambda broker=broker: not rig.io.run(broker.host.clients.client_rows()))


def test_one_that_a_broker_could_not_tell_leaves_it_all_the_same(rig: ClusterRig) -> None:
    """It is told by the other broker; and the one that is down is named."""
    name = rig.name()
    rig.connect("b1").admin().create_destination("queue", name)
    ended, admin = rig.connect("b1"), rig.connect("b1").admin()
    consumer = ended.session().consumer(name)
    until(lambda: [row["hosts"] for row in rows(admin)] == [["b1/h1", "b2/h1"]])
    rig.cut(["b1"], ["b2"])
    waiting = in_thread(lambda: consumer.receive(timeout=60))
    with pytest.raises(ConnectionLostError, match=r"was ended elsewhere; .*b2 "):
        admin.destroy_connection(identity(ended), "call 4711")
    until(lambda: waiting)
    assert isinstance(waiting[0], ConnectionEndedError)
    for broker in rig.brokers.values():
        until(lambda broker=broker: not rig.io.run(broker.host.clients.client_rows()))
    rig.heal()


def test_one_that_no_host_can_tell_learns_it_when_it_comes_back(rig: ClusterRig) -> None:
    """Its links are lost at the moment at which it is ended."""
    name = rig.name()
    ended, admin = rig.connect("b1"), rig.connect("b2").admin()
    producer = ended.session().producer(name)
    producer.send("x")
    rig.io.run(_ended_unseen(rig, identity(ended)))
    with pytest.raises(ConnectionEndedError, match="while it was away"):
        until(lambda: producer.send("y") and None)
    assert rows(admin) == []


async def _ended_unseen(rig: ClusterRig, client: str) -> None:
    for broker in rig.brokers.values():
        for connection in list(broker.host.service.connections):
            connection.link.abort()
        await broker.host.clients.end_clients([client], "while it was away")


# ---- what is written of it


def test_it_is_in_the_audit_log_and_the_brokers_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    broker = LoopbackBroker(
        tmp_path / "store",
        imq__audit__enabled=True,
        raybroker__audit__dir=str(tmp_path / "audit"),
        raybroker__store__segment_bytes="1m",
    )
    try:
        connection, admin = broker.connect(), broker.connect().admin()
        _kept = connection.session().producer(broker.name())
        (row,) = rows(admin)
        with caplog.at_level("INFO"):
            admin.destroy_connection(row["id"], "call 4711")
            until(lambda: any("B1066" in line and "call 4711" in line for line in caplog.messages))
        assert any("B1069" in line and row["id"] in line and "call 4711" in line for line in caplog.messages)
    finally:
        broker.close()
    lines = [json.loads(line) for line in (tmp_path / "audit" / "loopback.log").read_text().splitlines()]
    (closed,) = [line for line in lines if line["event"] == "closed"]
    assert (closed["service"], closed["connection"], closed["reason"]) == ("inside", row["id"], WHY)
    (asked,) = [line for line in lines if line["event"] == "admin"]
    assert "destroy_connection" in asked["what"]
