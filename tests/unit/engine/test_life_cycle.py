"""The log of messages' lives has every event of W-130, message by message, where it is wanted and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.engine.rig import DMQ, Client, Rig


class Watched:
    """A host with a queue whose messages' lives are told."""

    def __init__(self, **attributes: Any) -> None:
        self.rig = Rig()
        self.rows: list[dict[str, Any]] = []
        self.rig.host.meters.life.sink = self.rows.append
        self.rig.create(DMQ)
        self.rig.create("q", messageLoggingEnabled=True, **attributes)
        self.client = Client(self.rig, client_id="billing", connection="c1")
        self.producer = self.client.producer()

    def events(self, *fields: str) -> list[Any]:
        self.rig.sync()
        rows = [tuple(row.get(name) for name in ("event", *fields)) for row in self.rows]
        self.rows.clear()
        return [row[0] if not fields else row for row in rows]


def test_a_message_is_produced_and_consumed() -> None:
    watched = Watched()
    watched.client.send(watched.producer, "a", "b", "c")
    consumer = watched.client.consumer(selector="JMSPriority > 3")
    watched.client.got()
    ids = [row["message_id"] for row in watched.rows[:3]]
    assert watched.events("message_id") == [*(("Produced", one) for one in ids), ("Consumer created", None)]
    watched.client.ack(consumer, "a", "c")
    events = watched.events("message_id", "client_id", "connection", "selector", "destination", "type")
    assert events == [("Consumed", one, "billing", "c1", "JMSPriority > 3", "q", "queue") for one in (ids[0], ids[2])]
    watched.client.ok("close_consumer", handle=consumer)
    assert watched.events() == ["Consumer destroyed"]


def test_a_lost_connection_destroys_its_consumers() -> None:
    watched = Watched()
    watched.client.consumer()
    watched.events()
    watched.client.session.close()
    assert watched.events("client_id") == [("Consumer destroyed", None)]


def test_what_expires_and_what_fails_too_often() -> None:
    watched = Watched(redeliveryLimit=0)
    watched.client.send(watched.producer, "a", ttl=50)
    watched.client.send(watched.producer, "b")
    watched.events()
    watched.rig.tick(60_000)
    consumer = watched.client.consumer()
    assert watched.client.got() == ["b"]
    watched.client.settle(consumer, "fail", "b", delay_ms=0)
    assert watched.events("reason") == [
        ("Expired", "EXPIRED"),
        ("Consumer created", None),
        ("Retry exceeded", "UNDELIVERABLE"),
    ]


def test_what_a_full_destination_and_an_administrator_remove() -> None:
    watched = Watched(maxNumMsgs=2, limitBehavior="REMOVE_OLDEST")
    watched.client.send(watched.producer, "a", "b")
    watched.events()
    watched.client.send(watched.producer, "c")
    assert watched.events("reason") == [("Produced", None), ("Removed", "OLDEST")]
    watched.rig.host.administration.purge("q", lambda: None)
    assert watched.events("reason") == [("Removed", None)] * 2


def test_a_consumer_without_acknowledgements_consumes_what_it_gets() -> None:
    watched = Watched()
    watched.client.consumer(no_ack=True, flow="credit", limit=-1)
    watched.events()
    watched.client.send(watched.producer, "a", persistent=False)
    assert watched.events() == ["Produced", "Consumed"]


def test_a_transaction_is_named() -> None:
    watched = Watched()
    watched.client.send(watched.producer, "a")
    consumer = watched.client.consumer()
    watched.client.got()
    watched.events()
    watched.client.ok("txn_begin", txn=1, key=b"k" * 16)
    watched.client.ok("txn_stage", txn=1, acks=watched.client.acks(consumer, "a"))
    ((event, number),) = watched.events("transaction")
    assert (event, number > 0) == ("Consumed", True)


@pytest.mark.parametrize("commit", [True, False])
def test_what_is_produced_in_a_transaction_names_it_and_a_rollback_removes_it(commit: bool) -> None:
    watched = Watched()
    watched.client.ok("txn_begin", txn=1, key=b"k" * 16)
    watched.client.send(watched.producer, "a", "b", txn=1)
    watched.client.send(watched.producer, "c")
    (number,) = watched.rig.host.transactions.by_number
    assert watched.events("transaction") == [("Produced", number), ("Produced", number), ("Produced", None)]
    watched.client.ok("txn_commit" if commit else "txn_rollback", txn=1, **({"key": b"k" * 16} if commit else {}))
    removed = [("Removed", "ROLLED_BACK", number)] * 2
    assert watched.events("reason", "transaction") == ([] if commit else removed)


def test_a_line_has_what_the_format_asks_for() -> None:
    watched = Watched(messageLoggingFormat="JMSPriority, colour, %properties%")
    watched.client.send(watched.producer, "a", priority=7, properties={"size": 3, "colour": "red"})
    (row,) = watched.rows
    assert row["content"] == {"JMSPriority": 7, "colour": "red", "size": 3}
    assert (row["correlation_id"], row["ms"] > 0, row["ns"] > 0) == (None, True, True)


@pytest.mark.parametrize("sink", [True, False])
def test_nothing_is_told_that_nobody_wants(sink: bool) -> None:
    rig, rows = Rig(), []
    if sink:
        rig.host.meters.life.sink = rows.append
    rig.create("q", messageLoggingEnabled=not sink)
    client = Client(rig)
    consumer = client.consumer()
    client.send(client.producer(), "a")
    client.got()
    client.ack(consumer, "a")
    client.session.close()
    assert rows == []


def test_it_can_be_switched_while_it_runs() -> None:
    watched = Watched()
    watched.rig.host.administration.update("q", {"messageLoggingEnabled": False}, lambda: None)
    watched.client.send(watched.producer, "a")
    assert watched.events() == []


def test_what_is_refused_was_not_produced() -> None:
    watched = Watched(maxNumMsgs=2)
    watched.client.send(watched.producer, "a", "b", "c")
    assert watched.events() == ["Produced", "Produced"]
