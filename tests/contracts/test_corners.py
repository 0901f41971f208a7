"""Where two features meet: transactions with limits, times and selectors, subscriptions with restarts, and the like."""

from __future__ import annotations

import time
from typing import Any

import pytest

import raybroker as rb
from raybroker.errors import (
    IllegalStateError,
    InvalidDestinationError,
    QuotaExceededError,
    RequestTimeoutError,
    TransactionRolledBackError,
)
from tests.contracts.conftest import OneStore
from tests.contracts.handle_basics import held
from tests.contracts.handles import (
    LoopbackBroker,
    bodies,
    create,
    dead,
    names_of,
    nothing,
    outlive,
    rests,
    state_of,
    take,
    until,
)

# ---- transactions ----------------------------------------------------------------------------------------------------


def test_a_message_that_expires_before_the_commit_is_never_seen(broker: LoopbackBroker) -> None:
    """T-02, W-60"""
    connection, name = broker.connect(), broker.name()
    session, consumer = connection.session(transacted=True), connection.session().consumer(name)
    producer = session.producer(name)
    producer.send("short", ttl_ms=30)
    producer.send("later", delivery_delay_ms=1500)
    producer.send("plain")
    marker = broker.name()
    connection.session().producer(marker).send("x", ttl_ms=40)
    outlive(connection, marker)
    session.commit()
    assert bodies(take(consumer, 2)) == ["plain", "later"]
    until(lambda: "short" in [row["body"] for row in dead(connection)])


@pytest.mark.parametrize("behaviour", ["REMOVE_OLDEST", "REMOVE_LOW_PRIORITY"])
def test_a_commit_makes_room_as_a_send_does(broker: LoopbackBroker, behaviour: str) -> None:
    """T-02, D-11, D-12"""
    connection = broker.connect()
    name = create(connection, broker.name(), maxNumMsgs=3, limitBehavior=behaviour)
    connection.session().producer(name).send_many(["a", "b", "c"])
    session = connection.session(transacted=True)
    session.producer(name).send_many(["d", "e"])
    session.commit()
    until(lambda: held(connection, name) <= 3)
    assert bodies(take(connection.session().consumer(name), 3)) == ["c", "d", "e"]


def test_flow_control_does_not_keep_a_transaction_from_committing(broker: LoopbackBroker) -> None:
    """T-02, D-10: the limit is a hint"""
    connection = broker.connect(**{"raybroker.reconnect.timeout_ms": 500})
    name = create(connection, broker.name(), maxNumMsgs=3, limitBehavior="FLOW_CONTROL")
    session = connection.session(transacted=True)
    session.producer(name).send_many(range(3))
    session.commit()
    assert held(connection, name) == 3
    consumer = session.consumer(name)
    session.producer(name).send(take(consumer, 1)[0].body + 10)
    session.commit()
    assert bodies(take(consumer, 3)) == [1, 2, 10]


def test_uncommitted_and_delayed_messages_count_against_the_limit(broker: LoopbackBroker) -> None:
    """W-65, W-127, D-06: pending and charged"""
    connection = broker.connect()
    name = create(connection, broker.name(), maxNumMsgs=2)
    session = connection.session(transacted=True)
    session.producer(name).send("uncommitted")
    producer = connection.session().producer(name)
    until(lambda: state_of(connection, name)["in_transaction"] == 1)
    producer.send("delayed", delivery_delay_ms=60_000)
    with pytest.raises(QuotaExceededError, match="maxNumMsgs=2"):
        producer.send("too many")
    session.rollback()
    producer.send("fits")


def test_what_is_under_way_is_pending_and_the_rest_is_current(broker: LoopbackBroker) -> None:
    """W-127, W-128: delayed, uncommitted, unacknowledged, resting after a failure, and parts of a work"""
    connection = broker.connect()
    name = create(connection, broker.name(), unitOfWorkHandlingPolicy="SingleMessageDelivery")

    def shown() -> tuple[int, int]:
        row = state_of(connection, name)
        assert row["current"] + row["pending"] == row["messages"]
        return row["current"], row["pending"]

    producer, taking = connection.session().producer(name), connection.session(ack="client")
    producer.send("there")
    assert shown() == (1, 0)
    producer.send("delayed", delivery_delay_ms=60_000)
    assert shown() == (1, 1)
    work = connection.session(transacted=True)
    work.producer(name).send("uncommitted")
    until(lambda: shown() == (1, 2))
    producer.send("part", {"JMS_BEA_UnitOfWork": "U", "JMS_BEA_UnitOfWorkSequenceNumber": 1})
    assert shown() == (1, 3)
    consumer = taking.consumer(name, prefetch=1)
    (message,) = take(consumer, 1)
    assert shown() == (0, 4)
    message.fail(delay_ms=60_000)
    until(lambda: state_of(connection, name)["delayed"] == 2)
    assert shown() == (0, 4)
    consumer.close()
    work.commit()
    assert shown() == (1, 3)


