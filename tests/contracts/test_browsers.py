"""Looking at messages without taking them: browsers and the pages of administrators (R-12, B23)."""

from __future__ import annotations

from typing import Any

import pytest

from raybroker.client.admin.admin import pages
from raybroker.errors import ConfigError, IllegalStateError, InvalidDestinationError, MessageFormatError
from tests.contracts.conftest import TWO_FACES
from tests.contracts.handle_basics import Point, held
from tests.contracts.handles import LoopbackBroker, bodies, create, state_of, take, until


def test_a_browser_shows_what_waits_and_takes_nothing(broker: LoopbackBroker) -> None:
    """R-12"""
    connection, name = broker.connect(), broker.name()
    session = connection.session()
    producer = session.producer(name)
    for n in range(5):
        producer.send(n, priority=9 if n == 3 else 4, properties={"n": n}, correlation_id=f"c{n}")
    browser = session.browser(name)
    found = list(browser)
    assert bodies(found) == [3, 0, 1, 2, 4], "in the order of delivery"
    assert [m.correlation_id for m in found] == ["c3", "c0", "c1", "c2", "c4"]
    assert held(connection, name) == 5
    consumed = take(session.consumer(name), 5)
    assert [(m.id, m.delivery_count) for m in consumed] == [(m.id, 1) for m in found]


def test_a_browser_selects(broker: LoopbackBroker) -> None:
    """R-12, B-22"""
    session, name = broker.connect().session(), broker.name()
    for n in range(10):
        session.producer(name).send(n, properties={"n": n})
    assert bodies(list(session.browser(name, "n BETWEEN 3 AND 5"))) == [3, 4, 5]


@pytest.mark.parametrize("chunk", [1, 7, 100])
def test_the_size_of_a_chunk_does_not_limit_how_much_is_seen(broker: LoopbackBroker, chunk: int) -> None:
    """R-12: imqQueueBrowserMaxMessagesPerRetrieve"""
    connection, name = broker.connect(imqQueueBrowserMaxMessagesPerRetrieve=chunk), broker.name()
    create(connection, name)
    session = connection.session()
    session.producer(name).send_many(range(100))
    assert bodies(list(session.browser(name))) == list(range(100))


def test_every_pass_sees_the_queue_anew(broker: LoopbackBroker) -> None:
    """R-12"""
    connection, name = broker.connect(), broker.name()
    session = connection.session()
    producer = session.producer(name)
    producer.send(1)
    browser = session.browser(name)
    producer.send(2)
    assert bodies(list(browser)) == [1], "the first pass is of when it was made"
    assert bodies(list(browser)) == [1, 2]
    take(session.consumer(name), 1)
    producer.send(3)
    until(lambda: bodies(list(browser)) in ([], [3], [2, 3]))


def test_what_a_consumer_has_or_is_not_born_yet_is_not_seen(broker: LoopbackBroker) -> None:
    """R-12"""
    connection, name = broker.connect(), broker.name()
    session = connection.session(ack="client")
    producer = session.producer(name)
    producer.send_many(range(4))
    producer.send("later", delivery_delay_ms=60_000)
    take(session.consumer(name, prefetch=1), 1)
    assert bodies(list(connection.session().browser(name))) == [1, 2, 3]


def test_browsing_needs_no_started_connection_and_stops_when_it_is_closed(broker: LoopbackBroker) -> None:
    """R-12"""
    connection, name = broker.connect(started=False), broker.name()
    session = connection.session()
    session.producer(name).send_many(range(3))
    with session.browser(name) as browser:
        assert bodies(list(browser)) == [0, 1, 2]
    with pytest.raises(IllegalStateError, match="closed"):
        list(browser)


@TWO_FACES
def test_topics_cannot_be_browsed(broker: LoopbackBroker) -> None:
    """R-12"""
    session = broker.connect().session()
    with pytest.raises(InvalidDestinationError, match="queues"):
        session.browser(session.topic("prices"))


