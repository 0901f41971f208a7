"""session.receive, and consumers that nobody refers to any more: what they hold goes to others."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from raybroker.client.aio import handles as aio
from raybroker.client.blocking import handles as blocking
from raybroker.client.consumer.consumer import ConsumerCore
from raybroker.client.consumer.prefetch.prefetch_buffer import PrefetchBuffer
from raybroker.client.io.own_loop import OwnLoop
from raybroker.errors import IllegalStateError, InvalidDestinationError
from tests.contracts.conftest import ONE_FACE
from tests.contracts.handle_basics import held
from tests.contracts.handles import (
    WAIT_S,
    LoopbackBroker,
    bodies,
    buffered,
    consumers_of,
    create,
    cut,
    names_of,
    state_of,
    take,
    until,
)


@pytest.fixture(autouse=True)
def warned() -> Iterator[list[warnings.WarningMessage]]:
    """The warnings of a test, as a list."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        yield found


def let_go_of(found: list[warnings.WarningMessage], name: str) -> int:
    """How many warnings say that a consumer of this destination was lost."""
    gc.collect()
    return sum(one.category is ResourceWarning and f"consumer of {name} " in str(one.message) for one in found)


def is_filled(consumer: Any, count: int) -> None:
    until(lambda: buffered(consumer) == count)


def has_joined(consumer: Any, topics: int) -> None:
    until(lambda: len(consumer.info()["topics"]) >= topics)


# ---- session.receive -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ack", ["auto", "client", "none"])
def test_receiving_from_a_session_uses_one_consumer(
    ack: str, broker: LoopbackBroker, warned: list[warnings.WarningMessage]
) -> None:
    connection, name = broker.connect(), broker.name()
    session = connection.session(ack=ack)
    session.producer(name).send_many(range(4))
    found = [session.receive(name, timeout=WAIT_S) for _ in range(4)]
    assert [(m.body, m.redelivered) for m in found] == [(n, False) for n in range(4)]
    assert session.receive(session.queue(name), timeout=0.01) is None
    assert len(consumers_of(connection, name)) == 1
    session.close()
    assert consumers_of(connection, name) == []
    assert let_go_of(warned, name) == 0


