"""What is pushed ahead of the application, and how much an acknowledgement covers (W-29, W-30, W-40, W-75, T-10)."""

from __future__ import annotations

from typing import Any

import pytest

from raybroker.errors import ConnectionLostError, TransactionRolledBackError
from tests.contracts.handle_basics import held
from tests.contracts.handles import (
    LoopbackBroker,
    bodies,
    buffered,
    core_of,
    create,
    cut,
    nothing,
    state_of,
    take,
    until,
)

# ---- the pipeline (W-29, W-30) ---------------------------------------------------------------------------------------

WINDOWS: dict[str, dict[str, dict[str, int]]] = {
    "factory": {"factory": {"imqConsumerFlowLimit": 10}, "destination": {}, "consumer": {}},
    "destination": {"factory": {}, "destination": {"consumerFlowLimit": 10}, "consumer": {}},
    "consumer": {"factory": {}, "destination": {}, "consumer": {"prefetch": 10, "threshold": 50}},
}


@pytest.mark.parametrize("window", WINDOWS)
def test_an_application_that_acknowledges_every_50_does_not_stall_with_a_window_of_10(
    broker: LoopbackBroker, window: str
) -> None:
    """W-30: what was handed to the application is not counted, acknowledged or not"""
    options = WINDOWS[window]
    connection = broker.connect(**options["factory"])
    name = create(connection, broker.name(), **options["destination"])
    session = connection.session(ack="client")
    session.producer(name).send_many(range(200))
    consumer = session.consumer(name, **options["consumer"])
    for round_ in range(4):
        found = take(consumer, 50)
        assert bodies(found) == list(range(50 * round_, 50 * round_ + 50))
        assert buffered(consumer) <= 10
        found[-1].acknowledge()
    assert held(connection, name) == 0


def test_a_listener_that_acknowledges_every_50_does_not_stall_either(broker: LoopbackBroker) -> None:
    """W-29, W-30"""
    connection = broker.connect(imqConsumerFlowLimit=10)
    name = create(connection, broker.name())
    seen: list[Any] = []

    def listener(message: Any) -> Any:
        seen.append(message.body)
        return message.acknowledge() if len(seen) % 50 == 0 else None

    connection.session(ack="client").consumer(name).on_message(listener)
    connection.session().producer(name).send_many(range(150))
    until(lambda: len(seen) == 150 and held(connection, name) == 0)
    assert seen == list(range(150))


def test_what_is_pushed_ahead_is_bounded_by_the_window(broker: LoopbackBroker) -> None:
    """W-29, W-30"""
    connection = broker.connect(imqConsumerFlowLimit=10)
    name = create(connection, broker.name())
    session = connection.session(ack="client")
    session.producer(name).send_many(range(100))
    consumer = session.consumer(name)
    until(lambda: buffered(consumer) == 10)
    assert state_of(connection, name)["waiting"] == 90


def test_one_consumer_with_a_window_of_one_keeps_the_order_over_redeliveries(broker: LoopbackBroker) -> None:
    """W-75"""
    connection = broker.connect()
    name = create(connection, broker.name(), maxNumActiveConsumers=1)
    session = connection.session(transacted=True)
    session.producer(name).send_many(range(6))
    session.commit()
    consumer = session.consumer(name, prefetch=1)
    done: list[int] = []
    for n in range(6):
        for attempt in (1, 2):
            (message,) = take(consumer, 1)
            assert (message.body, message.delivery_count) == (n, attempt)
            session.rollback() if attempt == 1 else session.commit()
        done.append(n)
    assert held(connection, name) == 0


# ---- what an acknowledgement covers (W-40) ---------------------------------------------------------------------------


@pytest.mark.parametrize(("policy", "left"), [("All", 1), ("Previous", 3)])
def test_the_policy_says_what_acknowledging_a_message_covers(broker: LoopbackBroker, policy: str, left: int) -> None:
    """W-40: All that the session received, or up to and including the message"""
    connection, names = broker.connect(acknowledgePolicy=policy), [broker.name(), broker.name()]
    session = connection.session(ack="client")
    for name in names:
        session.producer(name).send_many(range(3))
    first, second = (session.consumer(name) for name in names)
    take(first, 1)
    (middle, _), _ = take(first, 2), take(second, 2)
    middle.acknowledge()
    assert sum(held(connection, name) for name in names) == (left if policy == "All" else 4)
    assert held(connection, names[0]) == (0 if policy == "All" else 1)


