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
from ray.cluster_utils import Cluster
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

import raybroker as rb

GOAL_PUTS: Final = 2.0
GOAL_RECEIVE_MS: Final = 10.0
PAUSE_S: Final = 0.3
"""Between two steps, until the object store has freed what the one before has left."""
STORE_BYTES: Final = 1 << 30


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


class Receiver:
    """Receives in another process, on another node; milliseconds."""

    def __init__(self) -> None:
        self._connection = rb.connect()
        self._connection.start()
        self._consumer = self._connection.session(ack="client").consumer("q", prefetch=0)

    def receive(self) -> float:
        took, message = timed(lambda: self._consumer.receive(30))
        assert message.body.nbytes
        message.acknowledge()
        return took

    def get(self, references: list[Any]) -> float:
        return timed(lambda: ray.get(references[0]))[0]


def measure(
    connection: rb.Connection, directory: Path, megabytes: int, rounds: int, elsewhere: Any
) -> dict[str, list[float]]:
    array = numpy.arange(megabytes * 1_000_000 // 8, dtype=numpy.float64)
    session = connection.session(ack="client")
    producer = session.producer("q")
    consumer = session.consumer("q", prefetch=0) if elsewhere is None else None
    found: dict[str, list[float]] = {}
    for number in range(rounds + 1):
        row: dict[str, float] = {}
        row["put"], reference = timed(lambda: ray.put(array))
        if elsewhere is not None:
            row["get"] = ray.get(elsewhere.get.remote([reference]))
        del reference
        time.sleep(PAUSE_S)
        for name, persistent in (("plain", False), ("persistent", True)):
            row[f"send, {name}"], _ = timed(
                lambda persistent=persistent: producer.send(rb.ref(array), persistent=persistent)
            )
            time.sleep(PAUSE_S)
            if consumer is None:
                row[f"receive, {name}"] = ray.get(elsewhere.receive.remote())
            else:
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
    parser.add_argument("--elsewhere", action="store_true", help="receive on another node")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        os.environ["RAYBROKER_STORE__DIR"] = f"{directory}/store"
        common = {"num_cpus": 2, "object_store_memory": STORE_BYTES, "include_dashboard": False}
        nodes = Cluster(initialize_head=True, head_node_args=common) if options.elsewhere else None
        if nodes is None:
            ray.init(logging_level="ERROR", **common)
        else:
            ray.init(address=nodes.address, logging_level="ERROR")
        cluster = rb.start()
        try:
            with rb.connect() as connection:
                connection.admin().create_destination("queue", "q")
                elsewhere = None
                if nodes is not None:
                    node = nodes.add_node(wait=True, **common)
                    there = NodeAffinitySchedulingStrategy(node.node_id, soft=False)
                    elsewhere = ray.remote(Receiver).options(num_cpus=0, scheduling_strategy=there).remote()
                found = measure(connection, Path(directory), options.size, options.rounds, elsewhere)
        finally:
            cluster.stop()
            ray.shutdown()
            if nodes is not None:
                nodes.shutdown()
    middle = {name: statistics.median(values) for name, values in found.items()}
    for name, values in found.items():
        print(f"{name:20} {middle[name]:8.1f} ms  ({min(values):.1f} … {max(values):.1f})")
    puts, receive = middle["send, plain"] / middle["put"], middle["receive, plain"]
    print(
        f"send ÷ put             {puts:6.2f}     at most {GOAL_PUTS:g}: {'reached' if puts <= GOAL_PUTS else 'missed'}"
    )
    if options.elsewhere:
        print(f"receive ÷ get          {receive / middle['get']:6.2f}")
    else:
        word = "reached" if receive <= GOAL_RECEIVE_MS else "missed"
        print(f"receive                {receive:6.1f} ms  at most {GOAL_RECEIVE_MS:g}: {word}")
    print(f"persistent send ÷ file {middle['send, persistent'] / middle['file']:6.2f}")


if __name__ == "__main__":
    main()
