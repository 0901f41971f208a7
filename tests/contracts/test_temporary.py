"""Temporary destinations, request and reply, and client ids (D-23, R-18)."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from raybroker.engine.destinations import temporary_destinations
from raybroker.errors import (
    IllegalStateError,
    InvalidClientIDError,
    InvalidDestinationError,
    MessageFormatError,
    RequestTimeoutError,
)
from tests.contracts.conftest import TWO_FACES, OneStore
from tests.contracts.handles import WAIT_S, LoopbackBroker, bodies, cut, names_of, state_of, take, until

# ---- temporary destinations (D-23) -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_anyone_may_send_to_a_temporary_destination_and_its_connection_receives(
    broker: LoopbackBroker, kind: str
) -> None:
    """D-23"""
    mine, other = broker.connect(), broker.connect()
    session = mine.session()
    temporary = getattr(session, f"temporary_{kind}")()
    consumer = session.consumer(temporary)
    another = mine.session().consumer(temporary)
    another.close()
    other.session().producer(f"{kind}:{temporary.name}").send("for you")
    assert bodies(take(consumer, 1)) == ["for you"]


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_only_the_connection_that_made_it_may_consume_from_it(broker: LoopbackBroker, kind: str) -> None:
    """D-23"""
    temporary = getattr(broker.connect().session(), f"temporary_{kind}")()
    with pytest.raises(InvalidDestinationError, match=r"temporary.*connection that made it"):
        broker.connect().session().consumer(f"{kind}:{temporary.name}")


@pytest.mark.parametrize("way", ["close", "cut"])
def test_a_temporary_destination_ends_with_its_connection(
    broker: LoopbackBroker, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-23: after a grace time, when the connection was lost"""
    monkeypatch.setattr(temporary_destinations, "ORPHAN_MS", 50)
    connection = broker.connect()
    client = broker.connect(imqReconnectEnabled=False)
    session = client.session()
    names = {session.temporary_queue().name, session.temporary_topic().name}
    session.producer(f"queue:{min(names)}").send("lost")

    def there() -> set[str]:
        return {row["name"] for row in connection.admin().list_destinations(temporary=True)} & names

    assert there() == names
    client.close() if way == "close" else cut(client)
    until(lambda: not there())
    with pytest.raises(InvalidDestinationError, match="does not exist"):
        connection.session().producer(f"queue:{min(names)}")


def test_administrators_see_temporary_destinations_and_cannot_destroy_them(broker: LoopbackBroker) -> None:
    """D-23, A-33"""
    connection = broker.connect()
    name = connection.session().temporary_queue().name
    assert name not in names_of(connection)
    rows = {row["name"]: row for row in connection.admin().list_destinations(temporary=True)}
    assert rows[name]["temporary"]
    assert state_of(connection, name)["type"] == "queue"
    with pytest.raises(IllegalStateError, match=f"{name}.*temporary"):
        connection.admin().destroy_destination("queue", name)
    with pytest.raises(InvalidDestinationError):
        connection.admin().create_destination("queue", name)


def test_a_temporary_destination_is_deleted_only_when_nobody_consumes(broker: LoopbackBroker) -> None:
    """D-23"""
    session = broker.connect().session()
    temporary = session.temporary_queue()
    consumer = session.consumer(temporary)
    with pytest.raises(IllegalStateError, match="consumers"):
        temporary.delete()
    consumer.close()
    temporary.delete()
    with pytest.raises(InvalidDestinationError):
        session.producer(temporary).send("x")


@pytest.mark.parametrize("ack", ["auto", "client"])
@pytest.mark.parametrize("how", ["receive", "receive_many"])
def test_consumers_that_a_session_keeps_by_itself_end_with_a_temporary_destination(
    how: str, ack: str, broker: LoopbackBroker
) -> None:
    session = broker.connect().session(ack=ack)
    temporary = session.temporary_queue()
    session.producer(temporary).send_many(range(3))
    if how == "receive":
        assert session.receive(temporary, timeout=WAIT_S).body == 0
    else:
        assert bodies(session.receive_many(temporary, 2, timeout=WAIT_S)) == [0, 1]
    temporary.delete()
    with pytest.raises(InvalidDestinationError):
        session.receive(temporary, timeout=0.01)


def test_temporary_destinations_are_not_there_after_a_restart(store: OneStore) -> None:
    """D-23: not stored"""
    session = store.open().connect().session()
    session.producer(session.temporary_queue()).send("x")
    again = store.crash().connect()
    assert [row["name"] for row in again.admin().list_destinations(temporary=True)] == ["mq.sys.dmq"]


