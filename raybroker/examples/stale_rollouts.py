"""Training on rollouts that are never too old, and always whole groups.

Workers generate groups of rollouts, one group for each prompt, with the weights that they have; a slow worker has old
ones.  Each rollout says with which version of the weights it was made.  The trainer takes a group, trains, and
publishes the next version; the queue has ``versionKey=version`` and ``maxStaleness=1``, so that it never sees a group
that is more than one version behind.  A group is a unit of work: it comes as one message, once all of it is there.

    python -m raybroker.examples.stale_rollouts --steps 20 --workers 4
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

import raybroker as rb

GROUP = 4
"""Rollouts of a group."""
BOUND = 1
"""Versions that a group may be behind."""
PATIENCE_S = 60.0
"""How long the trainer waits for a group."""


class RolloutWorker:
    """Generates groups. ``every``: it fetches the weights once in so many steps, and has old ones in between."""

    def __init__(self, producer: Any, number: int) -> None:
        self.every = number + 1
        self.version = 0
        self._producer = producer
        self._number = number

    def generate(self, step: int, version: int) -> None:
        """One group for the prompt of this step; ``version``: of the weights that there are by now."""
        if step % self.every == 0:
            self.version = version
        for sample in range(1, GROUP + 1):
            properties = {
                "version": self.version,
                "JMS_BEA_UnitOfWork": f"worker {self._number}, prompt {step}",
                "JMS_BEA_UnitOfWorkSequenceNumber": sample,
                "JMS_BEA_IsUnitOfWorkEnd": sample == GROUP,
            }
            self._producer.send({"prompt": step, "reward": sample / GROUP}, properties)


def run(connection: Any, steps: int, workers: int) -> dict[str, Any]:
    """Returns what was found."""
    admin, queue = connection.admin(), "rollouts"
    admin.create_destination(
        "queue",
        queue,
        versionKey="version",
        maxStaleness=BOUND,
        unitOfWorkHandlingPolicy="SingleMessageDelivery",
        stalenessPolicy="Discard",
        starvationTime=30_000,
        maxNumMsgs=64 * GROUP * workers,
        limitBehavior="FLOW_CONTROL",
    )
    session = connection.session(ack="client")
    there = [RolloutWorker(session.producer(queue), number) for number in range(workers)]
    trainer = session.consumer(queue, prefetch=0)  # What lies in a buffer is not judged any more.
    version = trained = too_old = broken = 0
    admin.publish_version("queue", queue, version)
    for step in range(steps):
        for worker in there:
            worker.generate(step, version)
        group = trainer.receive(timeout=PATIENCE_S)
        if group is None:
            break
        trained += 1
        too_old += version - group.properties["version"] > BOUND
        broken += len(group.body) != GROUP
        group.acknowledge_this()
        version += 1
        admin.publish_version("queue", queue, version)
    row = admin.query_destination("queue", queue)
    return {"trained": trained, "too_old": too_old, "broken": broken, "stale": row["stale"], "version": row["version"]}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m raybroker.examples.stale_rollouts", description=__doc__)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--workers", type=int, default=4)
    args = parser.parse_args()
    rb.start()
    with rb.connect() as connection:
        found = run(connection, args.steps, args.workers)
    sys.stdout.write(f"{json.dumps(found)}\n")
    return 0 if found["trained"] == args.steps and not found["too_old"] + found["broken"] and found["stale"] else 1


if __name__ == "__main__":
    sys.exit(main())
