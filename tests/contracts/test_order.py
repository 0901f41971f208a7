"""Order and priority, time to live and delivery delay (B-21, W-35, B-09, W-59, W-60, W-64 … W-66, W-74, B16, B17)."""

from __future__ import annotations

import time

import pytest

from raybroker.errors import MessageFormatError
from raybroker.system.clock import SystemClock
from tests.contracts.conftest import ONE_FACE, MakeBroker, OneStore
from tests.contracts.handles import (
    LoopbackBroker,
    bodies,
    buffered,
    create,
    dead,
    nothing,
    outlive,
    rests,
    state_of,
    take,
    until,
)

HOUR_MS = 3_600_000
SHORT_MS = 150
"""A life or delay that passes within the test, and long enough to do something before."""

# ---- priority (B-21, W-35, W-74) -------------------------------------------------------------------------------------


def test_a_higher_priority_comes_first_and_within_one_the_older(broker: LoopbackBroker) -> None:
    """B-21"""
    session, name = broker.connect().session(), broker.name()
    producer = session.producer(name)
    for n in range(30):
        producer.send_async((n % 10) * 100 + n, priority=n % 10)
    producer.send(0, priority=0)
    found = bodies(take(session.consumer(name), 31))
    assert found == [*(100 * p + n for p in range(9, -1, -1) for n in range(p, 30, 10)), 0]


def test_priority_4_is_the_default_and_0_to_9_are_all_there_are(broker: LoopbackBroker) -> None:
    """R-16, B-21"""
    session, name = broker.connect().session(), broker.name()
    producer = session.producer(name)
    producer.send("x")
    assert take(session.consumer(name), 1)[0].priority == 4
    for wrong in (-1, 10, 4.0, "4"):
        with pytest.raises(MessageFormatError, match="0 to 9"):
            producer.send("x", priority=wrong)
        with pytest.raises(MessageFormatError, match="0 to 9"):
            session.producer(name, priority=wrong)


def test_a_higher_priority_does_not_overtake_what_is_prefetched(broker: LoopbackBroker) -> None:
    """W-35"""
    session, name = broker.connect().session(ack="client"), broker.name()
    producer, consumer = session.producer(name), session.consumer(name, prefetch=3)
    producer.send_many(range(5))
    until(lambda: buffered(consumer) == 3)
    producer.send("urgent", priority=9)
    found = take(consumer, 3)
    found[-1].acknowledge()
    assert bodies(found) == [0, 1, 2]
    assert bodies(take(consumer, 3)) == ["urgent", 3, 4]


def test_what_comes_back_keeps_its_place_in_its_priority(broker: LoopbackBroker) -> None:
    """B-21, B-07"""
    session, name = broker.connect().session(ack="client"), broker.name()
    producer, consumer = session.producer(name), session.consumer(name)
    producer.send_many(range(3))
    producer.send("low", priority=1)
    take(consumer, 2)
    producer.send("high", priority=9)
    session.recover()
    assert bodies(take(consumer, 5)) == ["high", 0, 1, 2, "low"]


def test_a_destination_can_force_priority_and_delivery_mode(broker: LoopbackBroker) -> None:
    """W-74"""
    connection = broker.connect()
    name = create(connection, broker.name(), priorityOverride=2, deliveryModeOverride="Non-Persistent")
    session = connection.session()
    session.producer(name, priority=9).send("x", persistent=True)
    session.producer(name).send_many([1, 2])
    found = take(session.consumer(name), 3)
    assert [(m.body, m.priority, m.persistent) for m in found] == [("x", 2, False), (1, 2, False), (2, 2, False)]


def test_a_connection_factory_gives_the_defaults_of_its_producers(broker: LoopbackBroker) -> None:
    """W-64, W-65, W-74"""
    connection = broker.connect(
        defaultPriority=7, defaultDeliveryMode="Non-Persistent", defaultTimeToLive=60_000, defaultTimeToDeliver=1
    )
    session, name = connection.session(), broker.name()
    session.producer(name).send("default")
    session.producer(name, priority=1, persistent=True, ttl_ms=0, delivery_delay_ms=0).send("own")
    found = {m.body: m for m in take(session.consumer(name), 2)}
    default, own = found["default"], found["own"]
    assert (default.priority, default.persistent) == (7, False)
    assert default.expiration - default.timestamp == 60_000
    assert default.delivery_time - default.timestamp == 1
    assert (own.priority, own.persistent, own.expiration) == (1, True, 0)


