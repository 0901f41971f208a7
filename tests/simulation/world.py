"""One seed's world: a host over a disk, machines with clients, and what goes wrong.

First the faults that the plan drew happen at random; then they end, producers stop, and everything has to drain within
``HEAL_MAX`` of simulated time.  A last restart has to find nothing, and the history has to satisfy every checker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from raybroker.config import Config
from raybroker.core.delivery import plain
from raybroker.engine.host import BodyPlaces, Host, HostIdentity, Surroundings
from raybroker.model.definitions.quota import quota_of
from raybroker.model.errors import BrokerError
from raybroker.model.naming.units import default_unit
from raybroker.model.settings.settings import destination_attributes
from tests.simulation.checkers import Units, all_of, atomic
from tests.simulation.clients import Machine, SimProducer
from tests.simulation.consumers import SimConsumer
from tests.simulation.disk import SimCommitter, SimDisk, SimStore
from tests.simulation.events import Loop, SimClock
from tests.simulation.faults import Faults
from tests.simulation.large import SimWorker, small_pieces
from tests.simulation.messages import COLOURS, colour_of, num_of, unit_of
from tests.simulation.network import Connection
from tests.simulation.plan import DMQ, MS, ConsumerPlan, draw
from tests.simulation.transactors import SimTransactor, Unit
from tests.simulation.watch import Watch

HEAL_MAX = 60_000 * MS
EVENTS_MAX = 120_000
TICK = 100 * MS
SWEEP = 200 * MS


class World:
    """``run`` raises AssertionError, or whatever the broker raises, when the seed finds something.

    ``decisions``: what was decided about prepared transactions, by key; ``active``: keys whose client sees to them;
    ``properties``: of the broker, beside those that the seed chooses; ``quotas``: name → attributes, each destination
    refers to one of them.
    """

    def __init__(
        self,
        seed: int,
        properties: Mapping[str, object] | None = None,
        quotas: Mapping[str, Mapping[str, object]] | None = None,
    ) -> None:
        self.rng = Random(seed)
        self.plan = draw(self.rng)
        self.loop = Loop()
        self.clock = SimClock(self.loop)
        self.began_ms = 0
        self.watch = Watch(self)
        self.disk = SimDisk()
        self.faults = Faults(self)
        self.host: Host | None = None
        self.store: SimStore
        self.committer: SimCommitter
        self.connections: list[Connection] = []
        self.machines: list[Machine] = []
        self.body_bytes_max: dict[int, int] = {}
        self.with_headers: dict[int, bool] = {}
        self.units_of: dict[int, int] = {}
        self.default_units = {default_unit(plan.kind, plan.name) for plan in self.plan.destinations}
        self.transactional: set[int] = set()
        self.units: list[Unit] = []
        self.decisions: dict[bytes, bool] = {}
        self.active: set[bytes] = set()
        self.destroyed: set[int] = set()
        self.healing = False
        self.full_until = 0
        self.incarnation = 0
        self._numbers = 0
        self._alarm_at = -1
        self.quotas = {name: quota_of(given) for name, given in (quotas or {}).items()}
        self.named: dict[int, str] = {}
        """Destination, by its place in the plan → the quota it refers to, where that is not the first choice."""
        self._config = Config.from_values(
            {
                "imq.autocreate.reaptime": 1,
                "raybroker.memory.block_cache_bytes": self.plan.cache_bytes,
                "imq.message.expiration.interval": self.plan.scan_s,
                "raybroker.transaction.timeout_ms": self.plan.transaction_timeout_ms,
                "imq.txn.reapLimit": self.plan.remembered_max,
                **(properties or {}),
            }
        )

    @property
    def counts(self) -> dict[str, int]:
        return self.faults.counts

    # ---- for the others --------------------------------------------------------------------------------------------

    @property
    def running(self) -> Host | None:
        return self.host if self.host is not None and self.host.failure is None else None

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def log(
        self,
        process: int,
        type: str,
        f: str,
        first: int,
        count: int,
        attempt: int = 0,
        *,
        persistent: bool = True,
        where: int = 0,
    ) -> None:
        self.watch.history.add(self.loop.now, process, type, f, first, count, attempt, persistent, where)

    def opening_failed(self, index: int, code: str, again: Callable[[], None]) -> None:
        """An endpoint was refused: create its destination if that is why, and let it try again."""
        if code == "invalid_destination":
            self.loop.after(self.rng.randrange(50 * MS), self.ensure, index)
        self.loop.after(self.rng.randrange(60 * MS) + 5 * MS, again)

    def has_room(self) -> bool:
        """The disk is full for a while now and then."""
        return not self.loop.now < self.full_until

    def ensure(self, index: int) -> None:
        plan, host = self.plan.destinations[index], self.running
        if host is None or plan.key in host.registry.destinations:
            return
        quota = {"quota": self.quota_of_destination(index)} if plan.name != DMQ else {}
        attributes = destination_attributes({**plan.attributes, **quota}, type=plan.kind)
        host.administration.create(plan.name, attributes, auto_created=plan.auto_created, done=_nothing, kind=plan.kind)
        self.watch.wrap(host.registry.destinations[plan.key])

    def quota_of_destination(self, index: int) -> str:
        return self.named.get(index) or (list(self.quotas)[index % len(self.quotas)] if self.quotas else "")

    def unit_of(self, value: int) -> str | None:
        """The unit of order that a message's producer has stamped on it; it has none while it is dead."""
        if value in self.watch.codec.dead:
            return None
        root = self.watch.codec.root(value)
        return unit_of(root, self.units_of.get(root >> 32, 0))

    def ordered_by(self, value: int) -> str | None:
        """The unit of a message that has its place in it; what was dead comes after others, and to several queues."""
        return None if value in self.watch.codec.old else self.unit_of(value)

    # ---- the host --------------------------------------------------------------------------------------------------

    def start_host(self) -> None:
        plan = self.plan
        self.incarnation += 1
        self.began_ms = self.clock.offset_ms
        self.store = SimStore(
            self.disk, self.rng, checkpoint_entries=plan.checkpoint_entries, relocation=plan.relocation
        )
        self.store.on_free = self.watch.freed
        self.store.roomy = self.has_room
        store, large = self.store, "large" in plan.features
        host = Host(
            self.store,
            self.clock,
            self._config,
            codec=self.watch.codec,
            identity=HostIdentity(self.incarnation, self.next_number(), "b1"),
            places=BodyPlaces(
                bodies=store if large else None,
                worker=SimWorker(self.loop, self.rng, plan.sync_max, lambda: store.gone) if large else None,
            ),
            surroundings=Surroundings(idle=self._idle, failed=self._failed, alarm=self._alarm),
        )
        self.committer = SimCommitter(
            self.loop,
            self.rng,
            self.store,
            sync_max=plan.sync_max,
            lag_max=plan.group_lag_max,
            failed=host.executor.fail,
            durable=self.watch.durable,
            snapshot=self.watch.snapshot,
        )
        host.pools.quotas = dict(self.quotas)
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

    def _alarm(self, at_ms: int) -> None:
        """One alarm is set at a time, for the earliest that was asked for."""
        delay = max(at_ms - self.began_ms - self.loop.now // MS, 0) * MS
        if delay < TICK and not self.loop.now <= self._alarm_at <= self.loop.now + delay:
            at = self._alarm_at = self.loop.now + delay + self.rng.randrange(5 * MS)
            self.loop.at(at, lambda: self._let_act() if self._alarm_at == at else None)

    def _idle(self, kind: str, name: str) -> None:
        self.loop.after(0, self.destroy, kind, name)

    def destroy(self, kind: str, name: str) -> None:
        host = self.running
        if host is not None and (kind, name) in host.registry.destinations and self.faults.destroy(host, kind, name):
            self.destroyed.update(i for i, plan in enumerate(self.plan.destinations) if plan.key == (kind, name))

    def note_destroyed(self, values: set[int]) -> None:
        for value in sorted(values):
            self.log(0, "ok", "destroy", value, 1)

    def _tick(self) -> None:
        self.loop.after(TICK, self._tick)
        self._let_act()
        if self.running is not None and self.plan.scan_s and not self.plan.rates["clock_jump"]:
            self.watch.check_scanned(self.plan.scan_s * 1200 * MS)

    def _let_act(self) -> None:
        self._alarm_at = -1
        host = self.running
        if host is None:
            return
        dormant = {destination.number for _, destination in host.registry.dormant.values()}
        host.tick()
        for number in sorted(dormant - {destination.number for _, destination in host.registry.dormant.values()}):
            self.note_destroyed(self.watch.disks[number].taken)

    def _sweep(self) -> None:
        """Tell the host how prepared transactions ended whose clients are gone."""
        self.loop.after(SWEEP, self._sweep)
        host = self.running
        for row in host.transactions.transaction_rows() if host is not None else ():
            key = bytes.fromhex(row["key"])
            if row["state"] == "PREPARED" and key not in self.active and host is self.running and host is not None:
                host.transactions.decide(key, self.decisions.setdefault(key, False), _nothing)

    # ---- the run ---------------------------------------------------------------------------------------------------

    def run(self) -> None:
        sort_max, plain.SORT_MESSAGES_MAX = plain.SORT_MESSAGES_MAX, self.plan.sort_max
        try:
            with small_pieces("large" in self.plan.features):
                self._run()
        finally:
            plain.SORT_MESSAGES_MAX = sort_max

    def _class_of(self, value: int) -> int | None:
        """The messages among which this one has its place: of one priority, and where there are batches of one key."""
        level = self.watch.classes.get(value, 4)
        by_colour = any("affinityKey" in one.attributes for one in self.plan.destinations) or any(
            consumer.batch is not None for machine in self.plan.machines for consumer in machine.consumers
        )
        if level is None or not by_colour:
            by_version = any("versionKey" in one.attributes for one in self.plan.destinations)
            return level if level is None or not by_version else level + 10 * num_of(self.watch.codec.root(value))
        return level + 10 * COLOURS.index(colour_of(self.watch.codec.root(value)))

    def _run(self) -> None:
        self.start_host()
        for index in range(len(self.plan.destinations)):
            self.ensure(index)
        for plan in self.plan.machines:
            machine = Machine(self, plan.client_id)
            machine.producers = [SimProducer(self, machine, p) for p in plan.producers]
            machine.consumers = [SimConsumer(self, machine, p) for p in plan.consumers]
            machine.transactors = [SimTransactor(self, machine, p) for p in plan.transactors]
            self.machines.append(machine)
            machine.connect_later()
        self._tick()
        self._sweep()
        self.faults.start()
        self.loop.run(self.plan.duration, EVENTS_MAX)
        self._heal()
        self._restart_finds_nothing()
        units = Units(self.ordered_by, lambda process: self.watch.session_of.get(process, process))
        wrong = all_of(list(self.watch.history.ops()), self._class_of, units)
        for unit in self.units:
            stored = [
                value
                for value, (persistent, where, destination) in unit.sent.items()
                if persistent and not where and destination not in self.destroyed
            ]
            stored = [value for value in stored if value not in self.watch.refused]
            wrong += atomic(stored, self.watch.committed)
        assert not wrong, "; ".join(wrong[:5])

    def _heal(self) -> None:
        self.healing = True
        if self.store.dead:
            self.crash()
        helper = Machine(self)
        helper.consumers = [
            SimConsumer(self, helper, ConsumerPlan(index, "credit", 50, 50, "all", MS, 20, drain=self.plan.scan_s > 0))
            for index, plan in enumerate(self.plan.destinations)
            if plan.kind == "queue"
        ]
        self.machines.append(helper)
        helper.connect_later()
        end = self.loop.now + HEAL_MAX
        while not self._drained():
            assert self.loop.now < end, f"not drained: {self._leftovers()}"
            self.loop.run(self.loop.now + 20 * MS, EVENTS_MAX)
            self.faults.make_way()
            self.faults.end_drains()

    def _drained(self) -> bool:
        host = self.host
        if host is None or not self.committer.idle:
            return False
        if any(destination.block_index.messages for destination in host.registry.destinations.values()):
            return False
        if host.transactions.by_number or not all(t.settled for m in self.machines for t in m.transactors):
            return False
        return all(p.settled_all for m in self.machines for p in m.producers)

    def _leftovers(self) -> str:
        if self.host is None:
            return "the host is down"
        rows = [
            f"{destination.name}: {destination.block_index.messages} held, {destination.block_index.dead} dying,"
            f" {list(destination.staged)} staged,"
            f" queue {n}: {queue.plain.backlog.count} wait, {queue.delayed.count} rest,"
            f" consumers {list(queue.consumers.by_attachment)}"
            for destination in self.host.registry.destinations.values()
            for n, queue in destination.queues.items()
        ]
        rows += [
            f"producer {p.state.producer}: {len(p.state.unsettled)} unsettled, {len(p.state.ready)} ready"
            for m in self.machines
            for p in m.producers
            if not p.settled_all
        ]
        rows += [f"transactor: {t.step}" for m in self.machines for t in m.transactors if not t.settled]
        rows += [f"transaction {t.number}: {t.state}" for t in self.host.transactions.by_number.values()]
        return "; ".join(rows)

    def _restart_finds_nothing(self) -> None:
        self.loop.run(self.loop.now + 100 * MS, EVENTS_MAX)
        assert self.host is not None
        coming = [number for one in self.host._bodies._sessions.values() for number in one.coming]
        assert not coming, f"bodies {coming} are kept, and their messages are not sent any more"
        self.crash()
        self.loop.run(self.loop.now + 60 * MS, EVENTS_MAX)
        assert self.host is not None
        for destination in self.host.registry.destinations.values():
            assert not destination.block_index.messages, (
                f"{destination.block_index.messages} acknowledged messages are back in {destination.name}"
            )


def _nothing() -> None:
    """Nobody waits for it."""


def run_seed(seed: int) -> World:
    """Run one seed to its end."""
    world = World(seed)
    world.run()
    return world
