"""A node with a disk, and the process of the copy that runs there."""

from __future__ import annotations

from raybroker.replication import events as ev
from raybroker.replication.replica import TICK_MS, Replica, ReplicaRole
from tests.simulation_replication.disk import SimDisk, Writing
from tests.simulation_replication.plan import MS
from tests.simulation_replication.surroundings import Surroundings


class Process:
    """The machine of one copy and its shell; ``paused``: it stands still, and what comes waits."""

    def __init__(self, world: Surroundings, node: int, disk: SimDisk) -> None:
        self.world = world
        self.node = node
        self.disk = disk
        self.gone = self.paused = False
        self.backlog: list[ev.ReplicaEvent] = []
        world.watch.durable(disk)
        self.writing = Writing(disk, world.watch.durable, lambda token: self.feed(ev.SaveDone(token)))
        self.replica = Replica(disk.copy, disk.load(), now_ms=self.now_ms(), kept_bytes=world.plan.kept_bytes)
        world.watch.begins(self)
        world.loop.after(world.rng.randrange(TICK_MS * MS), self.tick)

    @property
    def leads(self) -> bool:
        return self.replica.role is ReplicaRole.LEADER

    @property
    def works(self) -> bool:
        return not self.gone and not self.paused

    def now_ms(self) -> int:
        """This node's monotonic clock."""
        return int(self.world.loop.now * self.world.plan.drift[self.node]) // MS

    def may_dispatch(self) -> bool:
        return self.works and self.replica.may_dispatch(self.now_ms())

    def tick(self) -> None:
        if self.gone:
            return
        if not self.paused:
            self.feed(ev.ReplicaTick())
        self.world.loop.after(TICK_MS * MS, self.tick)

    def resume(self) -> None:
        """What was about to be done before the pause is done first, and then what came meanwhile."""
        self.paused = False
        self.world.watch.look(self)
        backlog, self.backlog = self.backlog, []
        for event in backlog:
            self.feed(event)

    def feed(self, event: ev.ReplicaEvent) -> None:
        if self.gone:
            return
        if self.paused:
            self.backlog.append(event)
            return
        world = self.world
        for action in self.replica.step(event, self.now_ms()):
            match action:
                case ev.SendToCopy():
                    world.watch.sends(self, action.message)
                    world.network.send(self, action.to, action.message)
                case ev.SavePromise() | ev.SaveEntries() | ev.CutLog() | ev.InstallSnapshot():
                    world.watch.saving(self, action)
                    self.save(action.token, action)
                case ev.MakeSnapshot():
                    world.count("snapshots")
                    world.loop.after(world.rng.randrange(1, 300) * MS, self.make_snapshot, action.to)
                case _:
                    world.watch.told(self, action)
        world.watch.look(self)

    def make_snapshot(self, to: str) -> None:
        self.feed(ev.SnapshotMade(to, self.replica.committed, (b"all that is owed",)))

    # ---- the disk

    def save(self, token: int, action: ev.ReplicaAction) -> None:
        world, rng, plan = self.world, self.world.rng, self.world.plan
        delay = rng.randrange(100, plan.sync_us)
        if not world.calm and rng.random() < plan.slow_share:
            delay += rng.randrange(plan.slow_us)
        self.writing.put(token, action)
        self.writing.until = max(self.writing.until, world.loop.now + delay)
        world.loop.at(self.writing.until, self.written)

    def written(self) -> None:
        if not self.gone:
            self.writing.finish_first()

    def kill(self) -> None:
        """The process ends, as with the power."""
        self.gone = True
        self.writing.crash(self.world.rng)
