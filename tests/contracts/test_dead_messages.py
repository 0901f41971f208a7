"""The dead message queue, error destinations and expiration policies (D-24, D-25, W-57 … W-71, B12 … B16)."""

from __future__ import annotations

import json
import logging
import time
from typing import Any

import pytest

from raybroker.errors import ConfigError, IllegalStateError, InvalidDestinationError
from tests.contracts.conftest import MakeBroker, OneStore
from tests.contracts.handles import DMQ, LoopbackBroker, bodies, create, dead, nothing, outlive, state_of, take, until


def kill(session: Any, name: str, body: Any = "x", reason: str | None = None, **options: Any) -> None:
    """Send a message and reject it."""
    session.producer(name).send(body, **options)
    with session.consumer(name) as consumer:
        take(consumer, 1)[0].reject(reason)


def expire(connection: Any, name: str, body: Any = "old", **options: Any) -> None:
    """Send a message that is expired when it is looked at, and look."""
    session = connection.session()
    session.producer(name, ttl_ms=1).send(body, **options)
    outlive(connection, name)
    with session.consumer(name) as consumer:
        assert nothing(consumer, 0.01)
    until(lambda: state_of(connection, name)["expired"] > 0)


# ---- the queue (D-24) ------------------------------------------------------------------------------------------------


def test_the_dead_message_queue_is_there_from_the_start_with_its_limits(broker: LoopbackBroker) -> None:
    """D-24"""
    state = state_of(broker.connect(), DMQ)
    attributes = state["attributes"]
    assert (attributes["maxNumMsgs"], attributes["maxTotalMsgBytes"]) == (1000, 10 * 1024 * 1024)
    assert (attributes["limitBehavior"], attributes["useDMQ"]) == ("REMOVE_OLDEST", False)
    assert (state["messages"], state["auto_created"]) == (0, False)


def test_the_dead_message_queue_cannot_be_created_paused_or_destroyed(broker: LoopbackBroker) -> None:
    """D-24"""
    admin = broker.connect().admin()
    with pytest.raises(InvalidDestinationError, match=r"mq\.sys\.dmq"):
        admin.create_destination("queue", DMQ)
    with pytest.raises(IllegalStateError, match=r"mq\.sys\.dmq cannot be destroyed"):
        admin.destroy_destination("queue", DMQ)
    for which in ("producers", "consumers", "all", "insertion"):
        with pytest.raises(IllegalStateError, match=r"mq\.sys\.dmq cannot be paused"):
            admin.pause_destination("queue", DMQ, which)


@pytest.mark.parametrize("change", [{"limitBehavior": "FLOW_CONTROL"}, {"maxNumProducers": 5}])
def test_the_dead_message_queue_takes_no_flow_control_and_no_limit_of_producers(
    broker: LoopbackBroker, change: dict[str, Any]
) -> None:
    """D-24"""
    connection = broker.connect()
    before = state_of(connection, DMQ)["attributes"]
    with pytest.raises(ConfigError, match=next(iter(change))):
        connection.admin().update_destination("queue", DMQ, **change)
    assert state_of(connection, DMQ)["attributes"] == before
    connection.admin().update_destination("queue", DMQ, maxNumMsgs=2000)


def test_dead_messages_are_consumed_like_others(broker: LoopbackBroker) -> None:
    """D-24: with a selector too; and one that expires or is rejected there is gone"""
    connection, name = broker.connect(), broker.name()
    session = connection.session(ack="client")
    for n in range(3):
        kill(session, name, n, properties={"n": n})
    until(lambda: len(dead(connection)) == 3)
    consumer = session.consumer(session.queue(DMQ), "n > 0 AND JMS_SUN_DMQ_UNDELIVERED_REASON = 'ERROR'")
    first, second = take(consumer, 2)
    assert bodies([first, second]) == [1, 2]
    first.acknowledge_this()
    second.reject()
    until(lambda: [row["body"] for row in dead(connection)] == [0])


