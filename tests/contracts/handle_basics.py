"""What holds for handles over every kind of broker: a class of tests for modules that have a ``broker`` fixture."""

from __future__ import annotations

import time
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from raybroker.errors import ConfigError, IllegalStateError, MessageFormatError
from tests.contracts.handles import WAIT_S, Broker, bodies, cut, state_of, take, until

BODIES: list[Any] = [
    "text",
    "",
    "größer — ≥ 😀",
    b"",
    b"bytes\x00\xff",
    {},
    {"a": 1, "b": [1.5, None, True, {"c": b"x"}]},
    [],
    [1, "2", [3]],
    0,
    -1,
    (1 << 64) - 1,
    -(1 << 63),
    1.25,
    True,
    False,
    None,
    {1: "one", "k" * 300: "v" * 3000},
    (1, ("a", [None])),
    datetime(2024, 2, 29, 1, 2, 3, 4),  # noqa: DTZ001 - one without a zone
    datetime(2024, 2, 29, tzinfo=UTC),
    date(2024, 2, 29),
    timedelta(days=-1, microseconds=1),
    UUID(int=7),
    Decimal("1.500"),
    {"at": date(1970, 1, 1), "parts": [(Decimal(1),)]},
]


class Point:
    """A type of an application."""

    def __init__(self, x: int) -> None:
        self.x = x

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Point) and other.x == self.x

    def __hash__(self) -> int:
        return hash(self.x)


