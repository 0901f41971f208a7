"""Messages that are sent again and again (B17), and queues that wait for consumers (B20), as users see them."""

from __future__ import annotations

import time
from typing import Any

import pytest

from raybroker.client.connection.channel import Channel
from raybroker.errors import (
    ConfigError,
    ConnectionLostError,
    IllegalStateError,
    InvalidDestinationError,
    MessageFormatError,
    MessageTooLargeError,
    ResourceAllocationError,
)
from tests.contracts.conftest import ONE_FACE, TWO_FACES, OneStore
from tests.contracts.handle_basics import held
from tests.contracts.handles import LoopbackBroker, bodies, create, cut, names_of, nothing, state_of, take, until

SEQUENCE = "JMS_RB_SCHEDULE_SEQUENCE"
NEVER_NOW = "0 0 29 2 *"
"""It comes on the 29th of February only."""


def only(connection: Any) -> dict[str, Any]:
    (row,) = connection.admin().list_schedules()
    return dict(row)


# ---- sending again and again (B17) ---------------------------------------------------------------------------------


@ONE_FACE
def test_a_schedule_sends_each_time_a_message_of_its_own(broker: LoopbackBroker) -> None:
    """B17"""
    connection, name = broker.connect(), broker.name()
    session = connection.session()
    consumer = session.consumer(name)
    sent_ms = time.time() * 1000
    id_ = session.producer(name).send(
        {"do": "it"},
        {"mine": 5},
        correlation_id="c",
        type="job",
        priority=8,
        ttl_ms=60_000,
        schedule="@every 1s",
        repeat=2,
    )
    first, second = take(consumer, 2)
    assert first.body == second.body == {"do": "it"}
    assert first.id != second.id
    for number, message in enumerate((first, second), start=1):
        at_ms = message.properties.pop("JMS_RB_SCHEDULE_TIME")
        assert message.properties == {"mine": 5, "JMS_RB_SCHEDULE_ID": id_, SEQUENCE: number}
        assert sent_ms + 1000 * number - 50 <= at_ms <= message.timestamp <= at_ms + 900
        assert message.expiration == message.timestamp + 60_000
        assert (message.correlation_id, message.type, message.priority) == ("c", "job", 8)
    assert connection.admin().list_schedules() == []


@ONE_FACE
def test_a_topic_gives_each_one_to_its_subscribers(broker: LoopbackBroker) -> None:
    """B17"""
    connection, session = broker.connect(), broker.connect().session()
    topic = session.topic(broker.name())
    subscribers = [connection.session().consumer(topic) for _ in range(2)]
    session.producer(topic).send("news", schedule="@every 1s", repeat=1)
    assert [bodies(take(one, 1)) for one in subscribers] == [["news"], ["news"]]


def test_a_schedule_is_listed_asked_for_and_destroyed(broker: LoopbackBroker) -> None:
    """B17"""
    connection, name = broker.connect(), broker.name()
    producer = connection.session().producer(name)
    id_ = producer.send("x", schedule=NEVER_NOW, timezone="Europe/Berlin", repeat=3, catch_up=True)
    admin = connection.admin()
    row = only(connection)
    assert row == admin.query_schedule(id_)
    expected = {
        "id": id_,
        "type": "queue",
        "destination": name,
        "schedule": NEVER_NOW,
        "timezone": "Europe/Berlin",
        "repeat": 3,
        "catch_up": True,
        "fired": 0,
        "state": "ACTIVE",
    }
    assert {key: row[key] for key in expected} == expected
    assert row["next_ms"] > time.time() * 1000
    assert admin.list_schedules(name, "queue") == [row]
    assert admin.list_schedules(name, "topic") == admin.list_schedules("other") == []
    assert state_of(connection, name)["schedules"] == 1
    admin.destroy_schedule(id_)
    assert admin.list_schedules() == []
    for verb in (admin.query_schedule, admin.destroy_schedule):
        with pytest.raises(InvalidDestinationError, match="no schedule"):
            verb(id_)


