"""Memory levels as applications see them: the limit is changed while they run, and red comes and goes; and what
administrators see of a disk."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import raybroker as rb
from raybroker.errors import BrokerError, IllegalStateError, MemoryLowError, RequestTimeoutError
from tests.contracts.conftest import ONE_FACE, MakeBroker
from tests.contracts.handles import WAIT_S, bodies, create, state_of, take, until

LIMIT = "raybroker.memory.limit_bytes"


@ONE_FACE
def test_at_red_nothing_comes_in_and_what_is_there_goes_out(
    make_broker: MakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    connection = make_broker().connect()
    admin, session = connection.admin(), connection.session(ack="client")
    producer, consumer = session.producer("q"), session.consumer("q")
    producer.send("before")
    assert admin.query_broker()["memory_level"] == "GREEN"
    with caplog.at_level("INFO", logger="raybroker"):
        admin.update_broker({LIMIT: 1 << 20})
        row = admin.query_broker()
        assert (row["memory_level"], row["memory_limit_bytes"]) == ("RED", 1 << 20)
        assert row["memory_used_bytes"] > 1 << 20
        with pytest.raises(MemoryLowError, match="no producer for queue q can be opened: memory is out"):
            session.producer("q")
        with pytest.raises(MemoryLowError, match="queue 'other' cannot be created: memory is out"):
            session.producer("other")
        with pytest.raises(MemoryLowError, match="queue 'third' cannot be created"):
            admin.create_destination("queue", "third")
        with ThreadPoolExecutor(1) as pool:
            waiting: Future[object] = pool.submit(producer.send, "after")
            message = consumer.receive(timeout=60)
            assert message is not None
            assert message.body == "before"
            message.acknowledge()
            assert session.consumer("q").close() is None
            admin.pause_destination("queue", "q", "consumers")
            admin.resume_destination("queue", "q", "consumers")
            assert not waiting.done(), "it waits for memory"
            admin.update_broker({LIMIT: -1})
            waiting.result(60)
    message = consumer.receive(timeout=60)
    assert message is not None
    assert message.body == "after"
    session.producer("other").send("x")
    told = [record.getMessage() for record in caplog.records if "B1089" in record.getMessage()]
    assert ["is RED" in told[0], "is GREEN" in told[1], len(told)] == [True, True, 2]


def test_administrators_see_a_disk_that_is_nearly_full(tmp_path: Path) -> None:
    with rb.loopback(tmp_path / "store", properties={"raybroker.store.low_free_percent": 100}) as connection:
        admin = connection.admin()
        until(lambda: admin.query_broker()["hosts"][0]["disk_low"])
        (host,) = admin.query_broker()["hosts"]
        assert 0 < host["disk_free_bytes"] < host["disk_total_bytes"]
        assert host["disk_slow"] is False
        own = admin.metrics()[0]["own"]
        assert (own["disk_low"], own["store_slow"], own["memory_level"]) == (1, 0, {"host": 0})
        connection.session().producer("q").send("it is an alarm and refuses nothing")


FILLING = """
import time
import raybroker as rb
from raybroker.errors import MemoryLowError, RequestTimeoutError
from raybroker.system.process_memory import resident_bytes

LIMIT = "raybroker.memory.limit_bytes"
BODY = b"x" * 100_000
with rb.loopback(properties={"imqAckTimeout": 1000}) as connection:
    admin = connection.admin()
    admin.create_destination("queue", "q", maxTotalMsgBytes=-1)
    sender, taker = connection.session(), connection.session()
    producer, consumer = sender.producer("q"), taker.consumer("q", prefetch=10)
    producer.send(BODY)
    limit = resident_bytes() + (60 << 20)
    admin.update_broker({LIMIT: limit})
    levels, sent = [], 0
    while sent < 5_000:
        level = admin.query_broker()["memory_level"]
        if level not in levels:
            levels.append(level)
        try:
            producer.send(BODY, persistent=False)
        except RequestTimeoutError as error:
            print("waited:", error)
            break
        sent += 1
    levels.append(admin.query_broker()["memory_level"])
    assert levels[0] == "GREEN" and levels[-1] == "RED", levels
    assert resident_bytes() < limit + (40 << 20), "the producer of this process holds some, too"
    try:
        sender.producer("q")
    except MemoryLowError as error:
        print("refused:", error)
    deadline = time.monotonic() + 60
    while admin.query_broker()["memory_level"] != "GREEN":
        assert time.monotonic() < deadline, admin.query_broker()
        while consumer.receive(timeout=0.2) is not None:
            pass
    sender.producer("q").send("again")
    print("levels:", *levels, "then GREEN")