# ---- a connection that is lost during a commit (T-10) ----------------------------------------------------------------


def interrupt(connection: Any, when: str) -> None:
    """The link ends with the next commit, before it is sent or after the host has done it."""
    core = core_of(connection)
    for channel in core.channels.all():
        real = channel.call

        async def call(op: str, args: Any, then: Any = None, real: Any = real, channel: Any = channel) -> Any:
            if op != "txn_commit":
                return await real(op, args, then)
            if when == "after":
                await real(op, args, then)
            channel.link.abort()
            raise ConnectionLostError("the network failed during the commit")

        channel.call = call


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_host_is_asked_what_became_of_an_interrupted_commit(broker: LoopbackBroker, when: str) -> None:
    """T-10: success or TransactionRolledBack, and nothing in between"""
    connection, source, target = broker.connect(), broker.name(), broker.name()
    connection.session().producer(source).send_many(range(2))
    client = broker.connect()
    session = client.session(transacted=True)
    session.producer(target).send("out")
    consumer = session.consumer(source)
    take(consumer, 1)
    interrupt(client, when)
    if when == "after":
        session.commit()
    else:
        with pytest.raises(TransactionRolledBackError, match="connection was lost"):
            session.commit()
    assert [held(connection, name) for name in (source, target)] == ([1, 1] if when == "after" else [2, 0])
    assert take(consumer, 1)[0].body == (1 if when == "after" else 0)
    session.commit()
    assert held(connection, source) == (0 if when == "after" else 1)


def test_an_interrupted_commit_that_cannot_be_asked_about_is_unknown(broker: LoopbackBroker) -> None:
    """T-10: a generic error; the program rolls back and tries again"""
    connection, target = broker.connect(), broker.name()
    client = broker.connect(imqReconnectEnabled=False)
    session = client.session(transacted=True)
    session.producer(target).send("out")
    until(lambda: state_of(connection, target)["in_transaction"] == 1)
    interrupt(client, "after")
    with pytest.raises(ConnectionLostError):
        session.commit()
    assert held(connection, target) == 1


# ---- lost connections (R-13, R-15) -----------------------------------------------------------------------------------


def test_without_reconnecting_a_lost_connection_is_told_to_all_who_use_it(broker: LoopbackBroker) -> None:
    """R-13, R-15: at the next use, and to the exception handler"""
    told: list[Exception] = []
    client, name = broker.connect(imqReconnectEnabled=False), broker.name()
    client.on_exception(told.append)
    session = client.session()
    producer, consumer = session.producer(name), session.consumer(name)
    cut(client)
    with pytest.raises(ConnectionLostError, match="imqReconnectEnabled"):
        consumer.receive(timeout=20)
    with pytest.raises(ConnectionLostError, match="imqReconnectEnabled"):
        until(lambda: producer.send("x") and False)
    until(lambda: len(told) == 2)
    assert {type(error) for error in told} == {ConnectionLostError}


def test_subscribers_come_back_after_a_lost_connection(broker: LoopbackBroker) -> None:
    """R-13: non-durable messages may be lost meanwhile, durable ones are not"""
    client, name = broker.connect(client_id="c"), broker.name()
    session = client.session()
    plain, durable = session.consumer(f"topic:{name}"), session.durable_consumer(f"topic:{name}", "audit")
    cut(client)
    producer = broker.connect().session().producer(f"topic:{name}")
    producer.send("meanwhile")
    assert bodies(take(durable, 1)) == ["meanwhile"]
    until(lambda: state_of(client, name, "topic")["active_consumers"] == 2)
    producer.send("after")
    assert bodies(take(durable, 1)) == ["after"]
    assert take(plain, 1)[0].body in ("meanwhile", "after")
    while (message := plain.receive(timeout=0.01)) is not None:
        assert message.body == "after"
    assert nothing(durable, 0.01)


def test_closing_a_producer_waits_until_what_it_sent_is_stored(broker: LoopbackBroker) -> None:
    connection, name = broker.connect(), broker.name()
    session = connection.session()
    producer = session.producer(name)
    futures = [producer.send_async(n) for n in range(2000)]
    futures += [producer.send_async(n, persistent=False) for n in range(10)]
    producer.close()
    assert all(future.done() for future in futures)
    until(lambda: held(connection, name) == 2010)
