"""Producers of a destination that is over a threshold send at a limited rate (W-17 to W-27)."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import raybroker as rb
from raybroker.client.producer.pacing.flow_rate import FlowRate
from raybroker.errors import ConfigError, IllegalStateError
from tests.contracts.conftest import ONE_FACE, MakeBroker
from tests.contracts.handles import LoopbackBroker, bodies, create, state_of, take, until

RATES: dict[str, object] = {"FlowMaximum": 40, "FlowMinimum": 40, "FlowInterval": 0}


def over(connection: Any, broker: LoopbackBroker) -> str:
    """A queue that is over its threshold."""
    name = create(connection, broker.name(), messagesHigh=2, messagesLow=1)
    connection.session().producer(name).send_many(["x"] * 3)
    until(lambda: state_of(connection, name)["over_threshold"] == ["messages"])
    return name


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many messages had a turn by a rate, each time."""
    found: list[int] = []
    take, reserve = FlowRate.take_tokens, FlowRate.reserve

    def counted(rate: FlowRate, count: int) -> bool:
        taken = take(rate, count)
        found.extend([count] * taken)
        return taken

    monkeypatch.setattr(FlowRate, "take_tokens", counted)
    monkeypatch.setattr(FlowRate, "reserve", lambda rate, count: found.append(count) or reserve(rate, count))
    return found


def test_a_slowed_producer_sends_everything_and_is_free_when_the_queue_is_short_again(
    broker: LoopbackBroker, turns: list[int]
) -> None:
    other, connection = broker.connect(), broker.connect(**RATES)
    name = create(other, broker.name(), messagesHigh=2, messagesLow=1)
    session = connection.session()
    producer = session.producer(name)
    assert producer.flow_limit is None
    session.producer(name).send_many(["x"] * 3)
    until(lambda: producer.flow_limit == 40, "it was there before")
    later = session.producer(name)
    assert later.flow_limit == 40, "it learns it when it comes"
    until(lambda: state_of(other, name)["slowed_producers"] >= 2)
    assert turns == []
    for number in range(6):
        producer.send(number)
    futures = [producer.send_async(number) for number in range(6, 9)]
    producer.send_async(9, fire_and_forget=True)
    assert producer.send_many(range(10, 14)) == 4
    work = connection.session(transacted=True)
    work.producer(name).send(14)
    work.commit()
    assert [bool(future.result(60)) for future in futures] == [True] * 3
    assert sum(turns) == 15, "each has had its turn"
    assert max(turns) <= 4, "a tenth of a second's worth"
    consumer = other.session(ack="none").consumer(name)
    assert bodies(take(consumer, 18)) == ["x"] * 3 + list(range(15))
    until(lambda: producer.flow_limit is None)
    assert producer.send_many(["free"] * 500) == 500


@pytest.mark.parametrize("make_broker", ["memory", "aio"], indirect=True)
def test_a_broker_that_holds_too_much_slows_the_producers_of_all_destinations(make_broker: MakeBroker) -> None:
    broker = make_broker(raybroker__system__messagesThresholdHigh=4, raybroker__system__messagesThresholdLow=3)
    other, connection = broker.connect(), broker.connect(**RATES)
    names = [create(other, broker.name()) for _ in range(3)]
    idle = connection.session().producer(names[2])
    for name in names[:2]:
        other.session().producer(name).send_many(["x"] * 2)
    admin = other.admin()
    until(lambda: admin.query_broker()["thresholds"] == {"messages": 4, "bytes": 4, "over": []})
    assert idle.flow_limit is None, "four are not more than four"
    other.session().producer(names[0]).send("y")
    until(lambda: idle.flow_limit == 40, "nothing is in its own queue")
    until(lambda: admin.query_broker()["thresholds"]["over"] == ["messages"])
    until(lambda: state_of(other, names[2])["slowed_producers"] == 1)
    assert connection.session().producer(names[1]).flow_limit == 40, "it learns it when it comes"
    assert bodies(take(other.session(ack="none").consumer(names[0]), 3)) == ["x", "x", "y"]
    until(lambda: idle.flow_limit is None)
    with pytest.raises(ConfigError, match=r"messagesThresholdLow = 3 is more than .*High = 2"):
        admin.update_broker({"raybroker.system.messagesThresholdHigh": 2})
    admin.update_broker({"raybroker.system.messagesThresholdHigh": 1, "raybroker.system.messagesThresholdLow": 0})
    until(lambda: idle.flow_limit == 40, "a threshold that comes down under what is held")
    admin.update_broker({"raybroker.system.messagesThresholdHigh": -1, "raybroker.system.messagesThresholdLow": -1})
    until(lambda: idle.flow_limit is None)
    assert admin.query_broker()["thresholds"] == {}


def test_waiting_longer_for_the_rate_than_for_an_answer_refuses_nothing(
    broker: LoopbackBroker, turns: list[int]
) -> None:
    connection = broker.connect(FlowMaximum=10, FlowMinimum=10, imqAckTimeout=20)
    producer = connection.session().producer(over(broker.connect(), broker))
    for number in range(4):
        producer.send(number, persistent=False)
    producer.send_async(4, fire_and_forget=True)
    assert turns == [1] * 5


def test_a_producer_that_does_not_obey_is_not_slowed(broker: LoopbackBroker) -> None:
    connection = broker.connect(FlowControlEnabled=False, **RATES)
    name = over(connection, broker)
    producer = connection.session().producer(name)
    assert producer.send_many(["x"] * 500) == 500
    assert (producer.flow_limit, state_of(connection, name)["slowed_producers"]) == (None, 0)


def test_the_limit_is_each_producers_own_and_unnamed_ones_have_it_by_destination(broker: LoopbackBroker) -> None:
    connection = broker.connect(**RATES)
    name, free = over(connection, broker), create(connection, broker.name())
    session = connection.session()
    unnamed = session.producer()
    queue = session.queue(free)
    for number in range(100):
        unnamed.send(number, destination=queue, persistent=False)
    assert unnamed.flow_limit is None
    unnamed.send("x", destination=session.queue(name))
    assert unnamed.flow_limit == 40
    pattern = session.producer(session.topic("none.*"))
    assert pattern.flow_limit is None


@ONE_FACE
def test_closing_a_slowed_producer_waits_for_nobody(broker: LoopbackBroker) -> None:
    connection = broker.connect(FlowMaximum=1, FlowMinimum=1)
    name = over(connection, broker)
    session = connection.session()
    producer = session.producer(name)
    faults: list[Exception] = []

    def send() -> None:
        try:
            producer.send_many(["x"] * 1000)
        except IllegalStateError as error:
            faults.append(error)

    thread = threading.Thread(target=send)
    thread.start()
    until(lambda: producer._core._room.waiters.in_line)
    session.close()
    thread.join(30)
    assert (len(faults), thread.is_alive()) == (1, False)


def test_a_factory_whose_limits_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="FlowMinimum = 60 is more than FlowMaximum = 50"):
        rb.ConnectionFactory(FlowMaximum=50, FlowMinimum=60)