def test_purging_what_a_transaction_has_received_does_not_break_it(broker: LoopbackBroker) -> None:
    """A-37, T-02: what a consumer holds is not purged"""
    connection, name = broker.connect(), broker.name()
    connection.session().producer(name).send_many(range(3))
    session = connection.session(transacted=True)
    consumer = session.consumer(name, prefetch=1)
    take(consumer, 1)
    session.producer(name).send("uncommitted")
    until(lambda: state_of(connection, name)["in_transaction"] == 1)
    connection.admin().purge_destination("queue", name)
    session.commit()
    assert bodies(take(consumer, 1)) == ["uncommitted"]
    assert held(connection, name) == 1


def test_transacted_sessions_of_one_queue_do_not_disturb_each_other(broker: LoopbackBroker) -> None:
    """T-01"""
    connection = broker.connect()
    name = create(connection, broker.name())
    connection.session().producer(name).send_many(range(8))
    one, two = connection.session(transacted=True), connection.session(transacted=True)
    first, second = one.consumer(name, prefetch=2), two.consumer(name, prefetch=2)
    mine, theirs = take(first, 2), take(second, 2)
    one.rollback()
    two.commit()
    assert held(connection, name) == 6
    again = take(first, 2)
    assert {m.body for m in again} <= set(range(8)) - {m.body for m in theirs}
    one.commit()
    left = set(range(8)) - {m.body for m in [*theirs, *again]}
    two.close(), one.close()
    assert set(bodies(take(connection.session().consumer(name), 4))) == left
    assert len(mine) == 2


def test_a_selector_holds_for_what_a_rollback_brings_back(broker: LoopbackBroker) -> None:
    """T-03, B-22"""
    connection, name = broker.connect(), broker.name()
    session = connection.session(transacted=True)
    for n in range(6):
        connection.session().producer(name).send(n, properties={"n": n})
    odd = session.consumer(name, "n = 1 OR n = 3 OR n = 5")
    take(odd, 2)
    session.rollback()
    even = connection.session().consumer(name, "n = 0 OR n = 2 OR n = 4")
    assert bodies(take(even, 3)) == [0, 2, 4]
    assert [(m.body, m.delivery_count) for m in take(odd, 3)] == [(1, 2), (3, 2), (5, 1)]
    session.commit()


def test_the_sessions_redelivery_delay_holds_for_a_rollback(broker: LoopbackBroker) -> None:
    """W-67"""
    connection, name = broker.connect(), broker.name()
    connection.session().producer(name).send_many(range(2))
    session = connection.session(transacted=True, redelivery_delay_ms=80)
    consumer = session.consumer(name)
    take(consumer, 1)
    since_s = time.monotonic()
    session.rollback()
    assert rests(connection, name, since_s, 80), "what was only prefetched comes at once"
    assert bodies(take(consumer, 2)) == [1, 0]


def test_what_expires_while_it_rests_is_not_delivered_again(broker: LoopbackBroker) -> None:
    """W-60, W-67"""
    connection = broker.connect()
    name = create(connection, broker.name(), redeliveryDelayOverride=80)
    session = connection.session(ack="client")
    session.producer(name).send("x", ttl_ms=60)
    consumer = session.consumer(name)
    take(consumer, 1)[0].fail()
    until(lambda: [row["body"] for row in dead(connection)] == ["x"])
    assert nothing(consumer, 0.01)


def test_a_prepared_branch_keeps_what_it_took_from_a_durable_subscription(store: OneStore) -> None:
    """T-05, D-27"""
    xid = rb.Xid(1, b"audit")
    broker = store.open()
    client = broker.connect(client_id="c", xa=True)
    session = client.session()
    subscriber = session.durable_consumer("topic:prices", "audit")
    broker.connect().session().producer("topic:prices").send_many(range(3))
    session.xa.start(xid)
    take(subscriber, 1)
    session.xa.end(xid)
    session.xa.prepare(xid)
    again = store.crash()
    connection = again.connect(client_id="c")
    subscriber = connection.session().durable_consumer("topic:prices", "audit")
    assert bodies(take(subscriber, 2)) == [1, 2]
    manager = again.connect(xa=True).session()
    manager.xa.rollback(xid)
    assert [(m.body, m.redelivered) for m in take(subscriber, 1)] == [(0, True)]


