"""One seed: brokers that are started, disturbed for a while, and then left alone until they agree."""

from __future__ import annotations

from collections import Counter
from random import Random

from tests.simulation.events import Loop
from tests.simulation_control.checkers import Watch
from tests.simulation_control.clients import Clients
from tests.simulation_control.database import Database
from tests.simulation_control.faults import Faults
from tests.simulation_control.network import Network
from tests.simulation_control.node import Node, Process
from tests.simulation_control.plan import MS, Plan, S

EVENTS_MAX = 400_000
AGREE_S = 30
"""Virtual seconds in which a cluster that is left alone has to agree: two attempts to be heard, to carry a change out
again and to exchange consumers, each of 5 s or less."""
START_MS = 1_000_000


class World:
    """Everything of one seed.  ``calm``: nothing goes wrong any more."""

    def __init__(self, seed: int, *, share: bool = False) -> None:
        self.seed = seed
        self.rng = Random(seed)
        self.plan = Plan(self.rng, share=share, odd=seed % 2 == 1)
        self.loop = Loop()
        self.counts: Counter[str] = Counter()
        self.calm = False
        self.master = self.rng.choice(self.plan.names) if self.plan.with_master else ""
        """imq.cluster.masterbroker as it is in the configuration now."""
        self.network = Network(self)
        self.database = Database(self) if self.plan.with_table else None
        self.watch = Watch(self)
        self.clients = Clients(self)
        self.nodes = {name: Node(self, name) for name in self.plan.names}
        self.faults = Faults(self)

    # ---- what the parts ask

    def count(self, what: str) -> None:
        self.counts[what] += 1

    def wall_ms(self, name: str) -> int:
        """A broker's own clock."""
        return START_MS + self.loop.now // 1000 + self.plan.skew_ms[name]

    def new_id(self) -> str:
        return f"{self.rng.getrandbits(64):016x}"

    def configured(self, name: str) -> tuple[str, ...]:
        return self.plan.names

    def processes(self) -> list[Process]:
        """The present instances that run."""
        return [n.process for n in self.nodes.values() if n.process is not None and not n.process.gone]

    def masters(self) -> set[str]:
        """Everybody who is the master, or is said to be by anybody, or may become it."""
        found = {self.master}
        for process in self.processes():
            found |= {process.member.claim.master}
            if process.member._life.offer is not None:
                found.add(process.name)
        return found

    def start_node(self, node: Node) -> None:
        if not node.running:
            node.start()

    # ---- the run

    def run(self) -> None:
        """Raises AssertionError when something does not hold."""
        for node in self.nodes.values():
            most = self.plan.length_us // 2 if node.name in self.plan.late else 3 * S
            self.loop.after(self.rng.randrange(most), self.start_node, node)
        self.clients.start()
        self.faults.start()
        self._go(self.plan.length_us)
        self.calm = True
        self.network.cut.clear()
        for node in self.nodes.values():
            if node.process is not None:
                node.process.calm_down()
            if node.old is not None:
                node.old.cut_off = False
        self._go(self.plan.down_us)
        for node in self.nodes.values():
            self.start_node(node)
        self._agree()
        self._still_works()

    def _go(self, duration_us: int) -> None:
        end = self.loop.now + duration_us
        while self.loop.now < end:
            self.loop.run(min(end, self.loop.now + S), EVENTS_MAX)
            self.clients.check()

    def _agree(self) -> None:
        end = self.loop.now + AGREE_S * S
        missing = "nothing was looked at"
        while self.loop.now < end and missing:
            self._go(500 * MS)
            missing = self.watch.converged()
        assert not missing, f"no agreement {AGREE_S} s after the last fault: {missing}"

    def _still_works(self) -> None:
        """A change at every broker is decided and reaches all."""
        self._go(10 * S)
        before = self.clients.acknowledged + self.clients.refused
        assert not self.clients.open, f"{len(self.clients.open)} changes are not decided although all is well"
        for process in self.processes():
            self.clients.proposal(process)
        self._go(3 * S)
        done = self.clients.acknowledged + self.clients.refused - before
        assert done == len(self.plan.names), f"only {done} changes of {len(self.plan.names)} were decided in the end"
        missing = self.watch.converged()
        assert not missing, f"no agreement after the last changes: {missing}"
