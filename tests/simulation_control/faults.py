"""What goes wrong, and what administrators do meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raybroker.cluster.backup import dump
from raybroker.cluster.change_record import RecordState
from raybroker.cluster.member import backed_up, restored
from raybroker.cluster.saved_record import load_frames
from tests.simulation_control.disk import SimDisk
from tests.simulation_control.node import Node, Process
from tests.simulation_control.plan import MS, S

if TYPE_CHECKING:
    from tests.simulation_control.surroundings import Surroundings


class Faults:
    """``backups``: what administrators have put aside, newest last."""

    def __init__(self, world: Surroundings) -> None:
        self.world = world
        self.backups: list[bytes] = []
        self._make = {
            "crash": self._crash,
            "crash all": self._crash_all,
            "partition": self._partition,
            "one way": self._one_way,
            "isolate": self._isolate,
            "disk error": self._disk_error,
            "change master": self._change_master,
            "second instance": self._second_instance,
            "backup": self._backup,
            "restore": self._restore,
            "leave": self._leave,
            "disk lost": self._disk_lost,
            "compress": self._compress,
            "table down": self._table_down,
            "table restored": self._table_restored,
        }
        assert self._make.keys() == world.plan.rates.keys()

    def start(self) -> None:
        for name in self._make:
            self._schedule(name)

    def _schedule(self, name: str) -> None:
        mean = self.world.plan.rates[name]
        if mean:
            self.world.loop.after(1 + int(self.world.rng.expovariate(1 / mean)), self._happen, name)

    def _happen(self, name: str) -> None:
        if not self.world.calm:
            self._schedule(name)
            self.world.count(name)
            self._make[name]()

    def _some(self) -> Process | None:
        processes = self.world.processes()
        return self.world.rng.choice(processes) if processes else None

    # ---- brokers

    def _crash(self) -> None:
        process = self._some()
        if process is not None:
            self._stop(process.node)

    def _crash_all(self) -> None:
        for process in self.world.processes():
            self._stop(process.node)

    def _stop(self, node: Node) -> None:
        rng = self.world.rng
        if node.process is not None:
            node.process.write_half()
        node.crash(power=rng.random() < 0.5)
        self._start_later(node)

    def _start_later(self, node: Node) -> None:
        self.world.loop.after(self.world.rng.randrange(MS, self.world.plan.down_us), self.world.start_node, node)

    def _disk_error(self) -> None:
        process = self._some()
        if process is not None:
            process.io.fail_in = self.world.rng.choice((0, 1, 2, 3, 4, 5, 5, 5))
            self._start_later(process.node)
            if self.world.rng.random() < 0.5:
                process.compress()
                self.world.loop.after(self.world.rng.randrange(4 * S), self._stop, process.node)

    def _leave(self) -> None:
        process = self._some()
        if process is not None:
            process.leave()
            self._start_later(process.node)

    def _second_instance(self) -> None:
        """A broker is cut off, declared dead and started again; the old instance comes back from the silence."""
        process = self._some()
        if process is None or (process.node.old is not None and not process.node.old.gone):
            return
        node, loop, rng = process.node, self.world.loop, self.world.rng
        process.cut_off = True

        def replace() -> None:
            if node.process is process and not process.gone and not self.world.calm:
                process.fence()
                node.old, node.process = process, None
                node.start()

        loop.after(rng.randrange(MS, 3 * S), replace)
        loop.after(rng.randrange(S, 8 * S), process.reconnect)

    def _disk_lost(self) -> None:
        """A broker that is no master comes back with nothing."""
        process = self._some()
        world = self.world
        if process is None or not world.plan.with_record or process.name in world.masters():
            return
        node = process.node
        process.die()
        node.disk, node.actual, node.held = SimDisk(), RecordState(), ""
        world.watch.forget_copy(node.name)
        self._start_later(node)

    # ---- the shared table

    def _table_down(self) -> None:
        assert self.world.database is not None
        self.world.database.go_down(self.world.rng.randrange(100 * MS, 12 * S))

    def _table_restored(self) -> None:
        assert self.world.database is not None
        self.world.database.restore()

    # ---- links

    def _partition(self) -> None:
        names = self.world.plan.names
        side = {name for name in names if self.world.rng.random() < 0.5}
        self._cut({(a, b) for a in names for b in names if (a in side) != (b in side)})

    def _one_way(self) -> None:
        a, b = self.world.rng.sample(self.world.plan.names, 2)
        self._cut({(a, b)})

    def _isolate(self) -> None:
        self._alone(self.world.rng.choice(self.world.plan.names))

    def _alone(self, alone: str) -> None:
        others = [name for name in self.world.plan.names if name != alone]
        self._cut({(alone, name) for name in others} | {(name, alone) for name in others})

    def _cut(self, links: set[tuple[str, str]]) -> None:
        network, rng = self.world.network, self.world.rng
        network.cut |= links
        self.world.loop.after(rng.randrange(100 * MS, 6 * S), lambda: network.cut.difference_update(links))

    # ---- administrators

    def _change_master(self) -> None:
        process, rng = self._some(), self.world.rng
        is_master = [p for p in self.world.processes() if p.member.is_master]
        if is_master and rng.random() < 0.9:
            process = rng.choice(is_master)
        if process is not None:
            self.world.clients.change_master(process, rng.choice((*self.world.plan.names, "nobody")))
            if rng.random() < 0.4:
                self.world.loop.after(rng.randrange(500 * MS), self._stop, process.node)

    def deciding(self, process: Process) -> None:
        """A broker is writing whom it follows: the worst moment to die, and to come back to alone."""
        world = self.world
        if world.calm or world.rng.random() < 0.6:
            return
        world.count("died while deciding")

        def die() -> None:
            self._alone(process.name)
            self._stop(process.node)

        world.loop.after(world.rng.randrange(world.plan.sync_us), die)

    def _compress(self) -> None:
        process = self._some()
        if process is not None:
            process.compress()

    def _backup(self) -> None:
        """Of a broker that runs, or of one that does not."""
        node = self.world.rng.choice(list(self.world.nodes.values()))
        if node.running:
            assert node.process is not None
            member = node.process.member
            if member.opened and member.record.id == member.durable.record:
                self.backups.append(dump(member.record, number=member.durable.number))
        elif load_frames(node.frames()).record is not None:
            self.backups.append(backed_up(node.frames()))

    def _restore(self) -> None:
        """All brokers stop, one gets the backup and is the master of a new term."""
        world = self.world
        if not self.backups or any(node.old is not None and not node.old.gone for node in world.nodes.values()):
            return
        for node in world.nodes.values():
            node.crash(power=world.rng.random() < 0.3)
        terms = {}
        for node in world.nodes.values():
            claim = load_frames(node.frames()).claim
            terms[node.name] = claim.term if claim is not None else 0
        newest = max(terms.values())
        name = world.rng.choice([name for name, term in terms.items() if term == newest])
        node = world.nodes[name]
        world.master = name
        backup = world.rng.choice(self.backups)
        frames = restored(node.frames(), backup, name=name, master=name, new_id=world.new_id())
        node.replace(frames)
        world.watch.written(node, frames)
        world.count("restored")
        for node in world.nodes.values():
            self._start_later(node)
