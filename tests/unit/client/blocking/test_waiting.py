"""Waiting of the blocking face, with a producer and a consumer that do what a test says."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from raybroker.client.blocking.waiting import all_done, answered, arrival, done_within, opened, stored
from raybroker.client.io.io_thread import IoThread
from raybroker.client.producer.producer_state import Shared
from raybroker.errors import QuotaExceededError, RequestTimeoutError
from tests.contracts.handles import until

SHARED = Shared(True, 4)


class Target:
    """A producer whose messages are settled by ``settle``, if at all."""

    name = "orders"
    throttled = False
    low = ""

    def __init__(self, settle: Any = None, *, left: bool = True) -> None:
        self.settle = settle
        self.left = left
        self.urgent: list[bool] = []
        self._connection = SimpleNamespace(io=IoThread.shared())

    def put(self, body: Any, header: bytes, shared: Shared, waiter: Future[str], *, urgent: bool) -> str:
        self.urgent.append(urgent)
        if isinstance(self.settle, Exception):
            waiter.set_exception(self.settle)
        elif self.settle is not None:
            waiter.set_result(self.settle)
        return "put"

    def take_back(self, waiter: Future[str]) -> bool:
        return not self.left


def store(target: Any, timeout_s: float | None = 5) -> str:
    return stored(target, b"x", b"", SHARED, timeout_s)


def test_a_send_returns_what_it_was_settled_with() -> None:
    target = Target("id-1")
    assert store(target) == "id-1"
    assert target.urgent == [True]
    with pytest.raises(QuotaExceededError, match="full"):
        store(Target(QuotaExceededError("full")))


def test_a_send_says_whether_its_message_was_taken_back() -> None:
    with pytest.raises(RequestTimeoutError) as raised:
        store(Target(), 0.01)
    assert "not sent" not in str(raised.value)
    with pytest.raises(RequestTimeoutError, match="the message was not sent"):
        store(Target(left=False), 0.01)


def test_all_are_waited_for_whatever_becomes_of_them() -> None:
    futures: list[Future[int]] = [Future() for _ in range(3)]
    futures[0].set_exception(ValueError("no"))
    futures[1].cancel()
    threading.Timer(0.05, futures[2].set_result, (1,)).start()
    io = IoThread.shared()
    all_done(io, futures)
    assert futures[2].done()
    never: Future[int] = Future()
    assert (done_within(io, futures[0], 5), done_within(io, never, 0.01)) == (True, False)


def test_who_gives_up_an_answer_cancels_it() -> None:
    async def nothing() -> None:
        """It is sent at once."""

    answer: Future[int] = Future()
    with pytest.raises(TimeoutError):
        answered(IoThread.shared(), nothing(), answer, 0.01)
    assert answer.cancelled()
    known: Future[int] = Future()
    known.set_result(7)
    assert answered(IoThread.shared(), nothing(), known, 5) == 7


class Core:
    """A consumer in which something has come so often as ``come`` says."""

    closed = False

    def __init__(self, come: int) -> None:
        self.come = come
        self._connection = self
        self.clock = self
        self.waits: list[float | None] = []

    def warn_unless_started(self) -> None:
        """It is."""

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()

    def wait(self, left_s: float | None) -> bool:
        self.waits.append(left_s)
        self.come -= 1
        return self.come >= 0


def test_what_another_took_first_is_waited_for_again_within_the_same_time() -> None:
    found = [None, None, "m"]
    core: Any = Core(3)
    assert arrival(core, lambda: found.pop(0), 5) == "m"
    assert core.waits[0] == 5
    assert 5 >= core.waits[1] >= core.waits[2] > 4
    late: Any = Core(1)
    assert arrival(late, lambda: None, 0) is None
    assert len(late.waits) == 1, "the time is over"


def test_nothing_is_taken_from_a_consumer_that_was_closed_meanwhile() -> None:
    core: Any = Core(1)
    core.closed = True
    assert arrival(core, lambda: pytest.fail("it is closed"), None) is None
    silent: Any = Core(0)
    assert arrival(silent, lambda: pytest.fail("nothing came"), 1) is None


class StoppedError(Exception):
    """A handler of a signal raises it."""


def test_what_is_opened_for_a_call_that_a_signal_has_ended_is_let_go() -> None:
    io, go_on, let_go, arrived = IoThread.shared(), threading.Event(), [], threading.Event()

    async def work() -> str:
        while not go_on.is_set():
            if not arrived.is_set():  # One that comes just before the wait begins is seen only after it.
                os.kill(os.getpid(), signal.SIGUSR1)
            await asyncio.sleep(0.01)
        return "opened"

    async def leave(found: str) -> None:
        let_go.append(found)

    def arrive(number: int, frame: object) -> None:
        if not arrived.is_set():
            arrived.set()
            raise StoppedError

    before = signal.signal(signal.SIGUSR1, arrive)
    try:
        with pytest.raises(StoppedError):
            opened(io, work(), leave)
    finally:
        signal.signal(signal.SIGUSR1, before)
        go_on.set()
    until(lambda: let_go == ["opened"])


def test_what_is_opened_is_whoevers_waits_and_a_failure_lets_nothing_go() -> None:
    io, let_go = IoThread.shared(), []

    async def work(error: Exception | None) -> str:
        if error is not None:
            raise error
        return "opened"

    async def leave(found: str) -> None:
        let_go.append(found)

    assert opened(io, work(None), leave) == "opened"
    with pytest.raises(QuotaExceededError):
        opened(io, work(QuotaExceededError("full")), leave)
    assert io.run(work(None)) == "opened"  # What was posted before has been done.
    assert let_go == []
