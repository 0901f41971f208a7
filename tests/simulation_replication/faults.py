"""What goes wrong, and the people and programs that react: whoever looks for a leader, and whoever replaces a disk."""

from __future__ import annotations

from raybroker.replication import events as ev
from raybroker.replication.replica_set import MemberChange
from raybroker.replication.reports import best_copy
from tests.simulation_replication.node import Process
from tests.simulation_replication.plan import MS, S
from tests.simulation_replication.sequences import Sequences
from tests.simulation_replication.surroundings import Surroundings

LOOK_MS = 700
"""How often somebody looks whether there is a leader."""


class Faults:
    """``hurt``: copies whose disk lost something that they may have answered for; one vote of a set at most."""

    def __init__(self, world: Surroundings) -> None:
        self.world = world
        self.hurt: set[str] = set()
        self.request = 0
        self.sequences = Sequences(world, self.hurt, self._may_hurt)

    def start(self) -> None:
        self.world.loop.after(self.world.rng.randrange(LOOK_MS * MS), self.look_for_leader)
        self.next_fault()

    # ---- whoever reacts

    def look_for_leader(self) -> None:
        world, rng = self.world, self.world.rng
        world.loop.after(LOOK_MS * MS, self.look_for_leader)
        here = [process for process in world.processes() if process.works]
        suspected = not world.calm and rng.random() < world.plan.suspect_anybody / 4
        if here and (suspected or not any(process.leads for process in here if self._in_touch(process))):
            best = best_copy(process.replica.report() for process in here)
            if not world.calm and rng.random() < world.plan.suspect_anybody:
                best = rng.choice(here).replica.me
            for process in here:
                if process.replica.me == best:
                    process.feed(ev.Lead(rng.getrandbits(64)))
        if world.calm:
            self.tend()

    def _in_touch(self, process: Process) -> bool:
        """The leader has had answers of late."""
        leading = process.replica.leading
        return leading is not None and leading.lease_until_ms() + 3000 > process.now_ms()

    def change(self, change: MemberChange, copy: str) -> bool:
        """Ask whoever leads; true when somebody does."""
        for process in self.world.processes():
            if process.leads and process.works:
                self.request += 1
                process.feed(ev.ChangeSet(self.request, change, copy))
                return True
        return False

    def require(self, min_in_sync: int) -> bool:
        """Ask whoever leads for another number of voters that must have an entry; true when somebody does."""
        for process in self.world.processes():
            if process.leads and process.works:
                self.request += 1
                self.world.watch.requested[self.request] = min_in_sync
                process.feed(ev.RequireInSync(self.request, min_in_sync))
                return True
        return False

    def tend(self) -> None:
        """Bring the set back to as many copies as it should have, none of them lost."""
        world = self.world
        leader = next((process for process in world.processes() if process.leads), None)
        if leader is None:
            return
        members = leader.replica.members
        if members.min_in_sync > world.plan.voters:
            self.require(world.plan.min_in_sync)
            return
        there = {process.replica.me for process in world.processes()}
        lost = [copy for copy in members.copies if copy not in there]
        if members.learners:
            learner = members.learners[0]
            wanted = learner not in lost and len(set(members.voters) - set(lost)) < world.plan.voters
            self.change(MemberChange.PROMOTE if wanted else MemberChange.REMOVE, learner)
        elif len(members.voters) - len(lost) < world.plan.voters:
            spare = next((copy for copy in sorted(there) if copy not in members.copies), None)
            if spare is not None:
                self.change(MemberChange.ADD, spare)
        elif lost:
            self.change(MemberChange.REMOVE, lost[0])
        elif len(members.voters) > world.plan.voters:
            self.change(MemberChange.REMOVE, next(copy for copy in members.voters if copy != leader.replica.me))

    # ---- what goes wrong

    def next_fault(self) -> None:
        world, rng = self.world, self.world.rng
        world.loop.after(rng.randrange(world.plan.faults_us // 2, world.plan.faults_us * 2), self.fault)

    def fault(self) -> None:
        world, rng = self.world, self.world.rng
        if world.calm:
            return
        names = [name for name, weight in world.plan.weights.items() for _ in range(weight)]
        if names:
            name = rng.choice(names)
            getattr(self, f"_{name}")()
        self.next_fault()

    def _somebody(self) -> Process | None:
        here: list[Process] = self.world.processes()
        leaders = [process for process in here if process.leads]
        if leaders and self.world.rng.random() < 0.5:
            here = leaders
        return self.world.rng.choice(here) if here else None

    def _kill(self) -> None:
        process = self._somebody()
        if process is not None:
            self.world.count("kill")
            self.world.end(process)
            self.world.loop.after(self.world.rng.randrange(200 * MS, 6 * S), self.world.begin, process.node)

    def _usurp(self) -> None:
        self.sequences.usurp()

    def _overtake(self) -> None:
        self.sequences.overtake()

    def _outdate(self) -> None:
        self.sequences.outdate()

    def _unheal(self) -> None:
        self.sequences.unheal()

    def _restart_all(self) -> None:
        self.world.count("restart_all")
        for process in self.world.processes():
            self.world.end(process)
            self.world.loop.after(self.world.rng.randrange(200 * MS, 2 * S), self.world.begin, process.node)

    def _pause(self) -> None:
        process = self._somebody()
        if process is not None and not process.paused:
            self.world.count("pause")
            process.paused = True
            self.world.loop.after(self.world.rng.randrange(200 * MS, 8 * S), process.resume)

    def _cut(self) -> None:
        """One node is cut off, or two parts of the nodes are, both ways or one."""
        world, rng = self.world, self.world.rng
        nodes = list(range(world.plan.nodes))
        rng.shuffle(nodes)
        part = set(nodes[: rng.randrange(1, len(nodes))])
        one_way = rng.random() < 0.3
        cut = {(a, b) for a in nodes for b in nodes if (a in part) != (b in part) and (not one_way or a in part)}
        world.count("cut")
        world.network.cut |= cut
        world.loop.after(rng.randrange(300 * MS, 8 * S), world.network.cut.difference_update, cut)

    def _unlink(self) -> None:
        """The connections of a copy that lives end, and others are made."""
        process = self._somebody()
        if process is not None:
            self.world.count("unlink")
            self.world.network.unlink(process.replica.me, process.node)
            for other in self.world.processes():
                if other is not process:
                    process.feed(ev.LinkLost(other.replica.me))

    def _suspect(self) -> None:
        """Somebody takes the leader for lost although it is not."""
        process = self._somebody()
        if process is not None:
            process.feed(ev.Lead(self.world.rng.getrandbits(64)))

    def _hand_over(self) -> None:
        """An operator has the leader hand over to another copy, and the node of the old one may be cut off after it."""
        world, rng = self.world, self.world.rng
        leaders = [process for process in world.processes() if process.leads and process.works]
        if not leaders:
            return
        leader = rng.choice(leaders)
        others = [copy for copy in leader.replica.members.copies if copy != leader.replica.me]
        for to in rng.sample(others, len(others)):
            refused = world.counts["hand_over_refused"]
            leader.feed(ev.HandLeadOver(to, rng.getrandbits(64), rng.random() < 0.3))
            if world.counts["hand_over_refused"] == refused:
                world.count("handed_over")
                if rng.random() < 0.5:
                    world.loop.after(rng.randrange(world.plan.delay_us), self._cut_off, leader.node)
                return

    def _cut_off(self, node: int) -> None:
        """Nobody hears one node, and it hears nobody, for longer than a lease."""
        world = self.world
        others = [other for other in range(world.plan.nodes) if other != node]
        cut = {(node, other) for other in others} | {(other, node) for other in others}
        world.network.cut |= cut
        world.loop.after(world.rng.randrange(500 * MS, 4 * S), world.network.cut.difference_update, cut)

    def _may_hurt(self, copy: str) -> bool:
        """True while no other vote of any set that somebody knows is hurt."""
        sets = [process.replica.members for process in self.world.processes()]
        sets += [members for disk in self.world.disks.values() for members in disk.sets()]
        voting = {voter for members in sets for voter in members.voters}
        for process in self.world.processes():
            if process.replica.me in self.hurt and not process.disk.damage:
                self.hurt.discard(process.replica.me)
        enough = all(len(members.voters) > 2 for members in sets if members.voters)
        return copy not in voting or (enough and not (self.hurt & voting) - {copy})

    def _wipe(self) -> None:
        """A disk is replaced by an empty one."""
        process = self._somebody()
        if process is not None and self._may_hurt(process.replica.me):
            self.world.count("wipe")
            self.hurt.add(process.replica.me)
            self.world.end(process)
            self.world.new_disk(process.node)
            self.world.loop.after(self.world.rng.randrange(200 * MS, 4 * S), self.world.begin, process.node)

    def _flip(self) -> None:
        process = self._somebody()
        if process is not None and process.disk.entries and self._may_hurt(process.replica.me):
            self.world.count("flip")
            self.hurt.add(process.replica.me)
            self.world.end(process)
            process.disk.flip(self.world.rng)
            again = self.world.rng.choice((20 * MS, 200 * MS, 4 * S))
            self.world.loop.after(self.world.rng.randrange(MS, again), self.world.begin, process.node)

    def _clone(self) -> None:
        """A copy's folder is put on another node, in the place of one that has no vote anywhere."""
        world = self.world
        process = self._somebody()
        target = world.plan.nodes - 1
        other = world.running.get(target)
        gone = world.disks[target].copy
        if process is None or process is other or not self._may_hurt(gone):
            return
        world.count("clone")
        self.hurt.add(gone)
        if other is not None:
            world.end(other)
        world.clone_disk(process.disk, target)
        world.loop.after(world.rng.randrange(100 * MS, 2 * S), world.begin, target)

    def _require(self) -> None:
        """An operator has more voters have to have an entry, or fewer."""
        leader = next((process for process in self.world.processes() if process.leads and process.works), None)
        if leader is None or not self.require(self.world.rng.randrange(len(leader.replica.members.voters) + 2)):
            return
        self.world.count("require")
        if self.world.rng.random() < 0.4:  # Who has asked may have been told, and nobody else of it.
            self.world.end(leader)
            self.world.loop.after(self.world.rng.randrange(200 * MS, 6 * S), self.world.begin, leader.node)

    def _change(self) -> None:
        """An operator changes the set."""
        world, rng = self.world, self.world.rng
        copy = rng.choice(sorted(disk.copy for disk in world.disks.values()))
        leaders = [process for process in world.processes() if process.leads and process.works]
        if not leaders:
            return
        members = leaders[0].replica.members
        if copy in self.hurt and copy not in members.voters:
            return
        if copy in members.learners:
            self.change(rng.choice((MemberChange.PROMOTE, MemberChange.PROMOTE, MemberChange.REMOVE)), copy)
        elif copy in members.voters:
            least = 3 if self.hurt.intersection(members.voters) else 1
            if len(members.voters) > least and (len(members.voters) > world.plan.voters or rng.random() < 0.2):
                self.change(MemberChange.REMOVE, copy)
        else:
            self.change(MemberChange.ADD, copy)
