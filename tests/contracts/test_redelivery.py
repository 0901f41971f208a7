"""What happens to what was not acknowledged: outcomes, delays, limits and ack deadlines (W-67 … W-72, B6 … B11)."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any

import pytest

from raybroker.errors import ConfigError, IllegalStateError
from tests.contracts.conftest import ONE_FACE, TWO_FACES, MakeBroker, OneStore
from tests.contracts.handle_basics import held
from tests.contracts.handles import (
    LoopbackBroker,
    bodies,
    buffered,
    create,
    cut,
    dead,
    nothing,
    rests,
    state_of,
    take,
    until,
)

DELAY_MS = 120

# ---- outcomes (B8, B9) -----------------------------------------------------------------------------------------------


def test_a_rejected_message_is_dead_at_once_with_the_reason_of_its_consumer(broker: LoopbackBroker) -> None:
    """B9, D-25"""
    connection, name = broker.connect(), broker.name()
    session = connection.session(ack="client")
    session.producer(name).send_many(["bad", "good"])
    bad, good = take(session.consumer(name), 2)
    bad.reject("no such customer")
    until(lambda: dead(connection))
    (row,) = dead(connection)
    assert (row["body"], row["properties"]["JMS_SUN_DMQ_UNDELIVERED_REASON"]) == ("bad", "ERROR")
    assert row["properties"]["JMS_SUN_DMQ_UNDELIVERED_COMMENT"] == "no such customer"
    assert good.body == "good"
    assert held(connection, name) == 1


def test_a_released_message_comes_again_and_does_not_count_as_failed(broker: LoopbackBroker) -> None:
    """B9: given back uncounted"""
    connection = broker.connect()
    name = create(connection, broker.name(), redeliveryLimit=1)
    session = connection.session(ack="client")
    session.producer(name).send("x")
    consumer = session.consumer(name)
    for attempt in range(1, 6):
        (message,) = take(consumer, 1)
        assert message.delivery_count == attempt
        message.release()
    assert dead(connection) == []


def test_a_released_message_can_go_to_another_consumer(broker: LoopbackBroker) -> None:
    """B9: for anybody"""
    connection, name = broker.connect(), broker.name()
    first, second = connection.session(ack="client"), connection.session(ack="client")
    first.producer(name).send_many("abcd")
    own = first.consumer(name, prefetch=4)
    message, *_ = take(own, 4)
    other = second.consumer(name, prefetch=1)
    message.release()
    assert [(m.body, m.redelivered) for m in take(other, 1)] == [("a", True)]


def test_a_failed_message_comes_again_after_the_delay_it_was_given(broker: LoopbackBroker) -> None:
    """B8: nack with delay"""
    connection, name = broker.connect(), broker.name()
    session = connection.session(ack="client")
    session.producer(name).send_many(["late", "early"])
    consumer = session.consumer(name)
    late, early = take(consumer, 2)
    started = time.monotonic()
    late.fail(delay_ms=DELAY_MS)
    early.fail(delay_ms=0)
    assert bodies(take(consumer, 2)) == ["early", "late"]
    assert time.monotonic() - started >= DELAY_MS / 1000 - 0.002


@pytest.mark.parametrize("outcome", ["reject", "release", "fail"])
def test_a_message_is_settled_once(broker: LoopbackBroker, outcome: str) -> None:
    """B9: what comes after the first outcome is refused"""
    connection, name = broker.connect(), broker.name()
    session = connection.session(ack="client")
    session.producer(name).send_many(range(2))
    consumer = session.consumer(name)
    first, _ = take(consumer, 2)
    first.acknowledge_this()
    with pytest.raises(IllegalStateError, match="settled already"):
        getattr(first, outcome)()
    assert held(connection, name) == 1
    assert nothing(consumer, 0.02)
    assert dead(connection) == []


@pytest.mark.parametrize("outcome", ["reject", "release", "fail"])
def test_only_who_acknowledges_message_by_message_has_other_outcomes(broker: LoopbackBroker, outcome: str) -> None:
    """B9"""
    connection, name = broker.connect(), broker.name()
    session = connection.session()
    session.producer(name).send("x")
    (message,) = take(session.consumer(name), 1)
    with pytest.raises(IllegalStateError, match=rf"{outcome}\(\).*client.*auto"):
        getattr(message, outcome)()


def test_a_listener_can_fail_and_reject_what_it_has_in_hand(broker: LoopbackBroker) -> None:
    """B9"""
    connection, name = broker.connect(), broker.name()
    seen: list[tuple[Any, int]] = []

    def listener(message: Any) -> Any:
        seen.append((message.body, message.delivery_count))
        if message.body == "bad":
            return message.reject("never")
        return message.fail(delay_ms=0) if message.delivery_count == 1 else None

    connection.session().consumer(name).on_message(listener)
    connection.session().producer(name).send_many(["bad", "slow"])
    until(lambda: len(seen) == 3 and held(connection, name) == 0)
    assert seen == [("bad", 1), ("slow", 1), ("slow", 2)]
    until(lambda: [row["body"] for row in dead(connection)] == ["bad"])


# ---- redelivery limit (W-69, W-72, B10, B11) -------------------------------------------------------------------------


def test_with_limit_2_a_message_is_delivered_3_times_and_then_dead(broker: LoopbackBroker) -> None:
    """W-69: at most L + 1 deliveries"""
    connection = broker.connect()
    name = create(connection, broker.name(), redeliveryLimit=2)
    session = connection.session(ack="client")
    session.producer(name).send("x")
    consumer = session.consumer(name)
    for attempt in (1, 2, 3):
        (message,) = take(consumer, 1)
        assert (message.delivery_count, message.redelivered) == (attempt, attempt > 1)
        message.fail(delay_ms=0)
    until(lambda: dead(connection))
    properties = dead(connection)[0]["properties"]
    assert properties["JMS_SUN_DMQ_UNDELIVERED_REASON"] == "UNDELIVERABLE"
    assert properties["JMS_SUN_DMQ_DELIVERY_COUNT"] == 3
    assert nothing(consumer, 0.02)
    assert held(connection, name) == 0


def test_recover_counts_as_a_failure_of_what_was_handed_to_the_application(broker: LoopbackBroker) -> None:
    """W-69: and not of what only was in the buffer"""
    connection = broker.connect()
    name = create(connection, broker.name(), redeliveryLimit=1)
    session = connection.session(ack="client")
    session.producer(name).send_many(["taken", "buffered"])
    consumer = session.consumer(name)
    for _ in range(2):
        assert bodies(take(consumer, 1)) == ["taken"]
        session.recover()
    until(lambda: [row["body"] for row in dead(connection)] == ["taken"])
    assert [(m.body, m.delivery_count) for m in take(consumer, 1)] == [("buffered", 1)]


def test_the_limit_is_20_by_default_and_minus_1_is_none(broker: LoopbackBroker) -> None:
    """B10"""
    connection = broker.connect()
    default, unlimited = create(connection, broker.name()), create(connection, broker.name(), redeliveryLimit=-1)
    session = connection.session(ack="client")
    consumers = {}
    for name in (default, unlimited):
        session.producer(name).send(name)
        consumers[name] = session.consumer(name)
        for _ in range(21):
            take(consumers[name], 1)[0].fail(delay_ms=0)
    until(lambda: [row["body"] for row in dead(connection)] == [default])
    assert nothing(consumers[default], 0.01)
    assert take(consumers[unlimited], 1)[0].delivery_count == 22


def test_closing_a_consumer_does_not_count_against_the_limit(broker: LoopbackBroker) -> None:
    """W-67, W-69: what was merely left unacknowledged comes at once and uncounted"""
    connection = broker.connect()
    name = create(connection, broker.name(), redeliveryLimit=0, redeliveryDelayOverride=60_000)
    connection.session().producer(name).send("x")
    for attempt in (1, 2, 3, 4):
        client = broker.connect()
        assert take(client.session(ack="client").consumer(name), 1)[0].delivery_count == attempt
        client.close()
    assert dead(connection) == []


def test_a_message_that_ends_every_connection_it_comes_to_is_dead_in_the_end(broker: LoopbackBroker) -> None:
    """B9, B10: a crash counts from the second delivery on, and rests for nobody"""
    connection = broker.connect()
    name = create(connection, broker.name(), redeliveryLimit=1, redeliveryDelayOverride=60_000)
    connection.session().producer(name).send_many(["poison", "innocent"])
    consumer = (client := broker.connect()).session(ack="client").consumer(name)
    for attempt in (1, 2, 3):
        (message,) = take(consumer, 1)
        assert (message.body, message.delivery_count) == ("poison", attempt)
        cut(client)
    assert [(m.body, m.delivery_count) for m in take(consumer, 1)] == [("innocent", 4)]
    until(lambda: [row["body"] for row in dead(connection)] == ["poison"])


def test_every_subscriber_counts_failures_for_itself(broker: LoopbackBroker) -> None:
    """W-72"""
    connection = broker.connect()
    name = create(connection, broker.name(), "topic", redeliveryLimit=0)
    one, other = connection.session(ack="client"), connection.session(ack="client")
    failing, fine = one.consumer(f"topic:{name}"), other.consumer(f"topic:{name}")
    connection.session().producer(f"topic:{name}").send("x")
    take(failing, 1)[0].fail()
    until(lambda: len(dead(connection)) == 1)
    (message,) = take(fine, 1)
    assert (message.delivery_count, message.redelivered) == (1, False)
    message.acknowledge()
    assert state_of(connection, name, "topic")["messages"] == 0


def test_failures_are_counted_over_a_restart(store: OneStore) -> None:
    """W-69"""
    connection = store.open().connect()
    create(connection, "orders", redeliveryLimit=1)
    session = connection.session(ack="client")
    session.producer("orders").send_many(["x", "y"])
    consumer = session.consumer("orders")  # It is held, and lost with what it has.
    until(lambda: buffered(consumer) == 2)
    take(consumer, 1)[0].fail(delay_ms=0)
    again = store.crash().connect()
    session = again.session(ack="client")
    found = take(session.consumer("orders"), 2)
    assert [(m.body, m.redelivered) for m in found] == [("x", True), ("y", True)]
    for message in found:
        message.fail(delay_ms=0)
    until(lambda: [row["body"] for row in dead(again)] == ["x"])


def test_more_rollbacks_in_a_row_than_allowed_make_a_dead_message(make_broker: MakeBroker) -> None:
    """T-09: imq.transaction.message.maxConsecutiveRollbacks"""
    broker = make_broker(imq__transaction__message__maxConsecutiveRollbacks=3)
    connection, name = broker.connect(), broker.name()
    connection.session().producer(name).send("poison")
    session = connection.session(transacted=True)
    consumer = session.consumer(name)
    for attempt in (1, 2, 3):
        assert take(consumer, 1)[0].delivery_count == attempt
        session.rollback()
    until(lambda: [row["body"] for row in dead(connection)] == ["poison"])
    assert nothing(consumer, 0.02)


# ---- redelivery delay (W-67, W-68, B11) ------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["factory", "session", "destination"])
def test_what_is_recovered_rests_for_the_redelivery_delay(broker: LoopbackBroker, how: str) -> None:
    """W-67, W-68: the destination's own value beats the session's"""
    connection = broker.connect(**({"defaultRedeliveryDelay": DELAY_MS} if how == "factory" else {}))
    own = {"redeliveryDelayOverride": DELAY_MS} if how == "destination" else {}
    name = create(connection, broker.name(), **own)
    session = connection.session(ack="client", redelivery_delay_ms=DELAY_MS if how == "session" else None)
    if how == "destination":
        session.redelivery_delay_ms = 60_000
    session.producer(name).send("x")
    consumer = session.consumer(name)
    take(consumer, 1)
    started = time.monotonic()
    session.recover()
    assert rests(connection, name, started, DELAY_MS)
    assert take(consumer, 1)[0].delivery_count == 2
    assert time.monotonic() - started >= DELAY_MS / 1000 - 0.002


def test_a_resting_message_lets_others_pass(broker: LoopbackBroker) -> None:
    """W-67: set aside"""
    connection = broker.connect()
    name = create(connection, broker.name(), redeliveryDelayOverride=DELAY_MS * 5)
    session = connection.session(ack="client")
    producer, consumer = session.producer(name), session.consumer(name)
    producer.send("failing")
    take(consumer, 1)[0].fail()
    producer.send("new")
    assert bodies(take(consumer, 2)) == ["new", "failing"]


def test_each_further_failure_rests_longer_up_to_a_limit(broker: LoopbackBroker) -> None:
    """B11"""
    connection = broker.connect()
    name = create(
        connection, broker.name(), redeliveryDelayOverride=40, redeliveryBackoffPercent=200, redeliveryDelayMax=100
    )
    session = connection.session(ack="client")
    session.producer(name).send("x")
    consumer = session.consumer(name)
    (message,) = take(consumer, 1)
    for least_ms in (40, 80, 100):
        started = time.monotonic()
        message.fail()
        (message,) = take(consumer, 1)
        assert time.monotonic() - started >= least_ms / 1000 - 0.002


@pytest.mark.parametrize("wrong", [-1, 1.5, "soon", 1 << 31])
@TWO_FACES
def test_a_bad_redelivery_delay_is_refused(broker: LoopbackBroker, wrong: Any) -> None:
    """W-67"""
    with pytest.raises(ConfigError, match="redelivery_delay_ms"):
        broker.connect().session(redelivery_delay_ms=wrong)


# ---- ack deadline (B6, B7) -------------------------------------------------------------------------------------------


def test_a_message_that_is_not_acknowledged_in_time_goes_to_another_consumer(broker: LoopbackBroker) -> None:
    """B6: per delivery, without ending the consumer"""
    connection, name = broker.connect(), broker.name()
    slow, quick = connection.session(ack="client"), connection.session(ack="client")
    slow.producer(name).send("x")
    stuck = slow.consumer(name, prefetch=1, ack_timeout_ms=60)
    (message,) = take(stuck, 1)
    (again,) = take(quick.consumer(name), 1)
    assert (again.redelivered, again.delivery_count) == (True, 2)
    with pytest.raises(IllegalStateError, match="deadline"):
        message.acknowledge()
    assert held(connection, name) == 1, "too late: it is another's now"
    again.acknowledge()
    assert held(connection, name) == 0
    slow.producer(name).send("the consumer goes on")


@ONE_FACE
def test_extending_starts_the_deadline_again(broker: LoopbackBroker) -> None:
    """B7"""
    connection, name = broker.connect(), broker.name()
    slow, other = connection.session(ack="client"), connection.session(ack="client")
    slow.producer(name).send("x")
    (message,) = take(slow.consumer(name, prefetch=1, ack_timeout_ms=250), 1)
    waiting = other.consumer(name)
    deadline = time.monotonic() + 0.5
    while time.monotonic() < deadline:
        message.extend()
        assert nothing(waiting, 0.04)
    assert take(waiting, 1)[0].delivery_count == 2, "nobody extends it any more"


@ONE_FACE
def test_what_waits_in_the_buffer_is_extended_by_itself(broker: LoopbackBroker) -> None:
    """B7"""
    connection, name = broker.connect(), broker.name()
    session = connection.session(ack="client")
    session.producer(name).send_many(range(5))
    consumer = session.consumer(name, prefetch=5, ack_timeout_ms=180)  # A limit of its own: none of it is shared.
    assert bodies(take(consumer, 1)) == [0]
    waiting = connection.session().consumer(name)
    assert [(m.body, m.delivery_count) for m in take(waiting, 1)] == [(0, 2)]
    assert nothing(waiting, 0.45)
    assert [(m.body, m.delivery_count) for m in take(consumer, 4)] == [(n, 1) for n in range(1, 5)]


def test_what_a_listener_has_in_hand_is_extended_by_itself() -> None:
    """B7; a coroutine would have to be held up, and with it its loop"""
    with LoopbackBroker() as broker:
        _extended_in_hand(broker)


def _extended_in_hand(broker: LoopbackBroker) -> None:
    connection, name = broker.connect(), broker.name()
    busy, go_on = threading.Event(), threading.Event()
    seen: list[int] = []

    def listener(message: Any) -> None:
        seen.append(message.delivery_count)
        busy.set()
        go_on.wait(20)

    connection.session().consumer(name, prefetch=1, ack_timeout_ms=300).on_message(listener)
    connection.session().producer(name).send("x")
    busy.wait(20)
    assert nothing(connection.session().consumer(name), 0.9)
    go_on.set()
    until(lambda: held(connection, name) == 0)
    assert seen == [1]


@pytest.mark.parametrize("wrong", [0, 9, -5, 1.5, "soon"])
@TWO_FACES
def test_a_bad_ack_deadline_is_refused(broker: LoopbackBroker, wrong: Any) -> None:
    """B6"""
    with pytest.raises(ConfigError, match=r"ack_timeout_ms.*10 to"):
        broker.connect().session().consumer(broker.name(), ack_timeout_ms=wrong)


@pytest.mark.parametrize("style", [{"prefetch": 1}, {"prefetch": 2}, {"prefetch": 2, "threshold": 50}, {"prefetch": 0}])
@pytest.mark.parametrize("keeps", [1, 2])
@ONE_FACE
def test_a_consumer_that_let_a_deadline_pass_gets_everything_when_it_asks_again(
    broker: LoopbackBroker, style: dict[str, int], keeps: int
) -> None:
    """B6: what it had is taken back, and so is the credit for it"""
    connection, name = broker.connect(), broker.name()
    session = connection.session(ack="client")
    session.producer(name).send_many("abc")
    consumer = session.consumer(name, ack_timeout_ms=100, **style)
    kept = []
    for _ in range(min(keeps, style["prefetch"] or keeps)):
        kept += take(consumer, 1)
    until(lambda: state_of(connection, name)["unacknowledged"] <= buffered(consumer))
    for message in kept:
        with pytest.raises(IllegalStateError, match="deadline"):
            message.acknowledge_this()
    done: list[str] = []
    while len(done) < 3:
        (message,) = take(consumer, 1)
        with contextlib.suppress(IllegalStateError):  # Too late again, on a busy machine: it comes once more.
            message.acknowledge_this()
            done.append(message.body)
    assert sorted(done) == ["a", "b", "c"]
    assert held(connection, name) == 0


def test_a_consumer_that_does_not_come_back_keeps_nothing_from_the_others(broker: LoopbackBroker) -> None:
    """B6: it gets nothing more before it asks"""
    connection, name = broker.connect(), broker.name()
    session = connection.session(ack="client")
    session.producer(name).send_many("abc")
    gone = session.consumer(name, prefetch=1, ack_timeout_ms=100)
    take(gone, 1)
    until(lambda: state_of(connection, name)["unacknowledged"] == 0)
    other = connection.session().consumer(name)
    assert bodies(take(other, 3)) == ["a", "b", "c"]


@ONE_FACE
def test_a_listener_goes_on_after_a_deadline_has_passed(broker: LoopbackBroker) -> None:
    """B6: also when it had the message acknowledged too late"""
    connection, name = broker.connect(), broker.name()
    session = connection.session(ack="client")
    seen: list[Any] = []
    session.consumer(name, prefetch=1, ack_timeout_ms=60).on_message(lambda m: seen.append(m.body))
    session.producer(name).send_many("ab")
    until(lambda: seen[:2] == ["a", "a"])


# ---- what counts as a delivery (R-11) --------------------------------------------------------------------------------


def recovered(session: Any, consumer: Any) -> None:
    session.recover()


def consumer_closed(session: Any, consumer: Any) -> None:
    consumer.close()


def session_closed(session: Any, consumer: Any) -> None:
    session.close()


def rolled_back(session: Any, consumer: Any) -> None:
    session.rollback()


@pytest.mark.parametrize("back", [recovered, consumer_closed, session_closed, rolled_back])
@pytest.mark.parametrize("persistent", [True, False])
def test_what_was_only_prefetched_counts_as_not_delivered(broker: LoopbackBroker, back: Any, persistent: bool) -> None:
    """R-11: a delivery is one to the application"""
    connection = broker.connect()
    name = create(connection, broker.name(), redeliveryLimit=-1)
    connection.session().producer(name).send_many("abcde", persistent=persistent)
    session = connection.session(transacted=back is rolled_back, ack="client")
    consumer = session.consumer(name)
    take(consumer, 2)
    until(lambda: buffered(consumer) == 3)
    back(session, consumer)
    if back in (recovered, rolled_back):
        consumer.close()
    again = take(connection.session(ack="client").consumer(name), 5)
    assert [(m.body, m.delivery_count, m.redelivered) for m in again] == [
        ("a", 2, True),
        ("b", 2, True),
        ("c", 1, False),
        ("d", 1, False),
        ("e", 1, False),
    ]


@ONE_FACE
def test_the_redelivery_limit_counts_deliveries_to_the_application_alone(broker: LoopbackBroker) -> None:
    """W-69, R-11"""
    connection = broker.connect()
    name = create(connection, broker.name(), redeliveryLimit=2, redeliveryDelayOverride=0)
    session = connection.session(ack="client")
    session.producer(name).send_many("abc")
    consumer = session.consumer(name)
    for _ in range(3):
        assert bodies(take(consumer, 1)) == ["a"]
        session.recover()
    until(lambda: dead(connection))
    assert [row["body"] for row in dead(connection)] == ["a"]
    assert [(m.body, m.delivery_count) for m in take(consumer, 2)] == [("b", 1), ("c", 1)]


def test_what_was_only_prefetched_is_unflagged_after_a_restart_too(store: OneStore) -> None:
    """R-11, B-20; what a consumer had that was lost may have been delivered, and is flagged"""
    broker = store.open()
    connection = broker.connect()
    connection.session().producer("q").send_many("abc")
    session = connection.session(ack="client")
    consumer = session.consumer("q")
    take(consumer, 1)
    until(lambda: buffered(consumer) == 2)
    consumer.close()
    connection.session().producer("other").send("x")  # With it on disk is what was before it, which nobody waits for.
    connection = store.crash().connect()
    found = take(connection.session(ack="client").consumer("q"), 3)
    assert [(m.body, m.redelivered) for m in found] == [("a", True), ("b", False), ("c", False)]
    found = take(store.crash().connect().session(ack="client").consumer("q"), 3)
    assert [m.redelivered for m in found] == [True, True, True]
