"""Producers in a cluster: the home broker, and where units of order live (K-05, W-118 … W-120, U12 … U14)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from raybroker.errors import (
    ConnectionLostError,
    InvalidDestinationError,
    MessageFormatError,
    OrderError,
    TransactionRolledBackError,
)
from raybroker.model.hashing import rendezvous
from tests.contracts.cluster_rig import ClusterRig
from tests.contracts.handles import bodies, take, until

pytestmark = pytest.mark.xdist_group("cluster_producers")  # One worker makes what they share.

NAMES = ("b1", "b2", "b3")
UNITS = [f"unit-{n}" for n in range(12)]


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterRig]:
    """Three brokers, for tests that leave them alone."""
    with ClusterRig(tmp_path_factory.mktemp("rig"), 3, raybroker__store__segment_bytes="1m") as found:
        yield found


@pytest.fixture
def own(tmp_path: Path) -> Iterator[ClusterRig]:
    """Three brokers of the test's own."""
    with ClusterRig(tmp_path, 3, raybroker__store__segment_bytes="1m") as found:
        yield found


def counts(rig: ClusterRig, name: str) -> dict[str, int]:
    """Messages on each broker."""
    found = rig.connect("b1").admin().query_destination("queue", name)
    return {row["broker"]: row["messages"] for row in found["members"]}


def place(message: Any) -> str:
    """The broker that a message came from."""
    found: str = message._delivery.consumer.broker
    return found


# ---- the home broker -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("home", NAMES)
def test_messages_stay_with_the_home_broker_of_their_producer(rig: ClusterRig, home: str) -> None:  # K-05
    name = rig.name()
    rig.connect(home).session().producer(name).send_many(range(7))
    assert {broker: count for broker, count in counts(rig, name).items() if count} == {home: 7}


def test_when_the_home_broker_is_lost_the_producer_goes_on_at_another(own: ClusterRig) -> None:  # K-19
    name = own.name()
    consumer = own.connect("b1").session().consumer(name)
    producer = own.connect("b2").session().producer(name)
    producer.send("before")
    assert bodies(take(consumer, 1)) == ["before"]
    own.kill("b2")
    futures = [producer.send_async(n) for n in range(20)]
    assert bodies(take(consumer, 20)) == list(range(20))
    assert all(future.result(10) for future in futures)
    producer.close()


def test_a_copy_that_the_lost_broker_had_stored_is_flagged(own: ClusterRig) -> None:  # K-19, R-11
    name = own.name()
    own.connect("b1").admin().create_destination("queue", name)
    consumer = own.connect("b1").session().consumer(name, prefetch=0)
    producer = own.connect("b2").session().producer(name)

    async def lose_answers() -> None:
        for connection in own.brokers["b2"].host.service.connections:
            connection.link.write = lambda *_: None

    own.io.run(lose_answers())
    futures = [producer.send_async(n) for n in range(20)]
    there = own.brokers["b2"].local
    until(lambda: own.io.run(there.admin("query_destination", {"type": "queue", "name": name}))["messages_in"] == 20)
    own.kill("b2")
    first = take(consumer, 20)
    assert all(future.result(10) for future in futures)
    own.start("b2")
    second = take(consumer, 20)
    assert sorted(bodies(first)) == sorted(bodies(second)) == list(range(20))
    assert {message.id for message in first} == {message.id for message in second}
    assert all(message.redelivered for message in (*first, *second))


def test_a_request_is_answered_by_somebody_with_another_home(rig: ClusterRig) -> None:  # D-23
    name = rig.name()
    server = rig.connect("b3").session()
    answers = server.producer(name)
    del answers

    def serve(message: Any) -> None:
        back = rig_server.session()
        back.producer(message.reply_to).send(message.body * 2, correlation_id=message.correlation_id)
        back.close()

    rig_server = rig.connect("b3")
    server.consumer(name).on_message(serve)
    asking = rig.connect("b1").session()
    assert [asking.request(name, n, timeout=20).body for n in range(5)] == [0, 2, 4, 6, 8]


# ---- units of order ------------------------------------------------------------------------------------------------


def test_all_messages_of_a_unit_are_on_the_broker_that_its_hash_says(rig: ClusterRig) -> None:  # W-119, U12
    name = rig.name()
    for home in NAMES:
        session = rig.connect(home).session()
        by_producer = {unit: session.producer(name, unit_of_order=unit) for unit in UNITS[:4]}
        plain = session.producer(name)
        for n in range(3):
            for unit, producer in by_producer.items():
                producer.send(f"{home}-{n}", properties={"unit": unit})
            for unit in UNITS[4:8]:
                plain.send(f"{home}-{n}", properties={"unit": unit}, unit_of_order=unit)
        units = [unit for unit in UNITS[8:] for _ in range(3)]
        many = [f"{home}-{n}" for _ in UNITS[8:] for n in range(3)]
        plain.send_many(many, unit_of_order=units, properties=({"unit": unit} for unit in units))
    found = take(rig.connect("b1").session().consumer(name), 9 * len(UNITS))
    assert {place(message) for message in found} == set(NAMES)
    for message in found:
        assert message.unit_of_order == message.properties["unit"]
        assert place(message) == rendezvous(message.unit_of_order, NAMES)
    for unit in UNITS:
        mine = [message.body for message in found if message.unit_of_order == unit]
        assert len(mine) == 9
        for home in NAMES:
            assert [body for body in mine if body.startswith(home)] == [f"{home}-{n}" for n in range(3)]


