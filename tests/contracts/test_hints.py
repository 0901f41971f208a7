"""Messages without an id or a timestamp, because their producer wants it so (R-16)."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.contracts.handles import LoopbackBroker, take, until


def by_id(consumer: Any, count: int) -> list[tuple[Any, bool, bool]]:
    """(body, has an id, has a timestamp)"""
    return [(m.body, m.id != "", m.timestamp > 0) for m in take(consumer, count)]


def test_messages_show_no_id_and_no_timestamp_when_their_producer_says_so(broker: LoopbackBroker) -> None:
    session, name = broker.connect().session(), broker.name()
    producer = session.producer(name, disable_message_id=True, disable_message_timestamp=True)
    assert (producer.disable_message_id, producer.disable_message_timestamp) == (True, True)
    producer.send("one")
    producer.send("two", properties={"n": 1}, correlation_id="c", priority=4, persistent=True)
    producer.send_async("three").result(20)
    producer.send_many(["four", "five"])
    producer.send_many(["six"], properties=[{"n": 2}], priority=[4])
    producer.disable_message_id = False
    producer.send("seven")
    producer.disable_message_timestamp = False
    producer.send("eight")
    producer.disable_message_id = True
    producer.send("nine", persistent=False)
    bare = [(body, False, False) for body in ("one", "two", "three", "four", "five", "six")]
    consumer = session.consumer(name)
    rows = [*bare, ("seven", True, False), ("eight", True, True), ("nine", False, True)]
    assert sorted(by_id(consumer, 9)) == sorted(rows)


def test_what_a_message_says_beside_is_as_ever(broker: LoopbackBroker) -> None:
    session, name = broker.connect().session(), broker.name()
    producer = session.producer(name, disable_message_id=True, disable_message_timestamp=True)
    producer.send("x" * 500, properties={"JMS_SUN_COMPRESS": True}, type="t", ttl_ms=60_000, dedup_id="d")
    (message,) = take(session.consumer(name), 1)
    assert (message.id, message.timestamp, message.body, message.type, message.dedup_id) == ("", 0, "x" * 500, "t", "d")
    assert message.expiration > 1_600_000_000_000
    assert message.delivery_time == 0


def test_what_expires_does_so_by_the_clock_also_without_a_timestamp(broker: LoopbackBroker) -> None:
    connection, name = broker.connect(), broker.name()
    session = connection.session()
    producer = session.producer(name, disable_message_timestamp=True)
    producer.send("short", ttl_ms=20)
    producer.send("long", ttl_ms=60_000)
    producer.send("delayed", delivery_delay_ms=60)
    rows = connection.admin().browse_messages("queue", name)["messages"]
    first_ms = min(row["expiration"] or 1 << 60 for row in rows)
    until(lambda: time.time() * 1000 > first_ms + 1)
    assert [message.body for message in take(session.consumer(name), 2)] == ["long", "delayed"]


def test_selectors_see_neither(broker: LoopbackBroker) -> None:
    session, name = broker.connect().session(), broker.name()
    session.producer(name, disable_message_id=True).send("nameless")
    session.producer(name, disable_message_timestamp=True).send("timeless")
    assert take(session.consumer(name, "JMSMessageID IS NULL"), 1)[0].body == "nameless"
    assert take(session.consumer(name, "JMSTimestamp = 0"), 1)[0].body == "timeless"


def test_administrators_see_the_broker_s_own_id_which_is_what_send_returns(broker: LoopbackBroker) -> None:
    connection, name = broker.connect(), broker.name()
    sent = connection.session().producer(name, disable_message_id=True).send("x")
    (row,) = connection.admin().browse_messages("queue", name)["messages"]
    assert row["id"] == sent
    assert sent.startswith("ID:")


@pytest.mark.parametrize("hint", ["disable_message_id", "disable_message_timestamp"])
def test_a_publisher_to_a_pattern_may_leave_them_out_as_well(broker: LoopbackBroker, hint: str) -> None:
    connection, name = broker.connect(), broker.name()
    session = connection.session()
    consumer = session.consumer(f"topic:{name}.a")
    producer = session.producer(f"topic:{name}.*", **{hint: True})
    producer.send("x")
    (message,) = take(consumer, 1)
    assert (message.id == "", message.timestamp == 0) == (hint == "disable_message_id", hint != "disable_message_id")
