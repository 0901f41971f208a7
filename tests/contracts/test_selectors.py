"""Selectors on queues: who gets what, what stays for others, and errors that show the place (B-22, R-03)."""

from __future__ import annotations

from typing import Any

import pytest

from raybroker.errors import InvalidSelectorError
from tests.contracts.conftest import TWO_FACES
from tests.contracts.handles import LoopbackBroker, bodies, buffered, cut, nothing, state_of, take, until


def test_a_consumer_gets_only_what_its_selector_matches(broker: LoopbackBroker) -> None:
    """B-22, R-03"""
    connection, name = broker.connect(), broker.name()
    session = connection.session()
    producer, chosen = session.producer(name), session.consumer(name, "colour = 'red' AND size > 2")
    for n in range(6):
        producer.send(n, properties={"colour": "red" if n % 2 else "blue", "size": n})
    assert bodies(take(chosen, 2)) == [3, 5]
    assert nothing(chosen, 0.01)
    assert state_of(connection, name)["waiting"] == 4


def test_what_a_selector_leaves_stays_in_order_for_others(broker: LoopbackBroker) -> None:
    """B-22"""
    connection, name = broker.connect(), broker.name()
    session = connection.session()
    producer = session.producer(name)
    for n in range(12):
        producer.send(n, properties={"n": n, "w": f"w{n}"})
    low, even = session.consumer(name, "n < 3"), session.consumer(name, "w IN ('w4', 'w6', 'w8')")
    assert bodies(take(low, 3)) == [0, 1, 2]
    assert bodies(take(even, 3)) == [4, 6, 8]
    assert bodies(take(session.consumer(name), 6)) == [3, 5, 7, 9, 10, 11]


def test_no_message_is_lost_between_selecting_and_plain_consumers(broker: LoopbackBroker) -> None:
    """B-22: each message once, also with blocks that are matched in part"""
    connection, name = broker.connect(), broker.name()
    session = connection.session()
    consumers = [connection.session().consumer(name, text) for text in ("n < 100", "n >= 250", "s LIKE 'a%'", None)]
    producer = session.producer(name)
    for n in range(300):
        producer.send_async(n, properties={"n": n, "s": "abc"[n % 3] * 2})
    found: list[int] = []

    def drained() -> bool:
        for consumer in consumers:
            found.extend(bodies(consumer.receive_many(50, timeout=0.01)))
        return len(found) >= 300

    until(drained)
    assert sorted(found) == list(range(300))


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("JMSPriority >= 7", ["high"]),
        ("JMSCorrelationID = 'c-1'", ["correlated"]),
        ("JMSType = 'greeting'", ["typed"]),
        ("JMSDeliveryMode = 'NON_PERSISTENT'", ["volatile"]),
        ("JMSTimestamp > 0 AND p IS NOT NULL", ["property"]),
        ("JMSMessageID LIKE 'ID:%' AND p = 2", ["property"]),
        ("p BETWEEN 1 AND 3", ["property"]),
        ("JMSXDeliveryCount = 1 AND JMSType IS NOT NULL", ["typed"]),
        ("NOT (p <> 2)", ["property"]),
    ],
)
def test_headers_can_be_selected_by(broker: LoopbackBroker, selector: str, expected: list[str]) -> None:
    """B-22, R-16"""
    session, name = broker.connect().session(), broker.name()
    producer = session.producer(name)
    producer.send("plain")
    producer.send("high", priority=8)
    producer.send("correlated", correlation_id="c-1")
    producer.send("typed", type="greeting")
    producer.send("property", properties={"p": 2})
    producer.send("volatile", persistent=False)
    assert bodies(take(session.consumer(name, selector), 1)) == expected
    assert nothing(session.consumer(name, selector), 0.01)


