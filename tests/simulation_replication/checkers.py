"""What has to hold at every moment, and in the end.

one register   an index that was ever committed has one entry, for ever, and a later term's leader has it
on disks       what is committed has been on the disks of a quorum of the leader's voters
required       what was answered to have to be on so many disks before it is released is, whoever leads
told           what a copy says of its disk is so, and no disk loses what is committed unnoticed
cuts           no copy that has promised the term in which an entry was committed, or a later one, cuts it off
promises       no disk takes a promise back; a term has one leader
leases         two copies never give out messages at the same time, also after a pause between the look and the use
sets           a leader counts by a replica set that its own log has
order          the log is one order of all batches, as one log at one place has it: each is there once at most, every
               confirmed one is, and one that was begun after another was confirmed comes behind it, whether anybody
               heard of it or not
"""

from __future__ import annotations

from dataclasses import dataclass

from raybroker.replication import events as ev
from raybroker.replication.messages import Appended, CopyMessage, Promised
from raybroker.replication.positions import BEGINNING, NO_TERM, EntryKind, Term
from raybroker.replication.replica_set import unpacked_set
from tests.simulation_replication.disk import SimDisk
from tests.simulation_replication.node import Process
from tests.simulation_replication.surroundings import Surroundings


@dataclass(slots=True)
class Batch:
    """What a client sent.  ``floor``: the highest index that was confirmed to anybody before."""

    name: bytes
    floor: int
    index: int = 0
    chain: bytes = b""


