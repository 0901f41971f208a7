"""Large messages, whose bodies travel in pieces: over a store in a directory, with every kind of face."""

from __future__ import annotations

import os
import random
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from raybroker.errors import (
    BrokerError,
    ConnectionLostError,
    MessageTooLargeError,
    StoreDamagedError,
)
from raybroker.model.blocks.large_block import LARGE_BODY_BYTES, PIECE_BYTES
from tests.contracts.conftest import FILES, OneStore
from tests.contracts.handles import WAIT_S, LoopbackBroker, cut, until

FACES = ("blocking", "sockets", "direct", "aio")
NO_LIMITS: dict[str, object] = {
    "imq__autocreate__destination__maxBytesPerMsg": -1,
    "imq__autocreate__destination__maxTotalMsgBytes": -1,
}
SIZE = LARGE_BODY_BYTES + 3 * PIECE_BYTES + 17


def body(number: int, size: int = SIZE) -> bytes:
    return random.Random(number).randbytes(size)


@pytest.fixture(params=FACES)
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., LoopbackBroker]]:
    made: list[LoopbackBroker] = []

    def open_one(**properties: object) -> LoopbackBroker:
        made.append(
            LoopbackBroker(
                tmp_path / f"store{len(made)}",
                request.param,
                raybroker__store__segment_bytes="1m",
                **(NO_LIMITS | properties),
            )
        )
        return made[-1]

    yield open_one
    for broker in made:
        broker.close()
    for store in tmp_path.glob("store*"):
        shutil.rmtree(store)


def own_files(tmp_path: Path, number: int = 0) -> list[str]:
    return sorted(name for name in os.listdir(tmp_path / f"store{number}") if name.startswith("body-"))


def receive(session: Any, queue: str) -> Any:
    message = session.receive(queue, timeout=WAIT_S)
    assert message is not None
    return message


@pytest.mark.parametrize("persistent", [True, False])
def test_large_and_small_messages_arrive_in_order_as_they_were_sent(
    make: Callable[..., LoopbackBroker], tmp_path: Path, *, persistent: bool
) -> None:
    broker = make()
    session = broker.connect().session(ack="client")
    producer, queue = session.producer("q"), "q"
    sizes = [1, SIZE, 10, LARGE_BODY_BYTES, LARGE_BODY_BYTES + 1, 2 * LARGE_BODY_BYTES, 5]
    for number, size in enumerate(sizes):
        producer.send(body(number, size), properties={"n": number}, persistent=persistent)
    until(lambda: len(own_files(tmp_path)) == 3 + persistent)  # The store gives the one of a mebibyte its own file too.
    for number, size in enumerate(sizes):
        message = receive(session, queue)
        assert message.properties == {"n": number}
        assert message.body == body(number, size)
        message.acknowledge()


def test_text_and_objects_come_back_as_what_they_were(make: Callable[..., LoopbackBroker]) -> None:
    session = make().connect().session(ack="client")
    producer = session.producer("q")
    sent: list[Any] = ["ä" * LARGE_BODY_BYTES, {"rows": [b"x" * PIECE_BYTES] * 6}, bytearray(SIZE)]
    for value in sent:
        producer.send(value)
    assert [receive(session, "q").body for _ in sent] == [*sent[:2], bytes(SIZE)]


def test_sends_without_waiting_and_of_many_keep_their_order(make: Callable[..., LoopbackBroker]) -> None:
    session = make().connect().session(ack="client")
    producer = session.producer("q")
    bodies = [body(1), b"a", b"b", body(2), body(3), b"c"]
    futures = [producer.send_async(one) for one in bodies]
    producer.send_many(bodies)
    assert all(future.result(WAIT_S) for future in futures)
    assert [receive(session, "q").body for _ in range(12)] == bodies * 2


def test_what_is_given_back_comes_again_whole(make: Callable[..., LoopbackBroker]) -> None:
    session = make().connect().session(ack="client")
    session.producer("q").send(body(1))
    assert not receive(session, "q").redelivered
    session.recover()
    message = receive(session, "q")
    assert message.redelivered
    assert message.body == body(1)


def test_each_subscriber_gets_its_own(make: Callable[..., LoopbackBroker]) -> None:
    connection = make().connect(client_id="one")
    session = connection.session(ack="client")
    topic = session.topic("t")
    consumers = [session.consumer(topic), session.durable_consumer(topic, "d")]
    session.producer(topic).send(body(4), properties={"n": 1})
    for consumer in consumers:
        message = consumer.receive(timeout=WAIT_S)
        assert message is not None
        assert message.body == body(4)


