"""Local transactions: all or nothing over several destinations, and what ends them (T-01 … T-05, T-09, T-10, W-42)."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from raybroker.errors import (
    IllegalStateError,
    MessageTooLargeError,
    QuotaExceededError,
    ResourceAllocationError,
    TransactionRolledBackError,
)
from tests.contracts.conftest import ONE_FACE, MakeBroker, OneStore
from tests.contracts.handle_basics import held
from tests.contracts.handles import LoopbackBroker, bodies, create, cut, nothing, state_of, take, until

# ---- commit and rollback (T-01 … T-04) -------------------------------------------------------------------------------


def test_what_is_sent_is_seen_by_nobody_before_the_commit(broker: LoopbackBroker) -> None:
    """T-02, T-04: over queues and topics"""
    connection, one, two, topic = broker.connect(), broker.name(), broker.name(), broker.name()
    consumers = [connection.session().consumer(name) for name in (one, two, f"topic:{topic}")]
    session = connection.session(transacted=True)
    producers = [session.producer(name) for name in (one, two, f"topic:{topic}")]
    for n in range(3):
        for producer in producers:
            producer.send(n)
    until(lambda: state_of(connection, one)["in_transaction"] == 3)
    assert all(nothing(consumer, 0.01) for consumer in consumers)
    assert list(connection.session().browser(one)) == []
    session.commit()
    assert [bodies(take(consumer, 3)) for consumer in consumers] == [[0, 1, 2]] * 3
    session.commit()
    assert all(nothing(consumer, 0.005) for consumer in consumers)


def test_what_is_rolled_back_was_never_sent(broker: LoopbackBroker) -> None:
    """T-03"""
    connection, name = broker.connect(), broker.name()
    session = connection.session(transacted=True)
    producer, consumer = session.producer(name), connection.session().consumer(name)
    producer.send_many(range(5))
    session.rollback()
    producer.send("kept")
    session.commit()
    assert bodies(take(consumer, 1)) == ["kept"]
    assert nothing(consumer, 0.01)
    assert held(connection, name) == 0


def test_what_is_consumed_is_acknowledged_with_the_commit(broker: LoopbackBroker) -> None:
    """T-02"""
    connection, names = broker.connect(), [broker.name(), broker.name()]
    session = connection.session(transacted=True)
    for name in names:
        connection.session().producer(name).send_many(range(4))
        take(session.consumer(name), 3)
    assert [held(connection, name) for name in names] == [4, 4]
    session.commit()
    assert [held(connection, name) for name in names] == [1, 1]


def test_what_is_consumed_comes_again_flagged_after_a_rollback(broker: LoopbackBroker) -> None:
    """T-03, R-11"""
    connection, name = broker.connect(), broker.name()
    connection.session().producer(name).send_many(range(3))
    session = connection.session(transacted=True)
    consumer = session.consumer(name)
    for attempt in (1, 2, 3):
        found = take(consumer, 3)
        assert [(m.body, m.delivery_count, m.redelivered) for m in found] == [
            (n, attempt, attempt > 1) for n in range(3)
        ]
        session.rollback()
    take(consumer, 3)
    session.commit()
    assert held(connection, name) == 0


def test_a_message_is_moved_or_stays_where_it_is(broker: LoopbackBroker) -> None:
    """T-01: sends and receives are one unit"""
    connection, source, target = broker.connect(), broker.name(), broker.name()
    connection.session().producer(source).send_many(range(2))
    session = connection.session(transacted=True)
    consumer, producer = session.consumer(source), session.producer(target)
    producer.send(take(consumer, 1)[0].body)
    session.rollback()
    assert (held(connection, source), held(connection, target)) == (2, 0)
    producer.send(take(consumer, 1)[0].body)
    session.commit()
    assert (held(connection, source), held(connection, target)) == (1, 1)


def test_a_transaction_cannot_receive_what_it_sent(broker: LoopbackBroker) -> None:
    """T-01"""
    connection, name = broker.connect(), broker.name()
    session = connection.session(transacted=True)
    session.producer(name).send("x")
    consumer = session.consumer(name)
    assert nothing(consumer, 0.02)
    session.commit()
    assert bodies(take(consumer, 1)) == ["x"]


@pytest.mark.parametrize("end", ["session", "connection", "cut"])
def test_what_is_not_committed_when_it_ends_is_rolled_back(broker: LoopbackBroker, end: str) -> None:
    """T-03, T-04"""
    connection, source, target = broker.connect(), broker.name(), broker.name()
    connection.session().producer(source).send("in")
    client = broker.connect(imqReconnectEnabled=False)
    session = client.session(transacted=True)
    session.producer(target).send("out")
    take(session.consumer(source), 1)
    until(lambda: state_of(connection, target)["in_transaction"] == 1)
    if end == "cut":
        cut(client)
    else:
        {"session": session, "connection": client}[end].close()
    until(lambda: held(connection, target) == 0)
    found = take(connection.session().consumer(source), 1)
    assert [(m.body, m.redelivered) for m in found] == [("in", True)]
    assert connection.admin().list_transactions() == []


def test_the_next_transaction_opens_by_itself(broker: LoopbackBroker) -> None:
    """T-01: exactly one open at a time; the end of one does not touch another session's"""
    connection, name = broker.connect(), broker.name()
    first, second = connection.session(transacted=True), connection.session(transacted=True)
    one, two = first.producer(name), second.producer(name)
    consumer = connection.session().consumer(name)
    for n in range(3):
        one.send(("first", n)[0] + str(n))
        two.send(f"second{n}")
        first.commit()
    assert bodies(take(consumer, 3)) == ["first0", "first1", "first2"]
    second.rollback()
    two.send("last")
    second.commit()
    assert bodies(take(consumer, 1)) == ["last"]