def test_send_many_with_units_mixes_those_that_have_one_with_those_that_have_none(rig: ClusterRig) -> None:
    name = rig.name()
    producer = rig.connect("b2").session().producer(name)
    units = [None if n % 3 == 0 else f"u{n % 7}" for n in range(3000)]
    priorities = [n % 10 for n in range(3000)]
    assert producer.send_many(range(3000), unit_of_order=units, priority=priorities) == 3000
    found = take(rig.connect("b1").session().consumer(name), 3000)
    assert sorted(bodies(found)) == list(range(3000))
    for message in found:
        assert message.unit_of_order == units[message.body]
        assert message.priority == message.body % 10
        assert place(message) == ("b2" if units[message.body] is None else rendezvous(units[message.body], NAMES))


def test_the_path_service_gives_a_unit_one_place_for_all_producers(rig: ClusterRig) -> None:  # W-120
    name = rig.name()
    rig.connect("b1").admin().create_destination("queue", name, unitOfOrderRouting="PathService")
    connections = [rig.connect(home) for home in NAMES]
    producers = [connection.session().producer(name) for connection in connections]
    for n in range(4):
        for producer in producers:
            for unit in UNITS:
                producer.send(n, unit_of_order=unit)
    found = take(rig.connect("b1").session().consumer(name), 12 * len(UNITS))
    places = {unit: {place(message) for message in found if message.unit_of_order == unit} for unit in UNITS}
    assert all(len(one) == 1 for one in places.values())


@pytest.mark.parametrize("call", ["send", "send_async", "send_many"])
def test_a_unit_whose_broker_cannot_be_reached_is_an_order_error_and_no_copy_is_anywhere(
    own: ClusterRig, call: str
) -> None:  # U13
    name = own.name()
    connection = own.connect("b1", raybroker__reconnect__timeout_ms=600)
    connection.admin().create_destination("queue", name)
    lost = next(unit for unit in UNITS if rendezvous(unit, NAMES) == "b3")
    fine = next(unit for unit in UNITS if rendezvous(unit, NAMES) == "b2")
    producer = connection.session().producer(name)
    calls = {
        "send": lambda: producer.send("lost", unit_of_order=lost),
        "send_async": lambda: producer.send_async("lost", unit_of_order=lost).result(20),
        "send_many": lambda: producer.send_many(["lost"], unit_of_order=[lost]),
    }
    own.kill("b3")
    with pytest.raises(OrderError, match="b3"):
        calls[call]()
    producer.send("fine", unit_of_order=fine)
    assert sum(counts(own, name).values()) == 1
    own.start("b3")
    until(lambda: "b3" in own.brokers["b1"].cluster.live())
    producer.send("again", unit_of_order=lost)
    assert sorted(bodies(take(connection.session().consumer(name), 2))) == ["again", "fine"]


@pytest.mark.parametrize("open_before", [True, False])
def test_a_unit_does_not_wait_for_a_broker_that_stays_down(
    own: ClusterRig, monkeypatch: pytest.MonkeyPatch, open_before: bool
) -> None:  # U13
    monkeypatch.setattr("raybroker.client.connection.attachments.GONE_S", 0.2)
    name, connection = own.name(), own.connect("b1")
    unit = next(unit for unit in UNITS if rendezvous(unit, NAMES) == "b3")
    producer = connection.session().producer(name, unit_of_order=unit)
    if open_before:
        producer.send("before")
    own.kill("b3")
    began_s = time.monotonic()
    with pytest.raises(OrderError, match=r"b3.*is down"):
        producer.send("lost")
    assert time.monotonic() - began_s < connection._core.attributes["raybroker.reconnect.timeout_ms"] / 2000


@pytest.mark.parametrize("open_before", [True, False])
def test_an_answer_to_somebody_whose_broker_is_lost_fails_soon(own: ClusterRig, open_before: bool) -> None:  # D-23
    asking, replying = own.connect("b2"), own.connect("b1")
    back = asking.session().temporary_queue()
    session = replying.session()
    if open_before:
        kept = session.producer(back.name)
        kept.send("before")
    own.kill("b2")
    began_s = time.monotonic()
    with pytest.raises(ConnectionLostError, match=r"temporary.*b2 is down"):
        (kept if open_before else session.producer(back.name)).send("answer")
    assert time.monotonic() - began_s < replying._core.attributes["raybroker.reconnect.timeout_ms"] / 2000


