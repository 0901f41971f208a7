"""Rollouts that take long, on workers that are killed: each goes on where the worker before has stopped.

A message is a rollout of many steps.  After each step the worker says how far it is, as the checkpoint of the message.
When a worker dies its message comes again at once, with that checkpoint, and the next worker does not begin anew.

    python -m raybroker.examples.rollouts --rollouts 4 --kills 3
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from typing import Any

import ray

import raybroker as rb

PATIENCE_S = 60.0
"""How long the whole may take."""
STEPS = 10
"""Of each rollout."""


class Simulator:
    """Does steps of a rollout; the one that is marked dies in the middle of one."""

    def step(self, rollout: int, step: int, dies: bool) -> int:
        if dies:
            os._exit(1)
        return rollout * STEPS + step


def run(rollouts: int, kills: int) -> dict[str, Any]:
    """Returns what was found."""
    done: Counter[int] = Counter()
    with rb.connect() as connection:
        connection.admin().create_destination("queue", "rollouts", if_exists="keep")
        connection.session().producer("rollouts").send_many(range(rollouts))
        consumer = connection.session(ack="client").consumer("rollouts", prefetch=1)
        actor: Any = ray.remote(num_cpus=0)
        worker = actor(Simulator).remote()
        killed = finished = resumed = 0
        until = time.monotonic() + PATIENCE_S
        while finished < rollouts and time.monotonic() < until:
            message = consumer.receive(timeout=1.0)
            if message is None:
                continue
            first = message.checkpoint_state or 0
            resumed += first > 0
            try:
                for step in range(first, STEPS):
                    dies = killed < kills and step == STEPS // 2 and not message.redelivered
                    done[ray.get(worker.step.remote(message.body, step, dies))] += 1
                    message.checkpoint(step + 1)
            except ray.exceptions.RayActorError as error:
                killed += 1
                worker = actor(Simulator).remote()
                message.fail(0, error)
                continue
            message.acknowledge_this()
            finished += 1
    return {
        "finished": finished,
        "killed": killed,
        "resumed": resumed,
        "steps": len(done),
        "twice": sum(count - 1 for count in done.values()),
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m raybroker.examples.rollouts", description=__doc__)
    parser.add_argument("--rollouts", type=int, default=4)
    parser.add_argument("--kills", type=int, default=3)
    args = parser.parse_args()
    rb.start()
    found = run(args.rollouts, args.kills)
    sys.stdout.write(f"{json.dumps(found)}\n")
    return 0 if found["steps"] == args.rollouts * STEPS and found["killed"] == found["resumed"] == args.kills else 1


if __name__ == "__main__":
    sys.exit(main())