# ---- time to live (B-09, W-59, W-60, W-64, B16) ----------------------------------------------------------------------


def test_expiration_is_the_time_of_sending_and_the_time_to_live(broker: LoopbackBroker) -> None:
    """R-16: 0 never expires; a message's own value beats its producer's"""
    session, name = broker.connect().session(), broker.name()
    producer = session.producer(name, ttl_ms=60_000)
    before_ms = int(time.time() * 1000)
    producer.send("producer's")
    producer.send("own", ttl_ms=5_000)
    producer.send("for ever", ttl_ms=0)
    found = take(session.consumer(name), 3)
    after_ms = int(time.time() * 1000)
    assert before_ms + 60_000 <= found[0].expiration <= after_ms + 60_000
    assert before_ms + 5_000 <= found[1].expiration <= after_ms + 5_000
    assert found[2].expiration == 0


def test_an_expired_message_is_never_delivered_and_is_dead(broker: LoopbackBroker) -> None:
    """W-60, B-09"""
    connection, name = broker.connect(), broker.name()
    session = connection.session()
    producer = session.producer(name)
    producer.send("gone", ttl_ms=1)
    producer.send("stays")
    outlive(connection, name)
    consumer = session.consumer(name)
    assert bodies(take(consumer, 1)) == ["stays"]
    assert nothing(consumer, 0.01)
    until(lambda: dead(connection))
    (row,) = dead(connection)
    assert (row["body"], row["properties"]["JMS_SUN_DMQ_UNDELIVERED_REASON"]) == ("gone", "EXPIRED")


