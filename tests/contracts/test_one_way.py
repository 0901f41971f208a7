"""One-way sends: which messages that are not persistent wait for the broker, and what they are told (W-99 to W-106)."""

from __future__ import annotations

from typing import Any

import pytest

from raybroker.errors import ConfigError, ResourceAllocationError
from tests.contracts.conftest import TWO_FACES
from tests.contracts.handles import LoopbackBroker, bodies, create, state_of, take, until


def test_every_nth_send_waits_for_the_broker(broker: LoopbackBroker) -> None:
    connection = broker.connect(OneWaySendMode="enabled", OneWaySendWindowSize=3)
    session = connection.session()
    name = broker.name()
    producer = session.producer(name)
    for number in range(6):
        producer.send(number, persistent=False)
    assert state_of(connection, name)["messages"] == 6, "the sixth has waited, and so for those before it"
    producer.send_async(6, persistent=False).result(60)
    assert producer.send_many(range(7, 40), persistent=False) == 33
    assert state_of(connection, name)["messages"] == 40
    assert bodies(take(session.consumer(name), 40)) == list(range(40))


@pytest.mark.parametrize("mode", ["disabled", "topicOnly"])
def test_two_way_sends_to_a_queue_are_told_what_the_broker_has_decided(broker: LoopbackBroker, mode: str) -> None:
    connection = broker.connect(OneWaySendMode=mode, OneWaySendWindowSize=100)
    name = create(connection, broker.name(), maxNumMsgs=2)
    producer = connection.session().producer(name)
    for number in range(2):
        assert producer.send(number, persistent=False)
        assert state_of(connection, name)["messages"] == number + 1
    with pytest.raises(ResourceAllocationError, match="maxNumMsgs=2"):
        producer.send(2, persistent=False)
    with pytest.raises(ResourceAllocationError, match="maxNumMsgs=2"):
        producer.send_async(3, persistent=False).result(60)
    assert producer.refused == 0, "somebody waited for each"


def test_a_refused_one_way_message_is_told_and_the_next_send_raises_while_the_limit_holds(
    broker: LoopbackBroker,
) -> None:
    connection = broker.connect(OneWaySendMode="enabled", OneWaySendWindowSize=1000)
    events: list[Any] = []
    connection.on_event(events.append)
    name = create(connection, broker.name(), maxNumMsgs=1)
    session = connection.session()
    producer = session.producer(name)
    producer.send("fits", persistent=False)
    producer.send("dropped", persistent=False)
    until(lambda: producer.refused == 1)
    until(lambda: [event for event in events if event.kind == "refused"])
    with pytest.raises(ResourceAllocationError, match="maxNumMsgs=1"):
        producer.send("raises", persistent=False)
    assert producer.refused == 1
    consumer = connection.session(ack="none").consumer(name)
    assert take(consumer, 1)[0].body == "fits"
    producer.send("taken", persistent=False)
    assert take(consumer, 1)[0].body == "taken"


def test_units_and_transactions_need_no_window(broker: LoopbackBroker) -> None:
    connection = broker.connect(OneWaySendMode="enabled", OneWaySendWindowSize=1000)
    name = create(connection, broker.name(), maxNumMsgs=1)
    session = connection.session()
    session.producer(name).send("persistent")
    with pytest.raises(ResourceAllocationError):
        session.producer(name).send("x", persistent=False, unit_of_order="u")
    with pytest.raises(ResourceAllocationError):
        session.producer(name).send("x", persistent=False, properties={"JMS_BEA_UnitOfWork": "w"})
    work = connection.session(transacted=True)
    work.producer(name).send("in a transaction", persistent=False)
    with pytest.raises(ResourceAllocationError):
        work.commit()


def test_topics_have_one_way_sends_of_their_own(broker: LoopbackBroker) -> None:
    connection = broker.connect(OneWaySendMode="topicOnly", OneWaySendWindowSize=2)
    session = connection.session()
    topic = session.topic(f"one.{broker.name()}")
    consumer = session.consumer(topic)
    producer = session.producer(topic)
    for number in range(5):
        producer.send(number, persistent=False)
    session.producer(session.topic("one.*")).send(5, persistent=False)
    assert bodies(take(consumer, 6)) == list(range(6))


@TWO_FACES
def test_a_mode_that_is_none_is_refused(broker: LoopbackBroker) -> None:
    with pytest.raises(ConfigError, match=r"OneWaySendMode.*buffered, disabled, enabled, topicOnly"):
        broker.connect(OneWaySendMode="always")
