"""Units of order as applications see them: one session at a time, in the order of sending (W-76 … W-93)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contracts.conftest import MakeBroker
from tests.contracts.handles import Broker, bodies, buffered, create, nothing, take, until


def send(connection: Any, name: str, *bodies_: object, unit: str | None = "u") -> None:
    session = connection.session()
    session.producer(name, unit_of_order=unit).send_many(bodies_)
    session.close()


def test_the_name_travels_with_the_message(broker: Broker) -> None:  # W-76, U17
    connection, name = broker.connect(), broker.name()
    session = connection.session(ack="client")
    producer, consumer = session.producer(name, unit_of_order="of the producer"), session.consumer(name)
    producer.send(1)
    producer.send(2, unit_of_order="größer")
    producer.send_many([3, 4], unit_of_order=["x", None])
    producer.send(5, unit_of_order="y")
    session.producer(name).send(6)
    expected = ["of the producer", "größer", "x", "of the producer", "y", None]
    assert [message.unit_of_order for message in take(consumer, 6)] == expected
    session.recover()
    assert sorted(str(m.unit_of_order) for m in take(consumer, 6)) == sorted(map(str, expected))


def test_a_unit_is_with_one_session_until_its_messages_are_acknowledged(broker: Broker) -> None:  # W-80, W-81, W-83
    name = broker.name()
    first = broker.connect().session(ack="client")
    second = broker.connect().session(ack="client")
    consumers = [first.consumer(name), second.consumer(name)]
    send(broker.connect(), name, 1, 2, 3)
    until(lambda: buffered(consumers[0]) + buffered(consumers[1]) == 3)
    have = 0 if buffered(consumers[0]) else 1
    assert nothing(consumers[1 - have])
    found = take(consumers[have], 3)
    assert bodies(found) == [1, 2, 3]
    found[-1].acknowledge()
    consumers[have].close()
    send(broker.connect(), name, 4)
    assert bodies(take(consumers[1 - have], 1)) == [4]


@pytest.mark.parametrize("outcome", ["fail", "release"])
def test_a_message_that_is_given_back_takes_the_later_ones_of_its_unit_along(broker: Broker, outcome: str) -> None:
    name = broker.name()
    session = broker.connect().session(ack="client")
    consumer = session.consumer(name)
    send(broker.connect(), name, 1, 2, 3, 4)
    send(broker.connect(), name, 10, 11, unit="other")
    until(lambda: buffered(consumer) == 6)
    first = take(consumer, 2)
    assert bodies(first) == [1, 2]
    first[0].acknowledge_this()
    getattr(first[1], outcome)()
    found = take(consumer, 5)
    assert [body for body in bodies(found) if body < 10] == [2, 3, 4]
    assert [body for body in bodies(found) if body >= 10] == [10, 11]
    found[-1].acknowledge()
    assert nothing(consumer)


def test_a_rejected_message_goes_alone(broker: Broker) -> None:  # U11
    name = broker.name()
    session = broker.connect().session(ack="client")
    consumer = session.consumer(name)
    send(broker.connect(), name, 1, 2, 3)
    first = take(consumer, 1)[0]
    first.reject("no")
    assert bodies(take(consumer, 2)) == [2, 3]


def test_after_a_rollback_a_unit_begins_again_with_its_oldest_wherever(broker: Broker) -> None:  # W-82, U18
    name = broker.name()
    session = broker.connect().session(transacted=True)
    consumer = session.consumer(name)
    send(broker.connect(), name, *range(6))
    assert bodies(take(consumer, 4)) == [0, 1, 2, 3]
    session.rollback()
    assert bodies(take(consumer, 2)) == [0, 1]
    session.commit()
    session.close()
    assert bodies(take(broker.connect().session().consumer(name), 4)) == [2, 3, 4, 5]


def test_closing_a_consumer_ends_its_part_of_the_unit(broker: Broker) -> None:  # W-85
    name = broker.name()
    session = broker.connect().session(ack="client")
    consumer = session.consumer(name)
    send(broker.connect(), name, *range(5))
    take(consumer, 2)
    consumer.close()
    assert bodies(take(session.consumer(name), 5)) == list(range(5))


def test_a_destination_with_a_default_unit_is_one_line(make_broker: MakeBroker) -> None:  # W-79, W-93
    broker = make_broker()
    connection = broker.connect()
    name = create(connection, broker.name(), unitOfOrder=True)
    sessions = [broker.connect().session(ack="client") for _ in range(3)]
    consumers = [session.consumer(name) for session in sessions]
    send(connection, name, *range(30), unit=None)
    found: list[Any] = []
    while len(found) < 30:
        for consumer in consumers:
            message = consumer.receive(timeout=0.02)
            if message is not None:
                found.append(message)
                message.acknowledge()
    assert bodies(found) == list(range(30))
    assert len({message.unit_of_order for message in found}) == 1
    assert found[0].unit_of_order


def test_many_units_over_several_consumers_keep_the_order_of_each(broker: Broker) -> None:
    name = broker.name()
    sessions = [broker.connect().session(ack="client") for _ in range(4)]
    consumers = [session.consumer(name, prefetch=7) for session in sessions]
    units = [f"u{n % 9}" for n in range(900)]
    broker.connect().session().producer(name).send_many(range(900), unit_of_order=units)
    found: dict[str, list[int]] = {}
    count = 0
    while count < 900:
        for consumer in consumers:
            message = consumer.receive(timeout=0.02)
            if message is not None:
                found.setdefault(message.unit_of_order, []).append(message.body)
                message.acknowledge_this()
                count += 1
    assert all(bodies_ == sorted(bodies_) for bodies_ in found.values())
    assert sorted(body for bodies_ in found.values() for body in bodies_) == list(range(900))
