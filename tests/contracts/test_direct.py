"""Blocking calls that serve the sockets themselves: threads, signals and lost links beside them."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

import raybroker as rb
from raybroker import aio
from raybroker.client.io import io_thread, turns
from raybroker.transport.direct import SUPPORTED, DirectSockets
from tests.contracts.conftest import MakeBroker
from tests.contracts.handles import WAIT_S, LoopbackBroker, until

pytestmark = [
    pytest.mark.skipif(not SUPPORTED, reason="this system has no epoll"),
    pytest.mark.parametrize("make_broker", ["direct"], indirect=True),
]
MANY = 300
NEVER_NS = 3_600_000_000_000


class StoppedError(Exception):
    """A handler of a signal raises it."""


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Threads that read from a socket in place of the loop."""
    threads: list[int] = []
    read = DirectSockets.read

    def noted(self: DirectSockets, number: int) -> None:
        threads.append(threading.get_ident())
        read(self, number)

    monkeypatch.setattr(DirectSockets, "read", noted)
    return threads


@pytest.fixture
def unlooked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The IO thread looks after nobody by itself, and no leader leaves because its time is over: whoever waits is
    served because somebody was told, or never."""
    for name in ("NOBODY_NS", "LEAD_NS"):
        monkeypatch.setattr(io_thread, name, NEVER_NS)
    monkeypatch.setattr(turns, "LOOP_NS", NEVER_NS)


class Interruption:
    """A signal of this process, whose handler raises StoppedError once for each time that it is ``armed``."""

    def __init__(self) -> None:
        self.armed = False

    def arrive(self, number: int, frame: object) -> None:
        if self.armed:
            self.armed = False
            raise StoppedError

    def send(self) -> None:
        os.kill(os.getpid(), signal.SIGUSR1)


@pytest.fixture
def interruption() -> Iterator[Interruption]:
    found = Interruption()
    before = signal.signal(signal.SIGUSR1, found.arrive)
    yield found
    signal.signal(signal.SIGUSR1, before)


def bodies_of(consumer: Any, count: int) -> list[Any]:
    found = []
    for _ in range(count):
        message = consumer.receive(timeout=WAIT_S)
        assert message is not None
        found.append(message.body)
    return found


def drop_links(broker: LoopbackBroker) -> None:
    """The broker ends every connection."""
    service = broker.core.directory._service.service  # type: ignore[attr-defined]
    ended = threading.Event()

    def drop() -> None:
        for connection in list(service.connections):
            connection.link.abort()
        ended.set()

    broker.core.io.post(drop)
    assert ended.wait(WAIT_S)


def test_one_call_after_another_is_served_by_the_thread_that_waits(make_broker: MakeBroker, served: list[int]) -> None:
    broker = make_broker()
    session = broker.connect().session()
    producer, consumer = session.producer(name := broker.name()), session.consumer(name)
    sent = 0
    while threading.get_ident() not in served and sent < 5_000:
        producer.send(sent)
        sent += 1
    assert threading.get_ident() in served
    assert bodies_of(consumer, sent) == list(range(sent))


LED_CALLS_MAX = 5_000
"""Calls of which one meets a thread that waits, also on a busy machine."""


def led_until(served: list[int], call: Any) -> None:
    """Make calls until one of them is served by this thread."""
    served.clear()
    for _ in range(LED_CALLS_MAX):
        call()
        if threading.get_ident() in served:
            return
    raise AssertionError("no call was served by the thread that made it")


def test_commits_are_served_by_the_thread_that_waits(make_broker: MakeBroker, served: list[int]) -> None:
    broker = make_broker()
    connection = broker.connect()
    session = connection.session(transacted=True)
    producer = session.producer(name := broker.name())
    sent = itertools.count()

    def commit() -> None:
        producer.send(next(sent))
        session.commit()

    led_until(served, commit)
    producer.send(-1)
    session.rollback()
    count = next(sent)
    assert bodies_of(connection.session().consumer(name), count) == list(range(count))


def test_a_watch_for_a_destination_that_is_not_there_keeps_no_thread_from_serving(
    make_broker: MakeBroker, served: list[int]
) -> None:
    """It is looked for again at intervals, which nobody waits for."""
    broker = make_broker()
    connection, seen = broker.connect(imqReconnectInterval=600_000), list[Any]()
    connection.on_consumer_event(broker.name(), seen.append)
    until(lambda: len(seen) == 1)
    producer = connection.session().producer(broker.name())
    led_until(served, lambda: producer.send("x"))


class WithAsyncio:
    """A connection of an application's event loop, in a program that blocks elsewhere."""

    def __init__(self, broker: LoopbackBroker, name: str) -> None:
        self._connection = aio.Connection(broker.connect()._core)

    def end(self) -> None:
        asyncio.run(self._connection.close())


