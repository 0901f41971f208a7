"""Partitions of a cluster of three brokers, each on a node with a network of its own:

    python -m tests.cluster.partitions --rounds N --seed S [--seconds T]

    head    Ray's head is cut off, which no broker may notice
    master  the broker that keeps the configuration change record is alone
    other   another broker is alone
    all     no node reaches any other
    flap    a broker is cut off and back several times

Producers and consumers are clients of the broker of their node, and go on there.  On each side brokers must see who is
gone; whoever does not reach the master is refused changes, and nothing else (K-13).  After the heal all is as before
within 20 s, with the same processes; at the end everything is drained and the notes are judged (load.py).
"""

from __future__ import annotations

import random
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from tests.cluster import parted_nodes
from tests.cluster.load import QUEUE, Verdict, judge, until
from tests.cluster.netspaces import Network
from tests.cluster.parted_nodes import NAMES, PartedNodes

CLUSTER = "parted"
KINDS = ("head", "master", "other", "all", "flap")
SHARED = {"hosting": "shared"}
STEADY_S = 20.0
"""From the heal until everything is as before."""


class Parted:
    """A course of partitions.

    detection  seconds from each cut until every side saw who is gone
    steady     seconds from each heal until all was as before
    """

    def __init__(self, network: Network, scratch: Path, stack: ExitStack, rng: random.Random) -> None:
        self.nodes = PartedNodes(network, CLUSTER, scratch, stack, rng)
        self.detection: list[float] = []
        self.steady: list[float] = []
        self._made: list[str] = [QUEUE]
        self.nodes.begin_load(SHARED)

    # ---- looking

    def views(self) -> dict[str, dict[str, str]]:
        """Broker → its view, each as asked on its own node."""
        for name, agent in self.nodes.agents.items():
            agent.tell("view", name)
        return {name: agent.answer() for name, agent in self.nodes.agents.items()}

    def pids(self) -> dict[str, dict[str, int]]:
        return {name: agent.ask("pids", name) for name, agent in self.nodes.agents.items()}

    @staticmethod
    def expected(alone: set[str]) -> dict[str, dict[str, str]]:
        """What the views come to when these brokers are each alone."""
        sides = {name: {name} if name in alone else set(NAMES) - alone for name in NAMES}
        return {name: {other: "UP" if other in sides[name] else "DOWN" for other in NAMES} for name in NAMES}

    # ---- one partition

    def part(self, kind: str, seconds: float) -> str:
        nodes, before = self.nodes, self.pids()
        alone = {"head": set(), "master": {"b1"}, "other": {"b3"}, "all": set(NAMES), "flap": {"b2"}}[kind]
        spaces = nodes.spaces(sorted(alone))
        if kind in ("head", "all"):
            spaces.append(nodes.network.spaces[0])
        since = time.monotonic()
        if kind == "flap":
            nodes.flap(spaces)
        else:
            nodes.network.cut(*spaces)
            until(lambda: self.views() == self.expected(alone), f"{kind}: every side sees who is gone")
            if alone:
                self.detection.append(time.monotonic() - since)
            self._changes(kind, alone)
            nodes.load.wait_busy()
            while time.monotonic() < since + seconds:
                assert self.views() == self.expected(alone), f"{kind}: the views change"
                time.sleep(0.2)
            nodes.network.heal()
        healed = time.monotonic()
        until(self._as_before, f"{kind}: after the heal all is as before", STEADY_S)
        nodes.load.wait_busy()
        self.steady.append(time.monotonic() - healed)
        assert self.steady[-1] < STEADY_S, f"{kind}: steady after {self.steady[-1]:.1f} s"
        assert self.pids() == before, f"{kind}: processes were replaced"
        return f"as before {self.steady[-1]:.1f} s after the heal"

    def _changes(self, kind: str, alone: set[str]) -> None:
        """Whoever reaches the master can create a queue; others are told that they cannot (K-13)."""
        for name, agent in self.nodes.agents.items():
            queue = f"{kind}{len(self._made)}"
            answer = agent.ask("create", name, queue, SHARED)
            if name == "b1" or not alone & {name, "b1"}:
                assert answer is True, f"{kind}: {name} could not create a queue: {answer}"
                self._made.append(queue)
            else:
                assert answer.get("error") == "MasterUnavailableError", f"{kind}: {name} has answered {answer}"

    def _as_before(self) -> bool:
        if self.views() != self.expected(set()):
            return False
        return all(set(self._made) <= set(agent.ask("queues", name)) for name, agent in self.nodes.agents.items())

    def finish(self) -> Verdict:
        self.nodes.drain()
        queues = self.nodes.agents["b1"].ask("queues", "b1")
        refused = {name for name in queues if not name.startswith("mq.")} - set(self._made)
        assert not refused, f"what was refused was done: {refused}"
        return judge(self.nodes.load.folder)

    def times(self) -> dict[str, list[float]]:
        return {"detection": self.detection, "steady": self.steady}


def main(arguments: list[str]) -> int:
    return parted_nodes.command("partitions", __doc__, Parted, KINDS, arguments)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