def test_messages_of_a_commit_keep_their_order_and_their_options(broker: LoopbackBroker) -> None:
    """T-02, B-21"""
    connection, name = broker.connect(), broker.name()
    session = connection.session(transacted=True)
    producer = session.producer(name)
    ids = [producer.send(n, priority=9 if n == 5 else 4, properties={"n": n}) for n in range(10)]
    session.commit()
    found = take(connection.session().consumer(name), 10)
    assert bodies(found) == [5, 0, 1, 2, 3, 4, 6, 7, 8, 9]
    assert {m.id for m in found} == set(ids)
    assert all(m.properties == {"n": m.body} for m in found)


def test_a_subscriber_that_comes_before_the_commit_gets_the_messages(broker: LoopbackBroker) -> None:
    """T-02, D-02: a transaction's messages are published when it commits"""
    connection, name = broker.connect(client_id="c"), broker.name()
    session = connection.session(transacted=True)
    producer = session.producer(f"topic:{name}")
    producer.send("x")
    until(lambda: state_of(connection, name, "topic")["producers"] == 1)
    subscriber = connection.session().consumer(f"topic:{name}")
    durable = connection.session().durable_consumer(f"topic:{name}", "audit")
    session.commit()
    assert bodies(take(subscriber, 1)) == bodies(take(durable, 1)) == ["x"]


def test_commit_and_rollback_are_for_transacted_sessions_and_recover_is_not(broker: LoopbackBroker) -> None:
    """T-01"""
    connection = broker.connect()
    for mode in ("auto", "client"):
        for call in ("commit", "rollback"):
            with pytest.raises(IllegalStateError, match=mode):
                getattr(connection.session(ack=mode), call)()
    session = connection.session(transacted=True)
    with pytest.raises(IllegalStateError, match=r"rollback\(\)"):
        session.recover()
    assert session.transacted
    session.commit()
    session.rollback()


# ---- what keeps a transaction from being committed (T-09, T-10) ------------------------------------------------------


def test_a_refused_message_is_told_by_the_commit_and_takes_everything_with_it(broker: LoopbackBroker) -> None:
    """T-02, D-13: nothing of it happened"""
    connection, other = broker.connect(), broker.name()
    name = create(connection, broker.name(), maxNumMsgs=2, maxBytesPerMsg=10)
    session = connection.session(transacted=True)
    producer, second = session.producer(name), session.producer(other)
    for bad, error in (([b"x"] * 3, QuotaExceededError), ([b"x" * 11], MessageTooLargeError)):
        second.send("with it")
        for body in bad:
            producer.send(body)
        with pytest.raises(error, match="the transaction was rolled back"):
            session.commit()
    producer.send("fits")
    session.commit()
    assert (held(connection, name), held(connection, other)) == (1, 0)


