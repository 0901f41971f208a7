"""Failures of a cluster of three brokers on three nodes, under load, and the verdict:

    python -m tests.cluster.failures --rounds N --seed S [--kinds kills,pauses,steps]

    kills   SIGKILL: a broker, its hosts, all of it, two brokers at once, the master, the path service, a node
    pauses  SIGSTOP and later SIGCONT: a host, a broker, a raylet, a whole node
    steps   SIGKILL at a failpoint (raybroker.system.failpoint)

A round is one failure; the next comes when the cluster is whole again.  Some producers are at one broker for good,
others move.  A pipeline moves messages between two queues in transactions, which may neither lose nor double any.
At the end everything is drained and the notes are judged (load.py).  The exit status is 1 if anything was lost, came
twice without saying so, or was not noticed, taken over or back in time.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from tests.cluster import rays
from tests.cluster.load import Load, Verdict, judge, story, timed_lines
from tests.cluster.nodes import running_nodes
from tests.cluster.trial import CLUSTER, NAMES, Figures, Trial

KILLS = ("broker", "hosts", "all", "two", "master", "paths", "node")
PAUSES = ("host", "broker", "raylet", "node")
STEPS = (
    "b?/h*@store.commit",
    "b?/h*@store.committed",
    "b?/h*@store.maintain",
    "b?/h*@host.open",
    "b?/h*@host.serving",
    "b?/h*@ask.destinations.create",
    "b?/h*@asked.destinations.create",
    "b?/h*@asked.destinations.destroy",
    "b1@record.write",
    "b1@record.written",
    "b3@record.written",
    "b?@record.apply",
    "b?@record.applied",
    "b?@record.propose",
    "b?@record.proposed",
    "b?@host.named",
    "b?@host.made",
    "b?@located",
    "paths@paths.write",
    "paths@paths.written",
)
DETECTION_S = 2.0
FAILOVER_S = 2.0
"""What detection in the view and failover of producers take at most, in the (lower) median."""
LATE_S = 6.0
"""The longest that either may take on a machine where everything runs at once."""


# ---- the load --------------------------------------------------------------------------------------------------------


class Work:
    """The workers of a trial: some at one broker, some that move, and a pipeline with a source and a sink."""

    def __init__(self, trial: Trial, folder: Path, name: str) -> None:
        self._folders = [folder / f"{name}-direct", folder / f"{name}-piped"]
        for made in self._folders:
            made.mkdir(parents=True)
        address = trial.nodes.address
        self._direct = Load(CLUSTER, address, self._folders[0], name)
        self._piped = Load(CLUSTER, address, self._folders[1], f"{name}p")
        self._out = Load(CLUSTER, address, self._folders[1], f"{name}p.out")
        self._connection = trial.connection
        admin = trial.connection.admin()
        for queue in (name, f"{name}p", f"{name}p.out"):
            admin.create_destination("queue", queue, hosting="shared")
        self._direct.spawn("consumer", "b1,b2,b3")
        self._direct.spawn("consumer", "b3,b1,b2")
        self._out.spawn("consumer", "b2,b1,b3")
        self._piped.spawn("pipeline", "b1,b3,b2")
        self._direct.spawn("producer", "b3")
        self._moving = {self._direct.spawn("producer", "b2,b3,b1")}
        self._piped.spawn("producer", "b2")  # One that moves may send twice, and a pipeline would not say so.
        self.queues = [name, f"{name}p", f"{name}p.out"]

    def wait_busy(self) -> None:
        for load in (self._direct, self._piped, self._out):
            load.wait_busy()

    def gap(self, since: float) -> float:
        """How long after that moment moving producers were without an answer, at most."""
        return max(_gap(self._folders[0] / f"producer.{number}", since) for number in self._moving)

    def finish(self) -> list[Verdict]:
        """Drain everything; what the notes say."""
        self._direct.finish(self._connection)
        self._piped.finish(self._connection, [self._piped.queue, self._out.queue])
        self._out.finish(self._connection)
        direct = judge(self._folders[0], moving=self._moving)
        piped = judge(self._folders[1], moving=range(1, 10))
        for folder, verdict in zip(self._folders, (direct, piped), strict=True):
            for value in sorted(verdict.lost | verdict.unexpected | verdict.unflagged)[:20:10]:
                print(f"value {value}:", *story(folder, value), sep="\n  ", flush=True)
        return [direct, piped]

    def show(self) -> None:
        for load in (self._direct, self._piped, self._out):
            load.show()

    def abandon(self) -> None:
        for load in (self._direct, self._piped, self._out):
            load.abandon()


def _gap(path: Path, since: float) -> float:
    """The longest time between two answers, of those that begin within a second of a failure; from the failure on."""
    since_ns = int(since * 1e9)
    times = [at for letter, at, _ in timed_lines(path) if letter == "o"]
    gaps = [
        (after - max(before, since_ns)) / 1e9
        for before, after in pairwise(times)
        if after > since_ns and before < since_ns + 1_000_000_000
    ]
    return max(gaps, default=0.0)


# ---- a run -----------------------------------------------------------------------------------------------------------


def schedule(kinds: list[str], rounds: int, rng: random.Random) -> list[tuple[str, str]]:
    """(kills, pauses or steps; which): each equally often, in an order of its own."""
    every = {"kills": KILLS, "pauses": PAUSES, "steps": STEPS}
    found: list[tuple[str, str]] = []
    while len(found) < rounds:
        some = [(kind, which) for kind in kinds for which in every[kind]]
        rng.shuffle(some)
        found += some
    return found[:rounds]


def run(trial: Trial, work: Work, plan: list[tuple[str, str]]) -> list[Verdict]:
    """Go through the plan under load; the verdicts of direct and of piped messages."""
    try:
        work.wait_busy()
        for kind, which in plan:
            if kind == "kills":
                since = trial.kill(which)
            elif kind == "pauses":
                since = trial.pause(which, trial.rng.uniform(2.0, 6.0))
            else:
                since = trial.step(which)
            work.wait_busy()
            gap = work.gap(since)
            print(
                f"{since:.3f} {kind} {which}: whole after {time.monotonic() - since:.1f} s, gap {gap:.2f} s", flush=True
            )
            if (kind, which) != ("kills", "broker") and kind == "kills" and gap > 0.5:
                trial.figures.failover.append(gap)
        trial.check_changes()
        return work.finish()
    except AssertionError:
        trial.show(work.queues)
        work.show()
        raise
    finally:
        work.abandon()


def faults(verdicts: list[Verdict], figures: Figures) -> list[str]:
    """What is not as it has to be."""
    found = [str(verdict) for verdict in verdicts if not verdict.valid]
    for name, most in (("detection", DETECTION_S), ("failover", FAILOVER_S)):
        times = getattr(figures, name)
        if times and (statistics.median_low(times) > most or max(times) > LATE_S):
            found.append(f"{name} took too long: {[round(t, 2) for t in times]}")
    return found


@contextlib.contextmanager
def running_trial(scratch: Path, seed: int) -> Iterator[Trial]:
    """Three nodes with three brokers, and failpoints that can be set at any time."""
    point = scratch / "failpoint"
    os.environ["RB_FAILPOINT"] = f"@{point}"
    try:
        with running_nodes(len(NAMES)) as nodes:
            trial = Trial(nodes, scratch / "store", point, random.Random(seed))
            try:
                trial.connection.admin().create_destination("queue", "units", unitOfOrderRouting="PathService")
                yield trial
            finally:
                trial.close()
    finally:
        del os.environ["RB_FAILPOINT"]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.failures", description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--kinds", default="kills,pauses,steps")
    options = parser.parse_args(arguments)
    print(f"seed {options.seed}", flush=True)
    started = time.monotonic()
    rays.folder()
    plan = schedule(options.kinds.split(","), options.rounds, random.Random(options.seed))
    with tempfile.TemporaryDirectory() as scratch, running_trial(Path(scratch), options.seed) as trial:
        verdicts = run(trial, Work(trial, Path(scratch) / "notes", "night"), plan)
        figures = trial.figures
    for what, verdict in zip(("direct", "piped"), verdicts, strict=True):
        print(f"{what}: {verdict}")
        for text, number in verdict.errors.most_common(5):
            print(f"  told to a worker {number} times: {text}")
    print(f"{len(plan)} failures in {time.monotonic() - started:.0f} s with seed {options.seed}: {figures}")
    wrong = faults(verdicts, figures)
    for text in wrong:
        print(f"WRONG: {text}")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
