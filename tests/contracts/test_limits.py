"""What a full destination does: the four limit behaviours through handles (D-06 … D-14)."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from raybroker.errors import ConfigError, MessageTooLargeError, QuotaExceededError, ResourceAllocationError
from tests.contracts.conftest import TWO_FACES
from tests.contracts.handles import WAIT_S, LoopbackBroker, bodies, create, dead, nothing, state_of, take, until

# ---- REJECT_NEWEST (D-13, D-08) --------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [{"maxNumMsgs": 2}, {"maxTotalMsgBytes": 2}])
def test_reject_newest_refuses_a_persistent_message_and_drops_another_silently(
    broker: LoopbackBroker, limit: dict[str, int]
) -> None:
    """D-09, D-13"""
    connection = broker.connect()
    name = create(connection, broker.name(), limitBehavior="REJECT_NEWEST", **limit)
    session = connection.session()
    producer = session.producer(name)
    producer.send("a"), producer.send("b")
    word = next(f"{key}={value}" for key, value in limit.items())
    with pytest.raises(QuotaExceededError, match=f"{name}.*{word}|{word}.*{name}") as caught:
        producer.send("c")
    assert caught.value.retryable
    assert producer.send("d", persistent=False)
    assert producer.send_async("e", persistent=False).result(WAIT_S)
    until(lambda: state_of(connection, name)["refused"] == 3)
    assert bodies(take(session.consumer(name), 2)) == ["a", "b"]
    assert dead(connection) == []


def test_a_message_that_is_too_large_is_refused_if_persistent_and_dropped_otherwise(broker: LoopbackBroker) -> None:
    """D-08"""
    connection = broker.connect()
    name = create(connection, broker.name(), maxBytesPerMsg=10)
    session = connection.session()
    producer = session.producer(name)
    with pytest.raises(MessageTooLargeError, match=r"11.*maxBytesPerMsg=10"):
        producer.send(b"x" * 11)
    producer.send(b"x" * 11, persistent=False)
    producer.send(b"x" * 10)
    assert [len(m) for m in take(session.consumer(name), 1)] == [10]
    assert state_of(connection, name)["messages_in"] == 1


# ---- REMOVE_OLDEST, REMOVE_LOW_PRIORITY (D-11, D-12) -----------------------------------------------------------------


@pytest.mark.parametrize("limit", [{"maxNumMsgs": 3}, {"maxTotalMsgBytes": 3}])
@pytest.mark.parametrize("persistent", [True, False])
def test_remove_oldest_discards_the_oldest_and_tells_no_producer(
    broker: LoopbackBroker, limit: dict[str, int], persistent: bool
) -> None:
    """D-11: they go to the dead message queue"""
    connection = broker.connect()
    name = create(connection, broker.name(), limitBehavior="REMOVE_OLDEST", **limit)
    session = connection.session()
    producer = session.producer(name, persistent=persistent)
    for body in "abcde":
        producer.send(body)
    until(lambda: [row["body"] for row in dead(connection)] == ["a", "b"])
    assert {row["properties"]["JMS_SUN_DMQ_UNDELIVERED_REASON"] for row in dead(connection)} == {"OLDEST"}
    assert bodies(take(session.consumer(name), 3)) == ["c", "d", "e"]


def test_remove_oldest_goes_by_age_and_not_by_priority(broker: LoopbackBroker) -> None:
    """D-11"""
    connection = broker.connect()
    name = create(connection, broker.name(), limitBehavior="REMOVE_OLDEST", maxNumMsgs=2)
    session = connection.session()
    producer = session.producer(name)
    producer.send("oldest", priority=9)
    producer.send("low", priority=0)
    producer.send("new")
    until(lambda: [row["body"] for row in dead(connection)] == ["oldest"])
    assert bodies(take(session.consumer(name), 2)) == ["new", "low"]


def test_remove_low_priority_discards_the_lowest_and_of_those_the_oldest(broker: LoopbackBroker) -> None:
    """D-12"""
    connection = broker.connect()
    name = create(connection, broker.name(), limitBehavior="REMOVE_LOW_PRIORITY", maxNumMsgs=4)
    session = connection.session()
    producer = session.producer(name)
    for body, priority in (("a3", 3), ("b1", 1), ("c1", 1), ("d9", 9)):
        producer.send(body, priority=priority)
    for body, priority in (("e5", 5), ("f5", 5), ("g5", 5)):
        producer.send(body, priority=priority)
    until(lambda: [row["body"] for row in dead(connection)] == ["a3", "b1", "c1"], "in order of delivery")
    assert {row["properties"]["JMS_SUN_DMQ_UNDELIVERED_REASON"] for row in dead(connection)} == {"LOW_PRIORITY"}
    assert bodies(take(session.consumer(name), 4)) == ["d9", "e5", "f5", "g5"]


def test_what_is_discarded_without_the_dead_message_queue_is_gone(broker: LoopbackBroker) -> None:
    """D-11: useDMQ=false"""
    connection = broker.connect()
    name = create(connection, broker.name(), limitBehavior="REMOVE_OLDEST", maxNumMsgs=1, useDMQ=False)
    session = connection.session()
    producer = session.producer(name)
    producer.send_many(range(10))
    until(lambda: state_of(connection, name)["messages"] == 1)
    assert dead(connection) == []
    assert bodies(take(session.consumer(name), 1)) == [9]


@pytest.mark.parametrize("behaviour", ["REMOVE_OLDEST", "REMOVE_LOW_PRIORITY"])
@pytest.mark.parametrize("limit", [{"maxNumMsgs": 3}, {"maxTotalMsgBytes": 3}])
def test_a_commit_removes_what_is_too_much_and_a_rollback_removes_nothing(
    broker: LoopbackBroker, behaviour: str, limit: dict[str, int]
) -> None:
    """D-11, D-12, T-04: what an open transaction holds displaces nothing before its commit"""
    connection = broker.connect()
    name = create(connection, broker.name(), limitBehavior=behaviour, useDMQ=False, **limit)
    connection.session().producer(name).send_many("abc")
    session = connection.session(transacted=True)
    producer = session.producer(name)
    producer.send_many("0123456789")
    until(lambda: state_of(connection, name)["in_transaction"] == 10)
    session.rollback()
    assert bodies(list(session.browser(name))) == ["a", "b", "c"]
    producer.send_many("0123456789")
    until(lambda: state_of(connection, name)["in_transaction"] == 10)
    connection.session().producer(name).send("d")
    assert bodies(list(session.browser(name))) == ["b", "c", "d"]
    session.commit()
    until(lambda: state_of(connection, name)["messages"] == 3)
    assert bodies(list(session.browser(name))) == ["7", "8", "9"]


@pytest.mark.parametrize("kind", ["queue", "topic"])
@pytest.mark.parametrize("behaviour", ["REMOVE_OLDEST", "REMOVE_LOW_PRIORITY"])
@pytest.mark.parametrize("limit", [{"maxNumMsgs": 20}, {"maxTotalMsgBytes": 60}])
@pytest.mark.parametrize("many", [True, False])
def test_the_oldest_go_although_a_consumer_has_prefetched_them(
    broker: LoopbackBroker, kind: str, behaviour: str, limit: dict[str, int], many: bool
) -> None:
    """D-11, D-12: what its application has not begun is taken back, uncounted"""
    connection = broker.connect()
    name = create(connection, broker.name(), type=kind, limitBehavior=behaviour, useDMQ=False, **limit)
    sessions = [connection.session(ack="client") for _ in range(1 if kind == "queue" else 2)]
    consumers = [session.consumer(getattr(session, kind)(name)) for session in sessions]
    session = connection.session()
    producer = session.producer(getattr(session, kind)(name))
    texts = [f"{number:03}" for number in range(200 if many else 80)]
    if many:
        producer.send_many(texts)
    else:
        for text in texts:
            producer.send(text)
    until(lambda: state_of(connection, name, kind)["messages"] == 20)
    for consumer in consumers:
        found = take(consumer, 20)
        assert [(m.body, m.delivery_count) for m in found] == [(text, 1) for text in texts[-20:]]
        assert nothing(consumer)
        found[-1].acknowledge()


def test_what_the_application_has_in_hand_stays_with_it(broker: LoopbackBroker) -> None:
    """D-11: of the others the oldest go"""
    connection = broker.connect()
    name = create(connection, broker.name(), limitBehavior="REMOVE_OLDEST", useDMQ=False, maxNumMsgs=10)
    session = connection.session(ack="client")
    consumer = session.consumer(name)
    producer = connection.session().producer(name)
    producer.send_many(range(10))
    in_hand = take(consumer, 4)
    for number in range(10, 50):
        producer.send(number)
    until(lambda: state_of(connection, name)["messages"] == 10)
    found = take(consumer, 6)
    assert bodies(found) == list(range(44, 50))
    in_hand[-1].acknowledge()
    until(lambda: state_of(connection, name)["messages"] == 0)


@pytest.mark.parametrize("behaviour", ["REMOVE_OLDEST", "REMOVE_LOW_PRIORITY"])
@pytest.mark.parametrize("way", ["send", "async", "many", "transaction", "topic", "policy"])
def test_what_has_no_room_even_alone_is_refused_before_anything_is_removed(
    broker: LoopbackBroker, behaviour: str, way: str
) -> None:
    """D-11, D-12: in whatever way it comes"""
    connection = broker.connect()
    name, limits = broker.name(), {"limitBehavior": behaviour, "maxTotalMsgBytes": 100}
    kind = "topic" if way == "topic" else "queue"
    create(connection, name, type=kind, **({} if way == "policy" else limits))
    if way == "policy":
        connection.admin().create_policy(broker.name(), name, **limits)
    session = connection.session(transacted=way == "transaction")
    target = session.topic(name) if kind == "topic" else session.queue(name)
    consumer = session.consumer(target) if kind == "topic" else None
    if consumer is None:
        connection.session().producer(target).send_many([b"x" * 10] * 9)
    else:
        session.producer(target).send_many([b"x" * 10] * 9)
    producer = session.producer(target)

    def send() -> None:
        if way == "async":
            producer.send_async(b"y" * 110).result(WAIT_S)
        elif way == "many":
            producer.send_many([b"y" * 110, b"z"])
        else:
            producer.send(b"y" * 110)
            session.commit()

    with pytest.raises(MessageTooLargeError, match=r"110 bytes.*maxTotalMsgBytes=100"):
        send()
    producer.send(b"y" * 110, persistent=False)
    if way == "transaction":
        session.rollback()
    left = 9 + (way == "many")
    until(lambda: state_of(connection, name, kind)["messages"] == left)
    assert dead(connection) == []


# ---- FLOW_CONTROL (D-10) ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [{"maxNumMsgs": 5}, {"maxTotalMsgBytes": 5}])
def test_flow_control_holds_a_persistent_send_until_there_is_room(
    broker: LoopbackBroker, limit: dict[str, int]
) -> None:
    """D-10: the acknowledgement is withheld; nobody is refused and nothing is lost"""
    connection = broker.connect()
    name = create(connection, broker.name(), limitBehavior="FLOW_CONTROL", **limit)
    session = broker.connect().session(ack="client")
    sent: list[str] = []

    def send() -> None:
        producer = connection.session().producer(name)
        for n in range(30):
            producer.send(str(n % 10))
            sent.append(str(n % 10))

    thread = threading.Thread(target=send)
    thread.start()
    until(lambda: state_of(connection, name)["throttled"])
    consumer = session.consumer(name)
    most, found = 0, []
    while len(found) < 30:
        most = max(most, state_of(connection, name)["messages"])
        assert len(sent) < 30 or len(found) > 20
        (message,) = take(consumer, 1)
        found.append(message.body)
        message.acknowledge()
    thread.join(WAIT_S)
    assert not thread.is_alive()
    assert found == sent == [str(n % 10) for n in range(30)]
    assert most <= 10, "the limit is a hint, and may be overshot by what was under way"


def test_flow_control_slows_senders_that_do_not_wait(broker: LoopbackBroker) -> None:
    """D-10"""
    connection = broker.connect()
    name = create(connection, broker.name(), limitBehavior="FLOW_CONTROL", maxNumMsgs=10)
    producer = connection.session().producer(name)
    futures = [producer.send_async(n) for n in range(200)]
    until(lambda: state_of(connection, name)["throttled"])
    assert not futures[-1].done()
    found: list[Any] = []
    consumer = broker.connect().session(ack="none").consumer(name)
    until(lambda: found.extend(bodies(consumer.receive_many(50, timeout=1))) or len(found) == 200)
    assert found == list(range(200))
    assert len({future.result(WAIT_S) for future in futures}) == 200


def test_flow_control_with_many_producers_lets_all_of_them_through(broker: LoopbackBroker) -> None:
    """D-10"""
    connection = broker.connect()
    name = create(connection, broker.name(), limitBehavior="FLOW_CONTROL", maxNumMsgs=4)
    producers = [broker.connect().session().producer(name) for _ in range(5)]
    futures = [producer.send_async(i * 100 + n) for i, producer in enumerate(producers) for n in range(20)]
    consumer, found = connection.session(ack="none").consumer(name), []
    until(lambda: found.extend(bodies(consumer.receive_many(10, timeout=1))) or len(found) == 100)
    for index in range(5):
        assert [n for n in found if n // 100 == index] == [index * 100 + n for n in range(20)]
    assert all(future.result(WAIT_S) for future in futures)


def test_raising_the_limit_lets_senders_go_on(broker: LoopbackBroker) -> None:
    """D-10, D-03"""
    connection = broker.connect()
    name = create(connection, broker.name(), limitBehavior="FLOW_CONTROL", maxNumMsgs=2)
    producer = connection.session().producer(name)
    futures = [producer.send_async(n) for n in range(20)]
    until(lambda: state_of(connection, name)["throttled"])
    connection.admin().update_destination("queue", name, maxNumMsgs=-1)
    assert len({future.result(WAIT_S) for future in futures}) == 20
    assert not state_of(connection, name)["throttled"]


def test_flow_control_of_a_topic_follows_its_slowest_subscriber(broker: LoopbackBroker) -> None:
    """D-10, D-02"""
    connection = broker.connect()
    name = create(connection, broker.name(), "topic", limitBehavior="FLOW_CONTROL", maxNumMsgs=5)
    quick, slow = broker.connect().session(), broker.connect().session(ack="client")
    listening, lagging = quick.consumer(f"topic:{name}"), slow.consumer(f"topic:{name}")
    producer = connection.session().producer(f"topic:{name}")
    futures = [producer.send_async(n) for n in range(30)]
    until(lambda: state_of(connection, name, "topic")["throttled"])
    found: list[Any] = []
    for n in range(30):
        found += bodies(listening.receive_many(30, timeout=0.001))
        assert n > 15 or not futures[-1].done()
        (message,) = take(lagging, 1)
        assert message.body == n
        message.acknowledge()
    until(lambda: found.extend(bodies(listening.receive_many(30, timeout=0.01))) or len(found) == 30)
    assert found == list(range(30))
    assert len({future.result(WAIT_S) for future in futures}) == 30


# ---- producers and attributes (D-14, D-09) ---------------------------------------------------------------------------


def test_a_producer_beyond_the_limit_is_refused_and_leaves_no_trace(broker: LoopbackBroker) -> None:
    """D-14: also after a restart of a producer"""
    connection = broker.connect()
    for kind in ("queue", "topic"):
        name = create(connection, broker.name(), kind, maxNumProducers=1)
        session = connection.session()
        only = session.producer(f"{kind}:{name}")
        for _ in range(3):
            with pytest.raises(ResourceAllocationError, match=rf"{name}.*maxNumProducers=1|maxNumProducers=1.*{name}"):
                session.producer(f"{kind}:{name}")
        assert state_of(connection, name, kind)["producers"] == 1
        only.close()
        session.producer(f"{kind}:{name}").close()


@pytest.mark.parametrize(
    ("kind", "attributes", "word"),
    [
        ("queue", {"limitBehavior": "REMOVE_NEWEST"}, "FLOW_CONTROL, REMOVE_OLDEST, REMOVE_LOW_PRIORITY"),
        ("queue", {"sharedConsumerFlowLimit": 1}, "sharedConsumerFlowLimit"),
        ("topic", {"maxNumActiveConsumers": 1}, "maxNumActiveConsumers"),
        ("topic", {"localDeliveryPreferred": True}, "localDeliveryPreferred"),
        ("queue", {"redeliveryLimit": -2}, "redeliveryLimit"),
        ("queue", {"priorityOverride": 10}, "0 to 9"),
        ("queue", {"expirationPolicy": "Burn"}, "Discard"),
        ("queue", {"deliveryModeOverride": "Fast"}, "Persistent"),
        ("queue", {"redeliveryBackoffPercent": 99}, "100"),
        ("queue", {"errorDestination": "a b"}, "blank"),
        ("topic", {"duplicateIdsMax": 0}, "duplicateIdsMax"),
        ("queue", {"template": "absent"}, "absent"),
        ("queue", {"timeToLiveOverride": -2}, "timeToLiveOverride"),
    ],
)
@TWO_FACES
def test_attributes_of_the_other_type_and_values_out_of_bounds_are_refused(
    broker: LoopbackBroker, kind: str, attributes: dict[str, Any], word: str
) -> None:
    """D-03, D-09"""
    connection, name = broker.connect(), broker.name()
    with pytest.raises(Exception, match=word) as caught:
        create(connection, name, kind, **attributes)
    assert isinstance(caught.value, ConfigError) or word == "blank"
    create(connection, name, kind)
    before = state_of(connection, name, kind)["attributes"]
    with pytest.raises(Exception, match=word if word != "absent" else "template|fixed"):
        connection.admin().update_destination(kind, name, useDMQ=False, **attributes)
    assert state_of(connection, name, kind)["attributes"] == before
    assert nothing(connection.session().consumer(f"{kind}:{name}"), 0.001)
