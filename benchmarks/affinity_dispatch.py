"""Dispatch with affinity beside plain dispatch: the same messages, in alternating slices, in one process.

python -m benchmarks.affinity_dispatch --messages 4000 --slices 6
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from typing import Any

import raybroker as rb

LABELS = ("a", "b", "c", "d")


def one_slice(connection: Any, queue: str, messages: int) -> float:
    """Messages a second that four consumers, each with a label, receive and acknowledge."""
    consumers = [connection.session(ack="client").consumer(queue, prefetch=100, labels=[label]) for label in LABELS]
    producer = connection.session().producer(queue)
    began = time.perf_counter()
    producer.send_many(
        range(messages),
        persistent=False,
        properties=({"model": LABELS[number % len(LABELS)]} for number in range(messages)),
    )
    left = messages
    while left:
        for consumer in consumers:
            batch = consumer.receive_many(100, timeout=0.001)
            if batch:
                batch[-1].acknowledge()
                left -= len(batch)
    took_s = time.perf_counter() - began
    for consumer in consumers:
        consumer.session.close()
    return messages / took_s


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.affinity_dispatch", description=__doc__)
    parser.add_argument("--messages", type=int, default=4_000)
    parser.add_argument("--slices", type=int, default=6)
    args = parser.parse_args()
    rates: dict[str, list[float]] = {"plain": [], "affinity": []}
    with rb.loopback() as connection:
        admin = connection.admin()
        admin.create_destination("queue", "plain")
        admin.create_destination("queue", "affinity", affinityKey="model", affinityWait=60_000)
        for queue in rates:
            one_slice(connection, queue, args.messages)
        for _ in range(args.slices):
            for queue, found in rates.items():
                found.append(one_slice(connection, queue, args.messages))
    middle = {queue: statistics.median(found) for queue, found in rates.items()}
    row = {**{queue: round(rate) for queue, rate in middle.items()}, "ratio": middle["affinity"] / middle["plain"]}
    sys.stdout.write(f"{json.dumps(row)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