@pytest.mark.parametrize("open_before", [True, False])
def test_an_answer_to_somebody_who_is_gone_from_a_broker_that_lives_fails_at_once(
    own: ClusterRig, open_before: bool
) -> None:  # D-23
    asking, replying = own.connect("b2"), own.connect("b1")
    back = asking.session().temporary_queue()
    session = replying.session()
    kept = session.producer()
    if open_before:
        kept.send("before", destination=back.name)
    asking.close()
    began_s = time.monotonic()
    with pytest.raises(InvalidDestinationError, match=back.name):
        kept.send("answer", destination=back.name)
    assert time.monotonic() - began_s < replying._core.attributes["raybroker.reconnect.timeout_ms"] / 2000


def test_a_broker_that_is_lost_after_the_first_message_is_waited_for_and_then_an_order_error(own: ClusterRig) -> None:
    name = own.name()
    connection = own.connect("b1", raybroker__reconnect__timeout_ms=600)
    unit = next(unit for unit in UNITS if rendezvous(unit, NAMES) == "b3")
    producer = connection.session().producer(name, unit_of_order=unit)
    producer.send(1)
    own.kill("b3")
    with pytest.raises(OrderError, match="b3"):
        producer.send(2)
    own.start("b3")
    producer.send(3)
    assert bodies(take(connection.session().consumer(name), 2)) == [1, 3]


def test_a_default_unit_of_the_destination_keeps_all_its_messages_on_one_broker(rig: ClusterRig) -> None:  # W-79
    name = rig.name()
    rig.connect("b1").admin().create_destination("queue", name, unitOfOrder=True)
    for home in NAMES:
        rig.connect(home).session().producer(name).send_many(range(5))
    found = take(rig.connect("b2").session().consumer(name), 15)
    assert len({place(message) for message in found}) == 1
    assert len({message.unit_of_order for message in found}) == 1
    assert found[0].unit_of_order


def test_where_a_unit_comes_from(rig: ClusterRig) -> None:  # W-77, W-78
    name = rig.name()
    named = rig.connect("b1", DefaultUnitOfOrder="of-the-factory")
    made = rig.connect("b1", DefaultUnitOfOrder="System-generated")
    sessions = [made.session(), made.session()]
    named.session().producer(name).send("factory")
    named.session().producer(name, unit_of_order="p").send("producer")
    named.session().producer(name, unit_of_order="p").send("message", unit_of_order="m")
    for index, session in enumerate(sessions):
        session.producer(name).send(f"session-{index}")
        session.producer(name).send(f"session-{index}")
    units: dict[str, set[str]] = {}
    for message in take(rig.connect("b1").session().consumer(name), 7):
        units.setdefault(message.body, set()).add(message.unit_of_order)
    assert (units["factory"], units["producer"], units["message"]) == ({"of-the-factory"}, {"p"}, {"m"})
    assert len(units["session-0"]) == len(units["session-1"]) == 1
    assert units["session-0"] != units["session-1"]
    with pytest.raises(MessageFormatError, match="unit_of_order"):
        named.session().producer(name, unit_of_order="")
    with pytest.raises(MessageFormatError, match="unit_of_order"):
        named.session().producer(name).send("x", unit_of_order=7)


# ---- transactions over brokers -------------------------------------------------------------------------------------


def test_a_transaction_acknowledges_on_some_brokers_and_sends_to_others(rig: ClusterRig) -> None:  # T-02
    source, target = rig.name(), rig.name()
    for home in NAMES:
        rig.connect(home).session().producer(source).send_many([f"{home}-{n}" for n in range(4)])
    session = rig.connect("b1").session(transacted=True)
    consumer, producer = session.consumer(source, prefetch=4, threshold=50), session.producer(target)
    for message in take(consumer, 6):
        producer.send(message.body)
    session.rollback()
    assert sum(counts(rig, target).values()) == 0
    moved = []
    for message in take(consumer, 12):
        producer.send(message.body, unit_of_order=UNITS[len(moved) % 12])
        moved.append(message.body)
    session.commit()
    assert len(set(moved)) == 12
    assert sum(counts(rig, source).values()) == 0
    found = take(rig.connect("b2").session().consumer(target), 12)
    assert sorted(bodies(found)) == sorted(moved)
    assert {place(message) for message in found} == set(NAMES)


def test_a_transaction_that_has_lost_one_of_its_brokers_is_rolled_back_everywhere(own: ClusterRig) -> None:  # T-10
    source, target = own.name(), own.name()
    for home in ("b2", "b3"):
        own.connect(home).session().producer(source).send_many([f"{home}-{n}" for n in range(3)])
    session = own.connect("b1").session(transacted=True)
    consumer, producer = session.consumer(source), session.producer(target)
    for message in take(consumer, 6):
        producer.send(message.body)
    own.kill("b3")
    with pytest.raises(TransactionRolledBackError):
        session.commit()
    assert sorted(bodies(take(consumer, 3))) == [f"b2-{n}" for n in range(3)]
    session.commit()
    assert sum(counts(own, target).values()) == 0
