"""One seed: copies of one log that are started, disturbed for a while, and then left alone until they agree."""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from random import Random

from raybroker.replication import events as ev
from raybroker.replication.replica_set import ReplicaSet
from tests.simulation.events import Loop
from tests.simulation_replication.checkers import Watch
from tests.simulation_replication.disk import SimDisk
from tests.simulation_replication.faults import Faults
from tests.simulation_replication.network import Network
from tests.simulation_replication.node import Process
from tests.simulation_replication.plan import MS, Plan, S

EVENTS_MAX = 600_000
AGREE_S = 60
"""Virtual seconds in which copies that are left alone have to agree: changes of the set included, one at a time."""
WAITING_MAX = 200
"""Batches that a leader has begun and not committed before its clients wait."""


class World:
    """Everything of one seed.  ``calm``: nothing goes wrong any more."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = Random(seed)
        self.plan = Plan(self.rng)
        self.loop = Loop()
        self.counts: Counter[str] = Counter()
        self.calm = False
        self.made = 0
        self.network = Network(self)
        self.watch = Watch(self)
        self.faults = Faults(self)
        self.running: dict[int, Process] = {}
        first = [f"c{node}" for node in range(self.plan.voters)]
        self.members = ReplicaSet(tuple(first), (), self.plan.min_in_sync)
        self.disks = {node: SimDisk(copy, node, self.members) for node, copy in enumerate(first)}
        for node in range(self.plan.voters, self.plan.nodes):
            self.new_disk(node)

    def count(self, what: str) -> None:
        self.counts[what] += 1

    def processes(self) -> list[Process]:
        return [self.running[node] for node in sorted(self.running)]

    # ---- nodes

    def new_disk(self, node: int) -> None:
        self.made += 1
        self.disks[node] = SimDisk(f"n{self.made}", node)

    def clone_disk(self, disk: SimDisk, node: int) -> None:
        self.disks[node] = deepcopy(disk)

    def begin(self, node: int) -> None:
        if node in self.running:
            return
        if self.disks[node].node != node:
            self.new_disk(node)  # the folder is another node's: this is not the copy that it was
        self.running[node] = Process(self, node, self.disks[node])

    def end(self, process: Process) -> None:
        process.kill()
        self.watch.forget(process)
        self.running.pop(process.node, None)
        self.network.unlink(process.replica.me, process.node)

    # ---- clients

    def client(self) -> None:
        rng, plan = self.rng, self.plan
        if self.calm:
            return
        self.loop.after(rng.randrange(1, plan.apart_us * 2), self.client)
        for process in self.processes():
            if process.leads and process.works:
                waiting = process.replica.last.index - process.replica.committed
                if waiting < WAITING_MAX:
                    self.propose(process)

    def propose(self, process: Process) -> None:
        self.made += 1
        name = self.made.to_bytes(8, "big")
        process.feed(ev.AppendBatch((name, bytes(self.rng.randrange(self.plan.body_bytes)))))
        if process.leads:
            self.watch.begun(process, name)

    # ---- the run

    def run(self) -> None:
        """Raises AssertionError when something does not hold."""
        for node in range(self.plan.nodes):
            self.loop.after(self.rng.randrange(S), self.begin, node)
        self.faults.start()
        self.client()
        self.loop.run(self.plan.length_us, EVENTS_MAX)
        self.calm = True
        self.network.cut.clear()
        self.network.release()
        for process in self.processes():
            if process.paused:
                process.resume()
        for node in range(self.plan.nodes):
            self.begin(node)
        self._agree()
        self._still_works()

    def _agree(self) -> None:
        end = self.loop.now + AGREE_S * S
        missing = "nothing was looked at"
        while self.loop.now < end and missing:
            self.loop.run(self.loop.now + 250 * MS, EVENTS_MAX)
            missing = self.watch.missing()
        assert not missing, f"no agreement {AGREE_S} s after the last fault: {missing}"

    def _still_works(self) -> None:
        """A batch is confirmed, and everything that ever was is there."""
        before = self.counts["confirmed"]
        leader = next(process for process in self.processes() if process.may_dispatch())
        self.propose(leader)
        self.loop.run(self.loop.now + 5 * S, EVENTS_MAX)
        assert self.counts["confirmed"] > before, "a batch is not confirmed although all is well"
        self.watch.all_there()