"""


def test_a_process_that_fills_its_memory_lives_and_takes_messages_again_when_they_are_consumed() -> None:
    """Real memory: messages that are not stored fill it up to a limit of 60 MiB above what an idle broker needs."""
    found = subprocess.run([sys.executable, "-c", FILLING], capture_output=True, text=True, timeout=120, check=False)
    assert found.returncode == 0, found.stderr
    assert "refused: no producer for queue q can be opened: memory is out" in found.stdout
    assert "made no room within imqAckTimeout=1 s: the memory of its broker is out" in found.stdout
    assert "RED then GREEN" in found.stdout


COUNT = 120
THRESHOLDS = {"GREEN": (97, 98, 99), "YELLOW": (1, 98, 99), "ORANGE": (1, 2, 99)}
THREE_FACES = pytest.mark.parametrize("make_broker", ["memory", "direct", "aio"], indirect=True)


def turn(admin: Any, level: str) -> None:
    """From now on memory is at this level, whatever the process uses."""
    limit = 1 << 20
    if level != "RED":
        limit = 2 * admin.query_broker()["memory_used_bytes"]
        names = ("yellow", "orange", "red")
        admin.update_broker({f"imq.{name}.threshold": at for name, at in zip(names, THRESHOLDS[level], strict=True)})
    admin.update_broker({LIMIT: limit})
    assert admin.query_broker()["memory_level"] == level


class Sending:
    """A producer of each kind, opened while there is memory. ``futures``: those of asynchronous sends."""

    def __init__(self, connection: Any, name: str, *, persistent: bool) -> None:
        self.producer = connection.session().producer(name, persistent=persistent)
        self.work = connection.session(transacted=True)
        self.within = self.work.producer(name, persistent=persistent)
        self.futures: list[Future[str]] = []

    def send(self) -> None:
        for n in range(COUNT):
            self.producer.send(n)

    def asynchronous(self) -> None:
        self.futures += [self.producer.send_async(n) for n in range(COUNT)]

    def forget(self) -> None:
        for n in range(COUNT):
            self.producer.send_async(n, fire_and_forget=True)

    def many(self) -> None:
        assert self.producer.send_many(range(COUNT)) == COUNT

    def transaction(self) -> None:
        for n in range(COUNT // 2):
            self.within.send(n)
        self.within.send_many(range(COUNT // 2, COUNT))
        self.work.commit()


@THREE_FACES
@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("way", ["send", "asynchronous", "forget", "many", "transaction"])
@pytest.mark.parametrize("level", ["GREEN", "YELLOW", "ORANGE", "RED"])
def test_each_way_of_sending_at_each_level(make_broker: MakeBroker, level: str, way: str, persistent: bool) -> None:
    """B-16, B-17, R-02: at red a persistent send waits for imqAckTimeout and is not sent, and a transaction is refused;
    what is not persistent, or has a future, is held by its producer until there is memory, one message as many."""
    broker = make_broker()
    connection, name = broker.connect(imqAckTimeout=300 if level == "RED" else 0), broker.name()
    admin = broker.connect().admin()
    admin.create_destination("queue", name)
    sending = Sending(connection, name, persistent=persistent)
    turn(admin, level)
    refused = level == "RED" and (way == "transaction" or (persistent and way in ("send", "many")))
    if refused and way == "transaction":
        with pytest.raises(MemoryLowError, match="memory is out"):
            sending.transaction()
        sending.work.rollback()
    elif refused:
        with pytest.raises(RequestTimeoutError, match=r"imqAckTimeout=0\.3 s.*not sent") as caught:
            getattr(sending, way)()
        assert "the memory of its broker is out" in str(caught.value)
    else:
        getattr(sending, way)()
    if level == "RED":
        assert state_of(connection, name)["messages"] == 0
        assert not any(future.done() for future in sending.futures)
        admin.update_broker({LIMIT: -1})
    sending.producer.close()
    assert all(future.result(WAIT_S) for future in sending.futures)
    assert sending.producer.refused == 0
    expected = [] if refused else list(range(COUNT))
    assert state_of(connection, name)["messages"] == len(expected)
    assert bodies(list(broker.connect().session().browser(name))) == expected


@THREE_FACES
@pytest.mark.parametrize("limits", [{}, {"limitBehavior": "FLOW_CONTROL", "maxNumMsgs": 1000}])
def test_at_red_a_producer_holds_what_its_buffer_has_room_for_and_no_more(
    make_broker: MakeBroker, limits: dict[str, Any]
) -> None:
    """R-02: who finds no room waits for imqAckTimeout, with one message as with many"""
    broker = make_broker()
    connection = broker.connect(imqAckTimeout=200, **{"raybroker.producer.buffer_bytes": "64k"})
    admin = broker.connect().admin()
    name = create(connection, broker.name(), **limits)
    one, many = (connection.session().producer(name, persistent=False) for _ in range(2))
    turn(admin, "RED")
    room = 10 if limits else 70  # A destination that has its producers wait when it is full gives them credit.
    assert many.send_many([b"x" * 1_000] * room) == room
    with pytest.raises(RequestTimeoutError, match=r"out; 0 messages were taken, and all others were not sent"):
        many.send_many([b"y" * 1_000] * 70)
    held = 0

    def send_until_there_is_no_room() -> None:
        nonlocal held
        while held < 200:
            one.send(b"x" * 1_000)
            held += 1

    with pytest.raises(RequestTimeoutError, match="the memory of its broker is out; the message was not sent"):
        send_until_there_is_no_room()
    assert (10 if limits else 50) <= held <= room
    with pytest.raises(RequestTimeoutError, match="was not sent"):
        one.send_async(b"x", fire_and_forget=True)
    assert state_of(connection, name)["messages"] == 0
    admin.update_broker({LIMIT: -1})
    one.close()
    many.close()
    assert (state_of(connection, name)["messages"], one.refused, many.refused) == (room + held, 0, 0)


@THREE_FACES
def test_what_a_producer_held_when_it_was_closed_at_red_is_counted_and_told(make_broker: MakeBroker) -> None:
    broker = make_broker()
    connection = broker.connect(**{"raybroker.reconnect.timeout_ms": 200})
    admin, events = broker.connect().admin(), list[Any]()
    name = create(connection, broker.name())
    connection.on_event(events.append)
    producer = connection.session().producer(name, persistent=False)
    turn(admin, "RED")
    producer.send("x")
    producer.send_many(range(20))
    producer.send_async("y", fire_and_forget=True)
    future = producer.send_async("z")
    with pytest.raises(IllegalStateError, match="what it had not taken by then is lost"):
        producer.close()
    assert isinstance(future.exception(WAIT_S), BrokerError)
    assert producer.refused == 22, "the other one's future says so"
    until(lambda: sum(int(e.text.split(" messages")[0].split()[-1]) for e in events if e.kind == "refused") == 22)
    admin.update_broker({LIMIT: -1})
    assert state_of(connection, name)["messages"] == 0


@ONE_FACE
@pytest.mark.parametrize("kind", ["queue", "topic"])
@pytest.mark.parametrize("way", ["send", "asynchronous", "many", "transaction"])
def test_at_yellow_what_is_not_stored_is_paged_however_it_came(
    make_broker: MakeBroker, tmp_path: Path, way: str, kind: str
) -> None:
    """B-17: one block, too, and what a transaction brought"""
    broker = make_broker(raybroker__paging__directory=str(tmp_path / "paging"))
    connection, name = broker.connect(), broker.name()
    admin = connection.admin()
    admin.create_destination(kind, name)
    target = getattr(connection.session(), kind)(name)
    consumer = connection.session().consumer(target, prefetch=1)
    sending = Sending(connection, target, persistent=kind == "topic")
    turn(admin, "YELLOW")
    turned = time.monotonic()
    until(lambda: time.monotonic() > turned + 1.5, "the buffer is looked at once a second")
    getattr(sending, way)()
    sending.producer.close()
    until(lambda: admin.query_destination(kind, name)["paged_bytes"] > COUNT * 9 // 10)
    assert bodies(take(consumer, COUNT)) == list(range(COUNT))
