"""One call for each message: AUTO acknowledgement, many clients, sends without waiting, memory of such messages.

These are worker functions; :mod:`benchmarks.ratios` takes slices of them.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from time import monotonic_ns
from typing import Any, Final

from benchmarks.ours_connection import PATIENCE_SECONDS, connect
from benchmarks.ours_features import WINDOW, Span
from benchmarks.ours_scale import SETTLE_SECONDS, Found, host_pids, memory_bytes
from benchmarks.peers.base import Address, bodies_of, stream_of

CLIENTS: Final = 64
CLIENT_PROCESSES: Final = 2
ALONE: Final = 50_000
"""Messages between two looks at the memory, sent one at a time each by CLIENTS clients."""
ALONE_LOOKS: Final = 5
"""The memory of a message is the slope over these.  The first look has ALONE messages behind it: what caches, a segment
of the journal and the process itself grow to is not the memory of a message."""


def receive_auto(job: Any, address: Address, queue: str, count: int, size: int) -> Span:
    """receive() of one message after another in an AUTO session; each returns when its acknowledgement is confirmed."""
    with connect(address) as connection:
        with connection.session() as filling:
            filling.producer(filling.queue(queue), persistent=True).send_many(stream_of(size, count))
        session = connection.session(ack="auto")
        consumer = session.consumer(session.queue(queue))
        job.ready()
        began = monotonic_ns()
        for _ in range(count):
            if consumer.receive(timeout=PATIENCE_SECONDS) is None:
                raise TimeoutError("a message did not come")
        return {"began_ns": began, "ended_ns": monotonic_ns()}


def send_of_each(job: Any, address: Address, queue: str, count: int, size: int, clients: int) -> Span:
    """``clients`` connections, a thread each: send, which returns when the store has the message, then the next."""
    with ExitStack() as stack:
        producers = []
        for _ in range(clients):
            session = stack.enter_context(connect(address)).session()
            producers.append(session.producer(session.queue(queue), persistent=True))
        bodies = bodies_of(size)

        def run(number: int) -> None:
            producer = producers[number]
            for turn in range(number, count, clients):
                producer.send(bodies[turn & 63])

        with ThreadPoolExecutor(clients) as pool:
            job.ready()
            began = monotonic_ns()
            for done in [pool.submit(run, number) for number in range(clients)]:
                done.result()
            return {"began_ns": began, "ended_ns": monotonic_ns()}


def send_async(job: Any, address: Address, queue: str, count: int, size: int) -> Span:
    """send_async for each message with at most WINDOW unconfirmed, until the last is confirmed; nobody consumes."""
    with connect(address) as connection:
        session = connection.session()
        producer = session.producer(session.queue(queue), persistent=True)
        bodies, flying = bodies_of(size), deque[Any]()
        job.ready()
        began = monotonic_ns()
        for number in range(count):
            flying.append(producer.send_async(bodies[number & 63]))
            if len(flying) > WINDOW:
                flying.popleft().result()
        while flying:
            flying.popleft().result()
        return {"began_ns": began, "ended_ns": monotonic_ns()}


def purge(job: Any, address: Address, queue: str) -> None:
    """Empties a queue between slices."""
    with connect(address) as connection:
        connection.admin().purge_destination("queue", queue)
    job.ready()


def memory_alone(job: Any, address: Address, count: int, size: int) -> Found:
    """What the host's memory grows by for each message that was sent alone: the slope, and with it the quotient of
    the first look, which has in it what grows once."""
    queue = "bench-alone"
    job.ready()
    with connect(address) as connection:
        before = set(host_pids(address))
        connection.admin().create_destination("queue", queue, hosting="dedicated", consumerFlowLimit=-1)
        steps = list(_memory_steps(address, queue, (CLIENTS, *[count] * ALONE_LOOKS), size, before))
    slope = statistics.linear_regression([count * look for look in range(ALONE_LOOKS)], steps[1:]).slope
    note = (
        f"RSS, slope from {count:,} to {ALONE_LOOKS * count:,} queued, each sent alone by one of {CLIENTS} clients;"
        f" the first {count:,} take {(steps[1] - steps[0]) / count:.0f} each with what grows once"
    )
    return {"memory_alone": (slope, note)}


class _Together:
    """Lets a worker function run inside another one."""

    def ready(self, value: Any = None) -> None:
        """Nobody waits."""


def _memory_steps(address: Address, queue: str, counts: tuple[int, ...], size: int, before: set[int]) -> Iterator[int]:
    for count in counts:
        send_of_each(_Together(), address, queue, count, size, CLIENTS)
        time.sleep(SETTLE_SECONDS)
        hosts = set(host_pids(address)) - before
        if len(hosts) != 1:
            raise RuntimeError(f"the new queue's host was not found among the processes: {len(hosts)} candidates")
        yield memory_bytes(hosts, "rss")
