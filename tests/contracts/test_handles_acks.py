"""Acknowledgement modes, listeners, and starting, stopping and closing (R-06 … R-11, C-12)."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from typing import Any

import pytest

from raybroker.client.session import session as session_module
from raybroker.errors import ConfigError, ConnectionLostError, IllegalStateError
from tests.contracts.conftest import TWO_FACES
from tests.contracts.handle_basics import held
from tests.contracts.handles import (
    WAIT_S,
    LoopbackBroker,
    bodies,
    buffered,
    consumers_of,
    cut,
    is_awaited,
    state_of,
    take,
    until,
)

# ---- modes -----------------------------------------------------------------------------------------------------------


def test_closing_an_auto_session_acknowledges_what_was_consumed_and_gives_back_what_was_not(
    broker: LoopbackBroker,
) -> None:
    connection, name = broker.connect(), broker.name()
    session = connection.session()
    session.producer(name).send_many(range(5))
    consumer = session.consumer(name)
    until(lambda: buffered(consumer) == 5)
    take(consumer, 2)
    session.close()
    assert held(connection, name) == 3
    found = take(connection.session().consumer(name), 3)
    assert bodies(found) == [2, 3, 4]
    assert [m.redelivered for m in found] == [False] * 3, "they were only prefetched"


def test_acknowledge_means_nothing_outside_a_client_session(broker: LoopbackBroker) -> None:
    connection = broker.connect()
    for mode in ("auto", "dups_ok"):
        name = broker.name()
        session = connection.session(ack=mode)
        session.producer(name).send_many(range(3))
        consumer = session.consumer(name)
        message = take(consumer, 1)[0]
        message.acknowledge()
        message.acknowledge_this()
        message.acknowledge_up_to()
        assert held(connection, name) == 3, mode


def test_acknowledging_covers_every_consumer_of_the_session_and_no_other_session(broker: LoopbackBroker) -> None:
    connection, names = broker.connect(), [broker.name() for _ in range(3)]
    session, other = connection.session(ack="client"), connection.session(ack="client")
    for name in names:
        session.producer(name).send_many(range(4))
    first, second = session.consumer(names[0]), session.consumer(names[1])
    third = other.consumer(names[2])
    take(first, 2), take(second, 1), take(third, 4)
    middle = take(first, 1)[0]
    last = take(second, 2)[-1]
    middle.acknowledge_up_to()
    assert [held(connection, n) for n in names] == [1, 3, 4]
    last.acknowledge()
    assert [held(connection, n) for n in names] == [1, 1, 4]


def test_acknowledging_again_or_what_is_not_in_the_books_any_more_settles_nothing_else(broker: LoopbackBroker) -> None:
    connection, name = broker.connect(), broker.name()
    session = connection.session(ack="client")
    session.producer(name).send_many(range(4))
    consumer = session.consumer(name)
    first, second, *_ = take(consumer, 4)
    first.acknowledge_this()
    first.acknowledge_this()
    first.acknowledge_up_to()
    assert held(connection, name) == 3
    cut(connection)
    again = take(consumer, 3)
    assert bodies(again) == [1, 2, 3]
    first.acknowledge_this()
    for call in (second.acknowledge_this, second.acknowledge_up_to):
        with pytest.raises(ConnectionLostError, match="lost"):
            call()
    assert held(connection, name) == 3, "a message of the lost connection acknowledges nothing"
    with pytest.raises(ConnectionLostError, match="deliveries 3 to 4 of"):
        again[0].acknowledge()
    assert held(connection, name) == 0


def test_dups_ok_acknowledges_every_ten_messages(broker: LoopbackBroker) -> None:
    connection, name = broker.connect(), broker.name()
    session = connection.session(ack="dups_ok")
    session.producer(name).send_many(range(25))
    consumer = session.consumer(name)
    take(consumer, 9)
    assert held(connection, name) == 25
    take(consumer, 1)
    until(lambda: held(connection, name) == 16, "the tenth is in hand")
    take(consumer, 9)
    assert held(connection, name) == 16
    session.close()
    assert held(connection, name) == 6


def test_dups_ok_acknowledges_fewer_after_seven_seconds(
    broker: LoopbackBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (session_module.DUPS_OK_MESSAGES, session_module.DUPS_OK_S) == (10, 7.0)
    monkeypatch.setattr(session_module, "DUPS_OK_S", 0.2)
    connection, name = broker.connect(), broker.name()
    session = connection.session(ack="dups_ok")
    session.producer(name).send_many(range(5))
    consumer = session.consumer(name)
    started = time.monotonic()
    take(consumer, 3)
    until(lambda: held(connection, name) == 3, "the third is in hand")
    assert time.monotonic() - started >= 0.19  # The loop has the time as of its last round.
    take(consumer, 2)
    until(lambda: held(connection, name) == 1)
    assert consumer.receive(timeout=0.01) is None
    until(lambda: held(connection, name) == 0)


def test_none_counts_a_message_as_acknowledged_once_it_is_sent(broker: LoopbackBroker) -> None:
    connection, name = broker.connect(), broker.name()
    session = connection.session(ack="none")
    session.producer(name).send_many(range(5))
    consumer = session.consumer(name)
    until(lambda: held(connection, name) == 0)
    assert bodies(take(consumer, 5)) == list(range(5))
    with pytest.raises(IllegalStateError, match="recover"):
        session.recover()
    session.producer(name).send("lost")
    until(lambda: buffered(consumer) == 1)
    session.close()
    assert connection.session().consumer(name).receive(timeout=0.05) is None


@TWO_FACES
def test_an_unknown_mode_names_those_there_are(broker: LoopbackBroker) -> None:
    with pytest.raises(ConfigError, match="auto, client, dups_ok, none"):
        broker.connect().session(ack="sometimes")


def test_recover_takes_back_every_consumer_of_the_session_and_what_is_only_buffered(broker: LoopbackBroker) -> None:
    connection, names = broker.connect(), [broker.name(), broker.name()]
    session = connection.session()
    consumers = []
    for name in names:
        session.producer(name).send_many(range(3))
        consumers.append(session.consumer(name))
    until(lambda: [buffered(c) for c in consumers] == [3, 3])
    take(consumers[0], 1)
    session.recover()
    for consumer in consumers:
        found = take(consumer, 3)
        assert bodies(found) == [0, 1, 2]
        assert [m.delivery_count for m in found] == [2 if consumer is consumers[0] else 1, 1, 1]


def test_a_non_persistent_message_is_redelivered_too_while_the_broker_lives(broker: LoopbackBroker) -> None:
    connection, name = broker.connect(), broker.name()
    session = connection.session(ack="client")
    session.producer(name, persistent=False).send_many(range(3))
    consumer = session.consumer(name)
    assert [m.persistent for m in take(consumer, 3)] == [False] * 3
    cut(connection)
    assert [(m.body, m.redelivered) for m in take(consumer, 3)] == [(0, True), (1, True), (2, True)]


@TWO_FACES
def test_an_acknowledgement_on_a_closed_connection_says_so(broker: LoopbackBroker) -> None:
    connection, name = broker.connect(), broker.name()
    session = connection.session(ack="client")
    session.producer(name).send_many(range(2))
    message = take(session.consumer(name), 2)[0]
    connection.close()
    with pytest.raises(IllegalStateError, match="connection is closed"):
        message.acknowledge()
    assert held(broker.connect(), name) == 2


def test_giving_up_waiting_for_a_confirmation_harms_nobody() -> None:
    """An asyncio program may cancel what it waits for at any moment."""
    with LoopbackBroker(face="aio") as broker:
        _give_up_all_the_time(broker)


def _give_up_all_the_time(broker: LoopbackBroker) -> None:
    connection, name = broker.connect(), broker.name()
    session = connection.session(ack="client")
    producer, consumer = session.producer(name), session.consumer(name)

    async def impatient(work: Any) -> None:
        task = asyncio.ensure_future(work)
        await asyncio.sleep(0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    def run(work: Any) -> None:
        asyncio.run_coroutine_threadsafe(impatient(work), connection.loop).result(WAIT_S)

    for n in range(20):
        run(producer.inner.send(n))
        producer.send("sure")
        message = take(consumer, 1)[0]
        run(message.inner.acknowledge())
        run(consumer.inner.receive())
    producer.send("end")
    last = take(consumer, 1)[0]
    while last.body != "end":
        last = take(consumer, 1)[0]
    last.acknowledge()
    assert held(connection, name) == 0


# ---- listeners -------------------------------------------------------------------------------------------------------


class Recorder:
    """A listener that notes what it got, and whether two calls ever overlapped."""

    def __init__(self, fail_first: int = 0) -> None:
        self.seen: list[Any] = []
        self.overlapped = False
        self._busy = threading.Lock()
        self._fail = fail_first

    def __call__(self, message: Any) -> None:
        if not self._busy.acquire(blocking=False):
            self.overlapped = True
            return
        try:
            self.seen.append((message.body, message.delivery_count))
            time.sleep(0.001)
            if self._fail:
                self._fail -= 1
                raise ValueError("the listener's own")
        finally:
            self._busy.release()


def test_listeners_of_a_session_are_called_one_after_the_other(broker: LoopbackBroker) -> None:
    connection, names = broker.connect(), [broker.name(), broker.name()]
    sender, session = connection.session(), connection.session()
    recorder = Recorder()
    for name in names:
        sender.producer(name).send_many([f"{name}.{n}" for n in range(30)])
        session.consumer(name).on_message(recorder)
    until(lambda: len(recorder.seen) == 60)
    assert not recorder.overlapped
    for name in names:
        assert [b for b, _ in recorder.seen if b.startswith(name + ".")] == [f"{name}.{n}" for n in range(30)]
    until(lambda: [held(connection, n) for n in names] == [0, 0], "each message is acknowledged when its call returns")


@pytest.mark.parametrize("mode", ["auto", "dups_ok"])
def test_a_message_whose_listener_raises_comes_again_flagged(broker: LoopbackBroker, mode: str) -> None:
    connection, name = broker.connect(), broker.name()
    session = connection.session(ack=mode)
    recorder = Recorder(fail_first=2)
    session.consumer(name).on_message(recorder, backoff=0)
    connection.session().producer(name).send_many(range(3))
    until(lambda: len(recorder.seen) == 5)
    assert [body for body, _ in recorder.seen] == [0, 0, 0, 1, 2]
    assert [count for _, count in recorder.seen[:3]] == [1, 2, 3]
    session.close()
    assert held(connection, name) == 0


def test_a_session_with_a_listener_cannot_receive_as_well(broker: LoopbackBroker) -> None:
    connection, name = broker.connect(), broker.name()
    session = connection.session()
    consumer = session.consumer(name).on_message(Recorder())
    other = session.consumer(broker.name())
    for call in (consumer.receive, consumer.receive_nowait, consumer.receive_many, other.receive):
        with pytest.raises(IllegalStateError, match="listener"):
            call()


def test_a_listener_gets_what_the_session_itself_had_waiting(broker: LoopbackBroker) -> None:
    connection, name = broker.connect(), broker.name()
    session, recorder = connection.session(), Recorder()
    session.producer(name).send_many(range(10))
    assert session.receive(name, timeout=WAIT_S).body == 0
    session.consumer(name).on_message(recorder)
    session.producer(name).send_many(range(10, 20))
    until(lambda: sorted(body for body, _ in recorder.seen) == list(range(1, 20)))
    until(lambda: held(connection, name) == 0)
    assert len(consumers_of(connection, name)) == 1


@pytest.mark.parametrize("prefetch", [0, 1, 2])
def test_a_listener_gets_its_messages_with_every_prefetch(broker: LoopbackBroker, prefetch: int) -> None:
    connection, name = broker.connect(), broker.name()
    recorder = Recorder()
    connection.session().consumer(name, prefetch=prefetch).on_message(recorder)
    producer = connection.session().producer(name)
    producer.send_many(range(5))
    until(lambda: len(recorder.seen) == 5)
    producer.send_many(range(5, 8))
    until(lambda: len(recorder.seen) == 8)
    assert recorder.seen == [(n, 1) for n in range(8)]


def test_after_a_lost_connection_a_listener_goes_on(broker: LoopbackBroker) -> None:
    connection, name = broker.connect(), broker.name()
    recorder = Recorder()
    connection.session().consumer(name).on_message(recorder)
    producer = connection.session().producer(name)
    for n in range(3):
        producer.send_many(range(10 * n, 10 * n + 10))
        cut(connection)
    until(lambda: {body for body, _ in recorder.seen} == set(range(30)))
    first = list(dict.fromkeys(body for body, _ in recorder.seen))
    assert first == list(range(30))


# ---- start, stop, close ----------------------------------------------------------------------------------------------


def test_nothing_is_delivered_before_the_connection_is_started_and_sending_needs_no_start(
    broker: LoopbackBroker,
) -> None:
    connection, name = broker.connect(started=False), broker.name()
    session = connection.session()
    consumer = session.consumer(name)
    session.producer(name).send_many(range(3))
    assert consumer.receive(timeout=0.05) is None
    assert consumer.receive_many(timeout=0.01) == []
    assert state_of(connection, name)["unacknowledged"] == 0
    assert [row["held"] for row in consumers_of(connection, name)] == [True]
    connection.start()
    assert bodies(take(consumer, 3)) == [0, 1, 2]


def test_stop_hands_out_nothing_until_start_and_keeps_what_is_buffered(broker: LoopbackBroker) -> None:
    connection, name = broker.connect(), broker.name()
    session = connection.session()
    producer, consumer = session.producer(name), session.consumer(name)
    producer.send_many(range(3))
    until(lambda: buffered(consumer) == 3)
    connection.stop()
    producer.send_many(range(3, 6))
    assert consumer.receive_nowait() is None
    assert consumer.receive(timeout=0.05) is None
    assert buffered(consumer) == 3, "what came after the stop stays with the broker"
    assert state_of(connection, name)["waiting"] == 3
    connection.start()
    assert bodies(take(consumer, 6)) == list(range(6))


def test_a_receive_that_waits_gets_what_comes_with_the_start(broker: LoopbackBroker) -> None:
    connection, name = broker.connect(started=False), broker.name()
    session = connection.session()
    consumer = session.consumer(name)
    session.producer(name).send("x")
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(consumer.receive(timeout=WAIT_S)))
    thread.start()
    connection.start()
    thread.join(WAIT_S)
    assert bodies(found) == ["x"]


@pytest.mark.parametrize("what", ["consumer", "session", "connection"])
def test_closing_ends_a_receive_that_waits(broker: LoopbackBroker, what: str) -> None:
    connection, name = broker.connect(), broker.name()
    session = connection.session()
    consumer = session.consumer(name)
    waiting, found = threading.Event(), []

    def receive() -> None:
        waiting.set()
        found.append(consumer.receive())

    thread = threading.Thread(target=receive)
    thread.start()
    waiting.wait()
    until(lambda: is_awaited(consumer))
    {"consumer": consumer, "session": session, "connection": connection}[what].close()
    thread.join(WAIT_S)
    assert found == [None]


def test_closing_a_connection_does_not_acknowledge_for_a_client_session(broker: LoopbackBroker) -> None:
    connection, name = broker.connect(), broker.name()
    session = connection.session(ack="client")
    session.producer(name).send_many(range(3))
    take(session.consumer(name), 2)
    connection.close()
    other = broker.connect()
    assert held(other, name) == 3
    assert [(m.body, m.redelivered) for m in take(other.session().consumer(name), 3)] == [
        (0, True),
        (1, True),
        (2, False),
    ]
