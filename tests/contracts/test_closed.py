"""What a handle says once it is closed, and what a message says once it went back: never that something was done."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from raybroker.client.connection import connection as connection_module
from raybroker.errors import ConnectionLostError, IllegalStateError
from tests.contracts.conftest import TWO_FACES, MakeBroker
from tests.contracts.handle_basics import held
from tests.contracts.handles import WAIT_S, LoopbackBroker, bodies, create, cut, is_awaited, state_of, take, until

SETTLE: dict[str, Callable[[Any], Any]] = {
    "acknowledge": lambda m: m.acknowledge(),
    "acknowledge_this": lambda m: m.acknowledge_this(),
    "acknowledge_up_to": lambda m: m.acknowledge_up_to(),
    "reject": lambda m: m.reject("no"),
    "release": lambda m: m.release(),
    "fail": lambda m: m.fail(),
    "extend": lambda m: m.extend(),
}


def received(broker: LoopbackBroker, count: int = 2, **options: Any) -> tuple[Any, Any, Any, list[Any]]:
    """(connection, session, consumer, messages) of a "client" session that has received everything."""
    connection, name = broker.connect(), broker.name()
    session = connection.session(ack="client")
    session.producer(name).send_many(range(count))
    consumer = session.consumer(name, **options)
    return connection, session, consumer, take(consumer, count)


# ---- settling --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("closed", ["consumer", "session", "connection"])
@pytest.mark.parametrize("how", SETTLE)
@TWO_FACES
def test_nothing_can_be_settled_once_its_handle_is_closed(how: str, closed: str, broker: LoopbackBroker) -> None:
    connection, session, consumer, messages = received(broker)
    {"consumer": consumer, "session": session, "connection": connection}[closed].close()
    with pytest.raises(IllegalStateError, match=f"{closed}.*closed"):
        SETTLE[how](messages[0])
    assert bodies(take(broker.connect().session().consumer(messages[0].destination), 2)) == [0, 1]


def test_what_was_acknowledged_before_its_consumer_was_closed_may_be_acknowledged_again(broker: LoopbackBroker) -> None:
    _, _, consumer, (first, second) = received(broker)
    first.acknowledge()
    consumer.close()
    first.acknowledge()
    second.acknowledge_this()
    assert held(broker.connect(), first.destination) == 0


@pytest.mark.parametrize("how", [how for how in SETTLE if how != "extend"])
def test_a_message_whose_ack_deadline_has_passed_is_not_settled(how: str, make_broker: MakeBroker) -> None:
    broker = make_broker()
    connection, _, _, (message,) = received(broker, 1, ack_timeout_ms=30, prefetch=1)
    until(lambda: state_of(connection, message.destination)["unacknowledged"] == 0)
    with pytest.raises(IllegalStateError, match="deadline"):
        SETTLE[how](message)
    if how in ("acknowledge_this", "reject", "release", "fail"):
        with pytest.raises(IllegalStateError, match="did nothing"):
            SETTLE[how](message)
    assert held(connection, message.destination) == 1


@pytest.mark.parametrize("how", SETTLE)
def test_a_message_of_a_lost_connection_or_before_a_recover_is_not_settled(how: str, broker: LoopbackBroker) -> None:
    connection, session, consumer, first = received(broker)
    session.recover()
    second = take(consumer, 2)
    with pytest.raises(IllegalStateError, match="recovered"):
        SETTLE[how](first[0])
    cut(connection)
    take(consumer, 2)
    with pytest.raises(ConnectionLostError, match="lost"):
        SETTLE[how](second[0])
    assert held(connection, first[0].destination) == 2


@pytest.mark.parametrize("how", ["reject", "release", "fail"])
@TWO_FACES
def test_what_is_settled_cannot_be_settled_otherwise(how: str, broker: LoopbackBroker) -> None:
    connection, _, _, (first, second) = received(broker)
    second.acknowledge()
    for message in (first, second):
        message.acknowledge()
        with pytest.raises(IllegalStateError, match="settled already"):
            SETTLE[how](message)
    assert held(connection, first.destination) == 0


# ---- transactions and recover ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("closed", ["session", "connection"])
@TWO_FACES
def test_a_closed_transacted_session_neither_commits_nor_rolls_back(closed: str, broker: LoopbackBroker) -> None:
    connection, name = broker.connect(), broker.name()
    session = connection.session(transacted=True)
    session.producer(name).send("lost")
    {"session": session, "connection": connection}[closed].close()
    for call in (session.commit, session.rollback):
        with pytest.raises(IllegalStateError, match=f"{closed} is closed"):
            call()
    assert held(broker.connect(), name) == 0


@pytest.mark.parametrize("closed", ["session", "connection"])
@TWO_FACES
def test_a_closed_session_does_not_recover(closed: str, broker: LoopbackBroker) -> None:
    connection, session, _, _ = received(broker)
    {"session": session, "connection": connection}[closed].close()
    with pytest.raises(IllegalStateError, match=f"{closed} is closed"):
        session.recover()


# ---- receiving -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("closed", ["consumer", "session", "connection"])
@TWO_FACES
def test_a_closed_consumer_raises_instead_of_saying_that_nothing_came(closed: str, broker: LoopbackBroker) -> None:
    connection = broker.connect()
    session = connection.session()
    consumer = session.consumer(broker.name())
    {"consumer": consumer, "session": session, "connection": connection}[closed].close()
    calls = (consumer.receive, consumer.receive_nowait, consumer.receive_many, lambda: consumer.on_message(print))
    for call in calls:
        with pytest.raises(IllegalStateError, match="closed"):
            call()
    assert list(consumer) == []


def test_whoever_waits_while_the_consumer_is_closed_gets_none(broker: LoopbackBroker) -> None:
    consumer = broker.connect().session().consumer(broker.name())
    found: list[Any] = []
    waiting = threading.Thread(target=lambda: found.extend([consumer.receive(), list(consumer)]))
    waiting.start()
    until(lambda: is_awaited(consumer))
    consumer.close()
    waiting.join(WAIT_S)
    assert found == [None, []]


# ---- connections -----------------------------------------------------------------------------------------------------


@TWO_FACES
def test_a_closed_connection_makes_nothing(broker: LoopbackBroker) -> None:
    connection = broker.connect()
    session = connection.session()
    connection.close()
    name = broker.name()
    calls: list[Callable[[], Any]] = [
        connection.session,
        connection.start,
        connection.stop,
        lambda: connection.admin().list_destinations(),
        lambda: connection.on_consumer_event(name, print),
        lambda: session.producer(name),
        lambda: session.consumer(name),
        lambda: session.browser(name),
        session.temporary_queue,
        lambda: session.unsubscribe("x"),
        lambda: session.request(name, "x"),
        lambda: session.shared_consumer(name, "x"),
    ]
    for call in calls:
        with pytest.raises(IllegalStateError, match="closed"):
            call()


def warnings_of(log: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in log.records if r.name == "raybroker.client" and "never started" in r.getMessage()]


@pytest.mark.parametrize("waits", ["receive", "listener"])
def test_who_waits_on_a_connection_that_was_never_started_is_warned_once(
    waits: str, broker: LoopbackBroker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "NOT_STARTED_S", 0.02)
    connection = broker.connect(started=False)
    session = connection.session()
    for _ in range(2):
        consumer = session.consumer(broker.name())
        if waits == "listener":
            consumer.on_message(print)
        else:
            assert consumer.receive(timeout=0.01) is None
    until(lambda: warnings_of(caplog))
    assert consumer.info()["buffered"] == 0
    assert len(warnings_of(caplog)) == 1


def test_nobody_is_warned_on_a_connection_that_was_stopped(
    broker: LoopbackBroker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "NOT_STARTED_S", 0.0)
    connection = broker.connect()
    consumer = connection.session().consumer(broker.name())
    connection.stop()
    assert consumer.receive(timeout=0.05) is None
    assert warnings_of(caplog) == []


@pytest.mark.parametrize("closed", ["producer", "session", "connection"])
def test_what_could_not_be_sent_is_told_by_whatever_is_closed(closed: str, make_broker: MakeBroker) -> None:
    """Closing the session or the connection says as much as closing the producer."""
    broker = make_broker()
    admin = broker.connect()
    name = create(admin, broker.name(), limitBehavior="FLOW_CONTROL", maxNumMsgs=2)
    connection = broker.connect(**{"raybroker.reconnect.timeout_ms": 50})
    session = connection.session()
    other = connection.session()
    producer = session.producer(name)
    futures = [producer.send_async(n) for n in range(10)]
    until(lambda: state_of(admin, name)["throttled"])
    futures += [producer.send_async(n) for n in range(10, 20)]
    with pytest.raises(IllegalStateError, match=r"was full for 0\.05 s"):
        {"producer": producer, "session": session, "connection": connection}[closed].close()
    stored = state_of(admin, name)["messages"]
    certainly_not = [f for f in futures if f.exception(WAIT_S) is not None and f.exception().definite]
    assert len(futures) - len(certainly_not) >= stored > 0
    if closed == "connection":
        with pytest.raises(IllegalStateError, match="closed"):
            other.producer(name)
    connection.close()
