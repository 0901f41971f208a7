"""Acknowledgements of "auto" that are confirmed later: no wait within the window, and no more than it come again."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import raybroker as rb
from raybroker.client.arguments import ACK_WINDOW_MAX
from raybroker.client.connection import channel as channel_module
from raybroker.client.connection.channel import Channel
from raybroker.errors import BrokerError, ConfigError
from tests.contracts.cluster_rig import ClusterRig
from tests.contracts.conftest import ONE_FACE, TWO_FACES
from tests.contracts.handle_basics import held
from tests.contracts.handles import WAIT_S, LoopbackBroker, bodies, buffered, cut, nothing, take, until


class Acknowledgements:
    """Keeps acknowledgements from leaving until they are let go."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.kept: list[tuple[Any, ...]] = []
        self._patch = patch
        self._send = Channel.acknowledge

    def keep(self) -> None:
        self._patch.setattr(Channel, "acknowledge", lambda *args: self.kept.append(args))

    def let_go(self, connection: Any, count: int | None = None) -> None:
        if count is None:
            self._patch.setattr(Channel, "acknowledge", self._send)
        else:
            until(lambda: self.kept, "an acknowledgement is about to leave")
        kept, self.kept = self.kept[:count], self.kept[count:] if count is not None else []
        for args in kept:
            connection._core.io.post(self._send, *args)


@pytest.fixture
def acknowledgements(monkeypatch: pytest.MonkeyPatch) -> Acknowledgements:
    return Acknowledgements(monkeypatch)


def window_of(session: Any) -> Any:
    return session._window


# ---- waiting ---------------------------------------------------------------------------------------------------------


def test_a_receive_waits_only_while_the_window_is_full(
    broker: LoopbackBroker, acknowledgements: Acknowledgements
) -> None:
    connection, name = broker.connect(), broker.name()
    session = connection.session(ack_window=3)
    session.producer(name).send_many(range(10))
    consumer = session.consumer(name)
    acknowledgements.keep()
    assert bodies(take(consumer, 3)) == [0, 1, 2]
    got: queue.Queue[Any] = queue.Queue()
    receiving = threading.Thread(target=lambda: got.put(consumer.receive(timeout=WAIT_S).body))
    receiving.start()
    until(lambda: window_of(session)._waiting)
    assert (window_of(session).unconfirmed, got.empty()) == (3, True)
    acknowledgements.let_go(connection, 1)
    assert got.get(timeout=WAIT_S) == 3
    receiving.join(WAIT_S)
    acknowledgements.let_go(connection)
    assert bodies(take(consumer, 6)) == list(range(4, 10))
    session.close()
    assert held(connection, name) == 0


def test_a_lost_connection_brings_no_more_than_the_window_again_flagged(
    broker: LoopbackBroker, acknowledgements: Acknowledgements
) -> None:
    connection, name = broker.connect(), broker.name()
    session = connection.session(ack_window=4)
    session.producer(name).send_many(range(20))
    consumer = session.consumer(name)
    assert bodies(take(consumer, 5)) == list(range(5))
    until(lambda: window_of(session).unconfirmed == 0)
    acknowledgements.keep()
    assert bodies(take(consumer, 3)) == [5, 6, 7], "4 is acknowledged by it, and not confirmed"
    cut(connection)
    acknowledgements.let_go(connection)
    found = take(consumer, 16)
    assert bodies(found) == list(range(4, 20))
    assert [m.redelivered for m in found[:4]] == [True] * 4
    session.close()
    assert held(connection, name) == 0


def test_several_at_a_time_have_to_fit_or_come_alone(
    broker: LoopbackBroker, acknowledgements: Acknowledgements
) -> None:
    connection, name = broker.connect(), broker.name()
    session = connection.session(ack_window=5)
    session.producer(name).send_many(range(30))
    consumer = session.consumer(name)
    until(lambda: buffered(consumer) == 30)
    acknowledgements.keep()
    assert bodies(consumer.receive_many(3)) == [0, 1, 2]
    assert bodies(consumer.receive_many(2)) == [3, 4]
    got: queue.Queue[Any] = queue.Queue()
    receiving = threading.Thread(target=lambda: got.put(bodies(consumer.receive_many(20))))
    receiving.start()
    until(lambda: window_of(session)._waiting)
    assert got.empty()
    acknowledgements.let_go(connection)
    assert got.get(timeout=WAIT_S) == list(range(5, 25))
    receiving.join(WAIT_S)
    session.close()
    assert held(connection, name) == 5


def test_with_any_prefetch_everything_comes_once(broker: LoopbackBroker) -> None:
    connection = broker.connect()
    for prefetch in (0, 1, 2, 7):
        name = broker.name()
        session = connection.session(ack_window=10)
        session.producer(name).send_many(range(60))
        consumer = session.consumer(name, prefetch=prefetch)
        found = [*take(consumer, 30), *(consumer.receive_nowait() or take(consumer, 1)[0] for _ in range(10))]
        assert bodies([*found, *take(consumer, 20)]) == list(range(60))
        consumer.close()
        session.close()
        assert held(connection, name) == 0


