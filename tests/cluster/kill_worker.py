"""A producer or consumer of the kill test, in a process of its own that may be killed at any moment.

What happens is appended to a file, one line in one write, before or after it happens: a killed process leaves whole
lines, and what it did not write down is unknown.  Lines: a letter, a time of the monotonic clock, values.

    i  sending begins      o  acknowledged      x  refused or unknown
    d  delivered: value/attempt ...             a  acknowledged      u  acknowledgement unknown
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
PAUSE_S = 0.01


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


def consume(connection: Any, queue: str, notes: Notes, stop: Path) -> None:
    """Write down what comes, then acknowledge it, until the stop file is there."""
    from raybroker.errors import BrokerError

    consumer = connection.session(ack="client").consumer(queue, prefetch=200)
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


def main(arguments: list[str]) -> int:
    role, number, address, cluster, queue, folder = arguments
    import ray

    import raybroker as rb

    faulthandler.register(signal.SIGUSR1)
    ray.init(address=address, namespace="tests", log_to_driver=False, logging_level=logging.ERROR)
    notes = Notes(Path(folder) / f"{role}.{number}")
    with rb.connect(cluster=cluster) as connection:
        notes.line("s", [os.getpid()])
        if role == "producer":
            produce(connection, queue, int(number), notes, Path(folder) / "stop-producers")
        else:
            consume(connection, queue, notes, Path(folder) / "stop-consumers")
    notes.line("e", [])
    ray.shutdown()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