class WithListener:
    """A consumer whose messages go to a listener."""

    def __init__(self, broker: LoopbackBroker, name: str) -> None:
        self._session = broker.connect().session()
        self._session.consumer(name).on_message(lambda message: None)

    def end(self) -> None:
        self._session.close()


class Undirected:
    """A connection whose sockets no thread that waits may serve."""

    def __init__(self, broker: LoopbackBroker, name: str) -> None:
        self._connection = broker.connect(**{"raybroker.client.direct": False})

    def end(self) -> None:
        for _ in range(2):  # It is counted once.
            self._connection.close()


@pytest.mark.parametrize("other", [WithAsyncio, WithListener, Undirected])
def test_who_needs_the_loop_keeps_threads_from_their_sockets_until_it_ends(
    make_broker: MakeBroker, served: list[int], other: Callable[[LoopbackBroker, str], Any]
) -> None:
    broker = make_broker()
    producer = broker.connect().session().producer(broker.name())
    led_until(served, lambda: producer.send("x"))
    needing = other(broker, broker.name())
    served.clear()
    for _ in range(MANY):
        producer.send("x")
    assert threading.get_ident() not in served
    needing.end()
    led_until(served, lambda: producer.send("x"))


def test_openings_and_administration_are_served_by_the_thread_that_waits(
    make_broker: MakeBroker, served: list[int]
) -> None:
    broker = make_broker()
    session = broker.connect().session()
    name = broker.name()
    led_until(served, lambda: session.producer(name).close())
    led_until(served, lambda: session.browser(name).close())


def test_requests_are_served_by_the_thread_that_waits(make_broker: MakeBroker, served: list[int]) -> None:
    broker = make_broker()
    name = broker.name()
    other = broker.connect(**{"raybroker.client.direct": True}).session()
    session = broker.connect().session()
    consumer, over = other.consumer(name), threading.Event()

    def answer() -> None:
        while not over.is_set():
            message = consumer.receive(timeout=0.05)
            if message is not None:
                message.reply(message.body)

    with ThreadPoolExecutor(1) as pool:
        answering = pool.submit(answer)
        try:
            assert [session.request(name, number, timeout=WAIT_S).body for number in range(MANY)] == list(range(MANY))
            for _ in range(LED_CALLS_MAX):
                if served:
                    break
                session.request(name, 0, timeout=WAIT_S)
        finally:
            over.set()
            answering.result(WAIT_S)
    assert served
    io = session._core.connection.io
    assert not io.residents


