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

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.cluster import netspaces, rays
from tests.cluster.load import QUEUE, Load, Verdict, judge, until
from tests.cluster.netspaces import Agent, Network, Space

NAMES = ("b1", "b2", "b3")
CLUSTER = "parted"
KINDS = ("head", "master", "other", "all", "flap")
STEADY_S = 20.0
"""From the heal until everything is as before."""
FLAPS = 3
FLAP_S = 2.0


class Answers:
    """An administrator as Load.finish wants one."""

    def __init__(self, agent: Agent, broker: str) -> None:
        self._agent = agent
        self._broker = broker

    def admin(self) -> Answers:
        return self

    def query_destination(self, kind: str, queue: str) -> dict[str, Any]:
        assert kind == "queue"
        return {"messages": sum(self._agent.ask("members", self._broker, queue).values())}


class Parted:
    """The cluster, an agent on the node of each broker, and workers there."""

    def __init__(self, network: Network, scratch: Path, stack: ExitStack, rng: random.Random) -> None:
        self.network = network
        self.rng = rng
        self.detection: list[float] = []
        self.steady: list[float] = []
        agents = [Agent(space, network.address, CLUSTER) for space in network.spaces[1:]]
        for agent in agents:
            stack.callback(agent.close)
        config = rays.small_store(scratch / "store")
        assert agents[0].ask("start", len(NAMES), config) == list(NAMES)
        places = agents[0].ask("places")
        self.agents = {name: next(a for a in agents if a.space.address == places[name]) for name in NAMES}
        for name, agent in self.agents.items():
            assert agent.ask("connect", name) is True
        self.load = Load(CLUSTER, network.address, scratch / "notes")
        self.load.folder.mkdir()
        stack.callback(self.load.abandon)
        self.agents["b1"].ask("create", "b1", QUEUE)
        self._made: list[str] = [QUEUE]
        for name, agent in self.agents.items():
            for role in ("consumer", "producer"):
                self.load.spawn(role, name, through=agent.space.command())
        self.load.wait_busy()

    # ---- looking

    def views(self) -> dict[str, dict[str, str]]:
        """Broker → its view, each as asked on its own node."""
        for name, agent in self.agents.items():
            agent.tell("view", name)
        return {name: agent.answer() for name, agent in self.agents.items()}

    def pids(self) -> dict[str, dict[str, int]]:
        return {name: agent.ask("pids", name) for name, agent in self.agents.items()}

    @staticmethod
    def expected(alone: set[str]) -> dict[str, dict[str, str]]:
        """What the views come to when these brokers are each alone."""
        sides = {name: {name} if name in alone else set(NAMES) - alone for name in NAMES}
        return {name: {other: "UP" if other in sides[name] else "DOWN" for other in NAMES} for name in NAMES}

    # ---- one partition

    def part(self, kind: str, seconds: float) -> None:
        """Cut, look, heal, and wait until all is as before."""
        before = self.pids()
        alone = {"head": set(), "master": {"b1"}, "other": {"b3"}, "all": set(NAMES), "flap": {"b2"}}[kind]
        spaces: list[Space] = [self.agents[name].space for name in sorted(alone)]
        if kind in ("head", "all"):
            spaces.append(self.network.spaces[0])
        since = time.monotonic()
        if kind == "flap":
            for _ in range(FLAPS):
                self.network.cut(*spaces)
                time.sleep(FLAP_S)
                self.network.heal()
                time.sleep(FLAP_S)
        else:
            self.network.cut(*spaces)
            until(lambda: self.views() == self.expected(alone), f"{kind}: every side sees who is gone")
            if alone:
                self.detection.append(time.monotonic() - since)
            self._changes(kind, alone)
            self.load.wait_busy()
            while time.monotonic() < since + seconds:
                assert self.views() == self.expected(alone), f"{kind}: the views change"
                time.sleep(0.2)
            self.network.heal()
        healed = time.monotonic()
        until(self._as_before, f"{kind}: after the heal all is as before", STEADY_S)
        self.load.wait_busy()
        self.steady.append(time.monotonic() - healed)
        assert self.steady[-1] < STEADY_S, f"{kind}: steady after {self.steady[-1]:.1f} s"
        assert self.pids() == before, f"{kind}: processes were replaced"

    def _changes(self, kind: str, alone: set[str]) -> None:
        """Whoever reaches the master can create a queue; others are told that they cannot (K-13)."""
        for name, agent in self.agents.items():
            queue = f"{kind}{len(self._made)}"
            answer = agent.ask("create", name, queue)
            if name == "b1" or not alone & {name, "b1"}:
                assert answer is True, f"{kind}: {name} could not create a queue: {answer}"
                self._made.append(queue)
            else:
                assert answer.get("error") == "MasterUnavailableError", f"{kind}: {name} has answered {answer}"

    def _as_before(self) -> bool:
        if self.views() != self.expected(set()):
            return False
        return all(set(self._made) <= set(agent.ask("queues", name)) for name, agent in self.agents.items())

    def finish(self) -> Verdict:
        agent = self.agents["b1"]
        self.load.finish(Answers(agent, "b1"))
        refused = {name for name in agent.ask("queues", "b1") if not name.startswith("mq.")} - set(self._made)
        assert not refused, f"what was refused was done: {refused}"
        return judge(self.load.folder)


def run(scratch: Path, kinds: list[str], seconds: float, seed: int) -> tuple[Verdict, Parted]:
    """A cluster, and these partitions one after the other."""
    with netspaces.running_network(len(NAMES)) as network, ExitStack() as stack:
        parted = Parted(network, scratch, stack, random.Random(seed))
        try:
            for kind in kinds:
                parted.part(kind, seconds)
                print(f"{kind}: as before {parted.steady[-1]:.1f} s after the heal", flush=True)
            return parted.finish(), parted
        except AssertionError:
            parted.load.show()
            raise


def schedule(rounds: int, seed: int, among: Sequence[str] = KINDS) -> list[str]:
    kinds = [among[n % len(among)] for n in range(rounds)]
    random.Random(seed).shuffle(kinds)
    return kinds


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.partitions", description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--seconds", type=float, default=20.0, help="how long a partition lasts")
    options = parser.parse_args(arguments)
    print(f"seed {options.seed}", flush=True)
    if reason := netspaces.missing():
        print(reason)
        return 2
    rays.folder()
    with tempfile.TemporaryDirectory() as scratch:
        verdict, parted = run(Path(scratch), schedule(options.rounds, options.seed), options.seconds, options.seed)
    print(f"{options.rounds} partitions with seed {options.seed}: {verdict}")
    for name, times in (("detection", parted.detection), ("steady", parted.steady)):
        if times:
            print(f"{name}: median {statistics.median(times):.2f} s, longest {max(times):.2f} s")
    return 0 if verdict.valid else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
