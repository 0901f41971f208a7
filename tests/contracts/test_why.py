"""``admin.why``: the reasons for which things wait, at a whole broker of this process."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

import raybroker as rb
from raybroker import errors
from raybroker.cli.objects import why
from tests.contracts.handles import until


@pytest.fixture
def conn() -> Iterator[Any]:
    with rb.loopback(client_id="billing") as connection:
        connection.start()
        yield connection


def _sent(conn: Any, name: str = "orders", **more: Any) -> str:
    """Send one message; its id."""
    conn.session().producer(name).send("body", **more)
    return str(conn.admin().browse_messages("queue", name)["messages"][-1]["id"])


def _codes(rows: list[dict[str, Any]], key: str = "reasons") -> list[str]:
    return [reason["code"] for row in rows for reason in row[key]]


def test_a_message_waits_until_each_reason_is_taken_away(conn: Any) -> None:
    admin, message = conn.admin(), _sent(conn, properties={"region": "US"})
    admin.pause_destination("queue", "orders", "consumers")
    (row,) = admin.why("message", message, "orders")
    assert [reason["code"] for reason in row["reasons"]] == ["consumption_paused", "no_consumer"]
    assert all(reason["remedy"] for reason in row["reasons"])
    assert row["what"], row["id"] == ("message", message)
    session = conn.session(ack="client")
    picky = session.consumer("orders", selector="region = 'EU' AND region IS NOT NULL")
    admin.resume_destination("queue", "orders", "consumers")
    (row,) = admin.why("message", message, "orders")
    (reason,) = row["reasons"]
    assert (reason["code"], reason["because"], reason["values"]) == ("selector", "region is 'US'", {"region": "US"})
    taker = session.consumer("orders")
    received = taker.receive(timeout=60)
    (row,) = admin.why("message", message, "orders")
    assert (row["state"], _codes([row]), row["history"]) == ("DELIVERED", ["delivered"], [])
    assert picky.receive(timeout=0) is None
    received.acknowledge()
    with pytest.raises(errors.InvalidDestinationError, match="was consumed"):
        admin.why("message", message, "orders")


def test_a_redelivered_and_a_dead_message_say_why(conn: Any) -> None:
    admin = conn.admin()
    admin.create_destination("queue", "orders", redeliveryLimit=1)
    message = _sent(conn)
    session = conn.session(ack="client")
    consumer = session.consumer("orders")
    consumer.receive(timeout=60).fail()
    received = consumer.receive(timeout=60)
    (row,) = admin.why("message", message, "orders")
    (past,) = row["history"]
    assert (past["code"], past["deliveries"], past["failures"], past["failures_max"]) == ("redelivered", 2, 1, 1)
    received.reject("no such customer")
    (row,) = admin.why("message", message, "orders")
    assert row["destination"] == "mq.sys.dmq"
    (reason,) = row["reasons"]
    assert (reason["code"], reason["reason"], reason["origin"]) == ("dead", "ERROR", "queue:orders")
    assert "no such customer" in reason["text"]
    dead = admin.browse_messages("queue", "mq.sys.dmq")["messages"][0]["id"]
    (row,) = admin.why("message", dead, "mq.sys.dmq")
    assert _codes([row]) == ["no_consumer", "dead"]


def test_a_transaction_and_what_waits_for_it(conn: Any) -> None:
    admin = conn.admin()
    work = conn.session(transacted=True)
    work.producer("orders").send("body")
    conn.session().producer("orders").send("seen")  # What was sent before has arrived by then.
    number = admin.list_transactions()[0]["id"]
    (row,) = admin.why("transaction", number)
    assert (_codes([row]), row["destinations"]) == (["transaction_open"], ["queue orders"])
    (found,) = admin.why("destination", "orders")
    (reason,) = [reason for reason in found["reasons"] if reason["code"] == "sent_in_transaction"]
    assert (reason["transaction"], reason["messages"]) == (number, 1)
    work.rollback()


def test_consumers_producers_and_subscriptions(conn: Any) -> None:
    admin, message = conn.admin(), _sent(conn, "full")
    producer = conn.session().producer("full")
    producer.send("body")
    admin.update_destination("queue", "full", maxNumMsgs=2, limitBehavior="REJECT_NEWEST")
    last = admin.browse_messages("queue", "full")["messages"][-1]["id"]
    assert _codes(admin.why("producer", last)) == ["full"]
    assert _codes(admin.why("destination", "full"), "producers") == ["full"]
    assert message != last
    session = conn.session()
    asking = session.consumer("empty")
    (consumer,) = admin.list_consumers("empty")
    assert asking.receive(timeout=0) is None
    assert _codes(admin.why("consumer", consumer["id"])) == ["nothing_waits"]
    session.durable_consumer("weather", "cold", selector="temp < 0").close()
    conn.session().producer("topic:weather").send("snow", properties={"temp": -1})
    (row,) = admin.why("subscription", "cold", client_id="billing")
    assert (row["waiting"], _codes([row])) == (1, ["no_consumer"])


def test_the_command_line_shows_reasons_with_what_takes_them_away(
    conn: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    message = _sent(conn)
    why.why_msg(conn.admin(), "orders", message, "queue")
    assert "- no_consumer: nobody is there to take it\n      → attach a consumer" in capsys.readouterr().out
    why.why_dst(conn.admin(), "orders", "queue", json=True)
    assert '"code": "no_consumer"' in capsys.readouterr().out


def test_a_full_quota_says_who_fills_it(conn: Any) -> None:
    admin = conn.admin()
    admin.create_quota("small", MessagesMaximum=1)
    admin.create_destination("queue", "orders", quota="small")
    conn.session().producer("orders").send("body")
    (row,) = admin.why("destination", "orders")
    (reason,) = row["producers"]
    assert (reason["code"], reason["quota"], reason["filled_by"]["messages"]) == ("quota", "small", 1)


@pytest.mark.parametrize(
    ("what", "id", "error"),
    [
        ("message", "17", errors.ConfigError),
        ("message", "ID:0000000000000001-1", errors.InvalidDestinationError),
        ("consumer", "x", errors.ConfigError),
        ("consumer", 1, errors.InvalidDestinationError),
        ("producer", "nobody", errors.ConfigError),
        ("producer", "ID:0000000000000001-1", errors.InvalidDestinationError),
        ("destination", "nothing", errors.InvalidDestinationError),
        ("subscription", "nothing", errors.InvalidDestinationError),
        ("transaction", 7, errors.InvalidDestinationError),
        ("weather", 7, errors.ConfigError),
    ],
)
def test_what_is_not_there_is_named(conn: Any, what: str, id: Any, error: type[Exception]) -> None:
    conn.session().producer("orders")
    with pytest.raises(error):
        conn.admin().why(what, id, "orders" if what in ("message", "producer") else None)


def _since(rows: list[dict[str, Any]], code: str) -> int:
    return next(int(reason["since_ms"]) for row in rows for reason in row["reasons"] if reason["code"] == code)


def test_since_when_is_told_where_it_is_known(conn: Any) -> None:
    admin, session = conn.admin(), conn.session(transacted=True)
    before_ms = time.time_ns() // 1_000_000
    message = _sent(conn)
    admin.pause_destination("queue", "orders", "consumers")
    session.producer("orders").send("not committed")
    (transaction,) = (row["id"] for row in until(admin.list_transactions))
    until(lambda: "sent_in_transaction" in _codes(admin.why("destination", "orders")))
    found = {
        "consumption_paused": admin.why("message", message, "orders"),
        "sent_in_transaction": admin.why("destination", "orders"),
        "transaction_open": admin.why("transaction", transaction),
    }
    after_ms = time.time_ns() // 1_000_000
    for code, rows in found.items():
        assert before_ms <= _since(rows, code) <= after_ms, code
    since_ms = _since(found["consumption_paused"], "consumption_paused")
    admin.pause_destination("queue", "orders", "consumers", until_ms=after_ms + 600_000)
    assert _since(admin.why("message", message, "orders"), "consumption_paused") == since_ms, "it was paused already"
    admin.resume_destination("queue", "orders", "consumers")
    admin.pause_destination("queue", "orders", "consumers")
    assert _since(admin.why("message", message, "orders"), "consumption_paused") >= since_ms


def test_since_when_a_session_has_a_unit_is_told_without_a_deadline(conn: Any) -> None:
    admin, producer = conn.admin(), conn.session().producer("orders")
    before_ms = time.time_ns() // 1_000_000
    producer.send("first", unit_of_order="u")
    session = conn.session(ack="client")
    consumer = session.consumer("orders", prefetch=1)
    first = consumer.receive(timeout=60)
    assert first is not None
    producer.send("second", unit_of_order="u")
    rows = admin.browse_messages("queue", "orders")["messages"]
    (message,) = (row["id"] for row in rows if row["state"] == "waiting")
    assert before_ms <= _since(admin.why("message", message, "orders"), "unit_owned") <= time.time_ns() // 1_000_000