def test_many_consumers_of_a_session_share_its_window(
    broker: LoopbackBroker, acknowledgements: Acknowledgements
) -> None:
    connection, names = broker.connect(), [broker.name(), broker.name()]
    session = connection.session(ack_window=4)
    consumers = []
    for name in names:
        session.producer(name).send_many(range(5))
        consumers.append(session.consumer(name))
    acknowledgements.keep()
    for n in range(2):
        for consumer in consumers:
            assert bodies(take(consumer, 1)) == [n]
    assert window_of(session).unconfirmed == 3
    cut(connection)
    acknowledgements.let_go(connection)
    for consumer in consumers:
        found = take(consumer, 5)
        assert bodies(found) == list(range(5))
        assert [m.redelivered for m in found[:2]] == [True, True]


# ---- closing, and what has failed ------------------------------------------------------------------------------------


def test_closing_waits_for_what_is_not_confirmed(broker: LoopbackBroker, acknowledgements: Acknowledgements) -> None:
    connection, name = broker.connect(), broker.name()
    connection.session().producer(name).send_many(range(9))
    for handle in ("consumer", "session", "connection"):
        other = broker.connect()
        session = other.session(ack_window=5)
        consumer = session.consumer(name, prefetch=3)
        acknowledgements.keep()
        take(consumer, 3)
        closing = threading.Thread(target={"consumer": consumer, "session": session, "connection": other}[handle].close)
        closing.start()
        waiting = window_of(session)._waiting
        until(lambda waiting=waiting: waiting)
        assert closing.is_alive()
        acknowledgements.let_go(other)
        closing.join(WAIT_S)
        assert not closing.is_alive()
        other.close()
    assert held(connection, name) == 0


def faulty(*_: object) -> bytes:
    raise TypeError("cannot be packed")


