"""``acknowledge()`` covers what a session has received: it raises for what of that had gone back, and names it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from raybroker.errors import ConnectionLostError, IllegalStateError
from tests.contracts.conftest import ONE_FACE, MakeBroker
from tests.contracts.handle_basics import held
from tests.contracts.handles import LoopbackBroker, bodies, cut, state_of, take, until

COVERING: dict[str, Callable[[Any], Any]] = {
    "acknowledge": lambda m: m.acknowledge(),
    "acknowledge_up_to": lambda m: m.acknowledge_up_to(),
}


def sent(broker: LoopbackBroker, count: int, *more: str) -> tuple[Any, Any, str]:
    """(connection, "client" session, queue with so many messages)."""
    connection, name = broker.connect(), broker.name()
    session = connection.session(ack="client")
    for queue in (name, *more):
        session.producer(queue).send_many(range(count))
    return connection, session, name


@pytest.mark.parametrize("how", COVERING)
def test_deliveries_whose_ack_deadline_has_passed_are_named(how: str, broker: LoopbackBroker) -> None:
    connection, session, name = sent(broker, 3)
    consumer = session.consumer(name, ack_timeout_ms=60)
    first = take(consumer, 3)
    until(lambda: state_of(connection, name)["unacknowledged"] == 0)
    again = take(consumer, 1)[0]
    assert (again.body, again.redelivered) == (0, True)
    which = f"deliveries {first[0].tag} to {first[2].tag} of {name} .*deadline"
    with pytest.raises(IllegalStateError, match=which):
        COVERING[how](again)
    assert held(connection, name) == 2, "what it could acknowledge, it did"
    rest = take(consumer, 2)
    assert bodies(rest) == [1, 2]
    COVERING[how](rest[1])
    assert held(connection, name) == 0, "they are told once"


@pytest.mark.parametrize("how", COVERING)
def test_what_a_closed_consumer_had_given_out_is_named(how: str, broker: LoopbackBroker) -> None:
    connection, session, name = sent(broker, 3)
    other = broker.name()
    session.producer(other).send("x")
    closed, kept = session.consumer(name), session.consumer(other)
    first = take(closed, 2)
    last = take(kept, 1)[0]
    closed.close()
    with pytest.raises(IllegalStateError, match=f"deliveries {first[0].tag} to {first[1].tag} of {name} .*closed"):
        COVERING[how](last)
    assert (held(connection, name), held(connection, other)) == (3, 0)
    last.acknowledge()
    assert bodies(take(session.consumer(name), 3)) == [0, 1, 2]


def test_up_to_a_message_covers_no_later_ones(broker: LoopbackBroker) -> None:
    connection, session, name = sent(broker, 2)
    other = broker.name()
    session.producer(other).send_many(["a", "b"])
    staying, leaving = session.consumer(other), session.consumer(name)
    a = take(staying, 1)[0]
    later = take(leaving, 1)[0]
    b = take(staying, 1)[0]
    leaving.close()
    a.acknowledge_up_to()
    assert held(connection, other) == 1
    with pytest.raises(IllegalStateError, match=f"delivery {later.tag} of {name}"):
        b.acknowledge_up_to()
    assert held(connection, other) == 0


@pytest.mark.parametrize("how", COVERING)
def test_what_a_lost_connection_took_back_is_named(how: str, broker: LoopbackBroker) -> None:
    connection, session, name = sent(broker, 2)
    consumer = session.consumer(name)
    take(consumer, 2)
    cut(connection)
    again = take(consumer, 1)[0]
    with pytest.raises(ConnectionLostError, match=f"deliveries 1 to 2 of {name} .*lost"):
        COVERING[how](again)
    take(consumer, 1)[0].acknowledge()
    assert held(connection, name) == 0


def test_who_was_told_of_a_message_is_not_told_again(broker: LoopbackBroker) -> None:
    connection, session, name = sent(broker, 2)
    consumer = session.consumer(name, ack_timeout_ms=60)
    first = take(consumer, 2)
    until(lambda: state_of(connection, name)["unacknowledged"] == 0)
    with pytest.raises(IllegalStateError, match="deadline"):
        first[0].acknowledge_this()
    again = take(consumer, 2)
    with pytest.raises(IllegalStateError, match=f"delivery {first[1].tag} of {name} "):
        again[1].acknowledge()
    assert held(connection, name) == 0


def test_an_error_for_the_message_itself_tells_of_the_others_it_covers(broker: LoopbackBroker) -> None:
    connection, session, name = sent(broker, 3)
    consumer = session.consumer(name, ack_timeout_ms=60)
    first = take(consumer, 3)
    until(lambda: state_of(connection, name)["unacknowledged"] == 0)
    with pytest.raises(IllegalStateError, match="did nothing") as caught:
        first[2].acknowledge()
    assert f"deliveries {first[0].tag} to {first[1].tag} of {name}" in caught.value.__notes__[0]
    take(consumer, 3)[2].acknowledge()
    assert held(connection, name) == 0


def test_what_the_application_gave_back_itself_is_not_covered(broker: LoopbackBroker) -> None:
    connection, session, name = sent(broker, 3)
    consumer = session.consumer(name)
    take(consumer, 2)
    session.recover()
    messages = take(consumer, 3)
    messages[0].release()
    messages[2].acknowledge()
    take(consumer, 1)[0].acknowledge()
    assert held(connection, name) == 0


@ONE_FACE
def test_of_many_the_first_are_named_and_the_others_counted(make_broker: MakeBroker) -> None:
    broker = make_broker()
    connection, session, name = sent(broker, 24)
    closed, kept = session.consumer(name), session.consumer(broker.name())
    for n, message in enumerate(take(closed, 24)):
        if n % 2:
            message.acknowledge_this()
    session.producer(kept.info()["destination"]).send("x")
    closed.close()
    with pytest.raises(IllegalStateError, match=r"delivery 15 of .* and 4 more;"):
        take(kept, 1)[0].acknowledge()
    assert held(connection, name) == 12
