"""Pausing producers, consumers and insertion, until a time, and from the start (D-26, W-123 … W-127, B21)."""

from __future__ import annotations

import time
from typing import Any

import pytest

from raybroker.errors import ConfigError, DestinationPausedError, IllegalStateError
from tests.contracts.conftest import TWO_FACES, OneStore
from tests.contracts.handle_basics import held
from tests.contracts.handles import LoopbackBroker, bodies, buffered, create, nothing, state_of, take, until


def pause(connection: Any, name: str, which: str, **options: Any) -> None:
    assert connection.admin().pause_destination("queue", name, which, **options) == 1


def resume(connection: Any, name: str, which: str = "all") -> None:
    assert connection.admin().resume_destination("queue", name, which) == 1


# ---- states (D-26) ---------------------------------------------------------------------------------------------------


def test_the_state_says_what_is_paused(broker: LoopbackBroker) -> None:
    """D-26"""
    connection = broker.connect()
    name = create(connection, broker.name())
    for which, state in (
        ("producers", "PRODUCERS_PAUSED"),
        ("consumers", "CONSUMERS_PAUSED"),
        ("all", "PAUSED"),
    ):
        pause(connection, name, which)
        assert state_of(connection, name)["state"] == state
        resume(connection, name)
        assert state_of(connection, name)["state"] == "RUNNING"
    pause(connection, name, "producers")
    pause(connection, name, "consumers")
    assert state_of(connection, name)["state"] == "PAUSED"
    resume(connection, name, "producers")
    assert state_of(connection, name)["state"] == "CONSUMERS_PAUSED"


def test_all_destinations_of_a_type_are_paused_without_a_name(broker: LoopbackBroker) -> None:
    """A-36"""
    connection = broker.connect()
    queues = [create(connection, broker.name()) for _ in range(2)]
    topic = create(connection, broker.name(), "topic")
    admin = connection.admin()
    assert admin.pause_destination("queue") == 2
    assert [state_of(connection, name)["state"] for name in queues] == ["PAUSED"] * 2
    assert state_of(connection, topic, "topic")["state"] == "RUNNING"
    assert admin.pause_destination(which="consumers") == 3
    assert admin.resume_destination() == 3
    assert [state_of(connection, name)["state"] for name in queues] == ["RUNNING"] * 2


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"which": "everything"}, "producers, consumers, all, insertion"),
        ({"until_ms": -1}, "until_ms"),
        ({"type": None}, "type"),
    ],
)
@TWO_FACES
def test_a_bad_pause_is_refused(broker: LoopbackBroker, arguments: dict[str, Any], word: str) -> None:
    """A-36"""
    connection = broker.connect()
    name = create(connection, broker.name())
    with pytest.raises(ConfigError, match=word):
        connection.admin().pause_destination(**{"type": "queue", "name": name, **arguments})
    assert state_of(connection, name)["state"] == "RUNNING"


# ---- producers (W-123) -----------------------------------------------------------------------------------------------


def test_while_producers_are_paused_new_and_old_ones_are_told(broker: LoopbackBroker) -> None:
    """W-123, D-26"""
    connection = broker.connect()
    name = create(connection, broker.name())
    session = connection.session()
    producer = session.producer(name)
    producer.send("before")
    pause(connection, name, "producers")
    for call in (producer.send, lambda body: producer.send_async(body).result(20)):
        with pytest.raises(DestinationPausedError, match=f"{name}.*paused"):
            call("x")
    with pytest.raises(DestinationPausedError, match=name):
        session.producer(name).send("x")
    with pytest.raises(DestinationPausedError, match=name):
        producer.send("not stored either way", persistent=False)
    consumer = session.consumer(name)
    assert bodies(take(consumer, 1)) == ["before"], "consumers go on"
    resume(connection, name)
    producer.send("after")
    assert bodies(take(consumer, 1)) == ["after"]
    assert nothing(consumer, 0.01)


def test_what_is_under_way_still_lands_while_producers_are_paused(broker: LoopbackBroker) -> None:
    """W-123: commits, delayed messages, what comes back"""
    connection = broker.connect()
    name = create(connection, broker.name())
    session, transacted = connection.session(ack="client"), connection.session(transacted=True)
    session.producer(name).send("delayed", delivery_delay_ms=60)
    transacted.producer(name).send("committed")
    consumer = session.consumer(name)
    until(lambda: state_of(connection, name)["in_transaction"] == 1)
    pause(connection, name, "producers")
    transacted.commit()
    # Which of them comes first is for the clock to say: the delay may be over before the commit.
    assert sorted(bodies(take(consumer, 2))) == ["committed", "delayed"]
    session.recover()
    assert sorted(bodies(take(consumer, 2))) == ["committed", "delayed"]