def test_the_oldest_dead_messages_make_room_for_new_ones(broker: LoopbackBroker) -> None:
    """D-24"""
    connection, name = broker.connect(), broker.name()
    connection.admin().update_destination("queue", DMQ, maxNumMsgs=3)
    session = connection.session(ack="client")
    for n in range(5):
        kill(session, name, n)
    until(lambda: [row["body"] for row in dead(connection)] == [2, 3, 4])


# ---- what is written on them (D-25, B14) -----------------------------------------------------------------------------


def test_a_dead_message_says_why_when_and_where_it_died(broker: LoopbackBroker) -> None:
    """D-25"""
    connection, name = broker.connect(), broker.name()
    session = connection.session(ack="client")
    before_ms = int(time.time() * 1000)
    headers = {"correlation_id": "c", "type": "t", "priority": 7, "reply_to": "r"}
    kill(session, name, {"a": 1}, "why not", properties={"p": 1}, **headers)
    (message,) = take(session.consumer(DMQ), 1)
    assert (message.body, message.correlation_id, message.type, message.reply_to) == ({"a": 1}, "c", "t", "r")
    assert (message.priority, message.expiration, message.delivery_count) == (7, 0, 1)
    found = dict(message.properties)
    assert found["p"] == 1
    assert before_ms <= found["JMS_SUN_DMQ_UNDELIVERED_TIMESTAMP"] <= int(time.time() * 1000)
    assert found["JMS_SUN_DMQ_UNDELIVERED_COMMENT"] == found["JMS_SUN_DMQ_UNDELIVERED_EXCEPTION"] == "why not"
    assert (found["JMS_SUN_DMQ_DELIVERY_COUNT"], found["JMS_SUN_DMQ_BODY_TRUNCATED"]) == (1, False)
    assert found["JMS_SUN_DMQ_PRODUCING_BROKER"] == found["JMS_SUN_DMQ_DEAD_BROKER"] == "loopback"
    (death,) = json.loads(found["RAYBROKER_DEATHS"])
    assert (death["queue"], death["type"], death["reason"], death["count"]) == (name, "queue", "ERROR", 1)


def test_a_message_can_ask_not_to_be_kept_when_it_is_dead_or_to_be(broker: LoopbackBroker) -> None:
    """D-25: JMS_SUN_PRESERVE_UNDELIVERED beats useDMQ"""
    connection = broker.connect()
    keeps, drops = create(connection, broker.name()), create(connection, broker.name(), useDMQ=False)
    session = connection.session(ack="client")
    kill(session, keeps, "not this", properties={"JMS_SUN_PRESERVE_UNDELIVERED": False})
    kill(session, drops, "nor this")
    kill(session, drops, "but this", properties={"JMS_SUN_PRESERVE_UNDELIVERED": True})
    kill(session, keeps, "and this")
    until(lambda: [row["body"] for row in dead(connection)] == ["but this", "and this"])
    assert [state_of(connection, n)["messages"] for n in (keeps, drops)] == [0, 0]


def test_bodies_of_dead_messages_can_be_cut(make_broker: MakeBroker) -> None:
    """D-24, D-25: the broker's setting, and the message's own"""
    broker = make_broker(imq__destination__DMQ__truncateBody=True)
    connection, name = broker.connect(), broker.name()
    session = connection.session(ack="client")
    kill(session, name, "cut")
    kill(session, name, "whole", properties={"JMS_SUN_TRUNCATE_MSG_BODY": False})
    until(lambda: [row["body"] for row in dead(connection)] == ["", "whole"])
    assert [row["properties"]["JMS_SUN_DMQ_BODY_TRUNCATED"] for row in dead(connection)] == [True, False]


def test_dead_messages_are_logged_when_asked(broker: LoopbackBroker, caplog: pytest.LogCaptureFixture) -> None:
    """D-25: JMS_SUN_LOG_DEAD_MESSAGES"""
    connection, name = broker.connect(), broker.name()
    session = connection.session(ack="client")
    with caplog.at_level(logging.WARNING):
        kill(session, name, properties={"JMS_SUN_LOG_DEAD_MESSAGES": True})
        until(lambda: len(dead(connection)) == 1)
    assert [r for r in caplog.records if name in r.getMessage() and "ERROR" in r.getMessage()]


