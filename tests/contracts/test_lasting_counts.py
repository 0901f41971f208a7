"""What administrators see counted of a destination goes on after a crash, and is what was confirmed."""

from __future__ import annotations

from typing import Any

from tests.contracts.conftest import OneStore
from tests.contracts.handles import LoopbackBroker

COUNTS = ("messages_in", "bytes_in", "messages_out", "bytes_out", "moved_in")


def counts(broker: LoopbackBroker, name: str) -> tuple[Any, ...]:
    row = broker.connect().admin().query_destination("queue", name)
    return tuple(row[count] for count in COUNTS)


def work(broker: LoopbackBroker, many: int) -> None:
    """Of ``many`` messages in q a third is consumed, a third moved to r, and one stays."""
    connection = broker.connect()
    connection.start()
    session, admin = connection.session(ack="client"), connection.admin()
    for name in ("q", "r"):
        admin.create_destination("queue", name, if_exists="keep")
    session.producer("q").send_many([b"xy"] * many)
    consumer = session.consumer("q")
    for _ in range(many // 3):
        consumer.receive(timeout=10).acknowledge()
    consumer.close()
    session.producer("q").send_many([b"1234"] * (many // 3), properties=[{"away": True}] * (many // 3))
    admin.pause_destination("queue", "q", "consumers")
    admin.move_messages("queue", "q", "r", selector="away")
    admin.resume_destination("queue", "q")
    transacted = connection.session(transacted=True)
    transacted.producer("q").send(b"tx")
    transacted.commit()
    transacted.producer("q").send(b"never")
    transacted.rollback()
    connection.close()


def test_counts_are_after_a_crash_what_they_were(store: OneStore) -> None:
    broker = store.open()
    work(broker, 30)
    since_ms = broker.connect().admin().query_destination("queue", "q")["counted_since_ms"]
    expected = (30 + 10 + 1, 60 + 40 + 2, 10, 20, 0)
    assert (counts(broker, "q"), counts(broker, "r")) == (expected, (0, 0, 0, 0, 10))
    broker = store.crash()
    assert (counts(broker, "q"), counts(broker, "r")) == (expected, (0, 0, 0, 0, 10))
    assert broker.connect().admin().query_destination("queue", "q")["counted_since_ms"] == since_ms
    broker = store.open()  # Closed properly, and from a checkpoint where there is one.
    work(broker, 30)
    assert counts(broker, "q") == tuple(2 * count for count in expected)
    broker = store.crash()
    assert counts(broker, "q") == tuple(2 * count for count in expected)


def test_a_reset_holds_after_a_crash(store: OneStore) -> None:
    broker = store.open()
    work(broker, 30)
    admin = broker.connect().admin()
    admin.reset_destination("queue", "q")
    since_ms = admin.query_destination("queue", "q")["counted_since_ms"]
    assert counts(broker, "q") == (0, 0, 0, 0, 0)
    broker.connect().session().producer("q").send(b"abc")
    broker = store.crash()
    assert counts(broker, "q") == (1, 3, 0, 0, 0)
    assert broker.connect().admin().query_destination("queue", "q")["counted_since_ms"] == since_ms


def test_metrics_of_a_broker_begin_with_it(store: OneStore) -> None:
    """A broker that starts does not know what was told before: what is a little less would look like all of it anew."""
    broker = store.open(raybroker__metrics__cache_ms=0)
    broker.connect().session().producer("q").send_many([b"x"] * 20)
    broker = store.crash(raybroker__metrics__cache_ms=0)
    broker.connect().session().producer("q").send_many([b"x"] * 3)
    (found,) = broker.connect().admin().metrics("*")
    assert found["types"]["queue"]["messages_in_total"] == 3
    assert [row["messages_in_total"] for row in found["destinations"] if row["name"] == "q"] == [3]
    assert counts(broker, "q")[0] == 23
