"""One seed's world: a host over a disk, machines with clients, and what goes wrong.

First the faults that the plan drew happen at random; then they end, producers stop, and everything has to drain within
``HEAL_MAX`` of simulated time.  A last restart has to find nothing, and the history has to satisfy every checker.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from raybroker.config import Config
from raybroker.engine.host import Host
from raybroker.model.errors import BrokerError
from raybroker.model.settings import destination_attributes
from tests.simulation.checkers import all_of
from tests.simulation.clients import Machine, SimProducer
from tests.simulation.consumers import SimConsumer
from tests.simulation.disk import SimCommitter, SimDisk, SimStore
from tests.simulation.events import Loop, SimClock
from tests.simulation.network import Connection
from tests.simulation.plan import MS, ConsumerPlan, draw
from tests.simulation.twin import Delta
from tests.simulation.watch import Watch

HEAL_MAX = 60_000 * MS
EVENTS_MAX = 120_000
TICK = 100 * MS


class World:
    """``run`` raises AssertionError, or whatever the broker raises, when the seed finds something."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.plan = draw(self.rng)
        self.loop = Loop()
        self.clock = SimClock(self.loop)
        self.watch = Watch(self)
        self.disk = SimDisk()
        self.host: Host | None = None
        self.store: SimStore
        self.committer: SimCommitter
        self.connections: list[Connection] = []
        self.machines: list[Machine] = []
        self.body_bytes_max: dict[int, int] = {}
        self.healing = False
        self.full_until = 0
        self.incarnation = 0
        self.counts: dict[str, int] = {}
        self._numbers = 0
        self._config = Config.of(
            {"imq.autocreate.reaptime": 1, "raybroker.memory.block_cache_bytes": self.plan.cache_bytes}
        )

    # ---- for the others --------------------------------------------------------------------------------------------

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def log(
        self, process: int, type: str, f: str, first: int, count: int, attempt: int = 0, *, persistent: bool = True  # noqa: A002
    ) -> None:  # fmt: skip
        self.watch.history.add(self.loop.now, process, type, f, first, count, attempt, persistent)

    def number_of(self, name: str) -> int:
        queue = self.host.queues.get(name) if self.host is not None else None
        return queue.number if queue is not None else 0

    def opening_failed(self, name: str, code: str, again: Callable[[], None]) -> None:
        """An endpoint was refused: create its queue if that is why, and let it try again."""
        if code == "invalid_destination":
            self.loop.after(self.rng.randrange(50 * MS), self.ensure, int(name[1:]))
        self.loop.after(self.rng.randrange(60 * MS) + 5 * MS, again)

    def has_room(self) -> bool:
        """The disk is full for a while now and then."""
        return not self.loop.now < self.full_until

    def ensure(self, index: int) -> None:
        name, plan = f"q{index}", self.plan.queues[index]
        if self.host is None or self.host.failure is not None or name in self.host.queues:
            return
        attributes = destination_attributes(plan.attributes)
        self.host.create(name, attributes, auto_created=plan.auto_created, done=_nothing)
        self.watch.wrap(self.host.queues[name])

    # ---- the host --------------------------------------------------------------------------------------------------

    def start_host(self) -> None:
        plan = self.plan
        self.incarnation += 1
        self.store = SimStore(
            self.disk, self.rng, checkpoint_entries=plan.checkpoint_entries, relocation=plan.relocation
        )
        self.store.on_free = self.watch.freed
        self.store.roomy = self.has_room
        host = Host(
            self.store, self.clock, self._config, incarnation=self.incarnation, idle=self._idle, failed=self._failed
        )
        self.committer = SimCommitter(
            self.loop, self.rng, self.store, sync_max=plan.sync_max, lag_max=plan.group_lag_max,
            failed=host.fail, durable=self.watch.durable,
        )  # fmt: skip
        host.start(self.committer)
        self.host = host
        self.watch.recovered(host)

    def crash(self) -> None:
        if self.host is None:
            return
        self.host = None
        self.committer.stop()
        self.watch.crash()
        for connection in self.connections:
            if connection.host_open:
                connection.host_dies()
        self.connections.clear()
        self.loop.after(self.rng.randrange(50 * MS), self.start_host)

    def _failed(self, error: BrokerError) -> None:
        assert self.store.dead, f"the host stopped although the disk is well: {error}"
        self.loop.after(self.rng.randrange(20 * MS), self.crash)

    def _idle(self, name: str) -> None:
        self._destroy(name)

    def _destroy(self, name: str) -> None:
        host = self.host
        if host is None or host.failure is not None or name not in host.queues:
            return
        queue = host.queues[name]
        twin = self.watch.twins[queue.number]
        self._note_destroyed({m.value for m in twin.messages.values()} | twin.taken)
        delta = self.committer.delta = Delta(queue.number)
        delta.gone = True
        host.destroy(name, _nothing)

    def _note_destroyed(self, values: set[int]) -> None:
        """A destination forgets what it took: a retry of that would be a new message."""
        for value in sorted(values):
            self.log(0, "ok", "destroy", value, 1)

    def _tick(self) -> None:
        self.loop.after(TICK, self._tick)
        if self.host is None:
            return
        dormant = {queue.number for _, queue in self.host.dormant.values()}
        self.host.tick()
        for number in sorted(dormant - {queue.number for _, queue in self.host.dormant.values()}):
            self._note_destroyed(self.watch.disks[number].taken)

    # ---- faults ----------------------------------------------------------------------------------------------------

    def _schedule(self, name: str) -> None:
        mean = self.plan.rates[name]
        if mean:
            self.loop.after(int(self.rng.expovariate(1 / mean)) + 1, self._fault, name)

    def _fault(self, name: str) -> None:
        if self.healing:
            return
        self._schedule(name)
        self.counts[name] = self.counts.get(name, 0) + 1
        rng = self.rng
        machine = rng.choice(self.machines)
        queue = f"q{rng.randrange(len(self.plan.queues))}"
        host = self.host if self.host is not None and self.host.failure is None else None
        if name == "crash":
            self.crash()
        elif name == "disk_error":
            self.store.dead = True
        elif name == "connection_loss":
            if machine.connection is not None:
                machine.connection.lose()
        elif name == "machine_crash":
            machine.crash()
        elif name == "clock_jump":
            self.clock.offset_ms += rng.randrange(-3_600_000, 3_600_000)
        elif name == "checkpoint":
            self.store.want_checkpoint = True
        elif name == "disk_full":
            self.full_until = self.loop.now + rng.randrange(80 * MS)
        elif name == "damage":
            self._damage()
        elif name == "pause":
            machine.pause()
        elif host is not None and queue in host.queues:
            self._administer(name, queue, host)
        if name in ("consumer_close", "consumer_release", "slow"):
            self._trouble(name, [c for m in self.machines for c in m.consumers])

    def _damage(self) -> None:
        """A block rots; once it is read its queue halts, and some time later somebody purges it."""
        blocks = sorted(self.disk.blocks)
        if blocks:
            self.disk.damaged.add(self.rng.choice(blocks))
        self.loop.after(self.rng.randrange(300 * MS), self._purge_halted)

    def _purge_halted(self) -> None:
        if self.host is not None and self.host.failure is None:
            for name in [n for n, queue in self.host.queues.items() if queue.number in self.host.halted]:
                self.host.purge(name, _nothing)

    def _administer(self, name: str, queue: str, host: Host) -> None:
        if name == "purge":
            host.purge(queue, _nothing)
        elif name == "destroy":
            self._destroy(queue)
        elif name == "update":
            active = self.rng.choice((-1, 1, 2, 3))
            host.update(queue, {"maxNumActiveConsumers": active, "maxNumMsgs": self.rng.choice((-1, 10, 40))}, _nothing)

    def _trouble(self, name: str, consumers: list[SimConsumer]) -> None:
        consumer = self.rng.choice(consumers)
        if name == "consumer_close":
            consumer.close()
        elif name == "consumer_release":
            consumer.release()
        else:
            consumer.slow_until = self.loop.now + 300 * MS

    # ---- the run ---------------------------------------------------------------------------------------------------

    def run(self) -> None:
        self.start_host()
        for index in range(len(self.plan.queues)):
            self.ensure(index)
        for producers, consumers in self.plan.machines:
            machine = Machine(self)
            machine.producers = [SimProducer(self, machine, plan) for plan in producers]
            machine.consumers = [SimConsumer(self, machine, plan) for plan in consumers]
            self.machines.append(machine)
            machine.connect_later()
        self._tick()
        for name in self.plan.rates:
            self._schedule(name)
        self.loop.run(self.plan.duration, EVENTS_MAX)
        self._heal()
        self._restart_finds_nothing()
        wrong = all_of(list(self.watch.history.ops()))
        assert not wrong, "; ".join(wrong[:5])

    def _heal(self) -> None:
        self.healing = True
        if self.store.dead:
            self.crash()
        helper = Machine(self)
        helper.consumers = [
            SimConsumer(self, helper, ConsumerPlan(index, "credit", 50, 50, "all", MS, 20))
            for index in range(len(self.plan.queues))
        ]
        self.machines.append(helper)
        helper.connect_later()
        end = self.loop.now + HEAL_MAX
        while not self._drained():
            assert self.loop.now < end, f"not drained: {self._leftovers()}"
            self.loop.run(self.loop.now + 20 * MS, EVENTS_MAX)
            self._purge_halted()

    def _drained(self) -> bool:
        host = self.host
        if host is None or not self.committer.idle or any(q.ledger.messages for q in host.queues.values()):
            return False
        return all(p.settled_all for m in self.machines for p in m.producers)

    def _leftovers(self) -> str:
        if self.host is None:
            return "the host is down"
        rows = [
            f"{q.name}: {q.ledger.messages} held, {q.backlog.count} waiting, {len(q.consumers.by_attachment)} consumers"
            for q in self.host.queues.values()
        ]
        rows += [
            f"producer {p.state.producer}: {len(p.state.unsettled)} unsettled, {len(p.state.ready)} ready"
            for m in self.machines for p in m.producers if not p.settled_all
        ]  # fmt: skip
        return "; ".join(rows)

    def _restart_finds_nothing(self) -> None:
        self.loop.run(self.loop.now + 100 * MS, EVENTS_MAX)
        self.crash()
        self.loop.run(self.loop.now + 60 * MS, EVENTS_MAX)
        assert self.host is not None
        for queue in self.host.queues.values():
            assert not queue.ledger.messages, f"{queue.ledger.messages} acknowledged messages are back in {queue.name}"


def _nothing() -> None:
    """Nobody waits for it."""


def run_seed(seed: int) -> World:
    """Run one seed to its end."""
    world = World(seed)
    world.run()
    return world
