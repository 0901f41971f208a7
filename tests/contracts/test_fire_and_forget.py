"""Sends that nobody is told of: stored and in order as any other, and what is not taken is counted and told to all."""

from __future__ import annotations

import queue
import threading
from typing import Any

import pytest

from raybroker.errors import BrokerError, IllegalStateError, MessageFormatError, MessageTooLargeError
from tests.contracts.handles import WAIT_S, LoopbackBroker, bodies, create, cut, nothing, state_of, take, until


def test_they_make_no_future_and_arrive_in_order_with_all_others(broker: LoopbackBroker) -> None:
    connection, name = broker.connect(), broker.name()
    session = connection.session()
    producer = session.producer(name)
    for n in range(0, 300, 3):
        assert producer.send_async(n, fire_and_forget=True) is None
        assert producer.send_async(n + 1) is not None
        assert producer.send_async(n + 2, {"p": n}, priority=4, fire_and_forget=True) is None
    producer.close()
    assert state_of(connection, name)["messages"] == 300, "closing waits until all are settled"
    assert bodies(take(session.consumer(name), 300)) == list(range(300))
    assert producer.refused == 0


def test_what_is_refused_is_counted_and_told_and_no_other_producer_hears_of_it(broker: LoopbackBroker) -> None:
    connection = broker.connect()
    name = create(connection, broker.name(), limitBehavior="REJECT_NEWEST", maxNumMsgs=3)
    told: queue.Queue[Any] = queue.Queue()
    connection.on_event(told.put)
    session = connection.session()
    producer = session.producer(name)
    futures = []
    for n in range(10):
        if n % 2:
            futures.append(producer.send_async(n))
        else:
            producer.send_async(n, fire_and_forget=True)
    taken = [f.exception(WAIT_S) is None for f in futures]
    until(lambda: producer.refused)
    until(lambda: producer.refused == 10 - 3 - taken.count(False), f"{producer.refused} of {taken}")
    event = told.get(timeout=WAIT_S)
    assert (event.kind, name in event.text) == ("refused", True)
    assert bodies(take(session.consumer(name), 3)) == [0, 1, 2]


def test_what_was_taken_before_by_its_id_is_a_duplicate_and_no_refusal(broker: LoopbackBroker) -> None:
    connection = broker.connect()
    name = create(connection, broker.name(), duplicateWindowMs=60_000)
    session = connection.session()
    producer = session.producer(name)
    for n in range(6):
        producer.send_async(n, dedup_id=str(n // 2), fire_and_forget=True)
    until(lambda: producer.duplicates == 3)
    producer.close()
    assert (producer.duplicates, producer.refused) == (3, 0)
    assert bodies(take(session.consumer(name), 3)) == [0, 2, 4]


def test_what_a_lost_connection_had_on_its_way_is_sent_again(broker: LoopbackBroker) -> None:
    connection, name = broker.connect(), broker.name()
    session = connection.session()
    producer = session.producer(name)
    for n in range(200):
        producer.send_async(n, fire_and_forget=True)
        if n % 50 == 25:
            cut(connection)
    producer.close()
    consumer = session.consumer(name)
    assert bodies(take(consumer, 200)) == list(range(200))
    assert nothing(consumer)


def test_what_a_destroyed_destination_had_not_taken_is_counted(broker: LoopbackBroker) -> None:
    connection = broker.connect()
    name = create(connection, broker.name(), limitBehavior="FLOW_CONTROL", maxNumMsgs=1)
    producer = connection.session().producer(name)
    producer.send("fills it")
    until(lambda: producer._core.throttled or producer._core._room.slow)
    producer.send_async("waits", fire_and_forget=False)
    before = producer.refused
    connection.admin().destroy_destination("queue", name)
    with pytest.raises(BrokerError):
        producer.send("nowhere")
    assert producer.refused == before, "whoever has a future is told by it"


def test_in_a_transaction_its_commit_tells(broker: LoopbackBroker) -> None:
    connection, name = broker.connect(), broker.name()
    session = connection.session(transacted=True)
    producer = session.producer(name)
    producer.send_async("dropped", fire_and_forget=True)
    session.rollback()
    for n in range(5):
        assert producer.send_async(n, fire_and_forget=True) is None
    session.commit()
    assert bodies(take(connection.session().consumer(name), 5)) == list(range(5))
    assert producer.refused == 0


def test_what_cannot_be_sent_is_refused_at_once(broker: LoopbackBroker) -> None:
    producer = broker.connect(**{"imq.message.max_size": 1_000}).session().producer(broker.name())
    with pytest.raises(MessageTooLargeError):
        producer.send_async(b"x" * 1_001, fire_and_forget=True)
    with pytest.raises(MessageFormatError):
        producer.send_async(object(), fire_and_forget=True)
    with pytest.raises(MessageFormatError):
        producer.send_async("x", priority=11, fire_and_forget=True)
    for wrong in (1, None, "yes"):
        with pytest.raises(BrokerError, match="fire_and_forget"):
            producer.send_async("x", fire_and_forget=wrong)
    producer.close()
    with pytest.raises(IllegalStateError, match="closed"):
        producer.send_async("x", fire_and_forget=True)


def test_it_waits_while_the_buffer_is_full(broker: LoopbackBroker) -> None:
    connection = broker.connect(**{"raybroker.producer.buffer_bytes": "64k"})
    name = broker.name()
    session = connection.session()
    producer = session.producer(name)
    most = 0
    for _ in range(400):
        producer.send_async(b"x" * 2_000, fire_and_forget=True)
        most = max(most, producer._core._state.held_bytes)
    assert most < (64 << 10) + 2_100
    assert len(take(session.consumer(name), 400)) == 400


def test_many_threads_share_a_producer(broker: LoopbackBroker) -> None:
    connection, name = broker.connect(), broker.name()
    session = connection.session()
    producer = session.producer(name)

    def work(thread: int) -> None:
        for n in range(100):
            producer.send_async([thread, n], fire_and_forget=True)

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    producer.close()
    found = bodies(take(session.consumer(name), 400))
    for thread in range(4):
        assert [n for of, n in found if of == thread] == list(range(100))