# ---- consumers (W-125) -----------------------------------------------------------------------------------------------


def test_while_consumers_are_paused_nothing_is_delivered_and_receives_wait(broker: LoopbackBroker) -> None:
    """W-125"""
    connection = broker.connect()
    name = create(connection, broker.name())
    session = connection.session()
    consumer, producer = session.consumer(name), session.producer(name)
    pause(connection, name, "consumers")
    producer.send_many(range(3))
    started = time.monotonic()
    assert nothing(consumer, 0.06)
    assert time.monotonic() - started >= 0.06, "a timed receive waits its time"
    new = session.consumer(name)
    assert new.receive_nowait() is None
    assert state_of(connection, name)["waiting"] == 3
    new.close()
    resume(connection, name, "consumers")
    assert bodies(take(consumer, 3)) == [0, 1, 2]


def test_what_was_delivered_before_the_pause_can_be_acknowledged(broker: LoopbackBroker) -> None:
    """W-125, W-127"""
    connection = broker.connect()
    name = create(connection, broker.name())
    session = connection.session(ack="client")
    session.producer(name).send_many(range(4))
    consumer = session.consumer(name, prefetch=2)
    until(lambda: buffered(consumer) == 2)
    pause(connection, name, "all")
    found = take(consumer, 2)
    found[-1].acknowledge()
    assert held(connection, name) == 2
    assert nothing(consumer, 0.02)
    resume(connection, name)
    assert bodies(take(consumer, 2)) == [2, 3]


def counts(connection: Any, name: str) -> tuple[int, int]:
    """Messages that may be delivered, and those that are under way."""
    row = state_of(connection, name)
    return row["current"], row["pending"]


# ---- insertion (W-124) -----------------------------------------------------------------------------------------------


def test_while_insertion_is_paused_what_is_under_way_completes_unseen(broker: LoopbackBroker) -> None:
    """W-124: committed, born and recovered messages appear with the resume"""
    connection = broker.connect()
    name = create(connection, broker.name())
    session, transacted = connection.session(ack="client"), connection.session(transacted=True)
    consumer = session.consumer(name)
    producer = session.producer(name)
    producer.send("recovered")
    take(consumer, 1)
    producer.send("born", delivery_delay_ms=40)
    transacted.producer(name).send("committed")
    until(lambda: state_of(connection, name)["in_transaction"] == 1)
    pause(connection, name, "insertion")
    with pytest.raises(DestinationPausedError):
        producer.send("refused")
    transacted.commit()
    session.recover()
    until(lambda: state_of(connection, name)["delayed"] == 0)
    assert nothing(consumer, 0.03)
    assert list(session.browser(name)) == []
    assert held(connection, name) == 3
    assert counts(connection, name) == (0, 3)
    resume(connection, name, "insertion")
    assert counts(connection, name)[0] + counts(connection, name)[1] == 3
    assert sorted(bodies(take(consumer, 3))) == ["born", "committed", "recovered"]


# ---- until a time (B21) ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["producers", "consumers", "all", "insertion"])
def test_a_pause_until_a_time_ends_by_itself(broker: LoopbackBroker, which: str) -> None:
    """B21"""
    connection = broker.connect()
    name = create(connection, broker.name())
    consumer = connection.session().consumer(name)
    producer = connection.session().producer(name)
    until_ms = int(time.time() * 1000) + 100
    pause(connection, name, which, until_ms=until_ms)
    assert state_of(connection, name)["state"] != "RUNNING"
    assert all(at == until_ms for at in state_of(connection, name)["paused"].values())
    until(lambda: state_of(connection, name)["state"] == "RUNNING")
    assert time.time() * 1000 >= until_ms
    producer.send("x")
    assert bodies(take(consumer, 1)) == ["x"]


# ---- topics, connections, start-up (W-126, W-123 … W-125) ------------------------------------------------------------


def test_pausing_a_topic_holds_its_subscribers_and_refuses_its_publishers(broker: LoopbackBroker) -> None:
    """D-26"""
    connection = broker.connect()
    name = create(connection, broker.name(), "topic")
    session = connection.session()
    subscriber, producer = session.consumer(f"topic:{name}"), session.producer(f"topic:{name}")
    connection.admin().pause_destination("topic", name, "consumers")
    producer.send("held")
    assert nothing(subscriber, 0.02)
    connection.admin().pause_destination("topic", name, "producers")
    with pytest.raises(DestinationPausedError, match=name):
        producer.send("x")
    connection.admin().resume_destination("topic", name)
    assert bodies(take(subscriber, 1)) == ["held"]


