"""Batch inference on spot nodes: a storm of preemptions kills no good work, and a document that is too large goes on.

Documents are handled by actors.  Some actors are taken away while they work, as spot nodes are; some documents need
more memory than a small actor has.  Failures are counted by their cause: those of a node that was taken away have no
limit, and what has run out of memory goes, after the second time, to a queue whose actors are larger.

    python -m raybroker.examples.spot_batch --documents 40
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from typing import Any

import ray

import raybroker as rb

PATIENCE_S = 60.0
"""How long the whole may take."""
LARGE_EVERY = 10
"""So many documents of which one is large."""


class Reader:
    """Reads documents; a small one has no room for those that are large, and is taken away after some calls."""

    def __init__(self, room: int, calls: int) -> None:
        self._room = room
        self._calls = calls

    def read(self, pages: int) -> int:
        self._calls -= 1
        if not self._calls:
            os._exit(1)
        if pages > self._room:
            raise MemoryError(f"{pages} pages, and room for {self._room}")
        return pages


class ReadingRoom:
    """Gives the documents of one queue to an actor, and to a new one when that has gone."""

    def __init__(self, connection: rb.Connection, queue: str, room: int, calls: int) -> None:
        self._actor: Any = ray.remote(num_cpus=0)
        self._room, self._calls = room, calls
        self._model: Any = self._actor(Reader).remote(room, calls)
        self._consumer = connection.session(ack="client").consumer(queue, prefetch=1)
        self.gone = 0

    def go_on(self) -> int | None:
        """The pages of the next document; None when there is none now, or it has failed."""
        message = self._consumer.receive(timeout=0.05)
        if message is None:
            return None
        try:
            pages: int = ray.get(self._model.read.remote(message.body))
        except ray.exceptions.RayActorError:
            # It has ended by itself here; of a node that was taken away Ray says so, and ``reason=error`` would do.
            message.fail(0, cause="preempted")
            self.gone += 1
            self._model = self._actor(Reader).remote(self._room, self._calls)
            return None
        except ray.exceptions.RayTaskError as error:
            message.fail(0, error)
            return None
        message.acknowledge_this()
        return pages


def run(documents: int, calls: int) -> dict[str, Any]:
    """Returns what was found."""
    with rb.connect() as connection:
        admin = connection.admin()
        admin.create_destination("queue", "pages.large", if_exists="keep")
        admin.create_destination(
            "queue",
            "pages",
            if_exists="keep",
            redeliveryLimit=1,
            redeliveryLimitByCause="preempted=-1, oom=1",
            errorDestinationByCause="oom=pages.large",
        )
        connection.session().producer("pages").send_many(
            [100 if number % LARGE_EVERY == 0 else 1 for number in range(documents)]
        )
        small, large = ReadingRoom(connection, "pages", 10, calls), ReadingRoom(connection, "pages.large", 1_000, 1_000)
        until = time.monotonic() + PATIENCE_S
        done: dict[str, int] = {"small": 0, "large": 0}
        while sum(done.values()) < documents and time.monotonic() < until:
            for name, desk in (("small", small), ("large", large)):
                done[name] += desk.go_on() is not None
        dead = admin.query_destination("queue", "mq.sys.dmq")["messages"]
    return {**done, "taken_away": small.gone, "dead": dead}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m raybroker.examples.spot_batch", description=__doc__)
    parser.add_argument("--documents", type=int, default=40)
    parser.add_argument("--calls", type=int, default=7, help="calls after which an actor is taken away")
    args = parser.parse_args()
    rb.start()
    found = run(args.documents, args.calls)
    sys.stdout.write(f"{json.dumps(found)}\n")
    return 0 if found["small"] + found["large"] == args.documents and found["taken_away"] and not found["dead"] else 1


if __name__ == "__main__":
    sys.exit(main())
