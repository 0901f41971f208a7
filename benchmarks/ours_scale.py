"""What raybroker costs in memory and time: receive from a buffer, backlog, restart, idle queues.

Each function runs in a worker process and returns {figure: (value, note)}.  Memory is read from the processes of the
hosts, found by :func:`host_pids`.
"""

from __future__ import annotations

import itertools
import os
import signal
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from benchmarks.peers.base import Address, stream_of
from benchmarks.readings import Amounts

Found = dict[str, tuple[float, str]]

HOST_TITLES: Final = ("ray::DestinationHost", "raybroker")
SMALL_BACKLOG: Final = 1_000
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
    from benchmarks.ours import connect

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
            time.sleep(SETTLE_SECONDS)
            per_call[ack] = statistics.median(_chunk_us(consumer.receive) for _ in range(count // CHUNK - 5))
            session.close()
    return {"receive": (per_call["client"], f"client ack; {per_call['auto']:.2f} µs with auto ack")}


def _chunk_us(call: Callable[..., Any]) -> float:
    began = time.perf_counter_ns()
    for _ in range(CHUNK):
        call(timeout=PATIENCE_SECONDS)
    return (time.perf_counter_ns() - began) / CHUNK / 1e3


def large(job: Any, address: Address, amounts: Amounts) -> Found:
    """Memory, cost and restart time with a large backlog in one queue."""
    job.ready()
    found: Found = {}
    few, many, size = SMALL_BACKLOG, amounts.backlog, amounts.size_bytes
    with _connected(address) as connection:
        admin = connection.admin()
        admin.create_destination("queue", "bench-few", hosting="dedicated", maxNumMsgs=-1, maxTotalMsgBytes=-1)
        _fill(connection, "bench-few", few, size)
        small_seconds = _through(connection, "bench-few", amounts)

        before = set(host_pids(address))
        admin.create_destination("queue", "bench-many", hosting="dedicated", maxNumMsgs=-1, maxTotalMsgBytes=-1)
        _fill(connection, "bench-many", CHUNK, size)
        host = set(host_pids(address)) - before
        if len(host) != 1:
            raise RuntimeError(f"the new queue's host was not found among the processes: {len(host)} candidates")
        rss, uss = memory_bytes(host, "rss"), memory_bytes(host, "uss")
        _fill(connection, "bench-many", many - CHUNK, size)
        time.sleep(SETTLE_SECONDS)
        grown = (memory_bytes(host, "rss") - rss) / (many - CHUNK)
        own = (memory_bytes(host, "uss") - uss) / (many - CHUNK)
        found["memory"] = (grown, f"RSS, {many:,} messages sent in batches; USS {own:.1f} bytes")

        large_seconds = _through(connection, "bench-many", amounts)
        found["backlog"] = (large_seconds / small_seconds, f"{many:,} against {few:,}, produce and consume at once")

        session = connection.session(ack="client")
        queue = session.queue("bench-many")
        began = time.monotonic_ns()
        os.kill(host.pop(), signal.SIGKILL)
        first = session.consumer(queue, prefetch=CHUNK).receive(timeout=PATIENCE_SECONDS)
        if first is None:
            raise TimeoutError("nothing came after the restart")
        found["restart"] = ((time.monotonic_ns() - began) / 1e9, f"{many:,} messages stored")
    return found


def _through(connection: Any, queue: str, amounts: Amounts) -> float:
    """Seconds to send and to consume ``amounts.messages`` at once on a queue that has a backlog."""
    count = amounts.messages
    failed: list[Exception] = []

    def send() -> None:
        try:
            _fill(connection, queue, count, amounts.size_bytes)
        except Exception as error:  # noqa: BLE001 - raised again below, in the thread that waits
            failed.append(error)

    session = connection.session(ack="client")
    consumer = session.consumer(session.queue(queue), prefetch=10 * CHUNK)
    sender = threading.Thread(target=send)
    began, got = time.monotonic_ns(), 0
    sender.start()
    while got < count:
        messages = consumer.receive_many(max=CHUNK, timeout=PATIENCE_SECONDS)
        if not messages:
            raise TimeoutError(f"{got} of {count} messages came")
        got += len(messages)
        messages[-1].acknowledge()
    sender.join()
    if failed:
        raise failed[0]
    lasted = (time.monotonic_ns() - began) / 1e9
    session.close()
    return lasted


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