# ---- subscriptions ---------------------------------------------------------------------------------------------------


def test_no_local_of_a_durable_subscription_holds_over_a_restart(store: OneStore) -> None:
    """D-27, B-08"""
    broker = store.open()
    connection = broker.connect(client_id="c")
    session = connection.session()
    session.durable_consumer("topic:prices", "audit", no_local=True).close()
    session.producer("topic:prices").send("mine")
    broker.connect().session().producer("topic:prices").send("theirs")
    again = store.crash().connect(client_id="c")
    again.session().producer("topic:prices").send("mine again")
    subscriber = again.session().durable_consumer("topic:prices", "audit", no_local=True)
    assert bodies(take(subscriber, 1)) == ["theirs"]
    assert nothing(subscriber, 0.02)


def test_a_durable_subscription_to_a_temporary_topic_is_refused(broker: LoopbackBroker) -> None:
    """D-23, D-27: it would outlive its topic"""
    session = broker.connect(client_id="c").session()
    temporary = session.temporary_topic()
    with pytest.raises((InvalidDestinationError, IllegalStateError)):
        session.durable_consumer(temporary, "audit")


def test_destroying_a_topic_ends_its_durable_subscriptions(broker: LoopbackBroker) -> None:
    """A-32, D-27: a new topic of that name starts without them"""
    connection, name = broker.connect(client_id="c"), broker.name()
    create(connection, name, "topic")
    session = connection.session()
    session.durable_consumer(f"topic:{name}", "audit").close()
    session.producer(f"topic:{name}").send("old")
    connection.admin().destroy_destination("topic", name)
    assert [r for r in connection.admin().list_subscriptions() if r["topic"] == name] == []
    create(connection, name, "topic")
    assert nothing(session.durable_consumer(f"topic:{name}", "audit"), 0.01)


def test_the_same_subscription_name_of_two_clients_is_two_subscriptions(store: OneStore) -> None:
    """D-27"""
    broker = store.open()
    for client in ("a", "b"):
        with broker.connect(client_id=client) as connection:
            connection.session().durable_consumer("topic:prices", "audit", f"to = '{client}'").close()
    producer = broker.connect().session().producer("topic:prices")
    for client in ("a", "b", "a"):
        producer.send(client, properties={"to": client})
    again = store.open()
    assert [r["messages"] for r in again.connect().admin().list_subscriptions("prices")] == [2, 1]
    with again.connect(client_id="b") as connection:
        connection.session().unsubscribe("audit")
    subscriber = again.connect(client_id="a").session().durable_consumer("topic:prices", "audit", "to = 'a'")
    assert bodies(take(subscriber, 2)) == ["a", "a"]


# ---- limits, times and errors ----------------------------------------------------------------------------------------


def test_a_blocked_send_ends_with_the_time_that_was_allowed(broker: LoopbackBroker) -> None:
    """R-01, D-10: imqAckTimeout"""
    connection = broker.connect(**{"imqAckTimeout": 100, "raybroker.reconnect.timeout_ms": 200})
    name = create(connection, broker.name(), maxNumMsgs=1, limitBehavior="FLOW_CONTROL")
    producer = connection.session().producer(name)
    with pytest.raises(RequestTimeoutError, match=r"imqAckTimeout=0\.1") as caught:
        until(lambda: producer.send("x") and False)
    assert not caught.value.definite
    connection.admin().update_destination("queue", name, maxNumMsgs=-1)


def test_closing_while_a_full_destination_holds_messages_back_ends_in_time(broker: LoopbackBroker) -> None:
    """D-10, C-12: what was not taken is told to who waits for it"""
    connection = broker.connect(**{"raybroker.reconnect.timeout_ms": 200})
    name = create(connection, broker.name(), maxNumMsgs=5, limitBehavior="FLOW_CONTROL")
    producer = connection.session().producer(name)
    futures = [producer.send_async(n) for n in range(100)]
    until(lambda: state_of(connection, name)["throttled"])
    with pytest.raises(IllegalStateError, match=r"was full for 0\.2 s"):
        connection.close()
    outcomes = [future.exception(20) for future in futures]
    assert outcomes[-1] is not None
    assert all(outcome is None or isinstance(outcome, rb.errors.BrokerError) for outcome in outcomes)