class Basics:
    """Sending and receiving, acknowledgements, and coming back after a lost connection."""

    # ---- send and receive --------------------------------------------------------------------------------------------

    def test_every_kind_of_body_comes_back_as_it_was_sent(self, broker: Broker) -> None:
        session, name = broker.connect().session(), broker.name()
        producer, consumer = session.producer(name), session.consumer(name)
        for body in BODIES:
            producer.send(body)
        for body, message in zip(BODIES, take(consumer, len(BODIES)), strict=True):
            assert (message.body, type(message.body)) == (body, type(body))

    def test_a_message_with_an_empty_body_is_true(self, broker: Broker) -> None:
        session, name = broker.connect().session(), broker.name()
        session.producer(name).send_many(["", b"", "last"])
        consumer, found = session.consumer(name), []
        while message := consumer.receive(timeout=WAIT_S):
            found.append((len(message), message.body))
            if message.body == "last":
                break
        assert found == [(0, ""), (0, b""), (4, "last")]

    def test_a_message_has_what_it_was_sent_with(self, broker: Broker) -> None:
        session, name = broker.connect().session(), broker.name()
        producer, consumer = session.producer(session.queue(name), priority=7), session.consumer(session.queue(name))
        before_ms = int(time.time() * 1000)
        properties = {"count": 3, "ratio": 0.5, "flag": True, "word": "x", "a$b": -(1 << 63), "nothing": None}
        sent = [
            producer.send(
                "a", properties=properties, correlation_id="c-1", reply_to=session.queue("answers"), type="greeting"
            ),
            producer.send("b", priority=1, persistent=False),
            producer.send("c"),
        ]
        found = take(consumer, 3)
        after_ms = int(time.time() * 1000)
        assert [m.id for m in found] == sent
        assert all(i.startswith("ID:") for i in sent)
        assert len(set(sent)) == 3
        assert [m.properties for m in found] == [properties, {}, {}]
        assert [m.correlation_id for m in found] == ["c-1", None, None]
        assert [m.reply_to for m in found] == ["answers", None, None]
        assert [m.type for m in found] == ["greeting", None, None]
        assert [m.priority for m in found] == [7, 1, 7]
        assert [m.persistent for m in found] == [True, False, True]
        assert all(before_ms <= m.timestamp <= after_ms for m in found)
        assert {(m.destination, m.expiration, m.redelivered, m.delivery_count) for m in found} == {(name, 0, False, 1)}
        assert [len(m) for m in found] == [1, 1, 1]

    def test_messages_of_one_session_arrive_in_the_order_they_were_sent_whatever_the_call(self, broker: Broker) -> None:
        session, name = broker.connect().session(), broker.name()
        producer, consumer = session.producer(name), session.consumer(name)
        futures, expected = [], 0
        for round_ in range(5):
            producer.send(expected)
            futures += [producer.send_async(expected + 1 + i) for i in range(10)]
            assert producer.send_many(range(expected + 11, expected + 20 + round_)) == 9 + round_
            expected += 20 + round_
        ids = [future.result(WAIT_S) for future in futures]
        found = take(consumer, expected)
        assert bodies(found) == list(range(expected))
        assert len(set(ids)) == 50
        assert set(ids) < {m.id for m in found}

    def test_an_asynchronous_send_gives_a_future_of_the_id(self, broker: Broker) -> None:
        session, name = broker.connect().session(), broker.name()
        producer = session.producer(name)
        future = producer.send_async({"n": 1}, properties={"p": 1}, correlation_id="x", priority=9)
        message = take(session.consumer(name), 1)[0]
        assert future.result(WAIT_S) == message.id
        assert (message.properties, message.correlation_id, message.priority) == ({"p": 1}, "x", 9)

    @pytest.mark.parametrize("size", [10, 1024, 100_000])
    @pytest.mark.parametrize("persistent", [True, False])
    def test_send_many_takes_any_iterable_and_returns_how_many(
        self, broker: Broker, size: int, persistent: bool
    ) -> None:
        session, name = broker.connect(), broker.name()
        session.admin().create_destination("queue", name, hosting="shared")
        session = session.session()
        count = 2_000_000 // (size + 100) // 10
        producer, consumer = session.producer(name), session.consumer(name)
        assert producer.send_many((bytes([n % 256]) * size for n in range(count)), persistent=persistent) == count
        assert producer.send_many([]) == 0
        found: list[Any] = []
        until(lambda: found.extend(consumer.receive_many(500, timeout=1)) or len(found) >= count)
        assert [m.body[0] for m in found] == [n % 256 for n in range(count)]
        assert {m.persistent for m in found} == {persistent}

    def test_receiving_waits_as_long_as_it_is_told(self, broker: Broker) -> None:
        session, name = broker.connect().session(), broker.name()
        consumer = session.consumer(name)
        assert consumer.receive_nowait() is None
        started = time.monotonic()
        assert consumer.receive(timeout=0.05) is None
        assert time.monotonic() - started >= 0.05
        assert consumer.receive_many(10, timeout=0.01) == []
        session.producer(name).send_many(range(5))
        until(lambda: consumer.info()["buffered"] == 5)
        assert consumer.receive_nowait().body == 0
        assert bodies(consumer.receive_many(2)) == [1, 2]
        assert bodies(consumer.receive_many(100, timeout=5)) == [3, 4]
        assert consumer.receive_nowait() is None

    def test_iterating_gives_messages_until_the_consumer_is_closed(self, broker: Broker) -> None:
        session, name = broker.connect().session(), broker.name()
        consumer = session.consumer(name)
        session.producer(name).send_many(range(4))
        found = []
        for message in consumer:
            found.append(message.body)
            if len(found) == 4:
                consumer.close()
        assert found == [0, 1, 2, 3]

    def test_a_pickled_body_needs_the_consent_of_both_sides(self, broker: Broker) -> None:
        connection, name = broker.connect(), broker.name()
        session = connection.session(ack="client")
        with pytest.raises(MessageFormatError, match="Point"):
            session.producer(name).send(Point(1))
        session.producer(name, serializer="pickle").send(Point(2))
        session.producer(name, serializer="pickle").send({"plain": 1})
        wary = session.consumer(name)
        first, second = take(wary, 2)
        with pytest.raises(MessageFormatError, match="serializer"):
            _ = first.body
        assert second.body == {"plain": 1}
        wary.close()
        trusting = session.consumer(name, serializer="pickle")
        assert bodies(take(trusting, 2)) == [Point(2), {"plain": 1}]
        with pytest.raises(ConfigError, match="marshal"):
            session.consumer(name, serializer="marshal")

    # ---- acknowledgement and redelivery ------------------------------------------------------------------------------

    def test_auto_acknowledges_what_was_consumed_when_the_application_comes_back(self, broker: Broker) -> None:
        connection, name = broker.connect(), broker.name()
        session = connection.session()
        session.producer(name).send_many(range(4))
        consumer = session.consumer(name)
        held = []
        for _ in range(3):
            take(consumer, 1)
            held.append(state_of(connection, name)["messages"])
        assert held == [4, 3, 2]
        consumer.receive_many(10, timeout=5)
        assert consumer.receive(timeout=0.01) is None
        assert state_of(connection, name)["messages"] == 0

    def test_after_a_lost_connection_auto_gives_at_most_one_consumed_message_again(self, broker: Broker) -> None:
        connection, name = broker.connect(), broker.name()
        session = connection.session()
        session.producer(name).send_many(range(6))
        consumer = session.consumer(name)
        before = bodies(take(consumer, 3))
        cut(connection)
        found = take(consumer, 4)
        assert bodies(found) == [2, 3, 4, 5]
        assert [m.redelivered for m in found] == [True] * 4, "all of them had been handed to the connection"
        assert set(before) & set(bodies(found)) == {2}

    def test_client_acknowledges_all_that_was_consumed_one_or_up_to_one(self, broker: Broker) -> None:
        """The case of the manual: get 1, 2, 3; this(2); get 4, 5, 6; through 4 gives 1, 3, 4; then 5, 6 (R-08)."""
        connection, name = broker.connect(), broker.name()
        session = connection.session(ack="client")
        session.producer(name).send_many(range(1, 7))
        consumer = session.consumer(name)
        one, two, three = take(consumer, 3)
        two.acknowledge_this()
        assert held(connection, name) == 5
        four, five, six = take(consumer, 3)
        four.acknowledge_up_to()
        assert held(connection, name) == 2
        assert bodies([one, three, five]) == [1, 3, 5]
        six.acknowledge()
        assert held(connection, name) == 0

    def test_what_a_client_session_did_not_acknowledge_comes_again_flagged_and_counted(self, broker: Broker) -> None:
        connection, name = broker.connect(), broker.name()
        session = connection.session(ack="client")
        session.producer(name).send_many(range(5))
        take(session.consumer(name), 3)[1].acknowledge_this()
        session.close()
        for attempt in (2, 3):
            again = connection.session(ack="client")
            found = take(again.consumer(name), 4)
            given, prefetched = (True, attempt), (attempt > 2, attempt - 1)  # Lying in a buffer is no delivery.
            assert [(m.body, (m.redelivered, m.delivery_count)) for m in found] == [
                (0, given),
                (2, given),
                (3, prefetched),
                (4, prefetched),
            ]
            again.close()

    def test_handles_come_back_after_a_lost_connection_and_lose_nothing(self, broker: Broker) -> None:
        connection, name = broker.connect(), broker.name()
        session = connection.session(ack="client")
        producer, consumer = session.producer(name), session.consumer(name)
        futures = []
        for n in range(300):
            futures.append(producer.send_async(n))
            if n % 60 == 30:
                cut(connection)
        assert len({future.result(WAIT_S) for future in futures}) == 300
        found: list[Any] = []
        until(lambda: found.extend(consumer.receive_many(100, timeout=1)) or len({m.body for m in found}) == 300)
        first: dict[int, bool] = {}
        for message in found:
            first.setdefault(message.body, message.redelivered)
        assert list(first) == list(range(300)), "first deliveries are in order, and each message is stored once"

        def settled() -> bool:
            found.extend(consumer.receive_many(100, timeout=0.01))
            found[-1].acknowledge()
            return held(connection, name) == 0

        until(settled, "what was delivered again can be acknowledged")

    def test_recover_starts_again_with_the_oldest_message_flagged(self, broker: Broker) -> None:
        connection, name = broker.connect(), broker.name()
        session = connection.session(ack="client")
        session.producer(name).send_many(range(4))
        consumer = session.consumer(name)
        first = take(consumer, 2)
        assert [m.redelivered for m in first] == [False, False]
        first[0].acknowledge_this()
        for attempt in (2, 3, 4):
            session.recover()
            found = take(consumer, 3)
            given, prefetched = (True, attempt), (attempt > 2, attempt - 1)
            assert [(m.body, (m.redelivered, m.delivery_count)) for m in found] == [
                (1, given),
                (2, prefetched),
                (3, prefetched),
            ]
        found[-1].acknowledge()
        assert held(connection, name) == 0

    def test_closed_handles_say_so(self, broker: Broker) -> None:
        connection, name = broker.connect(), broker.name()
        session = connection.session()
        producer, consumer = session.producer(name), session.consumer(name)
        producer.close()
        consumer.close()
        with pytest.raises(IllegalStateError, match="closed"):
            producer.send("x")
        with pytest.raises(IllegalStateError, match="closed"):
            producer.send_async("x")
        with pytest.raises(IllegalStateError, match="closed"):
            consumer.receive()
        session.close()
        with pytest.raises(IllegalStateError, match="closed"):
            session.producer(name)
        with pytest.raises(IllegalStateError, match="closed"):
            session.consumer(name)
        connection.close()
        connection.close()


def held(connection: Any, name: str) -> int:
    """Messages that the broker still holds for somebody."""
    found: int = state_of(connection, name)["messages"]
    return found
