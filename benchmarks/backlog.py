"""``python -m benchmarks.backlog``: memory, disk and time that a long queue takes, in one process with its broker.

    paging      non-persistent messages beyond the message buffer: their bodies are paged, and come back in order
    plain       persistent messages, alike
    selector    … with a property each, and a consumer whose selector wants the last of them
    units       … of 1,000 units of order
    priorities  … of ten priorities, mixed

Messages are sent in blocks.  Memory is what the process grew by, client and caches included, so a host of its own needs
less.  Stored messages are then opened by a new process: ``restart`` is the time until its consumer has the first one,
``restart_cpu`` its processor time, and ``read_mb`` what came from the disk and not from the kernel's memory (``--cold``
makes it forget the store before).  ``--drain`` receives everything after that and compacts the store.

Disk is what the files of the store have allocated, as a part of what the bodies are: ``disk`` when all is sent,
``disk_idle`` when nothing was sent for some seconds, ``disk_drained`` when everything was received and compacted.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import monotonic, process_time, sleep
from typing import Any, Final

KINDS: Final = ("paging", "plain", "selector", "units", "priorities")
CHUNK: Final = 10_000
UNITS: Final = 1_000
PATIENCE_S: Final = 300.0
MB: Final = 1e6
SELECTOR: Final = "last = TRUE"
QUEUE: Final = "backlog"
IDLE_S: Final = 25.0
"""After so long a store has given back what it had for sending fast."""


def memory_bytes() -> int:
    """Resident memory of this process."""
    import psutil

    return int(psutil.Process().memory_info().rss)


def disk_bytes(folder: Path) -> int:
    """What the files of a store have allocated."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


def read_bytes() -> int:
    """What this process has read from the disk."""
    import psutil

    return int(psutil.Process().io_counters().read_bytes)


def forget(folder: Path) -> None:
    """Have the kernel forget what is in the files of a store."""
    for path in folder.rglob("*"):
        if path.is_file():
            fd = os.open(path, os.O_RDONLY)
            try:
                os.fdatasync(fd)
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)


def opened(folder: Path) -> Any:
    import raybroker as rb

    return rb.loopback(folder / "store")


def options(kind: str, first: int, count: int, last: int) -> dict[str, Any]:
    """What ``send_many`` is given beside the bodies of messages ``first …``, of which ``last`` is the last of all."""
    numbers = range(first, first + count)
    if kind == "selector":
        return {"properties": [{"last": n == last} for n in numbers]}
    if kind == "units":
        return {"unit_of_order": [f"unit-{n % UNITS}" for n in numbers]}
    return {"priority": [n * 7 % 10 for n in numbers]} if kind == "priorities" else {}


def fill(folder: Path, kind: str, messages: int, size: int, rate: int) -> dict[str, float]:
    """Send all messages, at most ``rate`` a second (0: as fast as it goes); of what is paged, receive them again."""
    with opened(folder) as connection:
        admin = connection.admin()
        admin.create_destination("queue", QUEUE, maxNumMsgs=-1, maxTotalMsgBytes=-1, consumerFlowLimit=2 * CHUNK)
        before = memory_bytes()
        producer = connection.session().producer(QUEUE, persistent=kind != "paging")
        rest = b"x" * max(size - 8, 0)
        began, used, most = monotonic(), process_time(), before
        for first in range(0, messages, CHUNK):
            count = min(CHUNK, messages - first)
            bodies = [n.to_bytes(8, "little") + rest for n in range(first, first + count)]
            producer.send_many(bodies, **options(kind, first, count, messages - 1))
            most = max(most, memory_bytes())
            if rate:
                sleep(max(began + (first + count) / rate - monotonic(), 0))
        found = {"sent_s": monotonic() - began, "sent_cpu_s": process_time() - used}
        found["memory_mb"] = (memory_bytes() - before) / MB
        host = admin.query_broker()["hosts"][0]
        found["paged_mb"] = host.get("paged_bytes", 0) / MB
        if kind == "paging":
            found |= drained(connection, messages)
        found["peak_mb"] = (max(most, found.pop("most", 0)) - before) / MB
        if kind != "paging":
            found["disk"] = disk_bytes(folder) / (messages * size)
            sleep(IDLE_S)
            found["disk_idle"] = disk_bytes(folder) / (messages * size)
    return found


