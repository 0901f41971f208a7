"""Agents with long tool calls: each conversation is with one agent at a time, and one that dies loses nothing.

A dispatcher hands the steps of conversations to agents, which are actors.  The delivery of a step is tied to the life
of its agent, not to a time-out that somebody had to guess: a tool may take an hour, and when the agent dies the step is
with another one at once.  The ledger takes each conversation's writes by their fencing numbers, so that an agent that
was only cut off, and has lost its step without knowing, cannot write late.

    python -m raybroker.examples.agents --conversations 12
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

import ray

import raybroker as rb

PATIENCE_S = 60.0
"""How long the whole may take."""
STEPS = 3
"""Of each conversation."""


class Ledger:
    """What the agents write to: it refuses who has a smaller fencing number than it has seen of a conversation."""

    def __init__(self) -> None:
        self.steps: dict[str, list[int]] = {}
        self.refused = 0
        self._highest: dict[str, int] = {}

    def write(self, conversation: str, step: int, fence: int) -> bool:
        if fence < self._highest.get(conversation, 0):
            self.refused += 1
            return False
        self._highest[conversation] = fence
        if step not in self.steps.setdefault(conversation, []):
            self.steps[conversation].append(step)
        return True

    def found(self) -> tuple[dict[str, list[int]], int]:
        return self.steps, self.refused


class Agent:
    """Takes a step, which is a call of a tool that lasts."""

    def __init__(self, ledger: Any, tool_s: float) -> None:
        self._ledger = ledger
        self._tool_s = tool_s

    def answer(self, message: rb.Message) -> bool:
        time.sleep(self._tool_s)
        return bool(ray.get(self._ledger.write.remote(message.unit_of_order, message.body, message.fence)))


class Desk:
    """One agent, and a session of its own: so a conversation is with one agent at a time."""

    def __init__(self, connection: rb.Connection, agent: Any) -> None:
        self.agent = agent
        self.doing: tuple[rb.Message, Any] | None = None
        self.taken = self.again = 0
        # Where the dispatcher itself stands still, its steps go to another one after five seconds.
        session = connection.session(ack="client")
        self._consumer = session.consumer("conversations", prefetch=1, ack_timeout_ms=5_000, fenced=True)

    def go_on(self) -> bool:
        """Hand the agent its next step once it is done with the last; False when it has died."""
        if self.doing is not None:
            message, done = self.doing
            if not ray.wait([done], timeout=0.01)[0]:
                return True
            self.doing = None
            try:
                ray.get(done)
            except ray.exceptions.RayActorError:
                self.agent = None
                self._consumer.close()
                return False
            message.acknowledge_this()
            self.taken += 1
        following = self._consumer.receive(timeout=0.01)
        if following is not None:
            following.lease_to(self.agent)
            self.again += following.redelivered
            self.doing = following, self.agent.answer.remote(following)
        return True


def run(conversations: int, agents: int, tool_s: float) -> dict[str, Any]:
    """Returns what was found."""
    with rb.connect() as connection:
        admin = connection.admin()
        admin.create_destination("queue", "conversations", if_exists="keep", prefetchRecall="Always")
        for number in range(conversations):
            producer = connection.session().producer("conversations", unit_of_order=f"conversation-{number}")
            producer.send_many(range(STEPS))
        actor: Any = ray.remote(num_cpus=0)
        ledger = actor(Ledger).remote()
        desks = [Desk(connection, actor(Agent).remote(ledger, tool_s)) for _ in range(agents)]
        until = time.monotonic() + PATIENCE_S
        deaths = 0
        while sum(desk.taken for desk in desks) < conversations * STEPS and time.monotonic() < until:
            for desk in desks:
                if desk.agent is not None and not desk.go_on():
                    deaths += 1  # What it had in work goes back by itself, and is another agent's.
            if not deaths and desks[0].taken and desks[0].doing is not None and desks[0].agent is not None:
                ray.kill(desks[0].agent)
        steps, refused = ray.get(ledger.found.remote())
    in_order = all(steps.get(f"conversation-{number}") == list(range(STEPS)) for number in range(conversations))
    taken, again = sum(desk.taken for desk in desks), sum(desk.again for desk in desks)
    return {"steps": taken, "in_order": in_order, "deaths": deaths, "again": again, "refused": refused}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m raybroker.examples.agents", description=__doc__)
    parser.add_argument("--conversations", type=int, default=12)
    parser.add_argument("--agents", type=int, default=3)
    parser.add_argument("--tool-s", type=float, default=0.05, help="how long a call of a tool takes")
    args = parser.parse_args()
    rb.start()
    found = run(args.conversations, args.agents, args.tool_s)
    sys.stdout.write(f"{json.dumps(found)}\n")
    return 0 if found["in_order"] and found["steps"] == args.conversations * STEPS and found["deaths"] else 1


if __name__ == "__main__":
    sys.exit(main())
