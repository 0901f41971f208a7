"""FLOW_CONTROL and REJECT_NEWEST at the producer: what is stored is confirmed, what is refused is told (D-10, D-13)."""

from __future__ import annotations

import inspect
import logging
import threading
from typing import Any

import pytest

from raybroker.errors import BrokerError, IllegalStateError, RequestTimeoutError
from tests.contracts.handle_basics import held
from tests.contracts.handles import WAIT_S, LoopbackBroker, bodies, create, state_of, take, until

LIMIT = 5


def slowing(connection: Any, broker: LoopbackBroker, most: int = LIMIT, **more: object) -> str:
    return create(connection, broker.name(), limitBehavior="FLOW_CONTROL", maxNumMsgs=most, **more)


@pytest.mark.parametrize("most", [1, LIMIT])
@pytest.mark.parametrize("persistent", [True, False])
def test_as_many_sends_return_as_are_stored_and_the_next_is_not_sent(
    broker: LoopbackBroker, most: int, persistent: bool
) -> None:
    connection = broker.connect(imqAckTimeout=300)
    name = slowing(connection, broker, most)
    session = connection.session(ack="client")
    producer = session.producer(name)
    sent = 0

    def send_until_it_is_full() -> None:
        nonlocal sent
        while sent < 10 * most:
            producer.send(sent, persistent=persistent)
            sent += 1

    with pytest.raises(RequestTimeoutError, match=r"imqAckTimeout=0\.3.*not sent"):
        send_until_it_is_full()
    overshoot = 0 if persistent else 1
    assert most <= sent <= most + overshoot, "one message under way is its credit"
    assert held(connection, name) == sent
    consumer = broker.connect().session().consumer(name)
    assert bodies(take(consumer, sent)) == list(range(sent))
    assert consumer.receive(timeout=0.02) is None, "what was not sent never is"
    producer.send("next", persistent=persistent)
    assert take(consumer, 1)[0].body == "next"


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("producers", [100, 2])
def test_many_messages_overshoot_by_the_credit_of_their_producer_at_most(
    broker: LoopbackBroker, persistent: bool, producers: int
) -> None:
    connection = broker.connect()
    name = slowing(connection, broker, 20, maxNumProducers=producers)
    credit = max(20 // producers, 1)
    done: list[int] = []

    def send() -> None:
        done.append(connection.session().producer(name).send_many(range(500), persistent=persistent))

    thread = threading.Thread(target=send)
    thread.start()
    until(lambda: state_of(connection, name)["throttled"])
    most, found = 0, []
    consumer = broker.connect().session(ack="client").consumer(name)
    while len(found) < 500:
        most = max(most, held(connection, name))
        for message in consumer.receive_many(100, timeout=WAIT_S):
            found.append(message.body)
            message.acknowledge()
    thread.join(WAIT_S)
    assert done == [500]
    assert found == list(range(500))
    assert 20 <= most <= 20 + credit


def test_a_limit_that_is_lifted_frees_who_waits_and_one_that_is_set_slows_who_sends(broker: LoopbackBroker) -> None:
    connection = broker.connect(imqAckTimeout=300)
    name = create(connection, broker.name())
    producer = connection.session().producer(name)
    producer.send("before", persistent=False)
    connection.admin().update_destination("queue", name, limitBehavior="FLOW_CONTROL", maxNumMsgs=3)
    with pytest.raises(RequestTimeoutError):
        until(lambda: producer.send("x", persistent=False) and False)
    assert held(connection, name) <= 4
    connection.admin().update_destination("queue", name, maxNumMsgs=-1)
    for _ in range(100):
        producer.send("y", persistent=False)
    until(lambda: held(connection, name) >= 103)
    producer.close()


def test_closing_does_not_wait_for_a_listener_that_waits_for_a_full_destination(broker: LoopbackBroker) -> None:
    """C-12: the listener's send is refused, and its message comes again"""
    connection, other = broker.connect(), broker.connect()
    full, source = slowing(other, broker, 1), broker.name()
    other.session().producer(full).send("first")
    session = connection.session()
    producer = session.producer(full)
    entered = threading.Event()
    errors: list[BrokerError] = []

    async def sends_later(message: Any, pending: Any) -> None:
        try:
            await pending
        except BrokerError as error:
            errors.append(error)
            raise

    def listener(message: Any) -> Any:
        entered.set()
        inner = getattr(producer, "inner", producer)
        try:
            pending = inner.send(message.body)
        except BrokerError as error:
            errors.append(error)
            raise
        return sends_later(message, pending) if inspect.isawaitable(pending) else None

    session.consumer(source).on_message(listener)
    other.session().producer(source).send("x")
    assert entered.wait(WAIT_S)
    closing = threading.Thread(target=connection.close)
    closing.start()
    closing.join(WAIT_S)
    assert not closing.is_alive()
    assert [type(error) for error in errors] == [IllegalStateError]
    assert (held(other, full), held(other, source)) == (1, 1)


def test_volatile_messages_that_are_refused_are_counted_and_told(
    broker: LoopbackBroker, caplog: pytest.LogCaptureFixture
) -> None:
    connection, other = broker.connect(), broker.connect()
    name = create(other, broker.name(), maxNumMsgs=4)
    events: list[Any] = []
    connection.on_event(events.append)
    producer = connection.session().producer(name)
    with caplog.at_level(logging.WARNING, "raybroker.client"):
        for n in range(12):
            producer.send(n, persistent=False)
        producer.close()
        assert producer.refused == 8
        until(lambda: sum(int(e.text.split(" messages")[0].split()[-1]) for e in events if e.kind == "refused") == 8)
    assert {(e.kind, e.code) for e in events} == {("refused", "quota_exceeded")}
    lines = [record.getMessage() for record in caplog.records if name in record.getMessage()]
    assert 1 <= len(lines) <= 8
    assert "maxNumMsgs=4" in lines[0]
    assert state_of(other, name)["refused"] == 8