def test_a_commit_after_a_lost_connection_says_that_it_was_rolled_back(broker: LoopbackBroker) -> None:
    """T-10: and a new transaction starts"""
    connection, source, target = broker.connect(), broker.name(), broker.name()
    connection.session().producer(source).send_many(range(2))
    client = broker.connect()
    session = client.session(transacted=True)
    producer, consumer = session.producer(target), session.consumer(source)
    producer.send("lost")
    take(consumer, 1)
    until(lambda: state_of(connection, target)["in_transaction"] == 1)
    cut(client)
    with pytest.raises(TransactionRolledBackError):
        session.commit()
    assert (held(connection, source), held(connection, target)) == (2, 0)
    producer.send("kept")
    assert bodies(take(consumer, 1)) == [0]
    session.commit()
    assert (held(connection, source), held(connection, target)) == (1, 1)


def test_a_consumer_that_is_closed_in_a_transaction_gives_back_only_what_it_did_not_hand_out(
    broker: LoopbackBroker,
) -> None:
    """T-02: what was received before the close is part of the transaction"""
    connection, name = broker.connect(), broker.name()
    connection.session().producer(name).send_many(range(4))
    session = connection.session(transacted=True)
    consumer = session.consumer(name)
    take(consumer, 2)
    consumer.close()
    assert held(connection, name) == 4
    session.commit()
    assert bodies(take(connection.session().consumer(name), 2)) == [2, 3]


def test_more_messages_in_a_transaction_than_allowed_are_refused(make_broker: MakeBroker) -> None:
    """T-09: imq.transaction.producer.maxNumMsgs"""
    broker = make_broker(imq__transaction__producer__maxNumMsgs=5)
    connection, name = broker.connect(), broker.name()
    session = connection.session(transacted=True)
    producer = session.producer(name)
    producer.send_many(range(5))
    session.commit()
    producer.send_many(range(6))
    with pytest.raises(ResourceAllocationError, match=r"imq\.transaction\.producer\.maxNumMsgs"):
        session.commit()
    assert held(connection, name) == 5


def test_more_messages_consumed_in_a_transaction_than_allowed_are_refused(make_broker: MakeBroker) -> None:
    """T-09: imq.transaction.consumer.maxNumMsgs"""
    broker = make_broker(imq__transaction__consumer__maxNumMsgs=5)
    connection, name = broker.connect(), broker.name()
    connection.session().producer(name).send_many(range(20))
    session = connection.session(transacted=True)
    consumer = session.consumer(name)
    take(consumer, 5)
    session.commit()
    assert held(connection, name) == 15
    take(consumer, 6)
    with pytest.raises(ResourceAllocationError, match=r"imq\.transaction\.consumer\.maxNumMsgs"):
        session.commit()
    assert held(connection, name) == 15


@ONE_FACE
def test_a_transaction_that_is_open_for_too_long_is_rolled_back(make_broker: MakeBroker) -> None:
    """T-08: raybroker.transaction.timeout_ms"""
    broker = make_broker(raybroker__transaction__timeout_ms=1000)
    connection, name = broker.connect(), broker.name()
    session = connection.session(transacted=True)
    producer = session.producer(name)
    producer.send("x")
    until(lambda: state_of(connection, name)["in_transaction"] == 1)
    until(lambda: state_of(connection, name)["in_transaction"] == 0)
    with pytest.raises(TransactionRolledBackError):
        session.commit()
    producer.send("y")
    session.commit()
    assert bodies(take(connection.session().consumer(name), 1)) == ["y"]


def test_destroying_a_destination_in_a_transaction_rolls_it_back(broker: LoopbackBroker) -> None:
    """T-10, A-32"""
    connection, gone, kept = broker.connect(), broker.name(), broker.name()
    session = connection.session(transacted=True)
    session.producer(gone).send("x")
    session.producer(kept).send("y")
    until(lambda: state_of(connection, gone)["in_transaction"] == 1)
    connection.admin().destroy_destination("queue", gone)
    with pytest.raises(TransactionRolledBackError):
        session.commit()
    assert held(connection, kept) == 0


