"""What raybroker costs in memory and time: receive from a buffer, backlog, restart, idle queues.

Each function runs in a worker process and returns {figure: (value, note)}.  Memory is read from the processes of the
hosts, found by :func:`host_pids`.
"""

from __future__ import annotations

import itertools
import os
import signal
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from benchmarks.ours_connection import connect
from benchmarks.peers.base import Address, stream_of
from benchmarks.readings import Amounts

Found = dict[str, tuple[float, str]]

HOST_TITLES: Final = ("ray::DestinationHost", "raybroker")
STEP: Final = 500
SHARED_QUEUES: Final = 200
CHUNK: Final = 1_000
SETTLE_SECONDS: Final = 2.0
PATIENCE_SECONDS: Final = 60.0


def host_pids(address: Address) -> dict[int, str]:
    """Process id → command line of the destination hosts, among all descendants of the harness."""
    import psutil

    found: dict[int, str] = {}
    for process in psutil.Process(address["root"]).children(recursive=True):
        try:
            title = " ".join(process.cmdline())
        except psutil.Error:
            continue
        if title.startswith(HOST_TITLES):
            found[process.pid] = title
    return found


def memory_bytes(pids: Iterator[int] | set[int], kind: str) -> int:
    """Sum over the processes of one field of psutil's ``memory_full_info``: "rss" or "uss"."""
    import psutil

    return sum(int(getattr(psutil.Process(pid).memory_full_info(), kind)) for pid in pids)


@contextmanager
def _connected(address: Address) -> Iterator[Any]:
    with connect(address) as connection:
        yield connection


def _fill(connection: Any, queue: str, count: int, size: int) -> None:
    session = connection.session()
    producer = session.producer(session.queue(queue), persistent=True)
    bodies = stream_of(size, count)
    for first in range(0, count, 10 * CHUNK):
        producer.send_many(list(itertools.islice(bodies, min(10 * CHUNK, count - first))))


