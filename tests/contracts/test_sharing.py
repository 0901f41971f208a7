"""Consumers that share what is there (F-22, F-24): nobody is idle for long while another holds many messages."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import raybroker as rb
from tests.contracts.handles import buffered, create, take, until

CONSUMERS, MESSAGES, EACH_S = 4, 60, 0.02


@pytest.fixture
def connection() -> Iterator[Any]:
    with rb.loopback(broker="sharing") as found:
        yield found


class Workers:
    """Consumers on threads of their own, each of which takes its time for a message."""

    def __init__(self, connection: Any, name: str, **options: Any) -> None:
        self.counts = [0] * CONSUMERS
        self.attempts: list[int] = []
        self.seen: list[int] = []
        self._all = threading.Event()
        self._sessions = [connection.session(ack="client") for _ in range(CONSUMERS)]
        self.consumers = [session.consumer(name, **options) for session in self._sessions]
        self._threads = [threading.Thread(target=self._work, args=(index,)) for index in range(CONSUMERS)]

    def run(self) -> None:
        for thread in self._threads:
            thread.start()
        for thread in self._threads:
            thread.join()

    def _work(self, index: int) -> None:
        while len(self.seen) < MESSAGES:
            message = self.consumers[index].receive(timeout=0.05)
            if message is None:
                continue
            self.seen.append(message.body)
            self.attempts.append(message.delivery_count)
            time.sleep(EACH_S)
            message.acknowledge()
            self.counts[index] += 1


@pytest.mark.parametrize("filled", [True, False])
def test_equal_consumers_share_what_is_there(connection: Any, filled: bool) -> None:
    """F-22: whether they come to a queue that is full, or it fills while they wait"""
    name = create(connection, "q")
    producer = connection.session().producer(name)
    if filled:
        producer.send_many(range(MESSAGES))
    workers = Workers(connection, name)
    if not filled:
        producer.send_many(range(MESSAGES))
    workers.run()
    assert sorted(workers.seen) == list(range(MESSAGES)), "each once"
    assert set(workers.attempts) == {1}, "what was taken back was not handed out"
    assert min(workers.counts) >= MESSAGES // CONSUMERS // 3, workers.counts


def test_what_is_given_back_is_counted(connection: Any) -> None:
    """For an idle consumer, and to make room"""
    admin = connection.admin()
    for name, limits in (("shared", {}), ("room", {"maxNumMsgs": 10, "limitBehavior": "REMOVE_OLDEST"})):
        admin.create_destination("queue", name, **limits)
        first = connection.session(ack="client").consumer(name)
        connection.session().producer(name).send_many(range(10))
        until(lambda held=first: buffered(held) == 10)
        if limits:
            connection.session().producer(name).send_many(range(10, 14))
        else:
            other = connection.session(ack="client").consumer(name)
            assert other.receive(timeout=10) is not None
        expected = 4 if limits else 5
        until(lambda name=name, all_=expected: admin.query_destination("queue", name)["recalled"] == all_)
    assert admin.metrics()[0]["types"]["queue"]["recalled_messages_total"] == 9
    admin.reset_destination("queue", "room")
    assert admin.query_destination("queue", "room")["recalled"] == 0


def test_a_consumer_keeps_what_it_has_asked_for(connection: Any) -> None:
    """F-24: where the limit is set, full batches go to one consumer after the other"""
    name = create(connection, "q")
    connection.session().producer(name).send_many(range(MESSAGES))
    first = connection.session(ack="client").consumer(name, prefetch=1000)
    until(lambda: buffered(first) == MESSAGES)
    other = connection.session(ack="client").consumer(name)
    assert other.receive(timeout=0.3) is None
    assert len(take(first, MESSAGES)) == MESSAGES
    limited = create(connection, "limited", consumerFlowLimit=MESSAGES)
    connection.session().producer(limited).send_many(range(MESSAGES))
    first = connection.session(ack="client").consumer(limited)
    until(lambda: buffered(first) == MESSAGES)
    assert connection.session(ack="client").consumer(limited).receive(timeout=0.3) is None


def test_messages_of_a_unit_of_order_stay_with_their_session(connection: Any) -> None:
    """W-81: though others are idle, and what has none is shared"""
    name = create(connection, "q")
    session = connection.session()
    session.producer(name, unit_of_order="u").send_many(range(20))
    first = connection.session(ack="client").consumer(name)
    until(lambda: buffered(first) == 20)
    other = connection.session(ack="client").consumer(name)
    assert other.receive(timeout=0.3) is None
    session.producer(name).send_many(range(100, 110))
    until(lambda: buffered(other) + buffered(first) == 30)
    found = take(first, 20)
    assert [m.body for m in found if m.unit_of_order] == list(range(20))


@pytest.mark.parametrize("scaling", [{"instances": CONSUMERS}, {"min": 1, "max": CONSUMERS, "target_backlog": 5}])
def test_every_instance_of_a_pool_works(connection: Any, scaling: dict[str, int]) -> None:
    """With the settings that nobody has chosen"""

    @rb.listener(queue="work")
    def handle(message: Any) -> None:
        time.sleep(EACH_S)

    connection.session().producer("work").send_many(range(MESSAGES * 4))
    with rb.deploy(handle, loopback="sharing", **scaling) as pool:
        until(lambda: pool.totals()["messages"] == MESSAGES * 4)
        counts = [row["messages"] for row in pool.stats()]
    assert len(counts) == CONSUMERS
    assert min(counts) >= MESSAGES // 6, counts


def test_a_slow_consumer_with_a_prefetch_of_its_own_starves_nobody(connection: Any) -> None:
    """N3: with prefetchRecall=Always it keeps what it has in hand, and of the rest the other gets all in the end"""
    name = create(connection, "q", prefetchRecall="Always")
    connection.session().producer(name).send_many(range(MESSAGES))
    slow = connection.session(ack="client").consumer(name, prefetch=1000)
    until(lambda: buffered(slow) == MESSAGES)
    in_hand = slow.receive(timeout=10)
    other = connection.session(ack="client").consumer(name, prefetch=1000)
    found = []
    while len(found) < MESSAGES - 1:
        message = other.receive(timeout=10)
        assert message is not None, f"{MESSAGES - 1 - len(found)} stay with a consumer that is busy"
        found.append(message)
        message.acknowledge_this()
    assert {message.delivery_count for message in found} == {1}, "what was taken back was not handed out"
    assert sorted(message.body for message in found) == list(range(1, MESSAGES))
    assert in_hand is not None
    assert in_hand.body == 0
    in_hand.acknowledge_this()


def test_whole_units_of_order_are_taken_back_when_none_of_them_is_begun(connection: Any) -> None:
    """N3: each unit is in order, with one session at a time; the unit that is begun stays"""
    units, each = 10, 4
    name = create(connection, "q", prefetchRecall="Always")
    for unit in range(units):
        producer = connection.session().producer(name, unit_of_order=f"u{unit}")
        producer.send_many([(unit, number) for number in range(each)])
    slow = connection.session(ack="client").consumer(name, prefetch=1000)
    until(lambda: buffered(slow) == units * each)
    in_hand = slow.receive(timeout=10)
    assert in_hand is not None
    assert in_hand.body == (0, 0)
    other = connection.session(ack="client").consumer(name, prefetch=1000)
    found = []
    while len(found) < (units - 1) * each:
        message = other.receive(timeout=10)
        assert message is not None, f"{units * each - len(found)} stay with a consumer that is busy"
        found.append(message.body)
        message.acknowledge_this()
    for unit in range(1, units):
        assert [number for one, number in found if one == unit] == list(range(each))
    assert other.receive(timeout=0.2) is None, "the unit that is begun stays with its session"
    in_hand.acknowledge_this()
    assert [message.body for message in take(slow, each - 1)] == [(0, number) for number in range(1, each)]


def test_each_keeps_what_it_got_where_nothing_is_taken_back(connection: Any) -> None:
    """N3: prefetchRecall=Never, also of consumers whose limit nobody has set; an update holds at once"""
    name = create(connection, "q", prefetchRecall="Never")
    connection.session().producer(name).send_many(range(MESSAGES))
    first = connection.session(ack="client").consumer(name)
    until(lambda: buffered(first) == MESSAGES)
    other = connection.session(ack="client").consumer(name)
    assert other.receive(timeout=0.3) is None
    connection.admin().update_destination("queue", name, prefetchRecall="Default")
    assert other.receive(timeout=10) is not None
