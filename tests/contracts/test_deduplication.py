"""Deduplication and transactions: an id is taken when its message is, and nothing confirmed is lost (B25)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from raybroker.errors import TransactionRolledBackError
from raybroker.model.naming.xid import Xid
from tests.contracts.conftest import ONE_FACE, MakeBroker, OneStore
from tests.contracts.handles import LoopbackBroker, bodies, create, nothing, state_of, take, until

XID = Xid(1, b"global", b"branch")


def deduplicating(connection: Any, broker: LoopbackBroker, kind: str = "queue") -> str:
    name = create(connection, broker.name(), kind, duplicateWindowMs=60_000)
    return f"{kind}:{name}"


def staged(connection: Any, target: str, count: int = 1) -> None:
    """So many messages are there that belong to open transactions."""
    kind, _, name = target.partition(":")
    until(lambda: state_of(connection, name, kind)["in_transaction"] == count)


def rolled_back(session: Any) -> None:
    session.rollback()


def closed(session: Any) -> None:
    session.close()


@pytest.mark.parametrize("kind", ["queue", "topic"])
@pytest.mark.parametrize("end", [rolled_back, closed])
def test_a_confirmed_message_outlives_the_rollback_of_another_with_its_id(
    broker: LoopbackBroker, kind: str, end: Callable[[Any], None]
) -> None:
    connection = broker.connect()
    target = deduplicating(connection, broker, kind)
    consumer = broker.connect().session().consumer(target)
    session = connection.session(transacted=True)
    session.producer(target).send("undecided", dedup_id="1")
    staged(connection, target)
    connection.session().producer(target).send("confirmed", dedup_id="1")
    end(session)
    assert bodies(take(consumer, 1)) == ["confirmed"]
    assert nothing(consumer, 0.01)


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_a_commit_leaves_out_what_was_confirmed_to_another_meanwhile(broker: LoopbackBroker, kind: str) -> None:
    connection = broker.connect()
    target = deduplicating(connection, broker, kind)
    consumer = broker.connect().session().consumer(target)
    session = connection.session(transacted=True)
    producer = session.producer(target)
    for body, name in (("one", "1"), ("two", "2"), ("three", None)):
        producer.send(body, dedup_id=name)
    staged(connection, target, 3)
    connection.session().producer(target).send("first", dedup_id="1")
    session.commit()
    assert bodies(take(consumer, 3)) == ["first", "two", "three"]
    assert nothing(consumer, 0.01)
    assert producer.duplicates == 1


def test_of_two_transactions_with_one_id_the_first_commit_stores_it(broker: LoopbackBroker) -> None:
    connection = broker.connect()
    target = deduplicating(connection, broker)
    sessions = [connection.session(transacted=True) for _ in range(3)]
    for index, session in enumerate(sessions):
        session.producer(target).send(index, dedup_id="x")
    staged(connection, target, 3)
    sessions[1].rollback()
    sessions[2].commit()
    sessions[0].commit()
    consumer = connection.session().consumer(target)
    assert bodies(take(consumer, 1)) == [2]
    assert nothing(consumer, 0.01)


@pytest.mark.parametrize("prepare", [False, True])
def test_a_confirmed_message_outlives_the_rollback_of_a_branch(broker: LoopbackBroker, prepare: bool) -> None:
    connection = broker.connect(xa=True)
    other = broker.connect()
    target = deduplicating(other, broker)
    session = connection.session()
    xid = XID
    session.xa.start(xid)
    session.producer(target).send("undecided", dedup_id="1")
    session.xa.end(xid)
    if prepare:
        session.xa.prepare(xid)
    other.session().producer(target).send("confirmed", dedup_id="1")
    session.xa.rollback(xid)
    consumer = other.session().consumer(target)
    assert bodies(take(consumer, 1)) == ["confirmed"]
    assert nothing(consumer, 0.01)


@ONE_FACE
def test_a_confirmed_message_outlives_a_transaction_that_was_open_for_too_long(make_broker: MakeBroker) -> None:
    broker = make_broker(raybroker__transaction__timeout_ms=1000)
    connection = broker.connect()
    target = deduplicating(connection, broker)
    session = connection.session(transacted=True)
    session.producer(target).send("undecided", dedup_id="1")
    staged(connection, target)
    connection.session().producer(target).send("confirmed", dedup_id="1")
    staged(connection, target, 0)
    with pytest.raises(TransactionRolledBackError):
        session.commit()
    assert bodies(take(connection.session().consumer(target), 1)) == ["confirmed"]


def test_a_branch_that_is_committed_after_a_restart_leaves_out_what_was_confirmed(store: OneStore) -> None:
    broker = store.open()
    connection, other = broker.connect(xa=True), broker.connect()
    create(other, "orders", duplicateWindowMs=60_000)
    session = connection.session()
    session.xa.start(XID)
    producer = session.producer("orders")
    for body, name in (("a", "1"), ("b", "2"), ("c", None)):
        producer.send(body, dedup_id=name)
    session.xa.end(XID)
    session.xa.prepare(XID)
    other.session().producer("orders").send("first", dedup_id="1")
    broker = store.crash()
    session = broker.connect(xa=True).session()
    (xid,) = session.xa.recover()
    session.xa.commit(xid)
    for _ in range(2):
        connection = broker.connect()
        again = connection.session().producer("orders")
        for name in ("1", "2"):
            again.send("again", dedup_id=name)
        assert again.duplicates == 2
        assert sorted(bodies(list(connection.session().browser("orders")))) == ["b", "c", "first"]
        broker = store.crash()


@pytest.mark.parametrize("kind", ["queue", "topic"])
@pytest.mark.parametrize("transacted", [False, True])
def test_what_was_confirmed_is_stored_though_a_non_persistent_copy_came_first(
    store: OneStore, kind: str, transacted: bool
) -> None:
    broker = store.open()
    connection = broker.connect(client_id="reader")
    create(connection, "orders", kind, duplicateWindowMs=60_000)
    if kind == "topic":
        connection.session().durable_consumer("topic:orders", "d").close()
    session = connection.session(transacted=transacted)
    producer = session.producer(f"{kind}:orders")
    for body, persistent in (("non-persistent", False), ("persistent", True)):
        producer.send(body, dedup_id="1", persistent=persistent)
        if transacted:
            session.commit()
    producer.send("again", dedup_id="1")
    if transacted:
        session.commit()
    assert producer.duplicates == 1
    for _ in range(2):
        broker = store.crash()
        connection = broker.connect(client_id="reader")
        session = connection.session(ack="client")
        consumer = session.durable_consumer("topic:orders", "d") if kind == "topic" else session.consumer("orders")
        assert bodies(take(consumer, 1)) == ["persistent"]
        assert nothing(consumer, 0.01)
        connection.session().producer(f"{kind}:orders").send("again", dedup_id="1")