class Watch:
    """``register``: index → chain of what was committed; ``committed_in``: index → term of the leader that did it.

    ever  copy → chains that its disk has had
    cut   copy → those of them that it was told to cut off and was not given again
    """

    def __init__(self, world: Surroundings) -> None:
        self.world = world
        self.before: dict[bytes, bytes] = {}
        self.names: dict[bytes, bytes] = {}
        self.register: dict[int, bytes] = {0: BEGINNING.chain}
        self.committed_in: dict[int, Term] = {}
        self.top, self.top_term = 0, NO_TERM
        self.leaders: dict[Term, str] = {}
        self.promises: dict[str, Term] = {}
        self.ever: dict[str, set[bytes]] = {}
        self.cut: dict[str, set[bytes]] = {}
        self.lost: dict[str, set[bytes]] = {}
        """Copy → what it had before a damage, and not when it was healed; until its disk says that it is."""
        self.gone: dict[str, set[bytes]] = {}
        """The same from then on, until its disk has it again."""
        self.installed: dict[str, int] = {}
        """Copy → the highest index of a snapshot that its disk has had."""
        self.open: dict[tuple[str, int], Batch] = {}
        """(leader's copy, index) → the batch that waits there."""
        self.confirmed_top = 0
        self.confirmed: list[Batch] = []
        self.floors: dict[bytes, int] = {}
        """Name of a batch → the highest index that was confirmed when it was begun."""
        self.changes: dict[int, str | None] = {}
        self.requested: dict[int, int] = {}
        """Request → how many voters were asked to have to have an entry, while it may come true."""
        self.required = (0, world.plan.min_in_sync)
        """What was answered to be so, from which index on."""

    # ---- what happens

    def saving(self, process: Process, action: ev.ReplicaAction) -> None:
        if isinstance(action, ev.SavePromise) and process.disk.damage and not action.damage:
            self._keeps(process, self._had(process), "is healed")
            self._loses(process)
        if isinstance(action, ev.InstallSnapshot):
            self._keeps(process, {entry.at.chain for entry in process.disk.entries}, "takes a snapshot")
        if isinstance(action, ev.CutLog):
            self._cuts(process, action.index)
        if not isinstance(action, ev.SaveEntries):
            return
        self.cut.get(process.replica.me, set()).difference_update(entry.at.chain for entry in action.entries)
        log = process.replica._state.log
        first = action.entries[0].at
        before = log.position_at(first.index - 1)
        chain = self.before.get(first.chain, b"") if before is None else before.chain
        for entry in action.entries:
            self.before[entry.at.chain] = chain
            chain = entry.at.chain
            if entry.kind is EntryKind.BATCH:
                self.names[chain] = b"".join(entry.body)[:8]

    def _cuts(self, process: Process, index: int) -> None:
        """What is cut off was not committed, as far as this copy's promises reach: a leader of an earlier term may have
        sent something else to a copy that a later one did not ask. What was cut off so may still be committed."""
        me = process.replica.me
        pending = [one for _, one in process.writing.pending if isinstance(one, ev.SaveEntries)]
        entries = [*process.disk.entries, *(entry for one in pending for entry in one.entries)]
        for at in [entry.at for entry in entries if entry.at.index > index]:
            if self.register.get(at.index) == at.chain:
                promised, term = process.replica.promised, self.committed_in[at.index]
                assert promised < term, f"copy {me} cuts entry {at.index} off, which was committed in term {term}"
            self.cut.setdefault(me, set()).add(at.chain)

    def _loses(self, process: Process) -> None:
        """A copy is healed without what was not committed when its leader, which knew of the damage, said so: what it
        had answered of that counts no more, and may be committed by others. So it is once the disk says that it is."""
        log = process.replica._state.log
        here = {at.chain for index in range(log.base.index, log.last.index + 1) if (at := log.position_at(index))}
        self.lost[process.replica.me] = self._had(process) - here

    def _had(self, process: Process) -> set[bytes]:
        """What the copy has had, was not told to cut off, and was not healed without."""
        me = process.replica.me
        return self.ever.get(me, set()) - self.cut.get(me, set()) - self.gone.get(me, set())

    def sends(self, process: Process, message: CopyMessage) -> None:
        """What is told is on disk."""
        disk = process.disk
        if isinstance(message, Promised):
            assert disk.promised >= message.term, f"copy {disk.copy} promises {message.term}, its disk does not"
        if isinstance(message, Appended) and message.index > disk.base.index:
            assert disk.last.index >= message.index, f"copy {disk.copy} has {message.index} entries, its disk has not"

    def begins(self, process: Process) -> None:
        """A disk that says nothing of a damage has what it had."""
        if not process.disk.damage:
            self._keeps(process, self._had(process), "begins")

    def _keeps(self, process: Process, had: set[bytes], what: str) -> None:
        """Of what the copy had, it has what is committed."""
        log = process.replica._state.log
        for index in range(log.base.index + 1, self.top + 1):
            if self.register[index] in had:
                at = log.position_at(index)
                assert at is not None, f"copy {process.replica.me} {what} without entry {index}"
                assert at.chain == self.register[index], f"copy {process.replica.me} {what} with another entry {index}"

    def durable(self, disk: SimDisk) -> None:
        known = self.promises.get(disk.copy)
        assert known is None or disk.promised >= known, f"copy {disk.copy} takes its promise of {known} back"
        self.promises[disk.copy] = disk.promised
        if not disk.damage:
            self.gone.setdefault(disk.copy, set()).update(self.lost.pop(disk.copy, ()))
        gone = self.gone.get(disk.copy, set())
        ever = self.ever.setdefault(disk.copy, set())
        ever.add(disk.base.chain)
        self.installed[disk.copy] = max(self.installed.get(disk.copy, 0), disk.base.index)
        for entry in reversed(disk.entries):
            if entry.at.chain in gone:
                gone.remove(entry.at.chain)
            elif entry.at.chain in ever:
                break
            ever.add(entry.at.chain)

    def told(self, process: Process, action: ev.ReplicaAction) -> None:
        world, me = self.world, process.replica.me
        match action:
            case ev.LeaderBegan():
                world.count("leaders")
                assert self.leaders.setdefault(action.term, me) == me, f"two leaders of {action.term}"
                self._counts_by_its_log(process)
                if action.term > self.top_term:
                    self._has_all(process)
            case ev.EntriesReleased():
                self._released(process, action.index)
            case ev.LeaderEnded():
                world.count("deposed")
                for place in [place for place in self.open if place[0] == me]:
                    del self.open[place]
            case ev.SetChanged():
                world.count("changed" if not action.reason else "change_refused")
                self.changes[action.request] = action.reason
                if not action.reason and action.request in self.requested:
                    self.required = process.replica._state.log.members_index, self.requested[action.request]
                    # One before it is superseded, or was cut off.
                    self.requested = {one: least for one, least in self.requested.items() if one > action.request}
            case ev.NotElected():
                world.count("not_elected")
            case ev.HandOverRefused():
                world.count("hand_over_refused")
            case ev.Stopped():
                raise AssertionError(f"copy {me} stopped: {action.reason}")

    def forget(self, process: Process) -> None:
        """A process ended: nobody hears what becomes of its batches."""
        for place in [place for place in self.open if place[0] == process.replica.me]:
            del self.open[place]

    def begun(self, process: Process, name: bytes) -> None:
        """A client's batch was appended."""
        index = process.replica.last.index
        self.floors[name] = self.confirmed_top
        self.open[process.replica.me, index] = Batch(name, self.confirmed_top, index, process.replica.last.chain)

    # ---- what has to hold

    def _has_all(self, process: Process) -> None:
        log = process.replica._state.log
        assert log.last.index >= self.top, (
            f"copy {process.replica.me} leads with {log.last.index} entries, {self.top} are committed"
        )
        for index in range(log.base.index, self.top + 1):
            at = log.position_at(index)
            assert at is not None
            assert at.chain == self.register[index], f"copy {process.replica.me} leads with another entry {index}"

    def _counts_by_its_log(self, process: Process) -> None:
        log = process.replica._state.log
        entries = log.after(log.base.index, log.last.index - log.base.index, 1 << 62)
        sets = [unpacked_set(b"".join(entry.body)) for entry in entries if entry.kind is EntryKind.MEMBERS]
        latest = sets[-1] if sets else log.members_at(log.base.index)
        assert log.members == latest, f"copy {process.replica.me} leads {log.members}, and its log says {latest}"

    def _committed(self, process: Process) -> None:
        replica = process.replica
        index = replica.committed
        at = replica._state.log.position_at(index)
        assert at is not None
        chain = at.chain
        if index <= self.top:
            assert self.register[index] == chain, f"entry {index} is committed twice, and differs"
        place = index
        while place > self.top:
            self.register[place] = chain
            self.committed_in[place] = at.term
            chain = self.before[chain]
            place -= 1
        assert self.register[place] == chain or index <= self.top, f"entry {place} is committed twice, and differs"
        if index > self.top:
            self.top, self.top_term = index, at.term
            if process.leads:
                self._on_disks(process, index, 0)

    def _on_disks(self, process: Process, index: int, least: int) -> None:
        members = process.replica.members
        have = sum(
            self.register[index] in self.ever.get(voter, ()) or self.installed.get(voter, 0) >= index
            for voter in members.voters
        )
        need = max(len(members.voters) // 2 + 1, min(least, len(members.voters)))
        assert have >= need, f"entry {index} is final on {have} disks of {members}, {need} are needed"

    def _released(self, process: Process, index: int) -> None:
        self._committed(process)
        assert index <= process.replica.committed
        since, required = self.required
        least = min([required, *self.requested.values()]) if index >= since else 0
        self._on_disks(process, index, max(least, process.replica.members.min_in_sync))
        for key in [key for key in self.open if key[0] == process.replica.me and key[1] <= index]:
            self._confirmed(self.open.pop(key))

    def _confirmed(self, batch: Batch) -> None:
        self.world.count("confirmed")
        assert self.register[batch.index] == batch.chain, f"batch {batch.name!r} is confirmed, another one is committed"
        assert self.names[batch.chain] == batch.name
        assert batch.index > batch.floor, f"batch {batch.name!r} comes before one that was confirmed when it began"
        self.confirmed_top = max(self.confirmed_top, batch.index)
        self.confirmed.append(batch)

    def look(self, process: Process) -> None:
        """What is committed is the same everywhere, and messages are given out by one copy at most."""
        self._committed(process)
        if process.may_dispatch():
            self.world.count("may_dispatch")
            others = [one.replica.me for one in self.world.processes() if one is not process and one.may_dispatch()]
            assert not others, f"copies {process.replica.me} and {others} both give out messages"

    # ---- the end

    def missing(self) -> str:
        """What is not as it has to be when nothing fails any more; "" when all is well."""
        leaders = [process for process in self.world.processes() if process.may_dispatch()]
        if not leaders:
            return "nobody leads"
        leader = leaders[0]
        members = leader.replica.members
        if members.learners:
            return f"copies {members.learners} have no vote yet"
        if len(members.voters) != self.world.plan.voters:
            return f"of {self.world.plan.voters} voters there are {len(members.voters)}"
        disks = {process.replica.me: process for process in self.world.processes()}
        for copy in members.copies:
            if copy not in disks:
                return f"copy {copy} of the set is gone"
            if disks[copy].disk.last != leader.replica.last:
                return f"copy {copy} ends at {disks[copy].disk.last.index}, not {leader.replica.last.index}"
            if disks[copy].replica.damaged:
                return f"copy {copy} is not healed"
        return ""

    def all_there(self) -> None:
        """Everything that was confirmed is in the log that is left."""
        leader = next((process for process in self.world.processes() if process.may_dispatch()), None)
        assert leader is not None, "nobody leads any more although all is well"
        self._has_all(leader)
        assert leader.replica.committed >= self.confirmed_top
        for batch in self.confirmed:
            assert self.register[batch.index] == batch.chain
        self._one_order()

    def _one_order(self) -> None:
        """The log itself is the order to be looked for, so that no search for one is needed."""
        places: dict[bytes, int] = {}
        for index in range(1, self.top + 1):
            name = self.names.get(self.register[index])
            if name is None:
                continue  # a leader's record, or a change of the set
            assert name not in places, f"batch {name!r} is entry {places[name]} and entry {index}"
            places[name] = index
            assert index > self.floors[name], (
                f"batch {name!r} is entry {index}: {self.floors[name]} was confirmed before"
            )
        missing = [batch.name for batch in self.confirmed if batch.name not in places]
        assert not missing, f"confirmed and not in the log: {missing[:5]}"