@pytest.mark.parametrize("attempt", [1, 2])
def test_a_message_that_expires_in_the_buffer_is_never_handed_out(
    broker: LoopbackBroker, attempt: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W-60: already prefetched"""
    passed_ms = 0
    monkeypatch.setattr(SystemClock, "now_ms", lambda self: time.time_ns() // 1_000_000 + passed_ms)
    connection, name = broker.connect(), broker.name()
    session = connection.session(ack="client")
    consumer = session.consumer(name)
    producer = session.producer(name)
    producer.send("first")
    producer.send("short", ttl_ms=HOUR_MS)
    producer.send("last")
    until(lambda: buffered(consumer) == 3)
    if attempt == 2:
        session.recover()
        until(lambda: buffered(consumer) == 3)
    assert bodies(take(consumer, 1)) == ["first"]
    passed_ms = HOUR_MS + 1
    assert bodies(take(consumer, 1)) == ["last"]
    until(lambda: [row["body"] for row in dead(connection)] == ["short"])
    assert state_of(connection, name)["messages"] == 2


@ONE_FACE
def test_expired_messages_are_swept_although_nobody_touches_them(make_broker: MakeBroker) -> None:
    """B-09, W-59"""
    broker = make_broker(imq__message__expiration__interval=1)
    connection, name = broker.connect(), broker.name()
    session = connection.session()
    session.producer(name, ttl_ms=10).send_many(range(50))
    session.producer(name).send("stays")
    until(lambda: state_of(connection, name)["messages"] == 1)
    assert state_of(connection, name)["expired"] == 50


def test_with_the_sweep_off_an_expired_message_goes_when_it_is_touched(make_broker: MakeBroker) -> None:
    """W-60"""
    broker = make_broker(imq__message__expiration__interval=0)
    connection, name = broker.connect(), broker.name()
    session = connection.session()
    session.producer(name, ttl_ms=1).send_many(range(3))
    outlive(connection, name)
    assert state_of(connection, name)["messages"] == 3
    assert nothing(session.consumer(name), 0.02)
    until(lambda: state_of(connection, name)["messages"] == 0)


def test_a_destination_can_force_the_time_to_live(broker: LoopbackBroker) -> None:
    """W-64"""
    connection = broker.connect()
    short, never = (
        create(connection, broker.name(), timeToLiveOverride=1),
        create(connection, broker.name(), timeToLiveOverride=0),
    )
    session = connection.session()
    session.producer(short).send("x", ttl_ms=60_000)
    session.producer(never).send("x", ttl_ms=1)
    outlive(connection, short)
    outlive(connection, never)
    assert nothing(session.consumer(short), 0.01)
    assert take(session.consumer(never), 1)[0].expiration == 0


def test_an_expired_message_of_a_durable_subscription_goes_before_it_is_acknowledged(broker: LoopbackBroker) -> None:
    """B-08: the exception"""
    connection, name = broker.connect(client_id="c"), broker.name()
    session = connection.session()
    session.durable_consumer(f"topic:{name}", "audit").close()
    producer = session.producer(f"topic:{name}", ttl_ms=1)
    producer.send("x")
    producer.send("stays", ttl_ms=0)
    outlive(connection, name, "topic")
    subscriber = session.durable_consumer(f"topic:{name}", "audit")
    assert bodies(take(subscriber, 1)) == ["stays"]
    assert nothing(subscriber, 0.01)
    until(lambda: len(dead(connection)) == 1)


# ---- delivery delay (W-65, W-66, B17) --------------------------------------------------------------------------------


def test_a_delayed_message_comes_when_its_time_has_come(broker: LoopbackBroker) -> None:
    """W-65"""
    connection, name = broker.connect(), broker.name()
    session = connection.session()
    consumer, producer = session.consumer(name), session.producer(name)
    since_s = time.monotonic()
    producer.send("later", delivery_delay_ms=SHORT_MS)
    producer.send("now")
    assert bodies(take(consumer, 1)) == ["now"]
    assert rests(connection, name, since_s, SHORT_MS)
    state = state_of(connection, name)
    assert (state["waiting"], state["messages"]) == (0, 2), "pending and charged"
    (message,) = take(consumer, 1)
    assert time.time() * 1000 >= message.delivery_time >= message.timestamp + SHORT_MS
    assert (message.body, message.redelivered, message.delivery_count) == ("later", False, 1)


def test_delayed_messages_come_in_the_order_of_their_times(broker: LoopbackBroker) -> None:
    """W-65"""
    session, name = broker.connect().session(), broker.name()
    producer = session.producer(name, delivery_delay_ms=200)
    for body, delay in (("c", None), ("a", 60), ("b", 120)):
        producer.send(body, delivery_delay_ms=delay)
    assert bodies(take(session.consumer(name), 3)) == ["a", "b", "c"]


def test_a_destination_can_force_the_delay(broker: LoopbackBroker) -> None:
    """W-65: the override wins"""
    connection = broker.connect()
    name = create(connection, broker.name(), timeToDeliverOverride=100)
    session = connection.session()
    since_s = time.monotonic()
    session.producer(name, delivery_delay_ms=0).send("x")
    assert rests(connection, name, since_s, 100)
    (message,) = take(session.consumer(name), 1)
    assert time.time() * 1000 >= message.timestamp + 100


def test_a_message_that_expires_before_its_delivery_time_is_never_seen(broker: LoopbackBroker) -> None:
    """W-66: the send succeeds"""
    connection, name = broker.connect(), broker.name()
    session = connection.session()
    consumer = session.consumer(name)
    assert session.producer(name).send("x", ttl_ms=30, delivery_delay_ms=60)
    until(lambda: [row["body"] for row in dead(connection)] == ["x"])
    assert nothing(consumer, 0.01)


def test_a_subscriber_gets_a_delayed_message_only_if_it_was_there_when_it_was_sent(broker: LoopbackBroker) -> None:
    """W-65, D-02"""
    session, name = broker.connect().session(), broker.name()
    topic = session.topic(name)
    early = session.consumer(topic)
    session.producer(topic).send("x", delivery_delay_ms=60)
    late = session.consumer(topic)
    assert bodies(take(early, 1)) == ["x"]
    assert nothing(late, 0.02)


def test_delay_and_life_go_on_over_a_restart(store: OneStore) -> None:
    """W-65, B-09"""
    connection = store.open().connect()
    producer = connection.session().producer("orders")
    producer.send("short", ttl_ms=1)
    producer.send("later", delivery_delay_ms=400)
    producer.send("urgent", priority=9, ttl_ms=60_000)
    producer.send("now")
    again = store.crash().connect()
    consumer = again.session().consumer("orders")
    found = take(consumer, 2)
    assert [(m.body, m.priority) for m in found] == [("urgent", 9), ("now", 4)]
    assert found[0].expiration > time.time() * 1000
    (later,) = take(consumer, 1)
    assert later.body == "later"
    assert time.time() * 1000 >= later.delivery_time
    assert nothing(consumer, 0.01)