# ---- request and reply -----------------------------------------------------------------------------------------------


def answer(connection: Any, name: str, count: int = 1, delay: threading.Event | None = None) -> threading.Thread:
    """Somebody who answers requests."""

    def serve() -> None:
        session = connection.session()
        consumer = session.consumer(name)
        for _ in range(count):
            message = consumer.receive(timeout=WAIT_S)
            if delay is not None:
                delay.wait(WAIT_S)
            session.producer(message.reply_to).send({"re": message.body}, correlation_id=message.correlation_id)
        consumer.close()

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


def test_a_request_is_answered_through_a_temporary_queue(broker: LoopbackBroker) -> None:
    """D-23"""
    connection, name = broker.connect(), broker.name()
    server = answer(broker.connect(), name, 3)
    session = connection.session()
    for n in range(3):
        assert session.request(name, n, timeout=WAIT_S, properties={"n": n}).body == {"re": n}
    server.join(WAIT_S)
    temporary = [r for r in connection.admin().list_destinations(temporary=True) if r["temporary"]]
    assert len(temporary) == 1, "one queue serves all requests of a session"
    session.close()


def test_a_request_in_a_transacted_session_is_not_part_of_the_transaction(broker: LoopbackBroker) -> None:
    """D-23: its answer could not come before the commit"""
    connection, name, other = broker.connect(), broker.name(), broker.name()
    server = answer(broker.connect(), name)
    session = connection.session(transacted=True)
    session.producer(other).send("rolled back")
    assert session.request(session.queue(name), "x", timeout=WAIT_S).body == {"re": "x"}
    session.rollback()
    server.join(WAIT_S)
    assert state_of(connection, other)["messages"] == 0


def test_a_request_that_nobody_answers_in_time_says_so_and_a_late_answer_is_dropped(broker: LoopbackBroker) -> None:
    """D-23"""
    connection, name = broker.connect(), broker.name()
    session, late = connection.session(), threading.Event()
    server = answer(broker.connect(), name, 3, late)
    late.set()
    assert session.request(name, "before", timeout=WAIT_S), "all is open now, and the next one leaves in time"
    late.clear()
    started = time.monotonic()
    with pytest.raises(RequestTimeoutError, match=rf"{name}.*0\.06"):
        session.request(name, "first", timeout=0.06)
    assert time.monotonic() - started < WAIT_S / 2
    late.set()
    assert session.request(name, "second", timeout=WAIT_S).body == {"re": "second"}
    server.join(WAIT_S)


@pytest.mark.parametrize(
    ("options", "error", "word"),
    [
        ({"reply_to": "x"}, TypeError, "reply_to"),
        ({"priority": 10}, MessageFormatError, "0 to 9"),
        ({"ttl_ms": -1}, MessageFormatError, "ttl_ms"),
    ],
)
@TWO_FACES
def test_a_bad_option_of_a_request_is_refused(
    broker: LoopbackBroker, options: dict[str, Any], error: type[Exception], word: str
) -> None:
    """D-23"""
    with pytest.raises(error, match=word):
        broker.connect().session().request(broker.name(), "x", timeout=1, **options)


# ---- client ids (R-18) -----------------------------------------------------------------------------------------------


def test_a_client_id_is_set_before_the_connection_is_used(broker: LoopbackBroker) -> None:
    """R-18"""
    connection = broker.connect(started=False)
    assert connection.client_id is None
    connection.client_id = "billing"
    assert connection.client_id == "billing"
    connection.session().durable_consumer(f"topic:{broker.name()}", "audit")
    with pytest.raises(IllegalStateError, match="client id is set before"):
        connection.client_id = "other"


@pytest.mark.parametrize("client_id", ["", " a", "a\n", "x" * 256, 5])
@TWO_FACES
def test_a_bad_client_id_is_refused(broker: LoopbackBroker, client_id: Any) -> None:
    """R-18"""
    with pytest.raises(InvalidClientIDError):
        broker.connect(started=False).client_id = client_id


def test_a_client_id_is_of_one_live_connection(broker: LoopbackBroker) -> None:
    """R-18: duplicates are refused, and free again after a close"""
    name = broker.name()
    first = broker.connect(client_id="billing")
    first.session().producer(name).send("x")
    with pytest.raises(InvalidClientIDError, match="'billing' is in use"):
        broker.connect(client_id="billing").session().producer(name)
    first.close()
    assert bodies(take(broker.connect(client_id="billing").session().consumer(name), 1)) == ["x"]