@pytest.mark.parametrize("call", ["receive", "receive_nowait", "receive_many", "close", "session.close"])
def test_a_failure_is_raised_once_by_what_comes_next(
    broker: LoopbackBroker, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection, name = broker.connect(), broker.name()
    session = connection.session(ack_window=5)
    session.producer(name).send_many(range(6))
    consumer = session.consumer(name)
    take(consumer, 1)
    with monkeypatch.context() as patch:
        patch.setattr(channel_module.wire, "ack", faulty)
        take(consumer, 1)
        until(lambda: window_of(session).failed)
    with pytest.raises(BrokerError, match="cannot be packed"):
        {"session.close": session.close}.get(call, getattr(consumer, call.rsplit(".", maxsplit=1)[-1]))()
    if call.startswith("receive"):
        assert bodies(take(consumer, 4)) == [2, 3, 4, 5]
    session.close()
    assert held(connection, name) == (1 if call.startswith("receive") else 5), "only what has failed is there again"


def test_what_was_received_after_the_last_failure_is_raised_by_closing(
    broker: LoopbackBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection, name = broker.connect(), broker.name()
    session = connection.session(ack_window=50)
    session.producer(name).send_many(range(40))
    consumer = session.consumer(name)
    with monkeypatch.context() as patch:
        patch.setattr(channel_module.wire, "ack", faulty)
        take(consumer, 1)
        with pytest.raises(BrokerError, match="cannot be packed"):
            session.close()
    session.close()
    other = connection.session(ack_window=50).consumer(name)
    assert sorted(bodies(take(other, 40))) == list(range(40))


@ONE_FACE
def test_leaving_by_an_exception_acknowledges_all_but_what_is_in_hand(broker: LoopbackBroker) -> None:
    connection, name = broker.connect(), broker.name()
    connection.session().producer(name).send_many(range(6))
    other = broker.connect()

    def fail() -> None:
        with other, other.session(ack_window=5) as session:
            take(session.consumer(name), 4)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    found = take(connection.session().consumer(name), 3)
    assert [(m.body, m.redelivered) for m in found] == [(3, True), (4, False), (5, False)]


def test_recover_takes_back_what_is_in_hand_and_nothing_that_was_done_with(broker: LoopbackBroker) -> None:
    connection, name = broker.connect(), broker.name()
    session = connection.session(ack_window=5)
    session.producer(name).send_many(range(8))
    consumer = session.consumer(name)
    take(consumer, 4)
    session.recover()
    found = take(consumer, 5)
    assert [(m.body, m.redelivered) for m in found] == [(3, True), *((n, False) for n in range(4, 8))]
    session.close()
    assert held(connection, name) == 0


# ---- listeners, and several brokers ----------------------------------------------------------------------------------


def test_a_listener_is_called_without_waiting(broker: LoopbackBroker, acknowledgements: Acknowledgements) -> None:
    connection, name = broker.connect(), broker.name()
    session = connection.session(ack_window=4)
    seen: list[int] = []
    acknowledgements.keep()
    session.consumer(name).on_message(lambda message: seen.append(message.body))
    connection.session().producer(name).send_many(range(20))
    until(lambda: window_of(session)._waiting)
    assert seen == [0, 1, 2, 3]
    acknowledgements.let_go(connection)
    until(lambda: seen == list(range(20)))
    session.close()
    assert held(connection, name) == 0


def test_what_a_listener_fails_with_comes_again_and_nothing_that_was_done_before(broker: LoopbackBroker) -> None:
    connection, name = broker.connect(), broker.name()
    session = connection.session(ack_window=4)
    seen: list[tuple[int, int]] = []

    def listener(message: Any) -> None:
        seen.append((message.body, message.delivery_count))
        if message.body % 5 == 1 and message.delivery_count == 1:
            raise ValueError("the listener's own")

    session.consumer(name).on_message(listener, backoff=0)
    connection.session().producer(name).send_many(range(20))
    until(lambda: len(seen) == 24)
    session.close()
    assert sorted(seen) == sorted([(n, 1) for n in range(20)] + [(n, 2) for n in (1, 6, 11, 16)])
    assert held(connection, name) == 0


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[ClusterRig]:
    with ClusterRig(tmp_path, 3, raybroker__store__segment_bytes="1m") as found:
        yield found


def test_over_several_brokers_a_lost_one_brings_its_part_of_the_window_again(rig: ClusterRig) -> None:
    name, sent = rig.name(), []
    for home in ("b1", "b2", "b3"):
        some = [f"{home}-{n:03}" for n in range(40)]
        rig.connect(home).session().producer(name).send_many(some)
        sent += some
    session = rig.connect("b1").session(ack_window=10)
    consumer = session.consumer(name)
    found = take(consumer, 60)
    rig.kill("b3")
    until(lambda: consumer.info()["brokers"] == ["b1", "b2"])
    rig.start("b3")
    while len({m.body for m in found}) < len(sent):
        message = consumer.receive(timeout=WAIT_S)
        assert message is not None
        found.append(message)
    again = len(found) - len(sent)
    assert again <= 10
    session.close()
    assert rig.connect("b2").session().consumer(name).receive(timeout=0.2) is None


# ---- arguments -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [0, -1, ACK_WINDOW_MAX + 1, True, 2.0, "5", None])
@TWO_FACES
def test_a_window_that_is_none_is_refused(broker: LoopbackBroker, wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r"ack_window.*1 to 10000"):
        broker.connect().session(ack_window=wrong)


@pytest.mark.parametrize("options", [{"ack": "client"}, {"ack": "dups_ok"}, {"ack": "none"}, {"transacted": True}])
def test_a_window_is_for_auto_alone(broker: LoopbackBroker, options: dict[str, Any]) -> None:
    connection = broker.connect()
    with pytest.raises(ConfigError, match='ack_window=2 is for sessions with ack="auto"'):
        connection.session(ack_window=2, **options)
    assert connection.session(ack_window=1, **options)
    assert window_of(connection.session()) is None
    assert connection.session(ack_window=ACK_WINDOW_MAX)


# ---- a process that is killed ----------------------------------------------------------------------------------------

CHILD = """
    import os, sys
    import raybroker as rb

    store, window = sys.argv[1], int(sys.argv[2])
    connection = rb.loopback(store)
    connection.start()
    session = connection.session(ack_window=window)
    session.producer("q").send_many(range(2_000))
    consumer = session.consumer("q")
    os.write(1, b"-1\\n")
    while True:
        message = consumer.receive(timeout=20)
        os.write(1, b"%d\\n" % message.body)
"""


@pytest.mark.parametrize(("window", "after"), [(1, 40), (7, 1), (7, 150), (64, 1_000), (1_000, 400)])
def test_of_a_process_that_is_killed_no_more_than_the_window_come_again(
    tmp_path: Path, window: int, after: int
) -> None:
    """Broker and consumer are one process, which is killed while it receives, as fast as it can."""
    store = tmp_path / "store"
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(CHILD), str(store), str(window)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    seen: list[int] = []
    for line in child.stdout:
        seen.append(int(line))
        if len(seen) == after:
            os.kill(child.pid, signal.SIGKILL)
    assert child.wait(WAIT_S) == -signal.SIGKILL
    seen = seen[1:]
    assert seen == list(range(len(seen)))
    with rb.loopback(store) as connection:
        consumer = connection.session(ack="client").consumer("q")
        found: list[Any] = []
        while not found or found[-1].body < 1_999:
            found += consumer.receive_many(timeout=WAIT_S)
        assert bodies(found) == list(range(2_000 - len(found), 2_000)), "nothing is lost, and nothing out of order"
        again = [message for message in found if message.body < len(seen)]
        assert len(again) <= window
        assert all(message.redelivered for message in again)
        assert nothing(consumer)