def test_lowering_a_limit_below_what_is_held_keeps_what_is_there(broker: LoopbackBroker) -> None:
    """D-03, D-13"""
    connection = broker.connect()
    name = create(connection, broker.name())
    producer = connection.session().producer(name)
    producer.send_many(range(5))
    connection.admin().update_destination("queue", name, maxNumMsgs=2)
    with pytest.raises(QuotaExceededError):
        producer.send("x")
    consumer = connection.session().consumer(name)
    assert bodies(take(consumer, 5)) == list(range(5))
    consumer.close()
    producer.send("y")


def test_an_error_destination_that_does_not_exist_keeps_what_is_persistent(broker: LoopbackBroker) -> None:
    """W-70, W-71: and it goes there once there is one"""
    connection, missing = broker.connect(), broker.name()
    name = create(connection, broker.name(), redeliveryLimit=0, errorDestination=missing)
    session = connection.session(ack="client")
    session.producer(name).send("x")
    take(session.consumer(name), 1)[0].fail(delay_ms=0)
    until(lambda: state_of(connection, name)["dying"] == 1)
    assert missing not in names_of(connection)
    assert held(connection, name) == 1


def test_ids_that_are_the_same_within_one_block_are_taken_once(broker: LoopbackBroker) -> None:
    """B25"""
    connection = broker.connect()
    name = create(connection, broker.name(), duplicateWindowMs=60_000)
    producer = connection.session().producer(name)
    futures = [producer.send_async(n, dedup_id=str(n // 3)) for n in range(30)]
    assert all(future.result(20) for future in futures)
    assert bodies(take(connection.session().consumer(name), 10)) == list(range(0, 30, 3))
    assert producer.duplicates == 20


def test_everything_at_once_survives_restarts(store: OneStore) -> None:
    """B-20: priorities, selectors, delays, transactions and subscriptions over one store, three times"""
    expected: list[Any] = []
    for round_ in range(3):
        connection = (store.crash() if round_ else store.open()).connect(client_id="c")
        session, transacted = connection.session(ack="client"), connection.session(transacted=True)
        session.durable_consumer("topic:prices", "audit", "n < 50").close()
        producer, publisher = transacted.producer("orders"), transacted.producer("topic:prices")
        for n in range(100):
            producer.send([round_, n], priority=n % 10, properties={"n": n})
            publisher.send([round_, n], properties={"n": n})
            if n % 30 == 29:
                transacted.commit() if n < 89 else transacted.rollback()
        transacted.commit()
        kept = [n for n in range(100) if n < 60 or n >= 90]
        expected += [[round_, n] for n in kept]
        consumer = session.consumer("orders", f"n >= {10 * round_} AND n < {10 * round_ + 5}")
        found = take(consumer, 5 * (round_ + 1))
        found[-1].acknowledge()
        for message in found:
            expected.remove(message.body)
    connection = store.crash().connect(client_id="c")
    consumer, found = connection.session().consumer("orders"), []
    until(lambda: found.extend(consumer.receive_many(100, timeout=0.5)) or len(found) >= len(expected))
    assert sorted(bodies(found)) == sorted(expected)
    assert [m.priority for m in found] == sorted((m.priority for m in found), reverse=True)
    subscriber = connection.session().durable_consumer("topic:prices", "audit", "n < 50")
    assert bodies(take(subscriber, 150)) == [[r, n] for r in range(3) for n in range(50)]
    assert nothing(subscriber, 0.01)


def test_a_transaction_with_a_destroyed_consumer_destination_is_rolled_back(broker: LoopbackBroker) -> None:
    """T-10, A-32"""
    connection, gone, kept = broker.connect(), broker.name(), broker.name()
    connection.session().producer(gone).send("x")
    session = connection.session(transacted=True)
    take(session.consumer(gone), 1)
    session.producer(kept).send("y")
    connection.admin().destroy_destination("queue", gone)
    with pytest.raises(TransactionRolledBackError):
        session.commit()
    assert held(connection, kept) == 0
    session.producer(kept).send("z")
    session.commit()
    assert held(connection, kept) == 1
