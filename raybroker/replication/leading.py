"""Leading: the leader's view of the other copies, what it sends them, and when an entry is committed.

An entry is committed when a majority of voters has it on disk and it is of the leader's own term; what comes before it
is committed with it.  It is released, which is when anybody hears of it, when as many have it as the set asks for: only
that waits for a copy which is lost, so that it can be replaced.  A lease says for how long no other copy can have been
elected: it counts from when the requests were sent that a majority has answered.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from raybroker.model.errors import ConfigError
from raybroker.replication.copy_state import CopyState
from raybroker.replication.events import (
    ChangeSet,
    EntriesReleased,
    MakeSnapshot,
    RequireInSync,
    SetChanged,
    SnapshotMade,
)
from raybroker.replication.messages import Append, Appended, Behind, LogSnapshot
from raybroker.replication.positions import Body, EntryKind, ReplicatedEntry, Term, following
from raybroker.replication.replica_set import MemberChange, ReplicaSet

HEARTBEAT_MS: Final = 500
RESEND_MS: Final = 1000
"""A copy that is silent for so long is asked anew what it has."""
SNAPSHOT_RESEND_MS: Final = 10_000
LEASE_MS: Final = 2000
DRIFT_SHARE: Final = 0.1
"""By how much the clocks of two machines may differ in a lease's time."""
LEASE_WAIT_MS: Final = LEASE_MS + int(LEASE_MS * DRIFT_SHARE)
"""How long a new leader gives out nothing that somebody else may still be giving out."""
WINDOW_BATCHES: Final = 8
WINDOW_BYTES: Final = 4 << 20
APPEND_ENTRIES: Final = 64
"""Entries of one message to a copy that catches up."""
PROMOTE_LAG: Final = 64
"""Entries that a learner may lack when it gets its vote, and a copy when it is told to lead in the leader's place."""
HANDED_WAIT_MS: Final = 200
"""In place of LEASE_WAIT_MS for a copy that was told to lead by the leader itself, which gives out nothing any more:
what was on its way to a socket then has left."""
NEVER_MS: Final = -(1 << 60)
SPARE_SHARE: Final = 3
"""While a copy gets a snapshot, and until it has caught up, so many times more entries are kept than otherwise: what
came meanwhile would be gone before it can ask for it."""


class CopyPace(StrEnum):
    """PROBING: one message at a time, until it is known what the copy has.  STREAMING: it gets what comes, unasked.
    INSTALLING: it gets a snapshot."""

    PROBING = "probing"
    STREAMING = "streaming"
    INSTALLING = "installing"


@dataclass(slots=True)
class CopyProgress:
    """One other copy, as its leader knows it.

    next         the index that is sent next
    matched      it has the leader's log on disk up to here
    answered_ms  when the latest request was sent that it has answered; what it does not know is NEVER_MS
    sent_ms      when anything was sent last
    asked_ms     when the oldest message was sent that is not answered, 0 without one
    in_flight    (last index, bytes) of each message that is not answered
    round        how often it was begun anew with: answers to earlier messages say nothing of what it has
    mends        number of the damage that it has to be healed of, 0 without one
    trouble      why it cannot be brought up to date, for people
    catches_up   it gets a snapshot, or has got one and lacks what came meanwhile
    """

    next: int
    matched: int = 0
    answered_ms: int = NEVER_MS
    sent_ms: int = NEVER_MS
    asked_ms: int = 0
    pace: CopyPace = CopyPace.PROBING
    in_flight: deque[tuple[int, int]] = field(default_factory=deque)
    in_flight_bytes: int = 0
    round: int = 0
    mends: int = 0
    trouble: str = ""
    catches_up: bool = False

    def probe(self, index: int) -> None:
        """Begin anew behind ``index``."""
        self.pace = CopyPace.PROBING
        self.next = index + 1
        self.in_flight.clear()
        self.in_flight_bytes = 0
        self.asked_ms = 0

    @property
    def has_room(self) -> bool:
        return len(self.in_flight) < WINDOW_BATCHES and self.in_flight_bytes < WINDOW_BYTES


