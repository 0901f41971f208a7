"""Partitions of a queue with three copies, each on a node with a network of its own:

    python -m tests.cluster.copied_partitions --rounds N --seed S [--seconds T]

    leader    the broker that leads the log is alone
    follower  a broker that only keeps a copy is alone
    all       no node reaches any other
    flap      the leader is cut off and back several times

Producers and consumers are clients of the broker of their node.  Whoever is without a majority is confirmed nothing,
and whoever is with one goes on within seconds; after the heal everybody goes on, all copies have the same, and at the
end the notes are judged (load.py).
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.cluster import netspaces, rays
from tests.cluster.load import QUEUE, Load, Verdict, count, judge, until
from tests.cluster.netspaces import Agent, Network
from tests.cluster.partitions import FLAP_S, FLAPS, NAMES, Answers, schedule

CLUSTER = "copied"
KINDS = ("leader", "follower", "all", "flap")
COPIED: dict[str, Any] = {"replicas": 3, "useDMQ": False}
LEASE_S = 3.0
"""After so long without a majority nothing is under way any more that one had confirmed."""
GOES_ON_S = 20.0
"""From a cut until the side with a majority is confirmed sends, and from the heal until everybody is."""
AGREE_S = 60.0


class CopiedQueue:
    """The cluster, an agent on the node of each broker, and workers there."""

    def __init__(self, network: Network, scratch: Path, stack: ExitStack, rng: random.Random) -> None:
        self.network = network
        self.rng = rng
        self.went_on: list[float] = []
        """Seconds from each cut until producers of the majority were confirmed a send."""
        self.healed: list[float] = []
        agents = [Agent(space, network.address, CLUSTER) for space in network.spaces[1:]]
        for agent in agents:
            stack.callback(agent.close)
        assert agents[0].ask("start", len(NAMES), rays.small_store(scratch / "store")) == list(NAMES)
        places = agents[0].ask("places")
        self.agents = {name: next(a for a in agents if a.space.address == places[name]) for name in NAMES}
        for name, agent in self.agents.items():
            assert agent.ask("connect", name) is True
        assert self.agents["b1"].ask("create", "b1", QUEUE, COPIED) is True
        self.load = Load(CLUSTER, network.address, scratch / "notes")
        self.load.folder.mkdir()
        stack.callback(self.load.abandon)
        self.producers: dict[str, Path] = {}
        for name, agent in self.agents.items():
            self.load.spawn("consumer", name, through=agent.space.command())
            number = self.load.spawn("producer", name, through=agent.space.command())
            self.producers[name] = self.load.folder / f"producer.{number}"
        self.load.wait_busy()

    # ---- looking

    def replication(self, broker: str) -> dict[str, Any]:
        found = self.agents[broker].ask("replication", broker, QUEUE)
        return found if "error" not in found else {}

    def leader(self) -> str:
        """The broker that leads, as all say that can be asked."""
        found: list[str] = []

        def one() -> bool:
            found[:] = [str(self.replication(name).get("leader", "")) for name in NAMES]
            return len(set(found)) == 1 and found[0] in NAMES

        until(one, "all name one leader", AGREE_S)
        return found[0]

    def confirmed(self, broker: str) -> int:
        """How often the producer at a broker was confirmed something."""
        return count(self.producers[broker], "o")

    def all_are_confirmed(self, brokers: list[str]) -> float:
        """Wait until each of these producers is confirmed more than now; how long that took."""
        since, before = time.monotonic(), {name: self.confirmed(name) for name in brokers}
        until(lambda: all(self.confirmed(name) > before[name] for name in brokers), f"{brokers} go on", GOES_ON_S)
        return time.monotonic() - since

    # ---- one partition

    def part(self, kind: str, seconds: float) -> None:
        """Cut, look, heal, and wait until all is as before."""
        leader = self.leader()
        follower = self.rng.choice([name for name in NAMES if name != leader])
        alone = {"leader": [leader], "follower": [follower], "all": list(NAMES), "flap": [leader]}[kind]
        spaces = [self.agents[name].space for name in alone]
        if kind == "flap":
            for _ in range(FLAPS):
                self.network.cut(*spaces)
                time.sleep(FLAP_S)
                self.network.heal()
                time.sleep(FLAP_S)
        else:
            self.network.cut(*spaces)
            since = time.monotonic()
            if rest := [name for name in NAMES if name not in alone]:
                self.went_on.append(self.all_are_confirmed(rest))
            time.sleep(max(0.0, since + LEASE_S - time.monotonic()))
            before = {name: self.confirmed(name) for name in alone}
            time.sleep(seconds)
            after = {name: self.confirmed(name) for name in alone}
            assert after == before, f"{kind}: {alone} were confirmed sends without a majority"
            self.network.heal()
        self.healed.append(self.all_are_confirmed(list(NAMES)))
        self.load.wait_busy()

    def same(self) -> bool:
        """All copies have what the leader has."""
        copies = self.replication(self.leader()).get("copies", ())
        return len(copies) == len(NAMES) and all(one["voter"] and not one["behind"] for one in copies)

    def finish(self) -> Verdict:
        self.load.finish(Answers(self.agents["b1"], "b1"))
        until(self.same, "all copies have the same", AGREE_S)
        return judge(self.load.folder)


def run(scratch: Path, kinds: list[str], seconds: float, seed: int) -> tuple[Verdict, CopiedQueue]:
    """A cluster, and these partitions one after the other."""
    with netspaces.running_network(len(NAMES)) as network, ExitStack() as stack:
        copied = CopiedQueue(network, scratch, stack, random.Random(seed))
        try:
            for kind in kinds:
                copied.part(kind, seconds)
                print(f"{kind}: all go on {copied.healed[-1]:.1f} s after the heal", flush=True)
            return copied.finish(), copied
        except AssertionError:
            copied.load.show()
            raise


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.copied_partitions", description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--seconds", type=float, default=20.0, help="how long a partition lasts")
    options = parser.parse_args(arguments)
    print(f"seed {options.seed}", flush=True)
    if reason := netspaces.missing():
        print(reason)
        return 2
    rays.folder()
    kinds = schedule(options.rounds, options.seed, KINDS)
    with tempfile.TemporaryDirectory() as scratch:
        verdict, copied = run(Path(scratch), kinds, options.seconds, options.seed)
    print(f"{options.rounds} partitions with seed {options.seed}: {verdict}")
    for name, times in (("the majority goes on", copied.went_on), ("all go on after the heal", copied.healed)):
        if times:
            print(f"{name}: median {statistics.median(times):.2f} s, longest {max(times):.2f} s")
    return 0 if verdict.valid else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