def test_browsing_a_pickled_body_needs_consent(broker: LoopbackBroker) -> None:
    """R-17"""
    session, name = broker.connect().session(), broker.name()
    session.producer(name, serializer="pickle").send(Point(1))
    (message,) = session.browser(name)
    with pytest.raises(MessageFormatError, match="serializer"):
        _ = message.body
    assert bodies(list(session.browser(name, serializer="pickle"))) == [Point(1)]


def test_acknowledging_what_was_browsed_means_nothing(broker: LoopbackBroker) -> None:
    """R-12"""
    connection, name = broker.connect(), broker.name()
    session = connection.session(ack="client")
    session.producer(name).send("x")
    browser = session.browser(name)
    for message in browser:
        message.acknowledge()
    assert held(connection, name) == 1


def test_destroying_a_queue_ends_its_browsers(broker: LoopbackBroker) -> None:
    """A-32"""
    connection = broker.connect(imqQueueBrowserMaxMessagesPerRetrieve=1)
    name = create(connection, broker.name())
    session = connection.session()
    session.producer(name).send_many(range(3))
    seen = iter(session.browser(name))
    assert next(seen).body == 0
    connection.admin().destroy_destination("queue", name)
    with pytest.raises(InvalidDestinationError, match=name):
        list(seen)


# ---- pages of administrators (B23) -----------------------------------------------------------------------------------


def test_administrators_see_every_message_with_its_state(broker: LoopbackBroker) -> None:
    """B23, W-129"""
    connection, name = broker.connect(), broker.name()
    session = connection.session(ack="client")
    producer = session.producer(name)
    sent = producer.send({"a": 1}, properties={"p": 1}, correlation_id="c", type="t", reply_to="r", priority=5)
    producer.send("waits")
    producer.send("later", delivery_delay_ms=60_000, ttl_ms=120_000)
    take(session.consumer(name, prefetch=1), 1)
    rows = connection.admin().browse_messages("queue", name)["messages"]
    assert {row["body"] if isinstance(row["body"], str) else "map": row["state"] for row in rows} == {
        "map": "delivered",
        "waits": "waiting",
        "later": "delayed",
    }
    row = next(row for row in rows if row["id"] == sent)
    assert (row["body"], row["properties"], row["correlation_id"], row["type"]) == ({"a": 1}, {"p": 1}, "c", "t")
    assert (row["priority"], row["persistent"], row["delivery_count"], row["expiration"]) == (5, True, 1, 0)
    assert row["reply_to"] in ("r", "queue:r")
    assert state_of(connection, name)["messages"] == 3


def test_administrators_page_through_many_messages_and_cut_long_bodies(broker: LoopbackBroker) -> None:
    """B23"""
    connection = broker.connect()
    name = create(connection, broker.name())
    connection.session().producer(name).send_many([str(n) * 100 for n in range(25)])
    admin = connection.admin()
    asked: list[Any] = []

    def ask(start: Any) -> Any:
        asked.append(start)
        return admin.browse_messages("queue", name, start=start, max=10, body_bytes_max=5)

    rows = [row for page in pages(ask) for row in page["messages"]]
    assert len(asked) == 3
    assert [row["size"] for row in rows] == [100] * 10 + [200] * 15
    assert rows[3]["body"] in ("33333", b"33333")


@pytest.mark.parametrize("arguments", [{"max": 0}, {"max": 1001}, {"body_bytes_max": -1}, {"body_bytes_max": 1 << 21}])
@TWO_FACES
def test_a_page_out_of_bounds_is_refused(broker: LoopbackBroker, arguments: dict[str, int]) -> None:
    """B23"""
    connection = broker.connect()
    name = create(connection, broker.name())
    with pytest.raises(ConfigError, match=next(iter(arguments))):
        connection.admin().browse_messages("queue", name, **arguments)


def test_messages_of_a_topic_are_seen_once_however_many_subscribe(broker: LoopbackBroker) -> None:
    """B23, D-02"""
    connection, name = broker.connect(), broker.name()
    session = connection.session(ack="client")
    subscribers = [session.consumer(f"topic:{name}") for _ in range(2)]
    session.producer(f"topic:{name}").send("x")
    until(lambda: all(s.info()["buffered"] == 1 for s in subscribers))
    assert [row["body"] for row in connection.admin().browse_messages("topic", name)["messages"]] == ["x"]