class Leading:
    """The leader of ``term``, from the moment that a majority has promised.

    ``began``: index of its own record.  ``released``: entries up to here are committed, and in as many copies as must.
    """

    __slots__ = ("_asked", "_own", "_state", "began", "copies", "dispatch_from_ms", "released", "term")

    def __init__(self, state: CopyState, term: Term) -> None:
        self._state = state
        self.term = term
        self.copies: dict[str, CopyProgress] = {}
        self.dispatch_from_ms = state.now_ms + LEASE_WAIT_MS
        self._asked: dict[int, int] = {}
        self._own = self.released = 0
        """This copy's own disk has the log up to here."""
        self.began = self._append(EntryKind.LEADER, ())
        self._follow_set()
        self._send_all()

    # ---- the log grows

    def propose(self, body: Body) -> int:
        """Append a batch; returns its index."""
        index = self._append(EntryKind.BATCH, body)
        self._send_all()
        return index

    def _append(self, kind: EntryKind, body: Body) -> int:
        state = self._state
        entry = following(state.log.last, self.term, kind, body)
        state.extend((entry,))
        index = entry.at.index
        state.when_saved(lambda: self._saved(index))
        return index

    def _saved(self, index: int) -> None:
        self._own = max(self._own, index)
        self._advance()

    def change(self, event: ChangeSet | RequireInSync) -> None:
        """Append a change of the replica set, or say why not."""
        refusal = self._refusal(event)
        if refusal:
            self._state.out.append(SetChanged(event.request, refusal))
            return
        changed = self._changed(event)
        self._asked[self._append(EntryKind.MEMBERS, (changed.packed(),))] = event.request
        self._follow_set()
        self._send_all()

    def _changed(self, event: ChangeSet | RequireInSync) -> ReplicaSet:
        """Return the set after a change; raises ConfigError for one that makes no sense."""
        members = self._state.log.members
        if isinstance(event, RequireInSync):
            return members.requiring(event.min_in_sync)
        return members.changed(event.change, event.copy)

    def _refusal(self, event: ChangeSet | RequireInSync) -> str:
        state = self._state
        if state.committed < self.began:
            return "the leader has just begun: nothing of its term is committed yet; try again"
        if state.log.members_index > state.committed:
            return "another change of the replica set is under way: one at a time; try again when it is done"
        try:
            self._changed(event)
        except ConfigError as error:
            return str(error)
        if isinstance(event, RequireInSync):
            return ""
        copy = event.copy
        if event.change is MemberChange.REMOVE and copy == state.me:
            return f"copy {copy} leads: have another copy lead first, then remove it"
        if event.change is MemberChange.PROMOTE:
            progress = self.copies[copy]
            if progress.answered_ms < state.now_ms - LEASE_MS:
                return f"copy {copy} has not answered for {LEASE_MS} ms: it can get a vote when it is there"
            behind = state.committed - progress.matched
            if behind > PROMOTE_LAG:
                return f"copy {copy} is {behind} entries behind: it can get a vote when it lacks {PROMOTE_LAG} at most"
        return ""

    def _follow_set(self) -> None:
        """Copies of the latest set are served, others are not."""
        state = self._state
        wanted = [copy for copy in state.log.members.copies if copy != state.me]
        kept = {copy: self.copies[copy] for copy in wanted if copy in self.copies}
        last = state.log.last.index
        self.copies = {copy: kept.get(copy) or CopyProgress(last) for copy in wanted}

    def send_rest(self, to: str, *, quiet: bool) -> str:
        """Send a copy all that it lacks, for it to lead with; returns why it cannot lead now, and sends nothing then.

        What is sent goes beyond the copy's window, by ``PROMOTE_LAG`` entries at most."""
        state, copy = self._state, self.copies.get(to)
        last = state.log.last.index
        if copy is None or to not in state.log.members.voters:
            return f"copy {to} is no other copy with a vote"
        if self.released < self.began or state.now_ms < self.dispatch_from_ms:
            return "the leader has just begun: it hands over once it gives out messages"
        if state.log.members_index > state.committed:
            return "a change of the replica set is under way"
        if copy.pace is not CopyPace.STREAMING or copy.trouble or copy.answered_ms < state.now_ms - LEASE_MS:
            return f"copy {to} is not up to date, or has not answered for {LEASE_MS} ms"
        if last - copy.next >= PROMOTE_LAG:
            return (
                f"copy {to} is {last - copy.next + 1} entries behind: it can lead when it lacks {PROMOTE_LAG} at most"
            )
        if quiet and self.released < last:
            return "batches are under way"
        while copy.next <= last:
            self._send_entries(to, copy)
        return ""

    def resign(self) -> None:
        """This copy does not lead any more."""
        self._state.spare_bytes = 0
        for request in self._asked.values():
            self._state.out.append(
                SetChanged(request, "the leader ended before the change was final: look, and ask again")
            )
        self._asked.clear()

    # ---- what is committed

    def _matched(self, copy: str) -> int:
        return self._own if copy == self._state.me else self.copies[copy].matched

    def _advance(self) -> None:
        state = self._state
        members = state.log.members
        matched = sorted((self._matched(voter) for voter in members.voters), reverse=True)
        index = matched[members.majority - 1]
        if index < self.began:
            return  # an entry of an earlier term is committed only with one of this term behind it
        state.commit(index)
        for at in [at for at in self._asked if at <= index]:
            state.out.append(SetChanged(self._asked.pop(at)))
        released = matched[members.quorum - 1]
        if released > self.released:
            self.released = released
            state.out.append(EntriesReleased(released))

    def lease_until_ms(self) -> int:
        """Return until when no other copy can have been elected, on this copy's clock."""
        state = self._state
        voters = state.log.members.voters
        answered = sorted(
            (state.now_ms if voter == state.me else self.copies[voter].answered_ms for voter in voters), reverse=True
        )
        return answered[state.log.members.majority - 1] + LEASE_MS

    # ---- the other copies

    def appended(self, sender: str, message: Appended) -> None:
        """A copy has the log up to an index on its disk."""
        copy = self._answered(sender, message.stamp_ms)
        if copy is None or message.round != copy.round:
            return
        copy.trouble = ""
        copy.matched = max(copy.matched, message.index)
        while copy.in_flight and copy.in_flight[0][0] <= message.index:
            copy.in_flight_bytes -= copy.in_flight.popleft()[1]
            copy.asked_ms = self._state.now_ms if copy.in_flight else 0
        if copy.pace is not CopyPace.STREAMING and copy.matched >= self._state.log.base.index:
            copy.probe(copy.matched)
            copy.pace = CopyPace.STREAMING
        copy.next = max(copy.next, copy.matched + 1)
        if copy.catches_up and copy.matched + PROMOTE_LAG >= self._state.committed:
            copy.catches_up = False
            self._keep_entries()
        self._advance()
        self._send(sender, copy)

    def behind(self, sender: str, message: Behind) -> None:
        """A copy lacks what came before the entries that it was sent."""
        copy = self._answered(sender, message.stamp_ms)
        if copy is None or message.round != copy.round:
            return
        if copy.pace is CopyPace.INSTALLING and copy.mends == message.damage:
            return
        log = self._state.log
        copy.matched = min(copy.matched, message.last.index)
        copy.round += 1
        copy.mends = message.damage
        copy.trouble = ""
        if log.position_at(message.last.index) == message.last:
            copy.probe(message.last.index)
        elif message.sure.index < log.base.index:
            self._install(sender, copy)
            return
        elif log.position_at(message.sure.index) == message.sure:
            copy.probe(message.sure.index)
        else:
            copy.trouble = f"its entry {message.sure.index} is of another log: it has to begin anew, empty"
            return
        self._send(sender, copy)

    def _answered(self, sender: str, stamp_ms: int) -> CopyProgress | None:
        copy = self.copies.get(sender)
        if copy is not None:
            copy.answered_ms = max(copy.answered_ms, stamp_ms)
        return copy

    def tick(self) -> None:
        """Send heartbeats, and ask copies anew that are silent."""
        now_ms = self._state.now_ms
        if self._state.spare_bytes:
            self._keep_entries()
        for name, copy in self.copies.items():
            if copy.pace is CopyPace.INSTALLING:
                if now_ms - copy.asked_ms >= SNAPSHOT_RESEND_MS:
                    self._install(name, copy)
            elif copy.asked_ms and now_ms - copy.asked_ms >= RESEND_MS:
                copy.probe(max(copy.matched, self._state.log.base.index))
            self._send(name, copy)
            if now_ms - copy.sent_ms >= HEARTBEAT_MS:
                self._append_to(name, copy, copy.matched, ())

    def greet(self, name: str) -> None:
        """Say at once that somebody leads, to a copy that may take its lost connection for the leader's end."""
        copy = self.copies.get(name)
        if copy is not None:
            self._append_to(name, copy, copy.matched, ())

    def _send_all(self) -> None:
        for name, copy in self.copies.items():
            self._send(name, copy)

    def _send(self, name: str, copy: CopyProgress) -> None:
        """Send what the copy lacks, as far as its window goes."""
        log = self._state.log
        if copy.trouble:
            return
        if copy.pace is not CopyPace.INSTALLING and copy.next <= log.base.index:
            copy.probe(log.base.index)  # if it lacks that too it says so, and gets a snapshot
        while copy.pace is CopyPace.STREAMING and copy.has_room and copy.next <= log.last.index:
            self._send_entries(name, copy)
        if copy.pace is CopyPace.PROBING and not copy.in_flight:
            copy.in_flight.append((copy.next - 1, 0))
            copy.asked_ms = self._state.now_ms
            self._append_to(name, copy, copy.next - 1, ())

    def _send_entries(self, name: str, copy: CopyProgress) -> None:
        before = copy.next - 1
        entries = self._state.log.after(before, APPEND_ENTRIES, WINDOW_BYTES)
        nbytes = sum(entry.nbytes for entry in entries)
        copy.next += len(entries)
        copy.in_flight.append((copy.next - 1, nbytes))
        copy.in_flight_bytes += nbytes
        copy.asked_ms = copy.asked_ms or self._state.now_ms
        self._append_to(name, copy, before, entries)

    def _append_to(self, name: str, copy: CopyProgress, before: int, entries: tuple[ReplicatedEntry, ...]) -> None:
        """Send entries that come after index ``before``, or a heartbeat without any."""
        state = self._state
        previous = state.log.position_at(before) or state.log.base
        copy.sent_ms = state.now_ms
        state.send(name, Append(self.term, previous, entries, state.committed, state.now_ms, copy.round, copy.mends))

    # ---- snapshots

    def _keep_entries(self) -> None:
        """Keep more entries while a copy catches up that is heard of."""
        state = self._state
        heard_ms = state.now_ms - 2 * SNAPSHOT_RESEND_MS
        catches_up = any(copy.catches_up and copy.answered_ms >= heard_ms for copy in self.copies.values())
        state.spare_bytes = SPARE_SHARE * state.log.kept_bytes if catches_up else 0

    def _install(self, name: str, copy: CopyProgress) -> None:
        copy.catches_up = True
        self._keep_entries()
        copy.probe(copy.matched)
        copy.pace = CopyPace.INSTALLING
        copy.asked_ms = self._state.now_ms
        self._state.out.append(MakeSnapshot(name))

    def snapshot_made(self, event: SnapshotMade) -> None:
        """Send a snapshot, if it is still wanted and what follows it is still here."""
        state = self._state
        copy = self.copies.get(event.to)
        at = state.log.position_at(event.index)
        if copy is None or copy.pace is not CopyPace.INSTALLING:
            return
        if at is None or event.index > state.committed:
            self._install(event.to, copy)
            return
        copy.sent_ms = copy.asked_ms = state.now_ms
        members = state.log.members_at(event.index)
        state.send(event.to, LogSnapshot(self.term, at, members, event.content, state.now_ms, copy.round, copy.mends))
