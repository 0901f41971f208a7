"""Metrics messages have the names of the tables M-A to M-D, all of them and no others (M-07 … M-11)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import raybroker as rb
from raybroker.content.death_records import ORIGIN
from raybroker.errors import InvalidDestinationError, SecurityError
from raybroker.metrics import messages

TABLE_A = """
numConnections numMsgsIn numMsgsOut numMsgs msgBytesIn msgBytesOut totalMsgBytes numPktsIn numPktsOut pktBytesIn
pktBytesOut numDestinations
"""
TABLE_B = "totalMemory freeMemory maxMemory"
BOTH = """
numActiveConsumers avgNumActiveConsumers peakNumActiveConsumers numMsgsIn numMsgsOut numMsgs avgNumMsgs peakNumMsgs
msgBytesIn msgBytesOut totalMsgBytes avgTotalMsgBytes peakTotalMsgBytes peakMsgBytes diskReserved diskUsed
diskUtilizationRatio
"""
QUEUE_ONLY = "numBackupConsumers avgNumBackupConsumers peakNumBackupConsumers"
FILE_STORE_ONLY = {"diskReserved", "diskUsed", "diskUtilizationRatio"}
PROPERTIES = {"type", "timestamp", "brokerHost", "brokerPort", "brokerAddress", "brokerName"}


@pytest.fixture
def connection(tmp_path: Any) -> Any:
    with rb.loopback(tmp_path / "store", properties={"imq.metrics.topic.interval": 1}) as made:
        yield made


@pytest.fixture
def receive(connection: Any) -> Callable[[str], Any]:
    """The next message of a metrics topic."""

    def one(name: str) -> Any:
        session = connection.session()
        message = session.consumer(session.topic(name)).receive(timeout=10)
        assert message is not None, name
        return message

    return one


@pytest.mark.parametrize(
    ("topic", "names"),
    [
        ("mq.metrics.broker", TABLE_A),
        ("mq.metrics.jvm", TABLE_B),
        ("mq.metrics.destination.queue.orders", BOTH + QUEUE_ONLY),
        ("mq.metrics.destination.topic.prices", BOTH),
    ],
)
def test_the_body_has_the_names_of_its_table(
    connection: Any, receive: Callable[[str], Any], topic: str, names: str
) -> None:
    session = connection.session()
    session.producer("orders").send("one")
    kept = session.consumer(session.topic("prices"))
    message = receive(topic)
    assert set(message.body) == set(names.split())
    assert {type(value) for value in message.body.values()} == {int}
    assert (message.body_type, set(message.properties), message.properties["type"]) == ("map", PROPERTIES, topic)
    assert (message.persistent, message.expiration - message.timestamp) == (False, 300_000)
    kept.close()


def test_metrics_messages_are_stored_and_live_as_the_settings_say() -> None:
    settings = {"interval": 1, "persist": True, "timetolive": 7}
    with rb.loopback(properties={f"imq.metrics.topic.{name}": value for name, value in settings.items()}) as connection:
        session = connection.session()
        message = session.consumer(session.topic("mq.metrics.broker")).receive(timeout=10)
        assert (message.persistent, message.expiration - message.timestamp) == (True, 7_000)


def test_the_list_names_destinations_but_no_metrics_topics(connection: Any, receive: Callable[[str], Any]) -> None:
    session = connection.session()
    session.producer("orders").send("one")
    temporary = session.temporary_topic()
    body = receive("mq.metrics.destination_list").body
    assert body["mq.metrics.destination.queue.orders"] == {"name": "orders", "type": "queue", "isTemporary": False}
    name = temporary.name
    assert body[f"mq.metrics.destination.topic.{name}"] == {"name": name, "type": "topic", "isTemporary": True}
    assert not [entry for entry in body.values() if entry["name"].startswith("mq.metrics.")]


def test_the_numbers_are_those_of_the_destination(connection: Any, receive: Callable[[str], Any]) -> None:
    session = connection.session()
    session.producer("orders").send_many([b"12345", b"1234567"])
    consumer = session.consumer("orders")
    assert len(consumer.receive_many(max=1, timeout=5)) == 1
    body = receive("mq.metrics.destination.queue.orders").body
    assert (body["numMsgsIn"], body["msgBytesIn"], body["peakMsgBytes"], body["peakNumMsgs"]) == (2, 12, 7, 2)
    assert (body["numActiveConsumers"], body["numBackupConsumers"]) == (1, 0)
    assert 0 < body["diskUsed"] <= body["diskReserved"]


def test_nothing_is_sent_where_nobody_listens(connection: Any, receive: Callable[[str], Any]) -> None:
    session = connection.session()
    session.consumer(session.topic("mq.metrics.broker")).close()
    receive("mq.metrics.jvm")
    rows = {row["name"]: row for row in connection.admin().list_destinations("topic")}
    assert rows.get("mq.metrics.broker", {"moved_in": 0})["moved_in"] == 0


def test_metrics_messages_do_not_count_themselves(connection: Any, receive: Callable[[str], Any]) -> None:
    connection.session().producer("orders").send_many([b"x"] * 30)
    for _ in range(3):
        body = receive("mq.metrics.broker").body
    assert (body["numMsgsIn"], body["numMsgs"], body["msgBytesIn"]) == (30, 30, 30)
    assert body["numDestinations"] == 2  # orders and the dead message queue


def test_a_topic_under_which_nothing_comes_is_refused(connection: Any) -> None:
    session = connection.session()
    with pytest.raises(InvalidDestinationError, match="no metrics come under"):
        session.consumer(session.topic("mq.metrics.brokers"))


def test_subscribing_is_refused_when_metrics_messages_are_off() -> None:
    with rb.loopback(properties={"imq.metrics.topic.enabled": False}) as connection:
        session = connection.session()
        with pytest.raises(InvalidDestinationError, match=r"imq\.metrics\.topic\.enabled is false"):
            session.consumer(session.topic("mq.metrics.broker"))


def test_a_store_in_memory_has_no_disk() -> None:
    with rb.loopback() as connection:
        connection.session().producer("orders").send("x")
        (row,) = connection.admin().metrics("orders")
    assert not set(messages.destination_body(row["destinations"][0])) & FILE_STORE_ONLY


NAMES = ["mq.metrics.broker", "mq.metrics.jvm", "mq.metrics.destination.queue.orders"]


@pytest.mark.parametrize("name", NAMES)
def test_a_client_cannot_send_to_a_metrics_topic(name: str, connection: Any) -> None:
    session = connection.session()
    listener = session.consumer(session.topic(name))
    with pytest.raises(SecurityError, match="only brokers send to it"):
        session.producer(session.topic(name))
    with pytest.raises(SecurityError, match="only brokers send to it"):
        connection.admin().import_messages("topic", name, [])
    session.producer("orders").send("forged")
    connection.admin().pause_destination("queue", "orders", "consumers")
    with pytest.raises(SecurityError, match="only brokers send to it"):
        connection.admin().move_messages("queue", "orders", name, "topic")
    assert listener.receive(timeout=0) is None


def test_a_dead_metrics_message_is_not_sent_again(connection: Any) -> None:
    session = connection.session(ack="client")
    listener = session.consumer(session.topic("mq.metrics.broker"))
    session.producer("orders").send("forged", properties={ORIGIN: "topic:mq.metrics.broker"})
    connection.admin().pause_destination("queue", "orders", "consumers")
    assert connection.admin().retry_messages("queue", "orders") == 0
    assert listener.receive(timeout=0) is None


def test_a_producer_of_a_pattern_leaves_metrics_topics_out(connection: Any) -> None:
    session = connection.session()
    metrics, news = session.consumer(session.topic("mq.metrics.broker")), session.consumer(session.topic("news"))
    session.producer(session.topic("**")).send("all")
    assert news.receive(timeout=60).body == "all"
    assert metrics.receive(timeout=0) is None