def test_a_consumer_that_acknowledges_nothing_gets_it_too(make: Callable[..., LoopbackBroker]) -> None:
    connection = make().connect()
    consumer = connection.session(ack="none").consumer("q")
    connection.session().producer("q").send(body(5))
    message = consumer.receive(timeout=WAIT_S)
    assert message is not None
    assert message.body == body(5)


def test_a_transaction_takes_large_messages_and_gives_them_back(
    make: Callable[..., LoopbackBroker], tmp_path: Path
) -> None:
    session = make().connect().session(transacted=True)
    producer = session.producer("q")
    for persistent in (True, False):
        producer.send(body(1), persistent=persistent)
        producer.send(b"x")
    session.rollback()
    for persistent in (True, False):
        producer.send(body(2), persistent=persistent)
        producer.send(b"y")
    session.commit()
    for _ in range(2):
        assert [receive(session, "q").body for _ in range(4)] == [body(2), b"y"] * 2
        session.rollback()
    assert [receive(session, "q").body for _ in range(4)] == [body(2), b"y"] * 2
    session.commit()
    assert session.receive("q", timeout=0) is None


def test_a_browser_sees_it_and_a_selector_finds_it_by_its_headers(make: Callable[..., LoopbackBroker]) -> None:
    connection = make().connect()
    session = connection.session(ack="client")
    producer = session.producer("q")
    for number in range(3):
        producer.send(body(number), properties={"n": number})
    assert [message.body for message in session.browser("q")] == [body(number) for number in range(3)]
    consumer = session.consumer("q", selector="n = 2")
    message = consumer.receive(timeout=WAIT_S)
    assert message is not None
    assert message.body == body(2)


def test_one_that_is_too_large_for_its_destination_is_refused_before_it_is_sent(
    make: Callable[..., LoopbackBroker], tmp_path: Path
) -> None:
    connection = make().connect()
    connection.admin().create_destination("queue", "small", maxBytesPerMsg=LARGE_BODY_BYTES)
    session = connection.session()
    producer = session.producer("small")
    with pytest.raises(MessageTooLargeError, match=f"maxBytesPerMsg={LARGE_BODY_BYTES} of destination small"):
        producer.send(body(1))
    assert own_files(tmp_path) == []
    producer.send(b"fits")
    assert receive(session, "small").body == b"fits"
    transacted = connection.session(transacted=True)
    transacted.producer("small").send(body(1))
    with pytest.raises(MessageTooLargeError):
        transacted.commit()


def test_what_is_acknowledged_gives_its_file_back(make: Callable[..., LoopbackBroker], tmp_path: Path) -> None:
    broker = make()
    connection = broker.connect()
    session = connection.session(ack="client")
    producer = session.producer("q")
    producer.send(body(1), persistent=False)
    receive(session, "q").acknowledge()
    until(lambda: own_files(tmp_path) == [])
    producer.send(body(2))
    receive(session, "q").acknowledge()
    admin = connection.admin()
    admin.pause_destination("queue", "q")
    admin.compact_destination("queue", "q")
    until(lambda: own_files(tmp_path) == [])


def test_messages_of_others_pass_while_a_large_one_comes(make: Callable[..., LoopbackBroker]) -> None:
    """A producer of its own is not held up: its sends are confirmed before the large one is."""
    connection = make().connect()
    session, other = connection.session(), connection.session()
    large, small = session.producer("q"), other.producer("r")
    passed = 0
    future = large.send_async(body(1, 24 * LARGE_BODY_BYTES))
    while not future.done():
        small.send(b"beside")
        passed += 1
    assert future.result(WAIT_S)
    assert passed > 1
    assert receive(session, "q").body == body(1, 24 * LARGE_BODY_BYTES)


