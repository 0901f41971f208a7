"""A producer, consumer or pipeline of the kill tests, in a process of its own that may be killed at any moment.

    python -m tests.cluster.kill_worker ROLE NUMBER ADDRESS CLUSTER QUEUE FOLDER [HOMES]

HOMES names the one broker to be at, or several with commas, the first that runs.  A pipeline takes from the queue and
puts into QUEUE.out in one transaction; a consumer of QUEUE.out reads what comes of it.

What happens is appended to a file, one line in one write, before or after it happens: a killed process leaves whole
lines, and what it did not write down is unknown.  Lines: a letter, a time of the monotonic clock, values.

    i  sending begins      o  acknowledged      x  refused or unknown
    d  delivered: value/attempt ...             a  acknowledged      u  acknowledgement unknown
    c  committed           r  rolled back or unknown
"""

from __future__ import annotations

import faulthandler
import logging
import os
import signal
import sys
import time
from collections.abc import Iterable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

SEQ_BITS = 32
BATCH = 40
PAUSE_S = 0.03
"""A long run is about what is killed meanwhile: what was sent has to be drained and judged too."""


class Notes:
    """The file of one worker."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def line(self, letter: str, values: Iterable[object]) -> None:
        text = f"{letter} {time.monotonic_ns()} {' '.join(map(str, values))}\n"
        assert os.write(self._fd, text.encode()) == len(text.encode())


def produce(connection: Any, queue: str, number: int, notes: Notes, stop: Path) -> None:
    """Send runs of values, in turn with send_many and send_async, until the stop file is there."""
    from raybroker.errors import BrokerError

    producer = connection.session().producer(queue)
    value = number << SEQ_BITS
    while not stop.exists():
        values = list(range(value, value + BATCH))
        value += BATCH
        notes.line("i", values)
        try:
            producer.send_many(values[: BATCH // 2])
            notes.line("o", values[: BATCH // 2])
        except BrokerError as error:
            notes.line("x", [repr(error).replace(" ", "_")])
        _send_one_by_one(producer, values[BATCH // 2 :], notes)
        time.sleep(PAUSE_S)
    producer.close()


def _send_one_by_one(producer: Any, values: list[int], notes: Notes) -> None:
    from raybroker.errors import BrokerError

    def note(value: int, future: Future[str]) -> None:
        error = future.exception()
        notes.line("o" if error is None else "x", [value if error is None else repr(error).replace(" ", "_")])

    try:
        for value in values:
            producer.send_async(value).add_done_callback(lambda future, value=value: note(value, future))
    except BrokerError as error:
        notes.line("x", [repr(error).replace(" ", "_")])


def explain(consumer: Any) -> None:
    """At SIGUSR1, say where the consumer has members and what each was granted, and where the threads are."""

    def say(*_: object) -> None:
        core = consumer._core
        print(core.info(), flush=True)
        for place, member in getattr(core, "members", {}).items():
            share = member.share
            state = {name: getattr(share, name) for name in share.__slots__ if name != "credit_pool"}
            print(
                f"  {place}: attached {member.attached}, wants {share in share.credit_pool.wanting}, {state}",
                flush=True,
            )

    signal.signal(signal.SIGUSR1, say)
    faulthandler.register(signal.SIGUSR1, chain=True)


def consume(connection: Any, queue: str, notes: Notes, stop: Path) -> None:
    """Write down what comes, then acknowledge it, until the stop file is there."""
    from raybroker.errors import BrokerError

    consumer = connection.session(ack="client").consumer(queue, prefetch=200)
    explain(consumer)
    while not stop.exists():
        messages = consumer.receive_many(50, timeout=0.1)
        if not messages:
            continue
        values = [m.body for m in messages]
        notes.line("d", [f"{m.body}/{m.delivery_count}" for m in messages])
        try:
            messages[-1].acknowledge()
            notes.line("a", values)
        except BrokerError as error:
            notes.line("u", [repr(error).replace(" ", "_")])


def pipe(connection: Any, queue: str, notes: Notes, stop: Path) -> None:
    """Move messages from one queue to the next, each exactly once, until the stop file is there."""
    from raybroker.errors import BrokerError

    session = connection.session(transacted=True)
    consumer, producer = session.consumer(queue, prefetch=100), session.producer(queue + ".out")
    explain(consumer)
    while not stop.exists():
        try:
            messages = consumer.receive_many(20, timeout=0.1)
            for message in messages:
                producer.send(message.body)
            if messages:
                session.commit()
                notes.line("c", [len(messages)])
        except BrokerError as error:
            notes.line("r", [repr(error).replace(" ", "_")])
            session.rollback()


def attributes(homes: str) -> dict[str, Any]:
    """How to connect to one of these brokers; a broker of a node that has to come back is waited for."""
    found: dict[str, Any] = {"raybroker.reconnect.timeout_ms": 60_000, "imqReconnectInterval": 200}
    if "," in homes:
        found["imqAddressList"] = homes
    elif homes:
        found["broker"] = homes
    return found


def main(arguments: list[str]) -> int:
    role, number, address, cluster, queue, folder, homes = [*arguments, ""][:7]
    import ray

    import raybroker as rb

    faulthandler.register(signal.SIGUSR1)
    ray.init(address=address, namespace="tests", log_to_driver=False, logging_level=logging.ERROR)
    notes = Notes(Path(folder) / f"{role}.{number}")
    with rb.connect(cluster=cluster, **attributes(homes)) as connection:
        notes.line("s", [os.getpid()])
        if role == "producer":
            produce(connection, queue, int(number), notes, Path(folder) / "stop-producers")
        elif role == "pipeline":
            pipe(connection, queue, notes, Path(folder) / "stop-pipelines")
        else:
            consume(connection, queue, notes, Path(folder) / "stop-consumers")
    notes.line("e", [])
    ray.shutdown()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
