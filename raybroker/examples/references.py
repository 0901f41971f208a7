"""Tensors through a durable queue, for workers on the same node that read them without a copy.

A feature extractor sends batches of images and ends, as a spot node would.  Workers that come later read its batches
from Ray's object store, where the broker owns them, and the queue has them on disk.

    python -m raybroker.examples.references --batches 4
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

import numpy
import ray

import raybroker as rb

QUEUE = "batches"
SHAPE = (64, 128, 128, 3)


@ray.remote(num_cpus=0, max_restarts=0)
class Extractor:
    """Sends batches; nothing of it is left when they are worked on."""

    def send(self, batches: int) -> int:
        with rb.connect() as connection:
            producer = connection.session().producer(QUEUE)
            for number in range(batches):
                images = numpy.full(SHAPE, number, dtype=numpy.uint8)
                producer.send(rb.ref({"images": images, "number": number}))
        return batches


@ray.remote(num_cpus=0)
def work(batches: int) -> list[tuple[int, float]]:
    """The mean of each batch. The arrays are views: nobody has copied them for this worker, and it may not write."""
    found: list[tuple[int, float]] = []
    with rb.connect() as connection:
        session = connection.session(ack="client")
        consumer = session.consumer(QUEUE)
        while len(found) < batches and (message := consumer.receive(60)) is not None:
            body = message.body
            found.append((body["number"], float(body["images"].mean())))
            message.acknowledge()
    return found


def run(batches: int) -> dict[str, Any]:
    """The example, in the Ray and with the brokers that are there; what it has found."""
    with rb.connect() as connection:
        connection.admin().create_destination("queue", QUEUE, if_exists="keep")
    extractor = Extractor.remote()  # type: ignore[attr-defined]  # the decorator is not typed
    sent = ray.get(extractor.send.remote(batches))
    ray.kill(extractor)
    found = ray.get(work.remote(batches))
    right = [(number, float(number)) for number in range(batches)]
    return {"sent": sent, "received": len(found), "right": sorted(found) == right}


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=4)
    options = parser.parse_args(given)
    cluster = rb.start()
    try:
        found = run(options.batches)
    finally:
        cluster.stop()
        ray.shutdown()
    sys.stdout.write(f"{json.dumps(found)}\n")
    return 0 if found["right"] else 1


if __name__ == "__main__":
    sys.exit(main())