@pytest.mark.usefixtures("unlooked")
def test_many_threads_commit_beside_each_other(make_broker: MakeBroker) -> None:
    broker = make_broker()
    connection = broker.connect()
    name = broker.name()

    def work(thread: int) -> None:
        session = connection.session(transacted=True)
        producer = session.producer(name)
        for number in range(MANY // 4):
            producer.send((thread, number))
            session.commit()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    found = bodies_of(connection.session().consumer(name), MANY)
    assert sorted(found) == [(thread, number) for thread in range(4) for number in range(MANY // 4)]


def test_a_commit_survives_links_that_are_lost(make_broker: MakeBroker) -> None:
    broker = make_broker()
    connection = broker.connect()
    name = broker.name()
    session = connection.session(transacted=True)
    producer = session.producer(name)
    committed = []
    for number in range(MANY):
        if number % 50 == 49:
            drop_links(broker)
        try:
            producer.send(number)
            session.commit()
            committed.append(number)
        except rb.errors.TransactionRolledBackError:
            pass
    assert len(committed) >= MANY - 2 * MANY // 50
    assert bodies_of(connection.session().consumer(name), len(committed)) == committed


@pytest.mark.usefixtures("unlooked")
def test_many_threads_get_their_own_answers_in_their_order(make_broker: MakeBroker) -> None:
    broker = make_broker()
    connection = broker.connect()
    name = broker.name()
    threads = 8

    def work(thread: int) -> list[str]:
        producer = connection.session().producer(name)
        return [producer.send((thread, number)) for number in range(MANY)]

    with ThreadPoolExecutor(threads) as pool:
        ids = list(itertools.chain(*pool.map(work, range(threads))))
    assert len(set(ids)) == threads * MANY
    consumer = connection.session().consumer(name)
    order: dict[int, list[int]] = {thread: [] for thread in range(threads)}
    found = []
    for _ in range(threads * MANY):
        message = consumer.receive(timeout=WAIT_S)
        found.append(message.id)
        order[message.body[0]].append(message.body[1])
    assert sorted(found) == sorted(ids)
    assert all(numbers == list(range(MANY)) for numbers in order.values())


@pytest.mark.usefixtures("unlooked")
def test_one_thread_sends_what_another_receives(make_broker: MakeBroker) -> None:
    broker = make_broker()
    connection = broker.connect()
    name = broker.name()
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(lambda: bodies_of(connection.session().consumer(name), MANY))
        producer = connection.session().producer(name)
        for number in range(MANY):
            producer.send(number)
        assert found.result(WAIT_S) == list(range(MANY))


@pytest.mark.usefixtures("unlooked")
def test_calls_of_all_kinds_take_turns(make_broker: MakeBroker) -> None:
    """Blocking sends, sends without waiting, commits, requests of the broker and receives, mixed in one thread."""
    broker = make_broker()
    connection = broker.connect()
    plain, transacted = connection.session(), connection.session(transacted=True)
    name = broker.name()
    one, other = plain.producer(name), transacted.producer(name)
    futures, expected = [], []
    for number in range(100):
        futures.append(one.send_async(("async", number)))
        one.send(("sync", number))
        other.send(("tx", number))
        transacted.commit()
        expected += [("async", number), ("sync", number), ("tx", number)]
        if number % 10 == 0:
            plain.consumer(name).close()
    assert all(future.result(WAIT_S) for future in futures)
    found = bodies_of(plain.consumer(name), len(expected))
    assert sorted(found) == sorted(expected)


@pytest.mark.filterwarnings("ignore:Exception ignored in. <finalize object:pytest.PytestUnraisableExceptionWarning")
def test_an_interrupted_call_leaves_the_connection_usable(make_broker: MakeBroker, interruption: Interruption) -> None:
    broker = make_broker()
    session = broker.connect().session()
    name = broker.name()
    producer, confirmed = session.producer(name), []
    over = threading.Event()

    def interrupt() -> None:
        while not over.wait(0.002):
            interruption.send()

    thread = threading.Thread(target=interrupt)
    thread.start()
    number = stopped = 0
    while stopped < 100:
        number += 1
        try:
            interruption.armed = True
            producer.send(number)
            interruption.armed = False
            confirmed.append(number)
        except StoppedError:
            stopped += 1
    over.set()
    thread.join()
    producer.send("last")
    found = []
    consumer = session.consumer(name)
    while (body := bodies_of(consumer, 1)[0]) != "last":
        found.append(body)
    assert set(confirmed) <= set(found) <= set(range(1, number + 1))
    assert found == sorted(set(found))


@pytest.mark.filterwarnings("ignore:Exception ignored in. <finalize object:pytest.PytestUnraisableExceptionWarning")
def test_an_interrupted_receive_loses_nothing(make_broker: MakeBroker, interruption: Interruption) -> None:
    broker = make_broker()
    connection = broker.connect()
    name = broker.name()
    consumer = connection.session().consumer(name)
    for _ in range(20):
        timer = threading.Timer(0.003, interruption.send)
        try:
            interruption.armed = True
            timer.start()
            found = consumer.receive(timeout=WAIT_S)
        except StoppedError:
            found = "stopped"
        assert found == "stopped"
        timer.join()
    producer = connection.session().producer(name)
    for number in range(20):
        producer.send(number)
    assert bodies_of(consumer, 20) == list(range(20))


def test_a_handler_of_a_signal_may_make_a_call_of_its_own(make_broker: MakeBroker) -> None:
    broker = make_broker()
    connection = broker.connect()
    name = broker.name()
    producer, other = connection.session().producer(name), connection.session().producer(name)
    calls: list[str] = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: calls.append(other.send("from the handler")))
    try:
        consumer = connection.session().consumer(broker.name())
        for _ in range(20):
            timer = threading.Timer(0.003, lambda: os.kill(os.getpid(), signal.SIGUSR1))
            timer.start()
            assert consumer.receive(timeout=0.05) is None
            producer.send("plain")
            timer.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    found = bodies_of(connection.session().consumer(name), 20 + len(calls))
    assert found.count("from the handler") == len(calls) > 0


@pytest.mark.usefixtures("unlooked")
@pytest.mark.parametrize("wait", ["send", "receive", "acknowledge"])
def test_a_link_that_is_lost_while_a_thread_waits_is_made_anew(make_broker: MakeBroker, wait: str) -> None:
    broker = make_broker()
    connection = broker.connect()
    name = broker.name()
    session = connection.session()
    producer, consumer = session.producer(name), session.consumer(name)
    over = threading.Event()

    def drop() -> None:
        for _ in range(5):
            drop_links(broker)
            if over.wait(0.05):
                return

    thread = threading.Thread(target=drop)
    thread.start()
    sent = 0
    while thread.is_alive() or sent < 20:
        producer.send(sent)
        sent += 1
        if wait != "send":
            assert consumer.receive(timeout=WAIT_S) is not None
    over.set()
    thread.join()
    if wait == "send":
        assert sorted(set(bodies_of(consumer, sent))) == list(range(sent))
    producer.send("last")
    assert until(lambda: (message := consumer.receive(timeout=WAIT_S)) is not None and message.body == "last")


@pytest.mark.usefixtures("unlooked")
def test_whoever_waits_for_a_handle_that_comes_back_after_a_pause_is_served(make_broker: MakeBroker) -> None:
    """Links lost twice in a row are made anew after a pause, and the pause is a timer, which only the loop runs."""
    broker = make_broker()
    connection = broker.connect()
    producer = connection.session().producer(broker.name())
    io, channels = connection._core.io, connection._core.channels
    for number in range(3):
        producer.send(number)
        [channel] = channels.open()
        drop_links(broker)
        until(lambda channel=channel: io.submit(asyncio.sleep(0, True)).result(WAIT_S) and channel.lost)
    other = broker.connect().session().producer(broker.name())
    for number in range(20):  # One call right after another: the IO thread would step aside for this thread.
        other.send(number)
    producer.send("after the pause")


@pytest.mark.usefixtures("unlooked")
def test_threads_of_every_kind_are_served_while_links_are_lost(make_broker: MakeBroker) -> None:
    """One sends, one receives and acknowledges, one commits what it received and sent on: each at a connection of its
    own, whose links are lost meanwhile."""
    broker = make_broker()
    name, onward = broker.name(), broker.name()
    sent: set[int] = set()
    got: set[int] = set()
    over, sent_all, given_up = threading.Event(), threading.Event(), threading.Event()

    def unfinished() -> bool:
        """The last message may be sent after ``over``: until the sender has ended nobody else has."""
        return not given_up.is_set() and (not sent_all.is_set() or len(sent) > len(got))

    def send() -> None:
        try:
            producer = broker.connect().session().producer(name)
            while not over.is_set():
                producer.send(len(sent))
                sent.add(len(sent))
        finally:
            sent_all.set()

    def move() -> None:
        session = broker.connect().session(transacted=True)
        consumer, producer = session.consumer(name, prefetch=10), session.producer(onward)
        while unfinished():
            try:
                for message in consumer.receive_many(10, timeout=0.05):
                    producer.send(message.body)
                session.commit()
            except rb.errors.BrokerError:
                session.rollback()

    def receive() -> None:
        consumer = broker.connect().session().consumer(onward)
        while unfinished():
            message = consumer.receive(timeout=0.05)
            if message is not None:
                got.add(message.body)

    with ThreadPoolExecutor(3) as pool:
        working = [pool.submit(work) for work in (send, move, receive)]
        try:
            for _ in range(5):
                before = len(got)
                assert until(lambda before=before: len(got) > before + 5)
                drop_links(broker)
            over.set()
            for done in working:
                done.result(WAIT_S)
        finally:
            over.set()
            given_up.set()
    assert got == sent


@pytest.mark.usefixtures("unlooked")
def test_a_listener_and_a_connection_that_does_without_keep_the_io_thread(
    make_broker: MakeBroker, served: list[int]
) -> None:
    broker = make_broker()
    connection, plain = broker.connect(), broker.connect(**{"raybroker.client.direct": False})
    name, answers = broker.name(), broker.name()
    producer, consumer = connection.session().producer(name), plain.session().consumer(answers)
    listening = connection.session()
    replies = listening.producer(answers)
    listening.consumer(name).on_message(lambda message: replies.send(message.body))
    for number in range(50):
        producer.send(number)
        assert bodies_of(consumer, 1) == [number]
    assert served == []
    plain.close()
    listening.close()
    while threading.get_ident() not in served and len(served) < MANY:
        producer.send("now")
    assert threading.get_ident() in served


@pytest.mark.usefixtures("unlooked")
def test_what_another_thread_schedules_runs_though_a_thread_leads(make_broker: MakeBroker, served: list[int]) -> None:
    broker = make_broker()
    connection = broker.connect()
    name = broker.name()
    producer, consumer = connection.session().producer(name), connection.session().consumer(broker.name())
    io = connection._core.io
    with ThreadPoolExecutor(1) as pool:
        for turn in range(20):
            while threading.get_ident() not in served[-1:]:
                producer.send(turn)
            waiting = pool.submit(consumer.receive, 60 if turn % 2 else 0.02)
            ran: Future[int] = Future()
            if turn % 4 < 2:
                io.loop.call_soon_threadsafe(ran.set_result, turn)  # As Ray does, and what asyncio runs in threads.
            else:
                ran = io.submit(asyncio.sleep(0, turn))
            assert ran.result(WAIT_S) == turn
            if turn % 2:
                broker.connect().session().producer(consumer._core.name).send(turn)
                assert waiting.result(WAIT_S).body == turn
            else:
                assert waiting.result(WAIT_S) is None
            served.clear()


@pytest.mark.usefixtures("unlooked")
def test_what_a_leader_has_scheduled_runs_when_it_leaves(make_broker: MakeBroker, served: list[int]) -> None:
    broker = make_broker()
    connection = broker.connect()
    producer, io = connection.session().producer(broker.name()), connection._core.io
    for turn in range(10):
        served.clear()
        while threading.get_ident() not in served:
            producer.send(turn)
        ran: Future[int] = Future()
        io.expect()
        io.post(lambda ran=ran: io.loop.call_soon(ran.set_result, 1))
        io.lead(lambda: True)
        assert ran.result(WAIT_S) == 1


def test_short_waits_end_in_time_and_not_before(make_broker: MakeBroker) -> None:
    broker = make_broker()
    connection = broker.connect()
    producer, consumer = connection.session().producer(broker.name()), connection.session().consumer(broker.name())
    clock = connection._core.clock
    for timeout_s in (0.001, 0.02, 0.001, 0.02):
        producer.send("x")
        since_ns = clock.monotonic_ns()
        assert consumer.receive(timeout=timeout_s) is None
        assert clock.monotonic_ns() - since_ns >= timeout_s * 1e9


@pytest.mark.usefixtures("unlooked")
def test_a_call_ends_when_the_connection_is_closed_by_another_thread(make_broker: MakeBroker) -> None:
    broker = make_broker()
    connection = broker.connect()
    consumer = connection.session().consumer(broker.name())
    timer = threading.Timer(0.05, connection.close)
    timer.start()
    assert consumer.receive(timeout=WAIT_S) is None
    timer.join()
    with pytest.raises(rb.errors.IllegalStateError):
        connection.session()


def test_a_forked_child_is_refused_while_its_parent_goes_on(make_broker: MakeBroker) -> None:
    broker = make_broker()
    connection = broker.connect()
    name = broker.name()
    producer = connection.session().producer(name)
    for number in range(50):
        producer.send(number)
        if number % 10 == 0:
            child = os.fork()
            if child == 0:
                try:
                    producer.send("from the child")
                except rb.errors.IllegalStateError:
                    os._exit(0)
                os._exit(1)
            assert os.waitpid(child, 0)[1] == 0
    assert bodies_of(connection.session().consumer(name), 50) == list(range(50))


def test_with_a_spin_client_and_host_look_again_before_they_sleep(make_broker: MakeBroker) -> None:
    broker = make_broker(raybroker__spin="300")
    session = broker.connect(**{"raybroker.client.spin": 300}).session()
    producer, consumer = session.producer("orders"), session.consumer("orders")
    for number in range(50):
        producer.send(number)
        message = consumer.receive(timeout=WAIT_S)
        assert message is not None
        assert message.body == number
    assert broker._io.sockets is not None
    spin = broker._io.sockets.spin
    assert spin is not None
    assert spin.count >= spin.paid >= 0
    assert spin.count > 0
    host = broker.core.directory._service.service.metrics()
    assert host["spins_total"] >= host["paid_spins_total"]
    assert host["spins_total"] > 0
    assert host["spin_seconds_total"] > 0