def test_starting_a_connection_does_not_resume_a_destination(broker: LoopbackBroker) -> None:
    """W-126: connection start and stop are independent"""
    connection = broker.connect(started=False)
    name = create(connection, broker.name())
    session = connection.session()
    session.producer(name).send("x")
    consumer = session.consumer(name)
    pause(connection, name, "consumers")
    connection.start()
    assert nothing(consumer, 0.02)
    connection.stop()
    resume(connection, name)
    assert nothing(consumer, 0.01)
    connection.start()
    assert bodies(take(consumer, 1)) == ["x"]


@pytest.mark.parametrize(
    ("attribute", "state"),
    [
        ("productionPausedAtStartup", "PRODUCERS_PAUSED"),
        ("consumptionPausedAtStartup", "CONSUMERS_PAUSED"),
        ("insertionPausedAtStartup", "PRODUCERS_PAUSED"),
    ],
)
def test_a_destination_can_be_paused_from_the_start_of_its_host(store: OneStore, attribute: str, state: str) -> None:
    """W-123 … W-126: takes effect with a restart"""
    connection = store.open().connect()
    create(connection, "orders", **{attribute: True})
    connection.session().producer("orders").send("x")
    assert state_of(connection, "orders")["state"] == "RUNNING"
    again = store.open().connect()
    assert state_of(again, "orders")["state"] == state
    consumer, producer = again.session().consumer("orders"), again.session().producer("orders")
    if attribute != "consumptionPausedAtStartup":
        assert bodies(take(consumer, 1)) == ["x"]
        with pytest.raises(DestinationPausedError):
            producer.send("x")
    else:
        assert nothing(consumer, 0.02)
    again.admin().resume_destination("queue", "orders")
    assert state_of(again, "orders")["state"] == "RUNNING"
    producer.send("y")
    until(lambda: take(consumer, 1)[0].body == "y")


@pytest.mark.parametrize(
    ("of_broker", "attribute", "state"),
    [
        ("default", True, "CONSUMERS_PAUSED"),
        ("default", False, "RUNNING"),
        ("true", False, "CONSUMERS_PAUSED"),
        ("false", True, "RUNNING"),
    ],
)
def test_all_destinations_of_a_broker_can_be_paused_from_its_start(
    store: OneStore, of_broker: str, attribute: bool, state: str
) -> None:
    """The broker's property has the last word, and default leaves it to each destination."""
    connection = store.open().connect()
    create(connection, "orders", consumptionPausedAtStartup=attribute)
    connection.admin().create_destination("queue", "by-hand")
    connection.admin().pause_destination("queue", "by-hand", "consumers")
    again = store.open(raybroker__system__consumptionPausedAtStartup=of_broker).connect()
    assert state_of(again, "orders")["state"] == state
    assert state_of(again, "by-hand")["state"] == "CONSUMERS_PAUSED", "what an administrator has paused stays so"
    assert state_of(again, "mq.sys.dmq")["state"] == "RUNNING"
    create(again, "later")
    assert state_of(again, "later")["state"] == "RUNNING"
    again.admin().resume_destination("queue", "orders")
    assert state_of(again, "orders")["state"] == "RUNNING"


def test_moving_and_deleting_need_a_pause_of_consumers(broker: LoopbackBroker) -> None:
    """W-129"""
    connection = broker.connect()
    name, target = create(connection, broker.name()), create(connection, broker.name())
    connection.session().producer(name).send("x")
    for which in (None, "producers"):
        if which is not None:
            pause(connection, name, which)
        for call in (
            lambda: connection.admin().delete_messages("queue", name),
            lambda: connection.admin().move_messages("queue", name, target),
        ):
            with pytest.raises(IllegalStateError, match=f"{name}.*paused|pause"):
                call()
    assert held(connection, name) == 1


def test_a_pause_holds_over_a_restart_until_it_is_resumed(store: OneStore) -> None:
    with store.open().connect() as connection:
        for name, which in (("orders", "producers"), ("billing", "all"), ("stock", "insertion")):
            connection.admin().create_destination("queue", name)
            pause(connection, name, which)
        connection.admin().update_destination("queue", "orders", maxNumMsgs=10)
        connection.admin().resume_destination("queue", "billing", "consumers")
    with store.crash().connect() as connection:
        found = [state_of(connection, name)["state"] for name in ("orders", "billing", "stock")]
        assert found == ["PRODUCERS_PAUSED"] * 3
        connection.admin().resume_destination()
    with store.crash().connect() as connection:
        assert [state_of(connection, name)["state"] for name in ("orders", "billing", "stock")] == ["RUNNING"] * 3
