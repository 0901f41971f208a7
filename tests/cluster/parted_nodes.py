"""The frame of the partition tests: three brokers, each on a node with a network of its own, under load.

A course cuts cables, looks and heals, one partition after the other; at the end everything is drained and the notes are
judged (load.py).  Courses are in partitions.py and copied_partitions.py.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol, TypeVar

from tests.cluster import netspaces, rays
from tests.cluster.load import QUEUE, Load, Verdict, until
from tests.cluster.netspaces import Agent, Network, Space

NAMES = ("b1", "b2", "b3")
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


class PartedNodes:
    """The cluster, an agent on the node of each broker, and what is loaded.

    rng       chooses whom a partition meets
    agents    broker → the agent on its node
    producers broker → the notes of the producer that is its client
    """

    def __init__(self, network: Network, cluster: str, scratch: Path, stack: ExitStack, rng: random.Random) -> None:
        self.network = network
        self.rng = rng
        agents = [Agent(space, network.address, cluster) for space in network.spaces[1:]]
        for agent in agents:
            stack.callback(agent.close)
        assert agents[0].ask("start", len(NAMES), rays.small_store(scratch / "store")) == list(NAMES)
        places = agents[0].ask("places")
        self.agents = {name: next(a for a in agents if a.space.address == places[name]) for name in NAMES}
        for name, agent in self.agents.items():
            assert agent.ask("connect", name) is True
        self.load = Load(cluster, network.address, scratch / "notes")
        self.load.folder.mkdir()
        stack.callback(self.load.abandon)
        self.producers: dict[str, Path] = {}

    def begin_load(self, attributes: dict[str, Any]) -> None:
        """Make the queue, and have a producer and a consumer at each broker."""
        until(lambda: self.agents["b1"].ask("view", "b1") == dict.fromkeys(NAMES, "UP"), "b1 sees all brokers")
        answers: list[Any] = []

        def made() -> bool:
            """A busy machine makes processes for longer than a client waits for an answer."""
            answers.append(self.agents["b1"].ask("create", "b1", QUEUE, {**attributes, "if_exists": "keep"}))
            return answers[-1] is True or answers[-1]["error"] != "ConnectionLostError"

        until(made, "the queue is made")
        assert answers[-1] is True, answers
        for name, agent in self.agents.items():
            self.load.spawn("consumer", name, through=agent.space.command())
            number = self.load.spawn("producer", name, through=agent.space.command())
            self.producers[name] = self.load.folder / f"producer.{number}"
        self.load.wait_busy()

    def spaces(self, brokers: Sequence[str]) -> list[Space]:
        return [self.agents[name].space for name in brokers]

    def flap(self, spaces: Sequence[Space]) -> None:
        """Cut and heal several times."""
        for _ in range(FLAPS):
            self.network.cut(*spaces)
            time.sleep(FLAP_S)
            self.network.heal()
            time.sleep(FLAP_S)

    def drain(self) -> None:
        """No more is sent, and all is received."""
        self.load.finish(Answers(self.agents["b1"], "b1"))


class Course(Protocol):
    """Partitions of one kind of cluster."""

    nodes: PartedNodes

    def part(self, kind: str, seconds: float) -> str:
        """Cut, look, heal, and wait until all is as before; what is said of it."""

    def finish(self) -> Verdict:
        """Drain, and judge."""

    def times(self) -> dict[str, list[float]]:
        """What was measured, in seconds, by its name."""


C = TypeVar("C", bound=Course)
Begin = Callable[[Network, Path, ExitStack, random.Random], C]


def run(begin: Begin[C], scratch: Path, kinds: Sequence[str], seconds: float, seed: int) -> tuple[Verdict, C]:
    """A cluster, and these partitions one after the other."""
    with netspaces.running_network(len(NAMES)) as network, ExitStack() as stack:
        course = begin(network, scratch, stack, random.Random(seed))
        try:
            for kind in kinds:
                print(f"{kind}: {course.part(kind, seconds)}", flush=True)
            return course.finish(), course
        except AssertionError:
            course.nodes.load.show()
            raise


def schedule(rounds: int, seed: int, among: Sequence[str]) -> list[str]:
    kinds = [among[n % len(among)] for n in range(rounds)]
    random.Random(seed).shuffle(kinds)
    return kinds


def command(name: str, text: str | None, begin: Begin[Any], kinds: Sequence[str], arguments: list[str]) -> int:
    """``python -m tests.cluster.NAME``, described by ``text``; the exit code."""
    parser = argparse.ArgumentParser(
        prog=f"python -m tests.cluster.{name}",
        description=text,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--seconds", type=float, default=20.0, help="how long a partition lasts")
    options = parser.parse_args(arguments)
    print(f"seed {options.seed}", flush=True)
    if reason := netspaces.missing():
        print(reason)
        return 2
    rays.folder()
    chosen = schedule(options.rounds, options.seed, kinds)
    with tempfile.TemporaryDirectory() as scratch:
        verdict, course = run(begin, Path(scratch), chosen, options.seconds, options.seed)
    print(f"{options.rounds} partitions with seed {options.seed}: {verdict}")
    for what, times in course.times().items():
        if times:
            print(f"{what}: median {statistics.median(times):.2f} s, longest {max(times):.2f} s")
    return 0 if verdict.valid else 1
