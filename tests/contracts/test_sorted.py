"""Sorted destinations: what waits is handed out by the destination's keys."""

from __future__ import annotations

from typing import Any

import pytest

from raybroker.errors import ConfigError
from tests.contracts.conftest import MakeBroker
from tests.contracts.handles import WAIT_S, bodies, take


def send(connection: Any, destination: Any) -> None:
    producer = connection.session().producer(destination)
    rows = [("a", 2, 4), ("b", 1, 9), ("c", 2, 9), ("d", 3, 0), ("e", 1, 9)]
    for name, region, priority in rows[:2]:
        producer.send(name, properties={"region": region}, priority=priority)
    producer.send_many(
        [name for name, _, _ in rows[2:]],
        properties=[{"region": region} for _, region, _ in rows[2:]],
        priority=[priority for _, _, priority in rows[2:]],
    )


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("region descending, JMSPriority descending", "dcabe"),
        ("JMSPriority, region", "dabec"),
        ("JMSMessageID descending", "edcba"),
    ],
)
def test_a_queue_hands_out_by_its_keys(make_broker: MakeBroker, keys: str, expected: str) -> None:
    connection = make_broker().connect()
    admin = connection.admin()
    admin.create_destination("queue", "q", destinationKeys=keys)
    assert admin.query_destination("queue", "q")["attributes"]["destinationKeys"] == keys
    send(connection, "q")
    session = connection.session(ack="client")
    consumer = session.consumer("q")
    assert "".join(bodies(take(consumer, 5))) == expected
    session.recover()
    assert "".join(bodies(take(consumer, 5))) == expected


def test_a_template_gives_keys_and_bad_ones_are_refused_by_name(make_broker: MakeBroker) -> None:
    connection = make_broker().connect()
    admin = connection.admin()
    admin.create_template("newest", destinationKeys="JMSMessageID descending")
    admin.create_destination("queue", "q", template="newest")
    send(connection, "q")
    message = connection.session().consumer("q").receive(timeout=WAIT_S)
    assert message is not None
    assert message.body == "e"
    with pytest.raises(ConfigError, match="region stands behind JMSMessageID"):
        admin.create_destination("queue", "r", destinationKeys="JMSMessageID, region")