def test_a_selector_sees_that_a_message_comes_again(broker: LoopbackBroker) -> None:
    """R-11: JMSXDeliveryCount and JMSRedelivered"""
    connection, name = broker.connect(), broker.name()
    session = connection.session(ack="client")
    session.producer(name).send("x")
    again = session.consumer(name, "JMSXDeliveryCount > 1")
    redelivered = connection.session().consumer(name, "JMSRedelivered = TRUE AND JMSXDeliveryCount > 2")
    assert nothing(again, 0.02)
    first = connection.session(ack="client")
    take(first.consumer(name), 1)
    first.close()
    assert take(again, 1)[0].delivery_count == 2
    session.close()
    assert take(redelivered, 1)[0].delivery_count == 3


def test_what_is_given_back_goes_only_to_whoever_selects_it(broker: LoopbackBroker) -> None:
    """B-07, B-22"""
    connection, name = broker.connect(), broker.name()
    session = connection.session(ack="client")
    for n in range(4):
        session.producer(name).send(n, properties={"n": n})
    odd = session.consumer(name, "n = 1 OR n = 3")
    take(odd, 2)
    even = connection.session().consumer(name, "n = 0 OR n = 2")
    assert bodies(take(even, 2)) == [0, 2]
    odd.close()
    assert nothing(even, 0.02)
    assert [(m.body, m.redelivered) for m in take(connection.session().consumer(name), 2)] == [(1, True), (3, True)]


def test_a_selector_holds_after_a_lost_connection(broker: LoopbackBroker) -> None:
    """R-13, B-22"""
    connection, name = broker.connect(), broker.name()
    session = connection.session()
    chosen = session.consumer(name, "n > 5")
    cut(connection)
    for n in range(10):
        session.producer(name).send(n, properties={"n": n})
    assert bodies(take(chosen, 4)) == [6, 7, 8, 9]


def test_a_consumer_whose_selector_matches_nothing_does_not_hold_others_up(broker: LoopbackBroker) -> None:
    """B-22"""
    connection, name = broker.connect(), broker.name()
    session = connection.session()
    idle = [session.consumer(name, f"n = {-n}") for n in range(1, 5)]
    session.producer(name).send_many(range(500))
    found: list[Any] = []
    plain = session.consumer(name)
    until(lambda: found.extend(bodies(plain.receive_many(500, timeout=1))) or len(found) == 500)
    assert found == list(range(500))
    assert [buffered(consumer) for consumer in idle] == [0] * 4


@pytest.mark.parametrize("selector", ["", None, "   "])
def test_an_empty_selector_selects_everything(broker: LoopbackBroker, selector: str | None) -> None:
    """B-22"""
    session, name = broker.connect().session(), broker.name()
    session.producer(name).send("x")
    assert bodies(take(session.consumer(name, selector), 1)) == ["x"]


@pytest.mark.parametrize(
    ("selector", "place"),
    [
        ("n =", "column 4.*the end"),
        ("n = = 1", "column 5"),
        ("n > 'a", "column 5"),
        ("a b", "column 3"),
        ("n LIKE 5", "column 8"),
        ("(n = 1", "column 7"),
        ("n IN (1)", "column 7"),
        ("JMSReplyTo = 'x'", "column 1"),
    ],
)
def test_a_bad_selector_is_refused_with_the_place_in_it(broker: LoopbackBroker, selector: str, place: str) -> None:
    """B-22: InvalidSelectorError; and nothing is left behind"""
    connection, name = broker.connect(client_id="c"), broker.name()
    session = connection.session()
    for call in (
        lambda: session.consumer(name, selector),
        lambda: session.consumer(session.topic(name), selector),
        lambda: session.durable_consumer(f"topic:{name}", "audit", selector),
        lambda: session.browser(name, selector),
        lambda: connection.admin().browse_messages("queue", name, selector),
    ):
        with pytest.raises(InvalidSelectorError, match=place):
            call()
    assert state_of(connection, name)["active_consumers"] == 0
    assert [row for row in connection.admin().list_subscriptions() if row["topic"] == name] == []


@TWO_FACES
def test_a_selector_that_is_no_text_is_refused(broker: LoopbackBroker) -> None:
    """B-22"""
    with pytest.raises(InvalidSelectorError, match="5"):
        broker.connect().session().consumer(broker.name(), 5)
