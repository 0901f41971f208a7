"""The linger time of a producer: begun once, and again by itself as long as messages come."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from raybroker.client.producer.pacing.linger import Linger
from raybroker.client.producer.producer_state import ProducerState
from tests.unit.client.fakes import PERSISTENT


class Io:
    """An IO thread whose time passes when told to; it is its own loop."""

    def __init__(self) -> None:
        self.loop = self
        self.posts = 0
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def post(self, call: Callable[[], None]) -> None:
        self.posts += 1
        call()

    def call_later(self, delay_s: float, call: Callable[[], None]) -> None:
        self.timers.append((delay_s, call))

    call_lazily = call_later

    def passes(self) -> None:
        """The linger time is over."""
        ((delay_s, call),) = self.timers
        assert delay_s == 0.003
        self.timers.clear()
        call()


class Producer:
    def __init__(self, *, transacted: bool = False) -> None:
        self.io = Io()
        self.state = ProducerState(7)
        self.flushed = 0
        self.lock = threading.Lock()
        io: Any = self.io
        self.lingering = Linger(self.state, self.lock, self._flush, io, 0.003, transacted=transacted)

    def _flush(self) -> None:
        assert not self.lock.locked()
        self.flushed += 1
        self.state.seal()
        while (batch := self.state.next_ready()) is not None:
            self.state.settle_block(batch.first_seq)

    def send(self) -> None:
        with self.lock:
            self.state.add(0, b"x", b"", PERSISTENT, 1, None)
            self.lingering.start_time()


def test_the_io_thread_is_woken_for_the_first_of_a_stream_only() -> None:
    producer = Producer()
    for _ in range(4):
        producer.send()
        producer.send()
        producer.io.passes()
        assert producer.state.held_bytes == 0
    assert (producer.io.posts, producer.flushed) == (1, 4)


def test_the_time_ends_when_nothing_came_and_begins_with_the_next_message() -> None:
    producer = Producer()
    producer.send()
    producer.io.passes()
    producer.io.passes()
    assert producer.io.timers == []
    assert producer.flushed == 1, "there was nothing to write the second time"
    producer.send()
    assert producer.io.posts == 2
    producer.io.passes()
    assert (producer.flushed, producer.state.held_bytes) == (2, 0)


def test_messages_of_a_transaction_leave_when_they_were_there_for_the_whole_time() -> None:
    producer = Producer(transacted=True)
    producer.send()
    producer.io.passes()
    assert producer.flushed == 0, "its commit may be on its way"
    producer.send()
    producer.io.passes()
    assert (producer.flushed, producer.state.held_bytes) == (1, 0)
    producer.io.passes()
    assert producer.io.timers == []


def test_messages_that_their_commit_took_along_are_not_looked_for() -> None:
    producer = Producer(transacted=True)
    for _ in range(3):
        producer.send()
        producer._flush()
        producer.io.passes()
    producer.io.passes()
    assert (producer.flushed, producer.io.timers, producer.io.posts) == (3, [], 1)