def drained(connection: Any, messages: int, first: int = 0) -> dict[str, float]:
    """Receive everything, from a message on, and check the order."""
    consumer = connection.session(ack="client").consumer(QUEUE, prefetch=2 * CHUNK)
    began, got, most = monotonic(), first, 0
    while got < messages:
        batch = consumer.receive_many(max=CHUNK, timeout=PATIENCE_S)
        for message in batch:
            if int.from_bytes(message.body[:8], "little") != got:
                raise RuntimeError(f"message {got} did not come in its order")
            got += 1
        if not batch:
            raise TimeoutError(f"{got} of {messages} messages came")
        batch[-1].acknowledge()
        most = max(most, memory_bytes())
    return {"received_s": monotonic() - began, "most": most}


def restart(folder: Path, kind: str, messages: int, size: int) -> dict[str, float]:
    """Open the store and receive one message."""
    import raybroker as rb

    with rb.loopback():  # What is imported and made once is not counted.
        before = memory_bytes()
    began, used, read = monotonic(), process_time(), read_bytes()
    with opened(folder) as connection:
        found = {"open_s": monotonic() - began, "opened_mb": (memory_bytes() - before) / MB}
        consumer = connection.session().consumer(QUEUE, selector=SELECTOR if kind == "selector" else None, prefetch=100)
        if consumer.receive(timeout=PATIENCE_S) is None:
            raise TimeoutError("nothing came after the restart")
        found |= {"restart_s": monotonic() - began, "served_mb": (memory_bytes() - before) / MB}
        found |= {"restart_cpu_s": process_time() - used, "read_mb": (read_bytes() - read) / MB}
    return found


def drain(folder: Path, messages: int, size: int) -> dict[str, float]:
    """Receive everything that is left after ``restart``, compact the store, and see what is left of it."""
    with opened(folder) as connection:
        found = drained(connection, messages, 1)
        del found["most"]
        admin = connection.admin()
        admin.pause_destination("queue", QUEUE)
        admin.compact_destination("queue", QUEUE)
        found["disk_drained"] = disk_bytes(folder) / (messages * size)
    return found


def _child(work: Callable[..., dict[str, float]], pipe: Any, *args: Any) -> None:
    try:
        pipe.send(work(*args))
    finally:
        pipe.close()


def alone(work: Callable[..., dict[str, float]], *args: Any) -> dict[str, float]:
    """``work`` in a new process."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(work, theirs, *args))
    process.start()
    theirs.close()
    try:
        found: dict[str, float] = ours.recv()
        return found
    finally:
        process.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=1024, help="bytes of a body")
    parser.add_argument("--rate", type=int, default=0, help="messages a second that are sent; 0: as many as go")
    parser.add_argument("--cold", action="store_true", help="read the store from the disk at the restart")
    parser.add_argument("--drain", action="store_true", help="of plain messages, receive everything at the end")
    parser.add_argument("--folder", type=Path, default=None, help="where stores and paging files are made")
    given = parser.parse_args()
    for kind in given.kinds:
        with tempfile.TemporaryDirectory(prefix="rbb", dir=given.folder) as folder:
            args = (Path(folder), kind, given.messages, given.size)
            found = alone(fill, *args, given.rate)
            if kind != "paging":
                if given.cold:
                    forget(Path(folder))
                found |= alone(restart, *args)
            if given.drain and kind == "plain":
                found |= alone(drain, Path(folder), given.messages, given.size)
        print(json.dumps({"kind": kind, **{name: round(value, 2) for name, value in found.items()}}), flush=True)


if __name__ == "__main__":
    main()
