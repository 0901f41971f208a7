"""Topics: who gets a copy, when it is gone, and topics by pattern (D-02, D-05, B-02, B-05, B-08)."""

from __future__ import annotations

from typing import Any

import pytest

from raybroker.errors import InvalidDestinationError, QuotaExceededError
from tests.contracts.conftest import MakeBroker
from tests.contracts.handles import LoopbackBroker, bodies, create, nothing, state_of, take, until

# ---- D-02, B-02, B-05 ------------------------------------------------------------------------------------------------


def test_every_subscriber_gets_a_copy_of_every_message_in_order(broker: LoopbackBroker) -> None:
    """D-02"""
    connection, name = broker.connect(), broker.name()
    session = connection.session()
    topic = session.topic(name)
    subscribers = [connection.session().consumer(topic) for _ in range(3)]
    session.producer(topic).send_many(range(20))
    for subscriber in subscribers:
        assert bodies(take(subscriber, 20)) == list(range(20))
        assert nothing(subscriber, 0.01)


def test_with_no_subscriber_a_message_is_dropped(broker: LoopbackBroker) -> None:
    """D-02"""
    connection, name = broker.connect(), broker.name()
    session = connection.session()
    topic = session.topic(name)
    producer = session.producer(topic)
    producer.send("nobody listens")
    assert state_of(connection, name, "topic")["messages"] == 0
    subscriber = session.consumer(topic)
    producer.send("somebody does")
    assert bodies(take(subscriber, 1)) == ["somebody does"]
    assert nothing(subscriber, 0.01)


def test_a_subscriber_gets_only_what_is_published_while_it_is_subscribed(broker: LoopbackBroker) -> None:
    """D-02"""
    connection, name = broker.connect(), broker.name()
    session = connection.session()
    topic = session.topic(name)
    producer = session.producer(topic)
    early = session.consumer(topic)
    producer.send(1)
    late = session.consumer(topic)
    producer.send(2)
    early.close()
    producer.send(3)
    again = session.consumer(topic)
    producer.send(4)
    assert bodies(take(late, 3)) == [2, 3, 4]
    assert bodies(take(again, 1)) == [4]
    assert nothing(again, 0.01)


def test_a_message_stays_until_the_last_subscriber_has_acknowledged_it(broker: LoopbackBroker) -> None:
    """B-02, B-05: each subscriber is tracked by itself"""
    connection, name = broker.connect(), broker.name()
    sessions = [connection.session(ack="client") for _ in range(3)]
    topic = sessions[0].topic(name)
    subscribers = [session.consumer(topic) for session in sessions]
    connection.session().producer(topic).send_many(range(4))
    received = [take(subscriber, 4) for subscriber in subscribers]
    received[0][-1].acknowledge()
    received[1][1].acknowledge_up_to()
    assert state_of(connection, name, "topic")["messages"] == 4
    received[2][1].acknowledge_up_to()
    assert state_of(connection, name, "topic")["messages"] == 2
    received[2][-1].acknowledge()
    received[1][-1].acknowledge()
    assert state_of(connection, name, "topic")["messages"] == 0


def test_what_only_a_subscriber_that_leaves_still_needed_is_gone_with_it(broker: LoopbackBroker) -> None:
    """D-02"""
    connection, name = broker.connect(), broker.name()
    staying, leaving = connection.session(ack="client"), connection.session(ack="client")
    topic = staying.topic(name)
    first, second = staying.consumer(topic), leaving.consumer(topic)
    connection.session().producer(topic).send_many(range(4))
    take(first, 4)[-1].acknowledge()
    take(second, 1)
    assert state_of(connection, name, "topic")["messages"] == 4
    second.close()
    assert state_of(connection, name, "topic")["messages"] == 0


def test_redelivery_to_one_subscriber_does_not_concern_another(broker: LoopbackBroker) -> None:
    """W-72: every subscriber has counts of its own"""
    connection, name = broker.connect(), broker.name()
    one, other = connection.session(ack="client"), connection.session(ack="client")
    topic = one.topic(name)
    first, second = one.consumer(topic), other.consumer(topic)
    connection.session().producer(topic).send_many(range(2))
    take(first, 2)
    one.recover()
    assert [(m.body, m.delivery_count, m.redelivered) for m in take(first, 2)] == [(0, 2, True), (1, 2, True)]
    assert [(m.body, m.delivery_count, m.redelivered) for m in take(second, 2)] == [(0, 1, False), (1, 1, False)]


