"""Bodies, headers and properties: types, conversions, compression, and messages taken once (R-16, R-17, B25)."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import pytest

from raybroker.errors import MessageFormatError, MessageTooLargeError
from tests.contracts.conftest import ONE_FACE, TWO_FACES, OneStore
from tests.contracts.handle_basics import held
from tests.contracts.handles import DMQ, LoopbackBroker, bodies, create, nothing, state_of, take, until

# ---- body types (R-17) -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "body_type"),
    [
        ("text", "text"),
        (b"bytes", "bytes"),
        ({"a": 1}, "map"),
        ([1, "2"], "stream"),
        (5, "object"),
        (1.5, "object"),
        (None, "object"),
        (True, "object"),
        ({1: "not a map's key"}, "object"),
    ],
)
def test_a_body_has_the_type_that_it_was_sent_with(broker: LoopbackBroker, body: Any, body_type: str) -> None:
    """R-17: Text, Bytes, Map, Stream, Object"""
    session, name = broker.connect().session(), broker.name()
    session.producer(name).send(body)
    (message,) = take(session.consumer(name), 1)
    assert (message.body, message.body_type) == (body, body_type)


@dataclasses.dataclass(frozen=True)
class Reading:
    station: str
    parts: tuple[Any, ...]


def test_a_dataclass_comes_back_to_applications_and_is_a_dict_for_administrators(broker: LoopbackBroker) -> None:
    connection, body = broker.connect(), Reading("JFK", (1, Reading("EWR", ())))
    session, name = connection.session(), create(connection, broker.name())
    session.producer(name).send([body])
    (seen,) = connection.admin().browse_messages("queue", name)["messages"]
    assert seen["body"] == [{"station": "JFK", "parts": (1, {"station": "EWR", "parts": ()})}]
    (message,) = take(session.consumer(name), 1)
    assert message.body == [body]


@TWO_FACES
def test_a_message_cannot_be_written_to(broker: LoopbackBroker) -> None:
    """R-17: received bodies are read-only"""
    session, name = broker.connect().session(), broker.name()
    session.producer(name).send("x")
    (message,) = take(session.consumer(name), 1)
    inner = getattr(message, "inner", message)
    for attribute in ("body", "properties", "id"):
        with pytest.raises(AttributeError):
            setattr(inner, attribute, "y")


# ---- compression (R-17) ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", ["text " * 500, b"bytes" * 500, {"k": "v" * 2000}, ["s"] * 900, ""])
def test_a_body_is_compressed_when_asked_and_comes_back_whole(broker: LoopbackBroker, body: Any) -> None:
    """R-17: JMS_SUN_COMPRESS; the sizes are properties"""
    connection, name = broker.connect(), broker.name()
    session = connection.session()
    session.producer(name).send(body, properties={"JMS_SUN_COMPRESS": True, "p": 1})
    (message,) = take(session.consumer(name), 1)
    assert (message.body, type(message.body)) == (body, type(body))
    assert message.body_type in ("text", "bytes", "map", "stream")
    assert message.properties["p"] == 1
    if body:
        plain, packed = (message.properties[f"JMS_SUN_{w}COMPRESSED_SIZE"] for w in ("UN", ""))
        assert packed == len(message) < plain
        assert plain >= 1500


def test_a_compressed_body_counts_with_the_bytes_it_has_on_the_way(broker: LoopbackBroker) -> None:
    """R-17, D-08"""
    connection = broker.connect()
    name = create(connection, broker.name(), maxBytesPerMsg=1000)
    session = connection.session()
    session.producer(name).send("x" * 5000, properties={"JMS_SUN_COMPRESS": True})
    assert state_of(connection, name)["bytes"] < 1000
    assert take(session.consumer(name), 1)[0].body == "x" * 5000


SOCKETS = pytest.mark.parametrize("make_broker", ["sockets"], indirect=True)
"""A connection to a broker in another process, or so it seems."""


@SOCKETS
@pytest.mark.parametrize("codec", ["GZIP_DEFAULT_COMPRESSION", "ZSTD"])
def test_bodies_above_the_threshold_are_compressed_by_themselves_and_stay_so(
    broker: LoopbackBroker, codec: str
) -> None:
    """W-50, W-52: limits, browsers, dead messages, export and import have them as they were stored."""
    if codec == "ZSTD":
        pytest.importorskip("zstandard")
    connection = broker.connect(DefaultCompressionThreshold=1000, MessageCompressionOptions=codec)
    name, other = create(connection, broker.name(), maxBytesPerMsg=1000), create(connection, broker.name())
    session, admin = connection.session(), connection.admin()
    producer = session.producer(name)
    producer.send("x" * 5000, properties={"p": 1})
    producer.send_many([b"y" * 5000, b"z" * 1000])
    with pytest.raises(MessageTooLargeError):
        session.producer(name, compression_threshold=5000).send("x" * 5000)
    expected = ["x" * 5000, b"y" * 5000, b"z" * 1000]
    assert state_of(connection, name)["bytes"] < 1500
    assert [message.body for message in session.browser(session.queue(name))] == expected
    assert [row["body"] for row in admin.browse_messages("queue", name, body_bytes_max=5000)["messages"]] == expected
    assert all(len(row["body"]) < 1000 for row in admin.browse_messages("queue", name, max=2)["messages"])
    admin.import_messages("queue", other, admin.export_messages("queue", name)["blocks"])
    for queue in (name, other):
        messages = take(session.consumer(queue), 3)
        assert [len(message) < 1000 for message in messages] == [True, True, False]
        assert [message.body for message in messages] == expected
        assert messages[0].properties == {"p": 1}
        assert messages[0].body_type == "text"
    producer.send("x" * 5000)
    take(connection.session(ack="client").consumer(name), 1)[0].reject("because")
    (dead,) = take(session.consumer(DMQ), 1)
    assert len(dead) < 1000
    assert dead.body == "x" * 5000


@ONE_FACE
def test_a_connection_to_a_broker_in_its_own_process_has_no_threshold(broker: LoopbackBroker) -> None:
    """W-51"""
    connection, name = broker.connect(DefaultCompressionThreshold=10), broker.name()
    session = connection.session()
    session.producer(name, compression_threshold=10).send("x" * 5000)
    session.producer(name).send("x" * 5000, properties={"JMS_SUN_COMPRESS": True})
    sizes = [len(message) for message in take(session.consumer(name), 2)]
    assert sizes[0] == 5000 > sizes[1]


# ---- properties (R-16) -----------------------------------------------------------------------------------------------

READ: list[tuple[Any, str, Any]] = [
    (True, "boolean", True),
    (True, "string", "true"),
    ("true", "boolean", True),
    ("TRUE", "boolean", True),
    ("no", "boolean", False),
    (None, "boolean", False),
    (5, "byte", 5),
    (5, "long", 5),
    ("7", "int", 7),
    (-129, "short", -129),
    (5, "string", "5"),
    (1.5, "double", 1.5),
    (1.5, "float", 1.5),
    ("2.5", "double", 2.5),
    (1.5, "string", "1.5"),
    (None, "string", None),
    ("word", "string", "word"),
]
REFUSED: list[tuple[Any, str]] = [
    (128, "byte"),
    (1 << 15, "short"),
    (1 << 31, "int"),
    (1.5, "int"),
    ("x", "int"),
    (None, "int"),
    (True, "int"),
    (5, "boolean"),
    (5, "double"),
    (1.5, "boolean"),
    ("x", "double"),
    (None, "double"),
]


def test_properties_are_read_as_the_types_they_convert_to(broker: LoopbackBroker) -> None:
    """R-16"""
    session, name = broker.connect().session(), broker.name()
    properties = {f"p{n}": value for n, (value, _, _) in enumerate(READ)}
    session.producer(name).send("x", properties=properties)
    (message,) = take(session.consumer(name), 1)
    assert message.properties == properties
    for n, (_, kind, expected) in enumerate(READ):
        found = getattr(message, f"get_{kind}")(f"p{n}")
        assert (found, type(found)) == (expected, type(expected)), READ[n]
    assert message.get_string("absent") is None
    assert message.get_int("JMSXDeliveryCount") == 1
    assert set(message.property_names) == {*properties, "JMSXDeliveryCount"}


def test_what_does_not_convert_is_refused_with_the_name_and_the_value(broker: LoopbackBroker) -> None:
    """R-16"""
    session, name = broker.connect().session(), broker.name()
    session.producer(name).send("x", properties={f"p{n}": value for n, (value, _) in enumerate(REFUSED)})
    (message,) = take(session.consumer(name), 1)
    for n, (_, kind) in enumerate(REFUSED):
        with pytest.raises(MessageFormatError, match=f"p{n}.*{kind}"):
            getattr(message, f"get_{kind}")(f"p{n}")


def test_headers_travel_to_topics_and_reply_to_names_its_type(broker: LoopbackBroker) -> None:
    """R-16"""
    session, name = broker.connect().session(), broker.name()
    subscriber = session.consumer(f"topic:{name}")
    producer = session.producer(f"topic:{name}")
    producer.send("a", reply_to=session.topic("answers"), correlation_id="c", type="t")
    producer.send("b", reply_to=session.queue("answers"))
    first, second = take(subscriber, 2)
    assert (first.reply_to, first.correlation_id, first.type) == ("topic:answers", "c", "t")
    assert second.reply_to == "answers"
    assert (first.destination, first.persistent) == (name, True)


# ---- taken once (B25) ------------------------------------------------------------------------------------------------


def test_a_message_with_an_id_that_was_seen_is_not_taken_again(broker: LoopbackBroker) -> None:
    """B25: and that is no error"""
    connection = broker.connect()
    name = create(connection, broker.name(), duplicateWindowMs=60_000)
    session = connection.session()
    producer, other = session.producer(name), broker.connect().session().producer(name)
    producer.send("first", dedup_id="order-1")
    producer.send("again", dedup_id="order-1")
    other.send("from another", dedup_id="order-1")
    other.send_async("and another", dedup_id="order-1").result(20)
    producer.send("second", dedup_id="order-2")
    producer.send("none")
    assert (producer.duplicates, other.duplicates) == (1, 2)
    assert state_of(connection, name)["duplicates"] == 3
    found = take(session.consumer(name), 3)
    assert [(m.body, m.dedup_id) for m in found] == [("first", "order-1"), ("second", "order-2"), ("none", None)]


def test_an_id_is_remembered_as_long_as_the_window_says_and_not_at_all_without_one(broker: LoopbackBroker) -> None:
    """B25"""
    connection = broker.connect()
    short, off = create(connection, broker.name(), duplicateWindowMs=50), create(connection, broker.name())
    producer = connection.session().producer(short)
    producer.send("a", dedup_id="1")
    producer.send("b", dedup_id="1")
    deadline = time.time() + 0.06
    until(lambda: time.time() > deadline)
    producer.send("c", dedup_id="1")
    assert held(connection, short) == 2
    plain = connection.session().producer(off)
    plain.send("a", dedup_id="1"), plain.send("b", dedup_id="1")
    assert held(connection, off) == 2


def test_no_more_ids_are_remembered_than_allowed(broker: LoopbackBroker) -> None:
    """B25: duplicateIdsMax; the oldest goes first"""
    connection = broker.connect()
    name = create(connection, broker.name(), duplicateWindowMs=60_000, duplicateIdsMax=2)
    producer = connection.session().producer(name)
    for one in ("1", "2", "3", "3", "2", "1"):
        producer.send(one, dedup_id=one)
    assert bodies(take(connection.session().consumer(name), 4)) == ["1", "2", "3", "1"]


def test_ids_are_remembered_over_a_restart(store: OneStore) -> None:
    """B25: persisted"""
    connection = store.open().connect()
    create(connection, "orders", duplicateWindowMs=60_000)
    session = connection.session()
    session.producer("orders").send("a", dedup_id="1")
    take(session.consumer("orders"), 1)
    session.close()
    for way in ("crash", "open"):
        again = getattr(store, way)().connect()
        producer = again.session().producer("orders")
        producer.send("again", dedup_id="1")
        assert producer.duplicates == 1
        assert held(again, "orders") == 0


def test_ids_of_a_transaction_count_when_it_commits(broker: LoopbackBroker) -> None:
    """B25: transactional"""
    connection = broker.connect()
    name = create(connection, broker.name(), duplicateWindowMs=60_000)
    session = connection.session(transacted=True)
    producer = session.producer(name)
    producer.send("rolled back", dedup_id="1")
    session.rollback()
    producer.send("kept", dedup_id="1")
    session.commit()
    producer.send("again", dedup_id="1")
    session.commit()
    consumer = connection.session().consumer(name)
    assert bodies(take(consumer, 1)) == ["kept"]
    assert nothing(consumer, 0.01)