def test_a_session_keeps_so_many_consumers_for_receiving(
    broker: LoopbackBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for face in (aio, blocking):
        monkeypatch.setattr(face, "RECEIVED_MAX", 2)
    connection, names = broker.connect(), [broker.name() for _ in range(3)]
    session = connection.session()
    for name in names:
        session.producer(name).send_many(range(3))
    assert [session.receive(name, timeout=WAIT_S).body for name in (*names[:2], names[0], names[2])] == [0, 0, 1, 0]
    until(lambda: consumers_of(connection, names[1]) == [])
    assert [len(consumers_of(connection, name)) for name in names] == [1, 0, 1]
    assert session.receive(names[1], timeout=WAIT_S).body == 1


def test_receiving_goes_on_after_the_destination_was_destroyed(broker: LoopbackBroker) -> None:
    connection = broker.connect()
    name, session = create(connection, broker.name()), connection.session()
    assert session.receive(name, timeout=0.01) is None
    connection.admin().destroy_destination("queue", name)
    with pytest.raises(InvalidDestinationError, match="destroyed"):
        until(lambda: session.receive(name, timeout=0.01))
    session.producer(name).send("anew")
    assert session.receive(name, timeout=WAIT_S).body == "anew"


def test_a_session_with_a_listener_or_a_closed_one_does_not_receive(broker: LoopbackBroker) -> None:
    session, name = broker.connect().session(), broker.name()
    session.consumer(name).on_message(lambda message: None)
    with pytest.raises(IllegalStateError, match="listener"):
        session.receive(name)
    session.close()
    with pytest.raises(IllegalStateError, match="closed"):
        session.receive(name)


@pytest.mark.parametrize("ack", ["auto", "client", "dups_ok", "transacted"])
def test_what_is_received_costs_the_same_however_many_consumers_a_session_has(
    ack: str, broker: LoopbackBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Acknowledging looks through the consumers that gave something out, and through no others."""
    connection, names = broker.connect(), [broker.name() for _ in range(40)]
    session = connection.session(transacted=True) if ack == "transacted" else connection.session(ack=ack)
    consumers = [session.consumer(name) for name in names]
    connection.session().producer(names[0]).send_many(range(40))
    looked_at: list[str] = []
    settle = PrefetchBuffer.settle_consumed

    def noting(buffer: PrefetchBuffer, up_to: int | None) -> Any:
        looked_at.append(buffer.name)
        return settle(buffer, up_to)

    monkeypatch.setattr(PrefetchBuffer, "settle_consumed", noting)
    for number in range(40):
        message = consumers[0].receive(timeout=WAIT_S)
        assert message.body == number
        if ack == "client":
            message.acknowledge()
        elif ack == "transacted":
            session.commit()
    until(lambda: len(looked_at) >= (1 if ack == "dups_ok" else 39))
    assert set(looked_at) == {names[0]}
    session.close()


# ---- consumers that nobody refers to ---------------------------------------------------------------------------------


@pytest.mark.parametrize("ack", ["auto", "client", "dups_ok", "transacted"])
def test_a_consumer_for_each_message_gets_all_of_them_in_order(
    ack: str, broker: LoopbackBroker, warned: list[warnings.WarningMessage]
) -> None:
    connection, name = broker.connect(), broker.name()
    session = connection.session(transacted=True) if ack == "transacted" else connection.session(ack=ack)
    connection.session().producer(name).send_many(range(5))
    found = [session.consumer(name).receive(timeout=WAIT_S) for _ in range(5)]
    assert bodies(found) == list(range(5))
    assert let_go_of(warned, name) == 5
    if ack == "client":
        assert held(connection, name) == 5, "what was received stays with the session"
        found[-1].acknowledge()
    elif ack == "transacted":
        session.commit()
    else:
        assert session.receive(name, timeout=0.01) is None
        session.close()
    until(lambda: consumers_of(connection, name) == [])
    until(lambda: held(connection, name) == 0)


def test_what_a_lost_consumer_has_buffered_goes_to_others_and_what_it_gave_out_can_be_settled(
    broker: LoopbackBroker,
) -> None:
    connection, name = broker.connect(), broker.name()
    session, other = connection.session(ack="client"), connection.session(ack="client")
    session.producer(name).send_many(range(10))
    consumer = session.consumer(name)
    first, second = take(consumer, 2)
    is_filled(consumer, 8)
    del consumer
    gc.collect()
    assert bodies(take(other.consumer(name), 8)) == list(range(2, 10))
    first.reject("no")
    session.producer(name).send("more")
    second.acknowledge_this()
    until(lambda: state_of(connection, name)["active_consumers"] == 1)


async def turns() -> None:
    """The loop goes on with what it has to do."""
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that has settled something is interrupted, while the loop goes on, before it tells the broker."""

    def late(tell: Callable[..., None]) -> Callable[..., None]:
        def told(consumer: ConsumerCore, *args: Any) -> None:
            if not isinstance(consumer._connection.io, OwnLoop):  # There the loop is the thread's own.
                consumer._connection.io.run(turns())
            tell(consumer, *args)

        return told

    for name in ("acknowledge", "conclude"):
        monkeypatch.setattr(ConsumerCore, name, late(getattr(ConsumerCore, name)))


WAYS: dict[str, tuple[Callable[[Any], object], int]] = {
    "acknowledge": (lambda message: message.acknowledge(), 0),
    "acknowledge_this": (lambda message: message.acknowledge_this(), 0),
    "acknowledge_up_to": (lambda message: message.acknowledge_up_to(), 0),
    "reject": (lambda message: message.reject("no"), 0),
    "release": (lambda message: message.release(), 1),
    "fail": (lambda message: message.fail(0), 1),
}
"""How a message is settled, and how many come again after that."""


@pytest.mark.usefixtures("interrupted")
@pytest.mark.parametrize("way", WAYS)
def test_a_lost_consumer_is_not_closed_while_what_it_gave_out_is_settled(way: str, broker: LoopbackBroker) -> None:
    settle, again = WAYS[way]
    connection, name = broker.connect(), broker.name()
    session = connection.session(ack="client")
    session.producer(name).send("x")
    message = session.consumer(name).receive(timeout=WAIT_S)
    gc.collect()
    settle(message)
    until(lambda: consumers_of(connection, name) == [])
    assert held(connection, name) == again


@pytest.mark.usefixtures("interrupted")
def test_what_a_lost_consumer_gave_out_is_acknowledged_by_coming_back_for_more(broker: LoopbackBroker) -> None:
    connection, name = broker.connect(), broker.name()
    session = connection.session()
    session.producer(name).send_many(range(2))
    for number in range(2):
        message = session.consumer(name).receive(timeout=WAIT_S)
        assert (message.body, message.redelivered) == (number, False)
        gc.collect()
    session.close()
    assert held(connection, name) == 0


@ONE_FACE
@pytest.mark.usefixtures("interrupted")
def test_an_acknowledgement_beside_the_closing_of_its_consumer_says_that_it_is_closed(
    broker: LoopbackBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection, name = broker.connect(), broker.name()
    session = connection.session(ack="client")
    session.producer(name).send("x")
    consumer = session.consumer(name)
    message = consumer.receive(timeout=WAIT_S)
    settle = ConsumerCore.settle_consumed

    def close_meanwhile(core: ConsumerCore, up_to: int | None) -> Any:
        found = settle(core, up_to)
        core._connection.io.post(core._connection.tasks.spawn, core.close())
        return found

    monkeypatch.setattr(ConsumerCore, "settle_consumed", close_meanwhile)
    with pytest.raises(IllegalStateError, match="its consumer was closed before"):
        message.acknowledge()


def test_a_lost_consumer_is_closed_once_its_ack_deadline_has_taken_back_what_it_gave_out(
    broker: LoopbackBroker,
) -> None:
    connection, name = broker.connect(), broker.name()
    session = connection.session(ack="client")
    session.producer(name).send("x")
    message = session.consumer(name, ack_timeout_ms=50).receive(timeout=WAIT_S)
    gc.collect()
    until(lambda: consumers_of(connection, name) == [])
    assert session.receive(name, timeout=WAIT_S).body == message.body == "x"


def test_a_lost_consumer_is_not_brought_back(broker: LoopbackBroker) -> None:
    connection, name = broker.connect(), broker.name()
    session = connection.session(ack="client")
    session.producer(name).send_many(range(3))
    message = session.consumer(name).receive(timeout=WAIT_S)
    gc.collect()
    cut(connection)
    assert bodies(take(connection.session().consumer(name), 3)) == [0, 1, 2]
    with pytest.raises(Exception, match="lost"):
        message.acknowledge()
    assert len(consumers_of(connection, name)) == 1


def test_what_a_lost_consumer_gave_out_can_be_recovered(broker: LoopbackBroker) -> None:
    connection, name = broker.connect(), broker.name()
    session = connection.session(ack="client")
    session.producer(name).send_many(range(3))
    assert session.consumer(name).receive(timeout=WAIT_S).body == 0
    gc.collect()
    session.recover()
    until(lambda: consumers_of(connection, name) == [])
    found = [session.receive(name, timeout=WAIT_S) for _ in range(3)]
    assert bodies(found) == [0, 1, 2]
    assert found[0].redelivered


def test_a_lost_subscriber_of_a_pattern_goes_with_all_its_members(
    broker: LoopbackBroker, warned: list[warnings.WarningMessage]
) -> None:
    connection = broker.connect()
    topics = [create(connection, f"{broker.name()}.x", "topic") for _ in range(2)]
    consumer = connection.session().consumer("topic:*.x")
    has_joined(consumer, 2)
    assert all(len(consumers_of(connection, name)) == 1 for name in topics)
    del consumer
    until(lambda: let_go_of(warned, "*.x") == 1)
    until(lambda: all(consumers_of(connection, name) == [] for name in topics))
    assert set(topics) <= set(names_of(connection))


def test_a_listener_works_without_a_reference_to_its_consumer(
    broker: LoopbackBroker, warned: list[warnings.WarningMessage]
) -> None:
    connection, name = broker.connect(), broker.name()
    heard: list[Any] = []
    connection.session().consumer(name).on_message(lambda message: heard.append(message.body))
    gc.collect()
    connection.session().producer(name).send_many(range(3))
    until(lambda: heard == [0, 1, 2])
    assert let_go_of(warned, name) == 0


def test_a_closed_consumer_warns_nobody(broker: LoopbackBroker, warned: list[warnings.WarningMessage]) -> None:
    connection, name = broker.connect(), broker.name()
    connection.session().consumer(name).close()
    session = connection.session()
    consumer = session.consumer(name)
    session.close()
    del consumer
    assert let_go_of(warned, name) == 0
