"""Callbacks of the application: they may make any call, and what fails inside of the client leaves nobody waiting."""

from __future__ import annotations

import queue
import threading
from concurrent.futures import Future
from typing import Any

import pytest

from raybroker.client.connection import channel as channel_module
from raybroker.client.producer.producer_state import SendBatch
from raybroker.errors import BrokerError, MessageFormatError
from tests.contracts.conftest import ONE_FACE, TWO_FACES
from tests.contracts.handle_basics import held
from tests.contracts.handles import WAIT_S, LoopbackBroker, bodies, create, dead, take, until

# ---- send_async ------------------------------------------------------------------------------------------------------


@ONE_FACE
def test_a_callback_may_make_every_blocking_call(broker: LoopbackBroker) -> None:
    connection, name = broker.connect(), broker.name()
    session, other = connection.session(), connection.session(transacted=True)
    producer, consumer = session.producer(name), other.consumer(name)
    told: queue.Queue[Any] = queue.Queue()

    def callback(done: Future[str]) -> None:
        producer.send("confirmed")
        received = bodies(take(consumer, 2))
        other.commit()
        told.put((done.result(), received, connection.admin().query_destination("queue", name)["messages"]))
        connection.close()
        told.put("closed")

    sent = producer.send_async("first")
    sent.add_done_callback(callback)
    assert told.get(timeout=WAIT_S) == (sent.result(), ["first", "confirmed"], 0)
    assert told.get(timeout=WAIT_S) == "closed"


def test_callbacks_of_a_producer_run_in_order_whatever_they_raise(broker: LoopbackBroker) -> None:
    producer = broker.connect().session().producer(broker.name())
    told: queue.Queue[Any] = queue.Queue()

    def callback(number: int) -> None:
        told.put((number, threading.current_thread().name))
        raise ValueError(number)

    for number in range(20):
        producer.send_async(number).add_done_callback(lambda _, number=number: callback(number))
    found = [told.get(timeout=WAIT_S) for _ in range(20)]
    assert [number for number, _ in found] == list(range(20))
    assert all(thread != "raybroker-io" for _, thread in found)


@ONE_FACE
def test_handlers_of_events_may_make_blocking_calls(broker: LoopbackBroker) -> None:
    connection, name = broker.connect(), create(broker.connect(), broker.name())
    producer = connection.session().producer(name)
    told: queue.Queue[Any] = queue.Queue()
    connection.on_consumer_event(name, lambda event: told.put((event.ready, producer.send("from a handler"))))
    assert told.get(timeout=WAIT_S)[0] is False
    assert held(connection, name) == 1


def test_a_send_that_was_handed_over_cannot_be_cancelled(broker: LoopbackBroker) -> None:
    connection, name = broker.connect(), broker.name()
    sent = connection.session().producer(name).send_async("x")
    assert not sent.cancel()
    assert sent.result(WAIT_S)
    assert (sent.cancelled(), sent.cancel()) == (False, False)
    assert held(connection, name) == 1


# ---- outcomes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", ["reject", "fail"])
def test_an_exception_is_a_reason(broker: LoopbackBroker, outcome: str) -> None:
    connection = broker.connect()
    name = create(connection, broker.name(), redeliveryLimit=0)
    session = connection.session(ack="client")
    session.producer(name).send("x")
    (message,) = take(session.consumer(name), 1)
    error = ZeroDivisionError("no such customer")
    message.reject(error) if outcome == "reject" else message.fail(reason=error)
    until(lambda: dead(connection))
    assert "ZeroDivisionError: no such customer" in str(dead(connection))


@pytest.mark.parametrize("wrong", [5, b"x", ["x"], ValueError])
@TWO_FACES
def test_a_reason_of_another_type_is_refused_at_once(broker: LoopbackBroker, wrong: Any) -> None:
    session, name = broker.connect().session(ack="client"), broker.name()
    session.producer(name).send("x")
    (message,) = take(session.consumer(name), 1)
    for call in (lambda: message.reject(wrong), lambda: message.fail(reason=wrong)):
        with pytest.raises(MessageFormatError, match="text or an exception"):
            call()
    message.reject("it can still be settled")


@pytest.mark.parametrize("wrong", [-1, 2**70, 1.5, "1", True, float("nan")])
@TWO_FACES
def test_a_delay_that_is_none_is_refused_at_once(broker: LoopbackBroker, wrong: Any) -> None:
    session, name = broker.connect().session(ack="client"), broker.name()
    session.producer(name).send("x")
    (message,) = take(session.consumer(name), 1)
    with pytest.raises(MessageFormatError, match="delay_ms"):
        message.fail(wrong)
    message.fail(0)


# ---- faults inside of the client -------------------------------------------------------------------------------------


@pytest.mark.parametrize("frame", ["settle", "ack"])
def test_an_acknowledgement_that_cannot_be_written_fails(
    broker: LoopbackBroker, frame: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, name = broker.connect().session(ack="client"), broker.name()
    session.producer(name).send_many(["a", "b"])
    first, second = take(session.consumer(name), 2)

    def faulty(*_: object) -> bytes:
        raise TypeError("cannot be packed")

    with monkeypatch.context() as patch:
        patch.setattr(channel_module.wire, frame, faulty)
        with pytest.raises(BrokerError, match="cannot be packed"):
            first.release() if frame == "settle" else first.acknowledge_this()
    second.acknowledge_this()


def test_a_send_that_cannot_be_packed_fails_with_its_producer(
    broker: LoopbackBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection, name = broker.connect(), broker.name()
    session = connection.session()
    told: queue.Queue[BrokerError] = queue.Queue()
    connection.on_exception(told.put)
    broken, producer = session.producer(name), session.producer(name)

    def faulty(*_: object) -> None:
        raise TypeError("cannot be packed")

    with monkeypatch.context() as patch:
        patch.setattr(SendBatch, "encode", faulty)
        with pytest.raises(BrokerError, match="cannot be packed"):
            broken.send("x")
    assert "cannot be packed" in str(told.get(timeout=WAIT_S))
    with pytest.raises(BrokerError, match="cannot be packed"):
        broken.send("y")
    broken.close()
    producer.send("others go on")
    assert held(connection, name) == 1
