"""Copies side by side, whose messages and disks obey the test: nothing arrives and is saved before it says so."""

from __future__ import annotations

from collections import deque

from raybroker.replication import events as ev
from raybroker.replication.copy_state import SavedCopy
from raybroker.replication.messages import CopyMessage
from raybroker.replication.positions import BEGINNING, EntryKind, LogPosition, ReplicatedEntry, Term, following
from raybroker.replication.replica import Replica
from raybroker.replication.replica_set import ReplicaSet

THREE = ReplicaSet(("a", "b", "c"))


class Copies:
    """``told``: what machines asked for that is neither a message nor a save, with their names."""

    def __init__(self, members: ReplicaSet = THREE, **saved: SavedCopy) -> None:
        names = (*members.copies, *(name for name in saved if name not in members.copies))
        self.now_ms = 1_000_000
        self.copies = {
            name: Replica(name, saved.get(name, SavedCopy(members=members)), now_ms=self.now_ms) for name in names
        }
        self.mail: deque[tuple[str, str, CopyMessage]] = deque()
        self.unsaved: deque[tuple[str, int]] = deque()
        self.told: list[tuple[str, ev.ReplicaAction]] = []
        self.away: set[str] = set()

    def feed(self, name: str, event: ev.ReplicaEvent) -> None:
        for action in self.copies[name].step(event, self.now_ms):
            match action:
                case ev.SendToCopy():
                    self.mail.append((name, action.to, action.message))
                case ev.SavePromise() | ev.SaveEntries() | ev.CutLog() | ev.InstallSnapshot():
                    self.unsaved.append((name, action.token))
                case _:
                    self.told.append((name, action))

    def save(self) -> None:
        """Disks are quick."""
        while self.unsaved:
            name, token = self.unsaved.popleft()
            self.feed(name, ev.SaveDone(token))

    def deliver(self) -> None:
        """One round of messages, to those that are not away."""
        mail, self.mail = self.mail, deque()
        for sender, to, message in mail:
            if not {sender, to} & self.away and to in self.copies:
                self.feed(to, ev.CopyMessageReceived(sender, message))

    def settle(self) -> None:
        """Everything arrives and is saved, until nothing moves."""
        while self.mail or self.unsaved:
            self.save()
            self.deliver()

    def pass_ms(self, ms: int) -> None:
        """Time passes, in steps of a tick."""
        for _ in range(ms // 100):
            self.now_ms += 100
            for name in self.copies:
                if name not in self.away:
                    self.feed(name, ev.ReplicaTick())
            self.settle()

    def lead(self, name: str, nonce: int = 1) -> Replica:
        """``name`` is told to lead, and everything arrives."""
        self.feed(name, ev.Lead(nonce))
        self.settle()
        return self.copies[name]

    def of(self, kind: type[ev.ReplicaAction]) -> list[tuple[str, ev.ReplicaAction]]:
        return [(name, action) for name, action in self.told if isinstance(action, kind)]


def log_of(*terms: int, members: ReplicaSet = THREE) -> SavedCopy:
    """A disk whose entries have these terms, one after the other."""
    entries: list[ReplicatedEntry] = []
    at: LogPosition = BEGINNING
    for term in terms:
        entries.append(following(at, Term(term, 0), EntryKind.BATCH, (b"%d" % term,)))
        at = entries[-1].at
    return SavedCopy(Term(max(terms, default=0), 0), members=members, entries=tuple(entries))