# ---- administration and restarts (T-05, A-43) ------------------------------------------------------------------------


def test_administrators_see_open_transactions_and_can_roll_them_back(broker: LoopbackBroker) -> None:
    """A-43 … A-46, T-08: committing is only for prepared ones"""
    connection, name = broker.connect(), broker.name()
    connection.session().producer(name).send_many(range(2))
    client = broker.connect(client_id="billing")
    session = client.session(transacted=True)
    session.producer(name).send("x")
    until(lambda: connection.admin().list_transactions())
    (row,) = connection.admin().list_transactions()
    assert (row["kind"], row["state"], row["client_id"], row["messages"], row["xid"]) == (
        "local",
        "STARTED",
        "billing",
        1,
        None,
    )
    assert connection.admin().query_transaction(row["id"])["id"] == row["id"]
    with pytest.raises(IllegalStateError, match="STARTED"):
        connection.admin().commit_transaction(row["id"])
    connection.admin().rollback_transaction(row["id"])
    with pytest.raises(TransactionRolledBackError):
        session.commit()
    assert held(connection, name) == 2
    assert connection.admin().list_transactions() == []
    with pytest.raises(Exception, match=str(row["id"])):
        connection.admin().query_transaction(row["id"])


def test_uncommitted_transactions_are_rolled_back_by_a_restart_and_committed_ones_are_not(store: OneStore) -> None:
    """T-05"""
    connection = store.open().connect()
    connection.session().producer("source").send_many(range(4))
    session = connection.session(transacted=True)
    producer, other, consumer = session.producer("target"), session.producer("other"), session.consumer("source")
    for n in (1, 2):
        producer.send(n), other.send(n)
        take(consumer, 1)
        if n == 1:
            session.commit()
    until(lambda: state_of(connection, "target")["in_transaction"] == 1)
    again = store.crash().connect()
    assert bodies(take(again.session().consumer("target"), 1)) == [1]
    assert bodies(take(again.session().consumer("other"), 1)) == [1]
    assert [held(again, name) for name in ("target", "other")] == [1, 1]
    found = take(again.session().consumer("source"), 3)
    assert bodies(found) == [1, 2, 3]
    assert again.admin().list_transactions() == []


# ---- listeners (W-42) ------------------------------------------------------------------------------------------------


def test_listener_calls_are_committed_in_batches_and_a_batch_never_waits(broker: LoopbackBroker) -> None:
    """W-42"""
    connection, name = broker.connect(maxMessagesInTransaction=5), broker.name()
    connection.session().producer(name).send_many(range(12))
    session = connection.session(transacted=True)
    seen: list[Any] = []
    session.consumer(name).on_message(lambda message: seen.append(message.body))
    until(lambda: held(connection, name) == 0)
    assert seen == list(range(12))
    connection.session().producer(name).send("alone")
    until(lambda: held(connection, name) == 0, "a batch of one does not wait for four more")


def test_after_a_failed_call_the_messages_of_its_batch_come_again_one_by_one(broker: LoopbackBroker) -> None:
    """W-42: one bad message does not take the good ones with it"""
    connection, name = broker.connect(maxMessagesInTransaction=10), broker.name()
    create(connection, name, redeliveryLimit=2)
    connection.session().producer(name).send_many(range(4))
    seen: list[tuple[int, int]] = []
    lock = threading.Lock()

    def listener(message: Any) -> None:
        with lock:
            seen.append((message.body, message.delivery_count))
        if message.body == 2:
            raise ValueError("a bad message")

    connection.session(transacted=True).consumer(name).on_message(listener)
    until(lambda: held(connection, name) == 0)
    assert seen[:3] == [(0, 1), (1, 1), (2, 1)], "the first batch"
    assert [count for body, count in seen if body == 2] == [1, 2, 3]
    assert [count for body, count in seen if body in (0, 1)] == [1, 1, 2, 2], "once with the bad one, then alone"
    assert [body for body, _ in seen].count(3) == 1