def test_a_topic_and_a_queue_of_one_name_are_two_destinations(broker: LoopbackBroker) -> None:
    """D-01, D-02"""
    connection, name = broker.connect(), broker.name()
    session = connection.session()
    of_queue, of_topic = session.consumer(session.queue(name)), session.consumer(session.topic(name))
    session.producer(f"topic:{name}").send("to the topic")
    session.producer(f"queue:{name}").send("to the queue")
    assert bodies(take(of_topic, 1)) == ["to the topic"]
    assert bodies(take(of_queue, 1)) == ["to the queue"]
    assert [state_of(connection, name, kind)["type"] for kind in ("queue", "topic")] == ["queue", "topic"]


def test_a_subscriber_with_no_local_gets_what_other_connections_publish(broker: LoopbackBroker) -> None:
    """D-27: noLocal"""
    mine, others, name = broker.connect(), broker.connect(), broker.name()
    topic = mine.session().topic(name)
    deaf, plain = mine.session().consumer(topic, no_local=True), mine.session().consumer(topic)
    mine.session().producer(topic).send("mine")
    others.session().producer(topic).send("theirs")
    assert bodies(take(plain, 2)) == ["mine", "theirs"]
    assert bodies(take(deaf, 1)) == ["theirs"]
    assert nothing(deaf, 0.01)


def test_subscribers_select_each_for_itself(broker: LoopbackBroker) -> None:
    """B-22"""
    connection, name = broker.connect(), broker.name()
    session = connection.session()
    topic = session.topic(name)
    low, high, all_ = (connection.session().consumer(topic, s) for s in ("n < 5", "n >= 5", None))
    producer = session.producer(topic)
    for n in range(10):
        producer.send(n, properties={"n": n})
    assert bodies(take(low, 5)) == list(range(5))
    assert bodies(take(high, 5)) == list(range(5, 10))
    assert bodies(take(all_, 10)) == list(range(10))
    until(lambda: state_of(connection, name, "topic")["messages"] <= 3)


def test_what_no_selector_wants_is_not_kept(broker: LoopbackBroker) -> None:
    """B-22, B-02"""
    connection, name = broker.connect(), broker.name()
    session = connection.session()
    consumer = session.consumer(session.topic(name), "n = 1")
    producer = session.producer(session.topic(name))
    producer.send("wanted", properties={"n": 1})
    producer.send("not", properties={"n": 2})
    assert state_of(connection, name, "topic")["messages"] == 1
    assert bodies(take(consumer, 1)) == ["wanted"]


# ---- limits and creation ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("who", ["producer", "consumer"])
def test_opening_a_missing_topic_creates_it_with_the_attributes_for_that(make_broker: MakeBroker, who: str) -> None:
    """D-21"""
    broker = make_broker(imq__autocreate__topic__consumerFlowLimit=9, imq__autocreate__destination__maxNumMsgs=3)
    connection, name = broker.connect(), broker.name()
    session = connection.session()
    getattr(session, who)(session.topic(name))
    state = state_of(connection, name, "topic")
    assert state["auto_created"]
    assert (state["attributes"]["consumerFlowLimit"], state["attributes"]["maxNumMsgs"]) == (9, 3)
    assert state["attributes"]["sharedConsumerFlowLimit"] == 5
    assert "maxNumActiveConsumers" not in state["attributes"]


def test_with_auto_creation_of_topics_off_queues_are_still_created(make_broker: MakeBroker) -> None:
    """D-21: a switch for each type"""
    broker = make_broker(imq__autocreate__topic=False)
    connection, name = broker.connect(), broker.name()
    session = connection.session()
    with pytest.raises(InvalidDestinationError, match=f"raybroker create dst -t t -n {name}"):
        session.consumer(session.topic(name))
    session.producer(session.queue(name)).send("x")
    connection.admin().create_destination("topic", name)
    session.consumer(session.topic(name))


def test_the_limits_of_a_topic_count_a_message_once_however_many_subscribe(broker: LoopbackBroker) -> None:
    """D-06"""
    connection = broker.connect()
    name = create(connection, broker.name(), "topic", maxNumMsgs=3)
    session = connection.session(ack="client")
    topic = session.topic(name)
    subscribers = [session.consumer(topic) for _ in range(2)]
    producer = session.producer(topic)
    for n in range(3):
        producer.send(n)
    with pytest.raises(QuotaExceededError, match="maxNumMsgs=3"):
        producer.send(3)
    for subscriber in subscribers:
        take(subscriber, 3)[-1].acknowledge()
    assert producer.send(4)


