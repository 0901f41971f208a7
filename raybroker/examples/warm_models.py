"""Requests for several models, on workers that have one loaded: each goes to a worker that has its model.

A worker that gets a request for another model has to load that, which takes longer than the answer.  The queue has
``affinityKey=model``: a request waits up to ``affinityWait`` for a worker that says that it has the model, and then
goes to anybody, so that a model whose worker is lost is answered as well.  The same requests without that are the
comparison.

    python -m raybroker.examples.warm_models --requests 300 --models 4
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

import raybroker as rb

PATIENCE_S = 60.0
"""How long the whole may take."""


class ModelWorker:
    """Has one model at a time. ``loads``: how often it had to load one."""

    def __init__(self, connection: Any, queue: str, model: str) -> None:
        self.model = model
        self.loads = 0
        self._consumer = connection.session(ack="client").consumer(queue, prefetch=1, labels=[model])

    def answer(self) -> bool:
        """Answer one request, if there is one for it."""
        message = self._consumer.receive_nowait()
        if message is None:
            return False
        if message.properties["model"] != self.model:
            self.model = message.properties["model"]
            self.loads += 1
        message.acknowledge_this()
        return True


def serve(connection: Any, queue: str, requests: int, models: int) -> tuple[int, int]:
    """Answers all requests; returns how many these were, and how often a model was loaded."""
    names = [f"model-{number}" for number in range(models)]
    workers = [ModelWorker(connection, queue, name) for name in names]
    producer = connection.session().producer(queue)
    for number in range(requests):
        producer.send(number, {"model": names[number * 7 // 3 % models]}, persistent=False)
    answered, until = 0, time.monotonic() + PATIENCE_S
    while answered < requests and time.monotonic() < until:
        answered += sum(worker.answer() for worker in workers)
    return answered, sum(worker.loads for worker in workers)


def run(connection: Any, requests: int, models: int) -> dict[str, Any]:
    """Returns what was found."""
    admin = connection.admin()
    admin.create_destination("queue", "warm", if_exists="keep", affinityKey="model", affinityWait=30_000)
    admin.create_destination("queue", "any", if_exists="keep")
    answered, with_affinity = serve(connection, "warm", requests, models)
    _, without = serve(connection, "any", requests, models)
    return {"answered": answered, "with": with_affinity, "without": without}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m raybroker.examples.warm_models", description=__doc__)
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--models", type=int, default=4)
    args = parser.parse_args()
    rb.start()
    with rb.connect() as connection:
        found = run(connection, args.requests, args.models)
    sys.stdout.write(f"{json.dumps(found)}\n")
    return 0 if found["answered"] == args.requests and found["with"] < found["without"] else 1


if __name__ == "__main__":
    sys.exit(main())
