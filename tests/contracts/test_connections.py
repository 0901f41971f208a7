"""What connections do beside carrying messages: events, client ids, asynchronous answers (R-02, R-15, R-18)."""

from __future__ import annotations

from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any

import pytest

import raybroker as rb
from raybroker.client.connection.events import ConnectionEvent, ConsumerEvent
from raybroker.errors import IllegalStateError, InvalidClientIDError, InvalidDestinationError, RequestTimeoutError
from tests.contracts.conftest import MakeBroker
from tests.contracts.handles import LoopbackBroker, bodies, create, cut, take


def next_event(told: SimpleQueue[Any]) -> Any:
    return told.get(timeout=20)


def test_a_lost_link_and_its_return_are_told(broker: LoopbackBroker) -> None:
    """R-15"""
    client, name = broker.connect(), broker.name()
    told: SimpleQueue[ConnectionEvent] = SimpleQueue()
    client.on_event(told.put)
    session = client.session()
    producer, consumer = session.producer(name), session.consumer(name)
    cut(client)
    lost, back = next_event(told), next_event(told)
    assert (lost.kind, lost.code, back.kind, back.code) == ("closed", "connection_lost", "reconnected", "")
    assert lost.address == back.address == "loopback"
    producer.send("after")
    assert bodies(take(consumer, 1)) == ["after"]
    client.on_event(None)
    cut(client)
    producer.send("again")
    assert bodies(take(consumer, 2)) == ["after", "again"]
    assert told.empty()


def test_what_cannot_come_back_is_told_as_an_event_and_then_to_the_exception_handler(broker: LoopbackBroker) -> None:
    """R-15: the exception handler only when nothing is tried any more"""
    client, name = broker.connect(imqReconnectEnabled=False), broker.name()
    told: SimpleQueue[str] = SimpleQueue()
    client.on_event(lambda event: told.put(event.kind))
    failed: SimpleQueue[Exception] = SimpleQueue()
    client.on_exception(failed.put)
    client.session().producer(name)
    cut(client)
    assert next_event(told) == "closed"
    assert "imqReconnectEnabled" in str(next_event(failed))
    assert told.empty()


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_whether_a_destination_has_consumers_is_told_at_once_and_when_it_changes(
    broker: LoopbackBroker, kind: str
) -> None:
    """R-15: READY and NOT_READY"""
    client, name = broker.connect(), broker.name()
    create(client, name, kind)
    told: SimpleQueue[ConsumerEvent] = SimpleQueue()
    where = f"{kind}:{name}"
    client.on_consumer_event(where, told.put)
    assert next_event(told).kind == "not_ready"
    other = broker.connect()
    one, two = other.session().consumer(where), other.session().consumer(where)
    event = next_event(told)
    assert (event.kind, event.destination.name, event.destination.kind) == ("ready", name, kind)
    one.close()
    two.close()
    assert next_event(told).kind == "not_ready"
    third = broker.connect().session()
    _held = third.consumer(where)
    assert next_event(told).kind == "ready"
    client.on_consumer_event(where, None)
    third.close()
    assert told.empty()


def test_a_destination_may_be_watched_before_it_is_there_and_after_it_is_gone(broker: LoopbackBroker) -> None:
    """R-15"""
    client, name = broker.connect(imqReconnectInterval=5), broker.name()
    told: SimpleQueue[ConsumerEvent] = SimpleQueue()
    client.on_consumer_event(name, told.put)
    assert next_event(told).ready is False
    consumer = broker.connect().session().consumer(name)
    assert next_event(told).ready is True
    consumer.close()
    assert next_event(told).ready is False
    client.admin().destroy_destination("queue", name)
    _kept = broker.connect().session().consumer(name)
    assert next_event(told).ready is True
    with pytest.raises(InvalidDestinationError, match="pattern"):
        client.on_consumer_event("topic:a.*", told.put)


def test_a_watch_outlives_a_lost_link(broker: LoopbackBroker) -> None:
    """R-13, R-15"""
    client, name = broker.connect(), broker.name()
    create(client, name)
    told: SimpleQueue[ConsumerEvent] = SimpleQueue()
    client.on_consumer_event(name, told.put)
    assert next_event(told).ready is False
    cut(client)
    _kept = broker.connect().session().consumer(name)
    assert next_event(told).ready is True


# ---- client ids ------------------------------------------------------------------------------------------------------


def test_an_administrator_may_keep_programs_from_choosing_a_client_id(make_broker: MakeBroker) -> None:
    """R-18"""
    client = make_broker().connect(started=False, imqDisableSetClientID=True)
    with pytest.raises(IllegalStateError, match="imqDisableSetClientID"):
        client.client_id = "mine"
    assert client.client_id is None
    free = make_broker().connect(started=False)
    free.client_id = "mine"
    assert free.client_id == "mine"
    with pytest.raises(InvalidClientIDError):
        free.client_id = " "


def test_a_loopback_has_the_configured_client_id() -> None:
    """R-18"""
    fixed = {"imqConfiguredClientID": "shop", "imqDisableSetClientID": True}
    with rb.loopback(properties=fixed) as connection:
        assert connection.client_id == "shop"
    with pytest.raises(IllegalStateError, match="imqDisableSetClientID"):
        rb.loopback(client_id="mine", properties=fixed)


# ---- asynchronous sends ----------------------------------------------------------------------------------------------


def test_the_future_of_an_asynchronous_send_gives_up_and_the_message_arrives_all_the_same(
    broker: LoopbackBroker,
) -> None:
    """R-02: a full destination holds messages back for longer than anybody waits for them"""
    client, name = broker.connect(imqAsyncSendCompletionWaitTimeout=1000), broker.name()
    create(client, name, maxNumMsgs=1, limitBehavior="FLOW_CONTROL")
    session = client.session()
    producer = session.producer(name)
    assert producer.send_async("taken").exception(20) is None
    late: Future[str] = producer.send_async(0)
    assert isinstance(late.exception(20), RequestTimeoutError)
    told: SimpleQueue[Any] = SimpleQueue()
    producer.send_async(1).add_done_callback(lambda done: told.put(done.exception()))
    assert isinstance(next_event(told), RequestTimeoutError)
    assert bodies(take(session.consumer(name), 3)) == ["taken", 0, 1]