def test_those_that_come_next_are_listed_first(broker: LoopbackBroker) -> None:
    connection = broker.connect()
    session = connection.session()
    ids = [session.producer(broker.name()).send("x", schedule=f"@every {n}h") for n in (3, 1, 2)]
    assert [row["id"] for row in connection.admin().list_schedules()] == [ids[1], ids[2], ids[0]]


def test_schedules_go_with_their_destination(broker: LoopbackBroker) -> None:
    connection, name = broker.connect(), broker.name()
    connection.session().producer(name).send("x", schedule="@every 1h")
    connection.admin().destroy_destination("queue", name)
    assert connection.admin().list_schedules() == []


@pytest.mark.parametrize(
    ("options", "error", "word"),
    [
        ({"schedule": "now and then"}, ConfigError, "fields"),
        ({"schedule": ""}, ConfigError, "schedule"),
        ({"schedule": 5}, ConfigError, "schedule"),
        ({"schedule": "@every 10ms"}, ConfigError, "interval"),
        ({"schedule": "@every 0s"}, ConfigError, "1000"),
        ({"timezone": "Nowhere/Land"}, ConfigError, "timezone"),
        ({"repeat": 0}, ConfigError, "repeat"),
        ({"repeat": True}, ConfigError, "repeat"),
        ({"dedup_id": "a"}, MessageFormatError, "dedup_id"),
        ({"priority": 11}, MessageFormatError, "priority"),
        ({"body": "x" * 600_000}, MessageTooLargeError, "schedule"),
        ({"body": object()}, MessageFormatError, "body"),
    ],
)
@TWO_FACES
def test_what_cannot_be_is_refused(broker: LoopbackBroker, options: dict[str, Any], error: Any, word: str) -> None:
    connection = broker.connect()
    producer = connection.session().producer(broker.name())
    with pytest.raises(error, match=word):
        producer.send(**{"body": "x", "schedule": "@daily", **options})
    assert connection.admin().list_schedules() == []
    producer.send("an ordinary one")


def test_a_schedule_is_no_part_of_a_transaction(broker: LoopbackBroker) -> None:
    session = broker.connect().session(transacted=True)
    with pytest.raises(IllegalStateError, match="transaction"):
        session.producer(broker.name()).send("x", schedule="@daily")


def test_a_schedule_belongs_to_one_destination(broker: LoopbackBroker) -> None:
    connection = broker.connect()
    session = connection.session()
    create(connection, "a.b", "topic")
    with pytest.raises(IllegalStateError, match="one destination"):
        session.producer(session.topic("a.*")).send("x", schedule="@daily")
    temporary = session.temporary_queue()
    with pytest.raises(InvalidDestinationError, match="temporary"):
        session.producer(temporary).send("x", schedule="@daily")


def test_a_destination_has_at_most_maxnumschedules(broker: LoopbackBroker) -> None:
    connection = broker.connect()
    producer = connection.session().producer(create(connection, broker.name(), maxNumSchedules=1))
    producer.send("x", schedule="@daily")
    with pytest.raises(ResourceAllocationError, match="maxNumSchedules=1"):
        producer.send("x", schedule="@daily")


@TWO_FACES
def test_a_closed_producer_makes_none(broker: LoopbackBroker) -> None:
    producer = broker.connect().session().producer(broker.name())
    producer.close()
    with pytest.raises(IllegalStateError, match="closed"):
        producer.send("x", schedule="@daily")


def test_a_producer_that_comes_back_makes_it_then(broker: LoopbackBroker) -> None:
    """R-13"""
    connection = broker.connect()
    producer = connection.session().producer(broker.name())
    cut(connection)
    id_ = producer.send("x", schedule="@daily")
    assert only(connection)["id"] == id_


