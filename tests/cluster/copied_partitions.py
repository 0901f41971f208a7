"""Partitions of a queue with three copies, each on a node with a network of its own:

    python -m tests.cluster.copied_partitions --rounds N --seed S [--seconds T]

    leader    the broker that leads the log is alone
    follower  a broker that only keeps a copy is alone
    all       no node reaches any other
    flap      the leader is cut off and back several times

Producers and consumers are clients of the broker of their node.  Whoever is without a majority is confirmed nothing,
and whoever is with one goes on within seconds; after the heal everybody goes on.  At the end the chains of all copies
are the same, and the notes are judged (load.py).
"""

from __future__ import annotations

import random
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from raybroker.cluster.replicas.copy_takeover import APART_MS
from tests.cluster import parted_nodes
from tests.cluster.load import QUEUE, Verdict, count, judge, until
from tests.cluster.netspaces import Network
from tests.cluster.parted_nodes import NAMES, PartedNodes

CLUSTER = "copied"
KINDS = ("leader", "follower", "all", "flap")
COPIED: dict[str, Any] = {"replicas": 3, "useDMQ": False}
LEASE_S = 3.0
"""After so long without a majority nothing is under way any more that one had confirmed."""
GOES_ON_S = 20.0
"""From a cut until the side with a majority is confirmed sends, and from the heal until everybody is."""
AGREE_S = 60.0
APART_S = APART_MS / 1000


class CopiedQueue:
    """A course of partitions.

    changed  when another copy may have become the leader last
    went_on  seconds from each cut until producers of the majority were confirmed a send
    healed   seconds from each heal until all producers were confirmed a send
    """

    def __init__(self, network: Network, scratch: Path, stack: ExitStack, rng: random.Random) -> None:
        self.nodes = PartedNodes(network, CLUSTER, scratch, stack, rng)
        self.went_on: list[float] = []
        self.healed: list[float] = []
        self.nodes.begin_load(COPIED)
        self.changed = time.monotonic()  # The first leader may have been the second.

    # ---- looking

    def leader(self) -> str:
        """The broker that leads, as all say that can be asked."""
        found: list[str] = []

        def one() -> bool:
            rows = [agent.ask("replication", name, QUEUE) for name, agent in self.nodes.agents.items()]
            found[:] = [str(row.get("leader", "")) for row in rows]
            return len(set(found)) == 1 and found[0] in NAMES

        until(one, "all name one leader", AGREE_S)
        return found[0]

    def confirmed(self, broker: str) -> int:
        """How often the producer at a broker was confirmed something."""
        return count(self.nodes.producers[broker], "o")

    def all_are_confirmed(self, brokers: list[str]) -> float:
        """Wait until each of these producers is confirmed more than now; how long that took."""
        since, before = time.monotonic(), {name: self.confirmed(name) for name in brokers}
        until(lambda: all(self.confirmed(name) > before[name] for name in brokers), f"{brokers} go on", GOES_ON_S)
        return time.monotonic() - since

    # ---- one partition

    def part(self, kind: str, seconds: float) -> str:
        nodes, leader = self.nodes, self.leader()
        follower = nodes.rng.choice([name for name in NAMES if name != leader])
        alone = {"leader": [leader], "follower": [follower], "all": list(NAMES), "flap": [leader]}[kind]
        if leader in alone:  # There is no other one so soon after a change.
            time.sleep(max(0.0, self.changed + APART_S - time.monotonic()))
        if kind == "flap":
            nodes.flap(nodes.spaces(alone))
        else:
            nodes.network.cut(*nodes.spaces(alone))
            since = time.monotonic()
            if rest := [name for name in NAMES if name not in alone]:
                self.went_on.append(self.all_are_confirmed(rest))
            time.sleep(max(0.0, since + LEASE_S - time.monotonic()))
            before = {name: self.confirmed(name) for name in alone}
            time.sleep(seconds)
            after = {name: self.confirmed(name) for name in alone}
            assert after == before, f"{kind}: {alone} were confirmed sends without a majority"
            nodes.network.heal()
        self.healed.append(self.all_are_confirmed(list(NAMES)))
        if self.leader() != leader:
            self.changed = time.monotonic()
        nodes.load.wait_busy()
        return f"{', '.join(alone)} alone; all go on {self.healed[-1]:.1f} s after the heal"

    def same(self) -> bool:
        """The logs of all copies are equal."""
        rows = [row for name, agent in self.nodes.agents.items() for row in agent.ask("copies", name)]
        return len(rows) == len(NAMES) and len({(row["index"], row["chain"]) for row in rows}) == 1

    def finish(self) -> Verdict:
        self.nodes.drain()
        until(self.same, "the chains of all copies are equal", AGREE_S)
        return judge(self.nodes.load.folder)

    def times(self) -> dict[str, list[float]]:
        return {"the majority goes on": self.went_on, "all go on after the heal": self.healed}


def main(arguments: list[str]) -> int:
    return parted_nodes.command("copied_partitions", __doc__, CopiedQueue, KINDS, arguments)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