def receive(job: Any, address: Address, amounts: Amounts) -> Found:
    """Microseconds of one ``receive()`` while the buffer holds messages; median over chunks of 1000 calls."""
    count = 20 * CHUNK
    job.ready()
    per_call = {}
    with _connected(address) as connection:
        for ack in ("client", "auto"):
            queue = f"bench-receive-{ack}"
            connection.admin().create_destination("queue", queue, hosting="dedicated", consumerFlowLimit=count)
            _fill(connection, queue, count, amounts.size_bytes)
            session = connection.session(ack=ack)
            consumer = session.consumer(session.queue(queue), prefetch=count)
            _wait_for_buffer(consumer, count)
            per_call[ack] = statistics.median(_chunk_us(consumer.receive) for _ in range(count // CHUNK - 5))
            session.close()
    return {"receive": (per_call["client"], f"client ack; {per_call['auto']:.2f} µs with auto ack")}


def _wait_for_buffer(consumer: Any, count: int) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (buffered := consumer.info()["buffered"]) < count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{buffered} of {count} messages were buffered")
        time.sleep(0.01)


def _chunk_us(call: Callable[..., Any]) -> float:
    began = time.perf_counter_ns()
    for _ in range(CHUNK):
        call(timeout=PATIENCE_SECONDS)
    return (time.perf_counter_ns() - began) / CHUNK / 1e3


def _host_of_new_queue(connection: Any, address: Address, queue: str, size: int) -> int:
    """Creates a queue without limits in a dedicated host and gives the process of that host."""
    before = set(host_pids(address))
    unlimited = {"maxNumMsgs": -1, "maxTotalMsgBytes": -1}
    connection.admin().create_destination("queue", queue, hosting="dedicated", **unlimited)
    _fill(connection, queue, CHUNK, size)
    time.sleep(SETTLE_SECONDS)
    added = set(host_pids(address)) - before
    if len(added) != 1:
        raise RuntimeError(f"the new queue's host was not found among the processes: {len(added)} candidates")
    return added.pop()


def large(job: Any, address: Address, amounts: Amounts) -> Found:
    """Memory, cost and restart time with a large backlog in one queue.

    Memory is what the host grew by since its first 1000 messages, over all others: caches and buffers are in it, though
    they have their limits.  The note has the slope of the last nine tenths, which is what each further message takes.
    """
    job.ready()
    found: Found = {}
    many, size = amounts.backlog, amounts.size_bytes
    with _connected(address) as connection:
        few_host = _host_of_new_queue(connection, address, "bench-few", size)
        few = _steady(connection, "bench-few", few_host, amounts)

        host = _host_of_new_queue(connection, address, "bench-many", size)
        rss, tenth = [memory_bytes({host}, "rss")], many // 10
        for count in (tenth - CHUNK, many - tenth):
            _fill(connection, "bench-many", count, size)
            time.sleep(SETTLE_SECONDS)
            rss.append(memory_bytes({host}, "rss"))
        slope = (rss[2] - rss[1]) / (many - tenth)
        note = f"RSS, {many:,} queued, sent in batches; the last nine tenths {slope:.1f} bytes each"
        found["memory"] = ((rss[2] - rss[0]) / (many - CHUNK), note)

        large = _steady(connection, "bench-many", host, amounts)
        cost = f"{large[0]:.2f} and {few[0]:.2f} µs, of the host's CPU {large[1]:.2f} and {few[1]:.2f} µs"
        note = f"{many:,} against {CHUNK:,}: {cost}"
        found["backlog"] = (large[0] / few[0], note)

        session = connection.session(ack="client")
        queue = session.queue("bench-many")
        began = time.monotonic_ns()
        os.kill(host, signal.SIGKILL)
        first = session.consumer(queue, prefetch=CHUNK).receive(timeout=PATIENCE_SECONDS)
        if first is None:
            raise TimeoutError("nothing came after the restart")
        found["restart"] = ((time.monotonic_ns() - began) / 1e9, f"{many:,} messages stored")
    return found


def _steady(connection: Any, queue: str, host: int, amounts: Amounts) -> tuple[float, float]:
    """Microseconds, and microseconds of the host's CPU, that a message costs while the backlog stays as it is.

    One thread sends STEP messages, then takes and acknowledges STEP, again and again, so that neither ever waits for
    the other: then a small and a large backlog differ in nothing but their size.  Median of three runs.
    """
    import psutil

    process = psutil.Process(host)
    session = connection.session(ack="client")
    destination = session.queue(queue)
    producer = session.producer(destination, persistent=True)
    consumer = session.consumer(destination, prefetch=STEP)
    bodies = list(stream_of(amounts.size_bytes, STEP))
    wall, cpu = [], []
    for _ in range(3):
        steps = amounts.messages // STEP
        began, used = time.monotonic_ns(), sum(process.cpu_times()[:2])
        for _step in range(steps):
            producer.send_many(bodies)
            left = STEP
            while left:
                messages = consumer.receive_many(max=left, timeout=PATIENCE_SECONDS)
                if not messages:
                    raise TimeoutError(f"{left} of {STEP} messages did not come")
                left -= len(messages)
                messages[-1].acknowledge()
        wall.append((time.monotonic_ns() - began) / 1e3 / steps / STEP)
        cpu.append((sum(process.cpu_times()[:2]) - used) * 1e6 / steps / STEP)
    session.close()
    return statistics.median(wall), statistics.median(cpu)


def idle(job: Any, address: Address, amounts: Amounts) -> Found:
    """What an idle dedicated host weighs, what an idle queue in a shared host adds, and how long creating it takes."""
    job.ready()
    with _connected(address) as connection:
        admin = connection.admin()
        before = set(host_pids(address))
        admin.create_destination("queue", "bench-idle", hosting="dedicated")
        _fill(connection, "bench-idle", 1, amounts.size_bytes)
        time.sleep(SETTLE_SECONDS)
        added = set(host_pids(address)) - before
        if not added:
            raise RuntimeError("the new queue's host was not found among the processes")
        host = memory_bytes(added, "uss") / len(added) / 1e6

        admin.create_destination("queue", "bench-shared-0", hosting="shared")
        time.sleep(SETTLE_SECONDS)
        hosts = set(host_pids(address))
        uss = memory_bytes(hosts, "uss")
        took = []
        for number in range(1, SHARED_QUEUES + 1):
            began = time.perf_counter_ns()
            admin.create_destination("queue", f"bench-shared-{number}", hosting="shared")
            took.append((time.perf_counter_ns() - began) / 1e6)
        time.sleep(SETTLE_SECONDS)
        hosts_after = set(host_pids(address))
        each = (memory_bytes(hosts_after, "uss") - uss) / SHARED_QUEUES / 1e3
    took.sort()
    slow = took[int(len(took) * 0.99)]
    return {
        "host": (host, "USS"),
        "queue": (each, f"USS of all hosts, {SHARED_QUEUES} queues, {len(hosts_after) - len(hosts)} hosts added"),
        "create": (statistics.median(took), f"{SHARED_QUEUES} queues, p99 {slow:.1f} ms"),
    }


FIGURES: Final[dict[tuple[str, ...], Callable[..., Found]]] = {
    ("receive",): receive,
    ("memory", "backlog", "restart"): large,
    ("host", "queue", "create"): idle,
}
