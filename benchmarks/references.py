"""``python -m benchmarks.references``: bodies by reference, beside what Ray's object store itself takes.

In a Ray and with a broker of its own.  Round by round: ``ray.put`` of an array, its send by reference in a message
that is not persistent and in one that is, and the receive of each by a consumer on the same node that had prefetched
nothing; and what writing so many bytes to a file of the same disk takes, with a sync, since that bounds the
persistent send.

    python -m benchmarks.references --size 100 --rounds 10
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy
import ray

import raybroker as rb

GOAL_PUTS: Final = 2.0
GOAL_RECEIVE_MS: Final = 10.0
PAUSE_S: Final = 0.3
"""Between two steps, until the object store has freed what the one before has left."""
STORE_BYTES: Final = 3 << 30


def timed(action: Callable[[], Any]) -> tuple[float, Any]:
    """(milliseconds, result)."""
    start_ns = time.perf_counter_ns()
    found = action()
    return (time.perf_counter_ns() - start_ns) / 1e6, found


def written(directory: Path, data: Any) -> None:
    """A file with the data, synced."""
    with (directory / "file").open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def measure(connection: rb.Connection, directory: Path, megabytes: int, rounds: int) -> dict[str, list[float]]:
    array = numpy.arange(megabytes * 1_000_000 // 8, dtype=numpy.float64)
    connection.admin().create_destination("queue", "q")
    session = connection.session(ack="client")
    producer, consumer = session.producer("q"), session.consumer("q", prefetch=0)
    found: dict[str, list[float]] = {}
    for number in range(rounds + 1):
        row: dict[str, float] = {}
        row["put"], reference = timed(lambda: ray.put(array))
        del reference
        time.sleep(PAUSE_S)
        for name, persistent in (("plain", False), ("persistent", True)):
            row[f"send, {name}"], _ = timed(
                lambda persistent=persistent: producer.send(rb.ref(array), persistent=persistent)
            )
            time.sleep(PAUSE_S)
            row[f"receive, {name}"], message = timed(lambda: consumer.receive(30))
            assert message.body[-1] == array[-1]
            message.acknowledge()
            del message
            time.sleep(PAUSE_S)
        row["file"], _ = timed(lambda: written(directory, array.data))
        if number:  # The first one starts what others find.
            for name, value in row.items():
                found.setdefault(name, []).append(value)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=100, help="megabytes")
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        os.environ["RAYBROKER_STORE__DIR"] = f"{directory}/store"
        ray.init(num_cpus=2, object_store_memory=STORE_BYTES, include_dashboard=False, logging_level="ERROR")
        cluster = rb.start()
        try:
            with rb.connect() as connection:
                found = measure(connection, Path(directory), options.size, options.rounds)
        finally:
            cluster.stop()
            ray.shutdown()
    middle = {name: statistics.median(values) for name, values in found.items()}
    for name, values in found.items():
        print(f"{name:20} {middle[name]:8.1f} ms  ({min(values):.1f} … {max(values):.1f})")
    puts, receive = middle["send, plain"] / middle["put"], middle["receive, plain"]
    print(f"send ÷ put           {puts:8.2f}     at most {GOAL_PUTS:g}: {'reached' if puts <= GOAL_PUTS else 'missed'}")
    print(
        f"receive              {receive:8.1f} ms  at most {GOAL_RECEIVE_MS:g}:"
        f" {'reached' if receive <= GOAL_RECEIVE_MS else 'missed'}"
    )
    print(f"persistent send ÷ file {middle['send, persistent'] / middle['file']:6.2f}")


if __name__ == "__main__":
    main()
