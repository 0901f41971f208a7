"""A drained node: its consumers get nothing more, give back what they have not begun, and are told until when."""

from __future__ import annotations

import math
from typing import Any

import pytest

import raybroker as rb
from raybroker.errors import ConfigError
from tests.contracts.handles import bodies, take, until

NODE, OTHER = "node-a", "node-b"


def consumer_of(connection: Any, node: str, queue: str = "work") -> Any:
    return connection.session(ack="client").consumer(queue, labels=[node], prefetch=100)


def test_what_is_not_begun_goes_to_others_and_what_is_begun_stays() -> None:
    with rb.loopback() as connection:
        admin = connection.admin()
        connection.session().producer("work").send_many(range(10))
        here = consumer_of(connection, NODE)
        first = here.receive(timeout=5)
        assert first.draining is None
        assert admin.drain_node(NODE)["was_drained"] is False
        there = consumer_of(connection, OTHER)
        rest = take(there, 9)
        assert sorted(bodies(rest)) == list(range(1, 10))
        assert not any(message.redelivered for message in rest), "what was not begun is as it was"
        until(lambda: first.draining == math.inf, "the handler is told")
        assert rest[0].draining == math.inf, "one program is on one node"
        first.acknowledge()
        (row,) = [row for row in admin.list_consumers("work") if NODE in row["labels"]]
        assert (row["leaving"], row["unacknowledged"]) == (True, 0)
        connection.session().producer("work").send("new")
        assert bodies(take(there, 1)) == ["new"]
        assert here.receive(timeout=0.2) is None
        assert admin.query_destination("queue", "work")["recalled"] == 9


def test_a_deadline_is_told_and_a_node_may_stay_after_all() -> None:
    events: list[Any] = []
    with rb.loopback() as connection:
        connection.on_event(events.append)
        admin = connection.admin()
        consumer = consumer_of(connection, NODE)
        connection.session().producer("work").send("one")
        one = consumer.receive(timeout=5)
        admin.drain_node(NODE, 60)
        until(lambda: one.draining is not None and 50 < one.draining <= 60, "it is told when")
        until(lambda: [event.kind for event in events] == ["draining"], "the program is told once")
        assert "goes in" in events[0].text
        (row,) = admin.list_drained_nodes()
        assert (row["node"], row["until_ms"] - row["since_ms"]) == (NODE, 60_000)
        admin.drain_node(NODE, off=True)
        until(lambda: one.draining is None, "it is told that this is over")
        until(lambda: [event.kind for event in events] == ["draining", "staying"], "and the program")
        one.acknowledge()
        connection.session().producer("work").send("two")
        assert bodies(take(consumer, 1)) == ["two"]
        assert admin.list_drained_nodes() == []


def test_a_consumer_that_comes_to_a_drained_node_gets_nothing() -> None:
    with rb.loopback() as connection:
        admin = connection.admin()
        admin.drain_node(NODE)
        connection.session().producer("work").send("one")
        late = consumer_of(connection, NODE)
        assert late.receive(timeout=0.3) is None
        told = admin.why("consumer", admin.list_consumers("work")[0]["id"])
        assert "drained" in [reason["code"] for row in told for reason in row["reasons"]]
        admin.drain_node(NODE, off=True)
        assert bodies(take(late, 1)) == ["one"]


def test_what_is_no_node_is_refused() -> None:
    with rb.loopback() as connection, pytest.raises(ConfigError, match="no id of a Ray node"):
        connection.admin().drain_node("")