def test_destroying_a_topic_tells_its_producers_and_subscribers(broker: LoopbackBroker) -> None:
    """A-32"""
    connection, name = broker.connect(), broker.name()
    session = connection.session()
    producer, subscriber = session.producer(session.topic(name)), session.consumer(session.topic(name))
    connection.admin().destroy_destination("topic", name)
    with pytest.raises(InvalidDestinationError, match="destroyed"):
        producer.send("x")
    with pytest.raises(InvalidDestinationError, match="destroyed"):
        subscriber.receive(timeout=20)


# ---- wildcards (D-05) ------------------------------------------------------------------------------------------------


def test_a_subscriber_of_a_pattern_gets_what_goes_to_every_topic_that_matches(broker: LoopbackBroker) -> None:
    """D-05"""
    connection, root = broker.connect(), broker.name()
    session = connection.session()
    names = [f"{root}.{name}" for name in ("large.red.circle", "large.circle", "large.red.square", "larger.circle")]
    producers = {name: session.producer(session.topic(name)) for name in names}
    subscribers = {
        pattern: session.consumer(session.topic(f"{root}.{pattern}"))
        for pattern in ("large.*.circle", "**.square", "large>")
    }
    for name, producer in producers.items():
        producer.send(name.removeprefix(f"{root}."))

    def got(pattern: str, count: int) -> list[Any]:
        return sorted(bodies(take(subscribers[pattern], count)))

    assert got("large.*.circle", 1) == ["large.red.circle"]
    assert got("**.square", 1) == ["large.red.square"]
    assert got("large>", 3) == ["large.circle", "large.red.circle", "large.red.square"]
    assert all(nothing(subscriber, 0.01) for subscriber in subscribers.values())


def test_a_subscriber_of_a_pattern_joins_topics_that_appear_later(broker: LoopbackBroker) -> None:
    """D-05: registered when one appears"""
    connection, root = broker.connect(), broker.name()
    session = connection.session()
    subscriber = session.consumer(session.topic(f"{root}.*"))
    assert nothing(subscriber, 0.01)
    for n in range(3):
        topic = session.topic(f"{root}.t{n}")
        producer = session.producer(topic)
        until(lambda topic=topic: state_of(connection, topic.name, "topic")["active_consumers"] == 1)
        producer.send(n)
    assert sorted(bodies(take(subscriber, 3))) == [0, 1, 2]
    connection.admin().destroy_destination("topic", f"{root}.t0")
    session.producer(session.topic(f"{root}.t1")).send("the others go on")
    assert bodies(take(subscriber, 1)) == ["the others go on"]


def test_a_publisher_to_a_pattern_sends_a_copy_to_every_match(broker: LoopbackBroker) -> None:
    """D-05"""
    connection, root = broker.connect(), broker.name()
    session = connection.session()
    subscribers = [session.consumer(session.topic(f"{root}.{n}")) for n in ("a", "b", "c.d")]
    publisher = session.producer(session.topic(f"{root}.*"))
    publisher.send("copy")
    assert [bodies(take(s, 1)) for s in subscribers[:2]] == [["copy"], ["copy"]]
    assert nothing(subscribers[2], 0.01)
    late = session.consumer(session.topic(f"{root}.e"))

    def reached() -> Any:
        publisher.send("later")
        return late.receive(timeout=0.02)

    assert until(reached).body == "later"


def test_a_pattern_of_nothing_is_refused_where_only_a_name_can_stand(broker: LoopbackBroker) -> None:
    """D-05: queues have none, and nothing can be created with one"""
    connection = broker.connect()
    session = connection.session()
    for call in (
        lambda: session.queue("a.*"),
        lambda: connection.admin().create_destination("queue", "a.*"),
        lambda: connection.admin().create_destination("topic", "a.>"),
        lambda: session.topic("a.>.b"),
        lambda: session.topic("a.b*"),
        lambda: session.durable_consumer(session.topic("a.*"), "sub"),
    ):
        with pytest.raises(InvalidDestinationError):
            call()
