"""A copy's disk: what is on it for sure, and what is being written; a crash leaves a prefix of that.

The head names the node that made it, so that a folder which was copied to another node is not taken for the same copy.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from raybroker.replication.copy_state import SavedCopy
from raybroker.replication.events import CutLog, InstallSnapshot, ReplicaAction, SaveEntries, SavePromise
from raybroker.replication.positions import BEGINNING, NO_TERM, EntryKind, LogPosition, ReplicatedEntry, Term
from raybroker.replication.replica_set import NOBODY, ReplicaSet, unpacked_set


class SimDisk:
    """``damages`` counts how often damage was found; ``damage`` is the number of the one that is not healed."""

    def __init__(self, copy: str, node: int, members: ReplicaSet = NOBODY) -> None:
        self.copy = copy
        self.node = node
        self.promised: Term = NO_TERM
        self.damages = 0
        self.damage = 0
        self.base: LogPosition = BEGINNING
        self.members = members
        self.entries: list[ReplicatedEntry] = []
        self.committed = 0
        self.lost: LogPosition | None = None
        """Where the log ended before the damage, if what stood there can be read."""
        self.flipped: int | None = None
        """Index of an entry whose bits are not what was written."""

    def apply(self, action: ReplicaAction) -> None:
        """What the action saves is on disk, as a whole."""
        match action:
            case SavePromise():
                self.promised, self.damage = action.term, action.damage
            case SaveEntries():
                assert action.entries[0].at.index == self.last.index + 1, "a log without gaps is written"
                self.entries += action.entries
                self.committed = max(self.committed, action.committed)
            case CutLog():
                del self.entries[action.index - self.base.index :]
            case InstallSnapshot():
                self.base, self.members, self.entries = action.at, action.members, []
                self.committed = action.at.index

    @property
    def last(self) -> LogPosition:
        return self.entries[-1].at if self.entries else self.base

    def sets(self) -> list[ReplicaSet]:
        """Return every set that is told of here."""
        changed = [unpacked_set(b"".join(entry.body)) for entry in self.entries if entry.kind is EntryKind.MEMBERS]
        return [self.members, *changed]

    def flip(self, rng: Random) -> None:
        """Bits of an entry change."""
        if self.entries:
            self.flip_at(rng.choice(self.entries).at.index)

    def flip_at(self, index: int) -> None:
        """Bits of this entry change, if it is here."""
        if self.base.index < index <= self.last.index:
            self.flipped = index

    def load(self) -> SavedCopy:
        """What a process finds: an entry that is damaged, and what follows it, is unknown, and that is noted first."""
        if self.flipped is not None:
            self.lost = None if self.flipped == self.last.index or self.damage else self.last
            del self.entries[max(0, self.flipped - self.base.index - 1) :]
            self.flipped = None
            self.damages += 1
            self.damage = self.damages
            self.committed = min(self.committed, self.last.index)
        return SavedCopy(
            self.promised, self.base, self.members, tuple(self.entries), self.committed, self.damage, self.lost
        )


class Writing:
    """One process' writes to a disk, in their order; ``noted`` hears of each, and then ``done`` of its token."""

    def __init__(self, disk: SimDisk, noted: Callable[[SimDisk], None], done: Callable[[int], None]) -> None:
        self.disk = disk
        self.noted = noted
        self.done = done
        self.pending: list[tuple[int, ReplicaAction]] = []
        self.until = 0

    def put(self, token: int, action: ReplicaAction) -> None:
        self.pending.append((token, action))

    def finish_first(self) -> None:
        token, action = self.pending.pop(0)
        self.disk.apply(action)
        self.noted(self.disk)
        self.done(token)

    def crash(self, rng: Random) -> None:
        """A prefix of what is being written is there."""
        for _, action in self.pending[: rng.randrange(len(self.pending) + 1)]:
            self.disk.apply(action)
            self.noted(self.disk)
        self.pending.clear()