# ---- expiration policies (W-57, W-61 … W-63) -------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["Default", "Discard", "Log", "Redirect"])
def test_an_expired_message_goes_where_the_policy_says(
    broker: LoopbackBroker, policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    """W-57"""
    connection, errors = broker.connect(), broker.name()
    create(connection, errors)
    name = create(connection, broker.name(), expirationPolicy=policy, errorDestination=errors)
    with caplog.at_level(logging.WARNING):
        expire(connection, name)
        until(lambda: state_of(connection, name)["messages"] == 0)
    logged = [r for r in caplog.records if "ExpiredJMSMessage" in r.getMessage()]
    there = [row["body"] for row in connection.admin().browse_messages("queue", errors)["messages"]]
    assert [row["body"] for row in dead(connection)] == (["old"] if policy == "Default" else [])
    assert there == (["old"] if policy == "Redirect" else [])
    assert len(logged) == (1 if policy == "Log" else 0)


def test_redirect_without_an_error_destination_removes(broker: LoopbackBroker) -> None:
    """W-57"""
    connection = broker.connect()
    name = create(connection, broker.name(), expirationPolicy="Redirect")
    expire(connection, name)
    until(lambda: state_of(connection, name)["messages"] == 0)
    assert dead(connection) == []


def test_without_the_dead_message_queue_what_expires_is_removed(broker: LoopbackBroker) -> None:
    """W-57, B-09"""
    connection = broker.connect()
    name = create(connection, broker.name(), useDMQ=False)
    expire(connection, name)
    until(lambda: state_of(connection, name)["messages"] == 0)
    assert dead(connection) == []


def test_the_log_shows_what_the_logging_policy_names(broker: LoopbackBroker, caplog: pytest.LogCaptureFixture) -> None:
    """W-61, W-62, W-63"""
    connection = broker.connect()
    name = create(
        connection, broker.name(), expirationPolicy="Log", expirationLoggingPolicy="JMSPriority, colour, none, absent"
    )
    with caplog.at_level(logging.WARNING):
        expire(connection, name, properties={"colour": "r" * 40, "none": None, "other": 1}, priority=3)
    (text,) = (r.getMessage() for r in caplog.records if "ExpiredJMSMessage" in r.getMessage())
    assert "<ExpiredJMSMessage JMSMessageID='ID:" in text
    assert "<HeaderFields JMSPriority='3' />" in text
    assert "<UserProperties colour='rrrr" in text
    assert "' none=null />" in text
    assert "r" * 33 not in text
    assert "absent" not in text
    assert "other" not in text


# ---- error destinations (W-69 … W-71, B13) ---------------------------------------------------------------------------


def test_what_fails_too_often_goes_to_the_error_destination(broker: LoopbackBroker) -> None:
    """W-69, W-70"""
    connection, errors = broker.connect(), broker.name()
    create(connection, errors)
    name = create(connection, broker.name(), redeliveryLimit=0, errorDestination=errors)
    session = connection.session(ack="client")
    session.producer(name).send("x")
    take(session.consumer(name), 1)[0].fail(delay_ms=0)
    (message,) = take(session.consumer(errors), 1)
    assert message.body == "x"
    assert message.properties["JMS_SUN_DMQ_UNDELIVERED_REASON"] == "UNDELIVERABLE"
    assert dead(connection) == []


def test_what_fails_too_often_without_any_place_for_it_is_removed(broker: LoopbackBroker) -> None:
    """W-69: persistent or not"""
    connection = broker.connect()
    name = create(connection, broker.name(), redeliveryLimit=0, useDMQ=False)
    session = connection.session(ack="client")
    session.producer(name).send("x")
    session.producer(name).send("y", persistent=False)
    consumer = session.consumer(name)
    for message in take(consumer, 2):
        message.fail(delay_ms=0)
    until(lambda: state_of(connection, name)["messages"] == 0)
    assert dead(connection) == []


def test_with_a_full_error_destination_what_is_persistent_stays_and_the_rest_is_dropped(
    broker: LoopbackBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """W-71, B13: dead-lettering that cannot lose"""
    connection, errors = broker.connect(), broker.name()
    create(connection, errors, maxNumMsgs=1)
    name = create(connection, broker.name(), redeliveryLimit=0, errorDestination=errors)
    session = connection.session(ack="client")
    session.producer(errors).send("full")
    session.producer(name).send("persistent")
    session.producer(name).send("volatile", persistent=False)
    consumer = session.consumer(name)
    with caplog.at_level(logging.WARNING):
        for message in take(consumer, 2):
            message.fail(delay_ms=0)
        until(lambda: state_of(connection, name)["dead"] == 1)
        until(lambda: [r for r in caplog.records if errors in r.getMessage()])  # One line with a count, a second later.
    state = state_of(connection, name)
    assert (state["messages"], state["dying"]) == (1, 1)
    assert nothing(consumer, 0.02), "it is dead and not delivered again"


def test_what_waited_for_a_full_error_destination_is_moved_after_a_restart(store: OneStore) -> None:
    """W-71"""
    connection = store.open().connect()
    create(connection, "errors", maxNumMsgs=1)
    create(connection, "orders", redeliveryLimit=0, errorDestination="errors")
    session = connection.session(ack="client")
    session.producer("errors").send("full")
    session.producer("orders").send("x")
    take(session.consumer("orders"), 1)[0].fail(delay_ms=0)
    until(lambda: state_of(connection, "orders")["dying"] == 1)
    connection.admin().purge_destination("queue", "errors")
    again = store.crash().connect()
    consumer = again.session().consumer("orders")
    assert [m.body for m in take(again.session().consumer("errors"), 1)] == ["x"]
    assert nothing(consumer, 0.01)


def test_dead_messages_survive_a_restart(store: OneStore) -> None:
    """D-24, B13"""
    connection = store.open().connect()
    session = connection.session(ack="client")
    kill(session, "orders", "x", "because")
    until(lambda: len(dead(connection)) == 1)
    again = store.crash().connect()
    (row,) = dead(again)
    assert (row["body"], row["properties"]["JMS_SUN_DMQ_UNDELIVERED_COMMENT"]) == ("x", "because")
    assert nothing(again.session().consumer("orders"), 0.01)


# ---- sending them back (B15) -----------------------------------------------------------------------------------------


def test_dead_messages_are_sent_back_to_where_each_came_from(broker: LoopbackBroker) -> None:
    """B15, B14: the history stays"""
    connection, one, two = broker.connect(), broker.name(), broker.name()
    session = connection.session(ack="client")
    kill(session, one, 1, properties={"n": 1})
    kill(session, two, 2, properties={"n": 2})
    kill(session, two, 3, properties={"n": 3})
    until(lambda: len(dead(connection)) == 3)
    assert connection.admin().retry_messages(selector="n < 3") == 2
    assert [row["body"] for row in dead(connection)] == [3]
    (first,), (second,) = take(session.consumer(one), 1), take(session.consumer(two), 1)
    assert (first.body, second.body) == (1, 2)
    assert (first.delivery_count, first.redelivered) == (2, True)
    assert "JMS_SUN_DMQ_UNDELIVERED_REASON" not in first.properties
    first.reject("again")
    until(lambda: len(dead(connection)) == 2)
    (row,) = dead(connection, "n = 1")
    (death,) = json.loads(row["properties"]["RAYBROKER_DEATHS"])
    assert (death["queue"], death["count"]) == (one, 2)


def test_a_dead_message_of_a_destination_that_is_gone_stays(broker: LoopbackBroker) -> None:
    """B15"""
    connection, name = broker.connect(), broker.name()
    session = connection.session(ack="client")
    kill(session, name, "x")
    until(lambda: len(dead(connection)) == 1)
    connection.admin().destroy_destination("queue", name)
    assert connection.admin().retry_messages() == 0
    assert len(dead(connection)) == 1


# ---- error destinations that lead back, and restarts (W-70, W-71) ----------------------------------------------------


def test_an_error_destination_that_leads_back_is_refused(broker: LoopbackBroker) -> None:
    connection = broker.connect()
    admin, names = connection.admin(), [broker.name() for _ in range(3)]
    a, b, c = names
    with pytest.raises(ConfigError, match=f"circle, {a} to {a}"):
        admin.create_destination("queue", a, errorDestination=a)
    admin.create_destination("queue", a, errorDestination=b)
    admin.create_destination("queue", b, errorDestination=c)
    with pytest.raises(ConfigError, match=f"{c} to {a} to {b} to {c}"):
        admin.create_destination("queue", c, errorDestination=a)
    admin.create_destination("queue", c)
    with pytest.raises(ConfigError, match="circle"):
        admin.update_destination("queue", c, errorDestination=b)
    admin.create_template(c, errorDestination=c)
    admin.create_destination("queue", f"{c}2", template=c)
    with pytest.raises(ConfigError, match=f"circle, {a} to {a}"):
        admin.create_destination("queue", a, template=c, errorDestination=a, if_exists="update")
    admin.create_destination("topic", a, errorDestination=a)
    with pytest.raises(ConfigError, match=f"circle, {c}2 to {c}2"):
        admin.update_template(c, errorDestination=f"{c}2")
    admin.create_destination("queue", f"{c}3", errorDestination=f"{c}2")
    with pytest.raises(ConfigError, match=f"circle, {c}2 to {c}3 to {c}2"):
        admin.update_template(c, errorDestination=f"{c}3")
    (template,) = [row for row in admin.list_templates() if row["name"] == c]
    assert template["attributes"] == {"errorDestination": c}
    late = f"{a}.late"
    admin.create_destination("queue", f"{a}.first", errorDestination=late)
    connection.session().producer(late).send("x")
    with pytest.raises(ConfigError, match=f"circle, {late} to {a}.first to {late}"):
        admin.update_destination("queue", late, errorDestination=f"{a}.first")
    admin.update_destination("queue", c, errorDestination="mq.sys.dmq")


def test_what_waits_for_a_full_error_destination_moves_after_a_restart_without_a_consumer(store: OneStore) -> None:
    connection = store.open().connect()
    admin, session = connection.admin(), connection.session(ack="client")
    admin.create_destination("queue", "errors", maxNumMsgs=1)
    admin.create_destination("queue", "q", redeliveryLimit=0, errorDestination="errors")
    session.producer("errors").send("full")
    session.producer("q").send("dead")
    take(session.consumer("q"), 1)[0].fail()
    until(lambda: state_of(connection, "q")["dying"] == 1)
    connection = store.crash().connect()
    connection.admin().purge_destination("queue", "errors")
    until(lambda: state_of(connection, "errors")["messages"] == 1)
    assert state_of(connection, "q")["messages"] == 0


def test_a_message_that_is_sent_back_expires_when_it_would_have(broker: LoopbackBroker) -> None:
    connection, name = broker.connect(), broker.name()
    session = connection.session(ack="client")
    kill(session, name, ttl_ms=3_600_000)
    until(lambda: state_of(connection, DMQ)["messages"] == 1)
    (dead_row,) = connection.admin().browse_messages("queue", DMQ)["messages"]
    assert dead_row["expiration"] == 0
    assert connection.admin().retry_messages() == 1
    message = take(session.consumer(name), 1)[0]
    assert message.expiration == dead_row["properties"]["RAYBROKER_EXPIRATION"]
    assert 0 < message.expiration - message.timestamp <= 3_600_000
    assert "RAYBROKER_EXPIRATION" not in message.properties


# ---- sent back as what it was, to where it died ----------------------------------------------------------------------


def subscriptions_of(session: Any, topic: str, *names: str) -> list[Any]:
    return [session.durable_consumer(session.topic(topic), name) for name in names]


def reject_one(consumer: Any, *others: Any) -> None:
    """The first consumer rejects a message that the others acknowledge."""
    take(consumer, 1)[0].reject()
    for other in others:
        take(other, 1)[0].acknowledge_this()


def test_a_dead_message_of_a_topic_goes_back_to_the_subscription_where_it_died(broker: LoopbackBroker) -> None:
    connection, topic = broker.connect(client_id="c"), create(broker.connect(), broker.name(), "topic")
    session = connection.session(ack="client")
    one, two = subscriptions_of(session, topic, "one", "two")
    plain = session.consumer(session.topic(topic))
    session.producer(session.topic(topic)).send("x", properties={"n": 1})
    reject_one(one, two, plain)
    until(lambda: len(dead(connection)) == 1)
    assert connection.admin().retry_messages() == 1
    assert dead(connection) == []
    (again,) = take(one, 1)
    assert (again.body, again.redelivered, again.delivery_count) == ("x", True, 2)
    assert not [name for name in again.properties if name.startswith(("JMS_SUN_DMQ", "RAYBROKER_SUBSCRIPTION"))]
    assert nothing(two, 0.02)
    assert nothing(plain, 0.01)
    assert state_of(connection, topic, "topic")["messages"] == 1, "nobody else is owed it"
    again.acknowledge_this()
    until(lambda: state_of(connection, topic, "topic")["messages"] == 0)


def test_a_dead_message_goes_back_to_a_plain_subscriber_only_while_it_is_there(
    broker: LoopbackBroker, caplog: pytest.LogCaptureFixture
) -> None:
    connection, topic = broker.connect(), create(broker.connect(), broker.name(), "topic")
    session = connection.session(ack="client")
    one, two = (session.consumer(session.topic(topic)) for _ in range(2))
    session.producer(session.topic(topic)).send("x")
    reject_one(one, two)
    until(lambda: len(dead(connection)) == 1)
    assert connection.admin().retry_messages() == 1
    take(one, 1)[0].reject()
    until(lambda: len(dead(connection)) == 1)
    one.close()
    three = session.consumer(session.topic(topic))
    with caplog.at_level(logging.INFO):
        assert connection.admin().retry_messages() == 0
    assert [r for r in caplog.records if "1 dead messages stay in queue mq.sys.dmq" in r.getMessage()]
    assert len(dead(connection)) == 1
    assert nothing(three, 0.02)
    assert nothing(two, 0.01)


def test_a_dead_message_waits_for_its_durable_subscription_over_restarts(store: OneStore) -> None:
    connection = store.open().connect(client_id="c")
    create(connection, "t", "topic")
    session = connection.session(ack="client")
    one, two = subscriptions_of(session, "t", "one", "two")
    session.producer(session.topic("t")).send("x", properties={"colour": "red"})
    reject_one(one, two)
    until(lambda: len(dead(connection)) == 1)
    one.close()
    session.unsubscribe("one")
    connection = store.crash().connect(client_id="c")
    assert connection.admin().retry_messages() == 0, "its subscription is gone"
    session = connection.session(ack="client")
    one = session.durable_consumer(session.topic("t"), "one", selector="colour = 'blue'")
    assert connection.admin().retry_messages() == 0, "it does not select the message"
    one.close()
    session.unsubscribe("one")
    one, two = subscriptions_of(session, "t", "one", "two")
    assert connection.admin().retry_messages() == 1
    assert dead(connection) == []
    connection = store.crash().connect(client_id="c")
    one, two = subscriptions_of(connection.session(ack="client"), "t", "one", "two")
    assert [(m.body, m.redelivered) for m in take(one, 1)] == [("x", True)]
    assert nothing(two, 0.02)


def test_what_died_for_all_subscriptions_goes_back_to_all(broker: LoopbackBroker) -> None:
    connection, topic = broker.connect(client_id="c"), create(broker.connect(), broker.name(), "topic")
    session = connection.session(ack="client")
    for consumer in subscriptions_of(session, topic, "one", "two"):
        consumer.close()
    session.producer(session.topic(topic), ttl_ms=1).send("old")
    outlive(connection, topic, "topic")
    one, two = subscriptions_of(session, topic, "one", "two")
    until(lambda: len(dead(connection)) == 1)
    assert connection.admin().retry_messages() == 1
    found = take(one, 1) + take(two, 1)
    assert [(m.body, m.redelivered, m.delivery_count) for m in found] == [("old", False, 1)] * 2, "nobody had it before"


def test_deliveries_go_on_counting_and_failures_do_not(broker: LoopbackBroker) -> None:
    connection, name = broker.connect(), create(broker.connect(), broker.name(), redeliveryLimit=1)
    session = connection.session(ack="client")
    session.producer(name).send("x")
    consumer = session.consumer(name)
    seen = []
    for _ in range(2):
        for _ in range(2):
            (message,) = take(consumer, 1)
            seen.append((message.delivery_count, message.redelivered))
            message.fail(delay_ms=0)
        until(lambda: len(dead(connection)) == 1)
        (row,) = dead(connection)
        assert row["properties"]["JMS_SUN_DMQ_DELIVERY_COUNT"] == len(seen)
        assert connection.admin().retry_messages() == 1
    assert seen == [(1, False), (2, True), (3, True), (4, True)]


def test_dead_messages_of_a_unit_of_order_do_not_wait_for_each_other(broker: LoopbackBroker) -> None:
    connection, name = broker.connect(), broker.name()
    session = connection.session(ack="client")
    producer = session.producer(name)
    for n in range(6):
        producer.send(n, properties={"n": n}, unit_of_order="u")
    with session.consumer(name) as consumer:
        for _ in range(6):
            take(consumer, 1)[0].reject()
    until(lambda: len(dead(connection)) == 6)
    one, two = (connection.session(ack="client").consumer(f"queue:{DMQ}", chosen) for chosen in ("n = 0", "n = 1"))
    first, second = take(one, 1)[0], take(two, 1)[0]
    assert [(m.body, m.unit_of_order, m.properties["RAYBROKER_UNIT_OF_ORDER"]) for m in (first, second)] == [
        (0, None, "u"),
        (1, None, "u"),
    ]
    assert connection.admin().retry_messages(selector="n <= 4") == 3, "two are with consumers"
    back = take(session.consumer(name), 3)
    assert [(m.body, m.unit_of_order, m.redelivered) for m in back] == [(n, "u", True) for n in (2, 3, 4)]
    assert "RAYBROKER_UNIT_OF_ORDER" not in back[0].properties
    assert sorted(row["body"] for row in dead(connection)) == [0, 1, 5]


def test_only_what_a_consumer_has_not_taken_meanwhile_counts_as_sent_back(broker: LoopbackBroker) -> None:
    connection, name = broker.connect(), broker.name()
    admin, session = connection.admin(), connection.session(ack="client")
    with pytest.raises(ConfigError, match="unitOfOrder"):
        admin.update_destination("queue", DMQ, unitOfOrder=True)
    for n in range(4):
        kill(session, name, n, properties={"n": n})
    until(lambda: len(dead(connection)) == 4)
    consumer = connection.session(ack="client").consumer(f"queue:{DMQ}", "n = 1")
    assert bodies(take(consumer, 1)) == [1]
    assert admin.retry_messages(selector="n < 3") == 2
    assert bodies(take(session.consumer(name), 2)) == [0, 2]
    assert sorted(row["body"] for row in dead(connection)) == [1, 3]


def test_a_topics_message_is_moved_once_however_many_subscriptions_have_it(broker: LoopbackBroker) -> None:
    connection, topic = broker.connect(client_id="c"), create(broker.connect(), broker.name(), "topic")
    target = create(connection, broker.name())
    session = connection.session(ack="client")
    for consumer in subscriptions_of(session, topic, "one", "two"):
        consumer.close()
    session.producer(session.topic(topic)).send("x")
    admin = connection.admin()
    admin.pause_destination("topic", topic, "consumers")
    assert admin.move_messages("topic", topic, target, "queue") == 1
    assert bodies(take(session.consumer(target), 1)) == ["x"]
    assert state_of(connection, target)["messages"] == 1
    assert state_of(connection, topic, "topic")["messages"] == 0