def test_an_answer_that_is_lost_leaves_one_schedule(broker: LoopbackBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = broker.connect()
    producer = connection.session().producer(broker.name())
    call, asked = Channel.call, []

    async def answer_lost(self: Channel, op: str, *args: Any) -> Any:
        answer = await call(self, op, *args)
        if op == "schedule":
            asked.append(op)
            if len(asked) < 3:
                raise ConnectionLostError("the answer was lost")
        return answer

    monkeypatch.setattr(Channel, "call", answer_lost)
    id_ = producer.send("x", schedule="@daily")
    assert (only(connection)["id"], len(asked)) == (id_, 3)


@pytest.mark.parametrize("way", ["open", "crash"])
def test_what_was_missed_while_the_broker_was_down_is_made_up_for_by_one_or_by_all(store: OneStore, way: str) -> None:
    """B17: after three missed occurrences one message without catch_up, three with it, and then as ever"""
    connection = store.open().connect()
    producer = connection.session().producer("jobs")
    ids = {
        "one": producer.send("one", schedule="@every 1s"),
        "all": producer.send("all", schedule="@every 1s", catch_up=True),
    }
    began_ms = {body: only_of(connection, id_)["created_ms"] for body, id_ in ids.items()}
    again = getattr(store, way)
    store.close() if way == "open" else store.lose()
    until(lambda: time.time() * 1000 > max(began_ms.values()) + 3_100)
    opened_ms = time.time() * 1000
    connection = again().connect()
    until(lambda: all(only_of(connection, id_)["next_ms"] > opened_ms for id_ in ids.values()))
    until(lambda: only_of(connection, ids["one"])["fired"] >= 2)
    found = take(connection.session().consumer("jobs"), held(connection, "jobs"))
    for body, id_ in ids.items():
        own = [m for m in found if m.body == body]
        times = [m.properties["JMS_RB_SCHEDULE_TIME"] for m in own]
        assert {m.properties["JMS_RB_SCHEDULE_ID"] for m in own} == {id_}
        assert [m.properties[SEQUENCE] for m in own] == list(range(1, len(own) + 1)), f"{body}: each firing once"
        missed = int(opened_ms - began_ms[body]) // 1_000
        first = began_ms[body] + 1_000 * (missed if body == "one" else 1)
        assert times == [first + 1_000 * n for n in range(len(times))], f"{body}: {missed} were missed"


def only_of(connection: Any, id_: str) -> dict[str, Any]:
    return dict(connection.admin().query_schedule(id_))


def test_an_auto_created_destination_stays_for_its_schedule(store: OneStore) -> None:
    """D-22"""
    connection = store.open(imq__autocreate__reaptime=1).connect()
    session = connection.session()
    session.producer("kept").send("x", schedule="@daily")
    session.producer("goes")
    session.close()
    until(lambda: "goes" not in names_of(connection))
    assert "kept" in names_of(connection)
    connection = store.crash(imq__autocreate__reaptime=1).connect()
    assert names_of(connection) == ["kept"]


# ---- waiting for consumers (B20) -----------------------------------------------------------------------------------


def test_a_queue_waits_for_so_many_consumers(broker: LoopbackBroker) -> None:
    """B20"""
    connection = broker.connect()
    name = create(connection, broker.name(), consumersBeforeDispatch=2)
    connection.session().producer(name).send_many("abcd")
    first = connection.session().consumer(name, prefetch=2)
    assert nothing(first)
    assert state_of(connection, name)["gathering"] is True
    second = connection.session().consumer(name, prefetch=2)
    assert bodies(take(first, 2)) == ["a", "b"]
    assert bodies(take(second, 2)) == ["c", "d"]
    assert state_of(connection, name)["gathering"] is False


def test_a_queue_waits_no_longer_than_its_delay(broker: LoopbackBroker) -> None:
    """B20"""
    connection = broker.connect()
    name = create(connection, broker.name(), consumersBeforeDispatch=2, delayBeforeDispatch=150)
    connection.session().producer(name).send("a")
    began = time.monotonic()
    assert bodies(take(connection.session().consumer(name), 1)) == ["a"]
    assert time.monotonic() - began >= 0.14


def test_a_topic_has_no_such_attribute(broker: LoopbackBroker) -> None:
    with pytest.raises(ConfigError, match="consumersBeforeDispatch is an attribute of queues"):
        create(broker.connect(), broker.name(), "topic", consumersBeforeDispatch=2)