def test_many_threads_send_large_messages_at_once(make: Callable[..., LoopbackBroker]) -> None:
    broker = make()
    connection = broker.connect()
    threads = 8

    def send(number: int) -> None:
        session = connection.session()
        session.producer("q").send(body(number), properties={"n": number})

    workers = [threading.Thread(target=send, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(WAIT_S)
    session = connection.session(ack="client")
    found = {message.properties["n"]: message.body for message in (receive(session, "q") for _ in range(threads))}
    assert found == {number: body(number) for number in range(threads)}


def test_many_consumers_of_one_connection_read_large_messages_at_once(make: Callable[..., LoopbackBroker]) -> None:
    """More than a host lets one connection ask for at a time."""
    broker, consumers = make(), 12
    sender = broker.connect().session()
    for number in range(consumers):
        sender.producer(f"q{number}").send(body(number))
    connection = broker.connect(started=False)
    opened = [connection.session().consumer(f"q{number}") for number in range(consumers)]
    connection.start()
    messages = [consumer.receive(timeout=WAIT_S) for consumer in opened]
    assert [message.body for message in messages] == [body(number) for number in range(consumers)]
    assert {message.delivery_count for message in messages} == {1}


def test_a_connection_that_counts_messages_gets_large_ones(make: Callable[..., LoopbackBroker]) -> None:
    """imqConnectionFlowCount holds back messages, not the bodies of those that have come."""
    broker = make()
    sender = broker.connect().session()
    for number in range(3):
        sender.producer("q").send(body(number))
    session = broker.connect(imqConnectionFlowCount=1).session()
    assert [receive(session, "q").body for _ in range(3)] == [body(number) for number in range(3)]


def test_a_lost_connection_loses_no_large_message(make: Callable[..., LoopbackBroker]) -> None:
    """The link ends while bodies go both ways: the one that is sent is sent again, the one that comes comes again."""
    broker = make()
    connection = broker.connect()
    session = connection.session(ack="client")
    producer = session.producer("q")
    producer.send(body(0))
    futures = [producer.send_async(body(number)) for number in range(1, 6)]
    for _ in range(3):
        cut(connection)
    assert all(future.result(WAIT_S) for future in futures)
    seen = set()
    while len(seen) < 6:
        message = receive(session, "q")
        seen.add(message.body)
        message.acknowledge()
    assert seen == {body(number) for number in range(6)}


# ---- over what a crash leaves ----------------------------------------------------------------------------------------


def test_a_crash_keeps_what_was_confirmed_and_nothing_of_what_was_not(store: OneStore) -> None:
    broker = store.open(**NO_LIMITS)
    session = broker.connect().session()
    producer = session.producer("q")
    producer.send(body(1), properties={"n": 1})
    producer.send(b"small")
    producer.send(body(2), persistent=False)
    session = store.crash(**NO_LIMITS).connect().session(ack="client")
    assert [receive(session, "q").body for _ in range(2)] == [body(1), b"small"]
    assert session.receive("q", timeout=0.2) is None
    session = store.open(**NO_LIMITS).connect().session(ack="client")
    assert receive(session, "q").body == body(1)
    receive(session, "q").acknowledge()
    store.open(**NO_LIMITS)


@FILES
@pytest.mark.parametrize("ack", ["client", "none"])
def test_a_damaged_piece_halts_the_destination_and_is_never_delivered(
    store: OneStore, tmp_path: Path, ack: str
) -> None:
    """To a consumer that acknowledges nothing the body goes with its message; the host and its other queues go on."""
    broker = store.open(**NO_LIMITS)
    session = broker.connect().session()
    session.producer("q").send(body(1))
    store.close()
    (path,) = tmp_path.glob("store*/body-*")
    data = bytearray(path.read_bytes())
    data[PIECE_BYTES + 5] ^= 1
    path.write_bytes(data)
    connection = store.open(**NO_LIMITS).connect()
    with pytest.raises((StoreDamagedError, ConnectionLostError), match="damaged"):
        connection.session(ack=ack).receive("q", timeout=WAIT_S)
    session = connection.session()
    session.producer("other").send(b"beside")
    assert receive(session, "other").body == b"beside"


@FILES
def test_a_full_disk_refuses_a_large_message_and_the_next_one_fits(
    store: OneStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = store.open(**NO_LIMITS)
    session = broker.connect().session()
    producer = session.producer("q")
    producer.send(b"before")
    allocate = os.posix_fallocate

    def full(fd: int, offset: int, length: int) -> None:
        if length >= LARGE_BODY_BYTES + 1:
            raise OSError(28, "No space left on device")
        allocate(fd, offset, length)

    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_fallocate", full)
        with pytest.raises(BrokerError, match="no room for a message"):
            producer.send(body(1))
    producer.send(body(2))
    assert [receive(session, "q").body for _ in range(2)] == [b"before", body(2)]
