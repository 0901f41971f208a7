"""The disk worker: what it does, in which order, and what it tells."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

import pytest

from raybroker.hosting.disk_worker import DiskWorker
from raybroker.model.errors import BrokerError, StoreError, StoreFullError


class Loop:
    """Runs what is posted when it is told to."""

    def __init__(self) -> None:
        self.posted: queue.Queue[Callable[[], None]] = queue.Queue()

    def turn(self) -> None:
        self.posted.get(timeout=30)()


@pytest.fixture
def loop() -> Loop:
    return Loop()


def test_jobs_are_done_in_order_in_another_thread_and_told_in_the_loop(loop: Loop) -> None:
    worker = DiskWorker(loop.posted.put)
    told: list[tuple[bytes | None, str]] = []
    where: list[str] = []

    def job(number: int) -> bytes:
        where.append(threading.current_thread().name)
        return b"%d" % number

    for number in range(5):
        worker.run(
            lambda number=number: job(number),  # type: ignore[misc]
            lambda data, error: told.append((data, threading.current_thread().name)),
        )
    for _ in range(5):
        loop.turn()
    assert told == [(b"%d" % number, threading.current_thread().name) for number in range(5)]
    assert set(where) == {"raybroker-bodies"}
    worker.close()


@pytest.mark.parametrize(
    ("raised", "kind"), [(StoreFullError("full"), StoreFullError), (OSError(5, "broken"), StoreError)]
)
def test_whoever_asked_is_told_of_an_error(loop: Loop, raised: Exception, kind: type[BrokerError]) -> None:
    worker = DiskWorker(loop.posted.put)
    told: list[tuple[bytes | None, BrokerError | None]] = []

    def job() -> bytes:
        raise raised

    worker.run(job, lambda data, error: told.append((data, error)))
    worker.run(lambda: b"goes on", lambda data, error: told.append((data, error)))
    loop.turn()
    loop.turn()
    assert told[0][0] is None
    assert type(told[0][1]) is kind
    assert told[1] == (b"goes on", None)
    worker.close()


def test_closing_does_what_waits_and_one_that_never_worked_has_no_thread(loop: Loop) -> None:
    DiskWorker(loop.posted.put).close()
    worker = DiskWorker(loop.posted.put)
    done: list[int] = []
    for number in range(3):
        worker.run(lambda number=number: done.append(number), lambda data, error: None)  # type: ignore[misc]
    worker.close()
    assert done == [0, 1, 2]
