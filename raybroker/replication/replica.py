"""The machine of one copy of a log, which takes every event.

    FOLLOWER   takes what a leader sends, and promises candidates
    CANDIDATE  has asked the others for their promise
    LEADER     a majority has promised; see leading
    STOPPED    its log and a leader's exclude each other: people have to look

Its role changes by the table ROLE:

    FOLLOWER            told to lead                      CANDIDATE
    CANDIDATE           promised by a majority            LEADER
    CANDIDATE, LEADER   refused, or led by another copy   FOLLOWER
    LEADER              handed over                       FOLLOWER
    FOLLOWER            contradicted by a leader          STOPPED

A copy that was damaged votes for those only whose log goes as far as
its own did, and for nobody while it does not know how far that was.  It is healed once a leader that knows of the
damage has brought it to an entry of the leader's own term that is committed: it has then whatever it may ever have
answered for.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from raybroker.model.machine import Machine
from raybroker.replication.copy_state import CopyState, SavedCopy
from raybroker.replication.events import (
    AppendBatch,
    ChangeSet,
    CopyMessageReceived,
    HandLeadOver,
    HandOverRefused,
    Lead,
    LeaderBegan,
    LeaderEnded,
    LinkLost,
    NotElected,
    ReplicaAction,
    ReplicaEvent,
    ReplicaTick,
    RequireInSync,
    SaveDone,
    SetChanged,
    SnapshotMade,
    Stopped,
)
from raybroker.replication.leading import HANDED_WAIT_MS, Leading
from raybroker.replication.messages import (
    Append,
    Appended,
    AskPromise,
    Behind,
    CopyMessage,
    LogSnapshot,
    Promised,
    PromiseRefused,
    TakeLead,
)
from raybroker.replication.positions import NO_TERM, LogPosition, ReplicatedEntry, Term, intact
from raybroker.replication.replica_log import KEPT_BYTES
from raybroker.replication.replica_set import ReplicaSet
from raybroker.replication.reports import CopyReport

TICK_MS: Final = 100
ELECTION_MS: Final = 1500
"""How long a candidate waits for promises."""
ASK_AGAIN_MS: Final = 300
HEARD_MS: Final = 1500
"""A copy that has heard its leader within this time promises nobody else: only the end of a leader makes another."""
UNLINKED_MS: Final = 300
"""It is the time since their connection ended, where it did: a leader that lives makes another one at once."""


class ReplicaRole(StrEnum):
    """The part that a copy has in its group."""

    FOLLOWER = "FOLLOWER"
    CANDIDATE = "CANDIDATE"
    LEADER = "LEADER"
    STOPPED = "STOPPED"


class RoleEvent(StrEnum):
    """What happens to the role of a copy."""

    ASK = "told to lead"
    WIN = "promised by a majority"
    YIELD = "refused, or led by another copy"
    HAND_OVER = "handed over"
    CONTRADICT = "contradicted by a leader"


ROLE: Final = Machine(
    "the copy",
    [
        ((ReplicaRole.FOLLOWER,), RoleEvent.ASK, ReplicaRole.CANDIDATE),
        ((ReplicaRole.CANDIDATE,), RoleEvent.WIN, ReplicaRole.LEADER),
        ((ReplicaRole.CANDIDATE, ReplicaRole.LEADER), RoleEvent.YIELD, ReplicaRole.FOLLOWER),
        ((ReplicaRole.LEADER,), RoleEvent.HAND_OVER, ReplicaRole.FOLLOWER),
        ((ReplicaRole.FOLLOWER,), RoleEvent.CONTRADICT, ReplicaRole.STOPPED),
    ],
)


class Candidacy:
    """A candidate of ``term``: who has promised, and who has refused; ``after``: as of ``AskPromise``."""

    __slots__ = ("after", "asked_ms", "deadline_ms", "promised", "refused", "term")

    def __init__(self, term: Term, now_ms: int, after: Term = NO_TERM) -> None:
        self.term = term
        self.after = after
        self.deadline_ms = now_ms + ELECTION_MS
        self.asked_ms = now_ms
        self.promised: set[str] = set()
        self.refused: dict[str, str] = {}


class Replica:
    """The machine of copy ``me``, which is the id on its disk; ``saved`` is what that disk holds.

    Raises StoreDamagedError when the entries do not follow each other.
    """

    def __init__(self, me: str, saved: SavedCopy, *, now_ms: int, kept_bytes: int = KEPT_BYTES) -> None:
        self._state = CopyState(me, saved, now_ms, kept_bytes)
        self.role = ReplicaRole.FOLLOWER
        self.leader = ""
        """Who leads, as far as is known here."""
        self.leading: Leading | None = None
        self._candidacy: Candidacy | None = None
        self._heard_ms: int | None = None
        self._awaited_ms: int | None = None
        """When this copy has promised itself to a candidate that it has not heard as its leader yet."""
        self._voted_ms: int | None = None

    # ---- what others may see

    @property
    def me(self) -> str:
        return self._state.me

    @property
    def promised(self) -> Term:
        return self._state.promised

    @property
    def committed(self) -> int:
        return self._state.committed

    @property
    def last(self) -> LogPosition:
        return self._state.log.last

    @property
    def damaged(self) -> bool:
        """True while entries may be missing that this copy had answered for: it cannot lead."""
        return self._state.damage > 0

    @property
    def members(self) -> ReplicaSet:
        return self._state.log.members

    @property
    def set_is_final(self) -> bool:
        """True when the latest replica set is committed: no other leader can have another one."""
        return self._state.log.members_index <= self._state.committed

    def report(self) -> CopyReport:
        """Return what whoever looks for a leader has to know."""
        state = self._state
        fit = not state.damage and state.me in self.members.voters and self.role is not ReplicaRole.STOPPED
        return CopyReport(state.me, fit, state.log.last)

    def hears_leader(self, now_ms: int) -> bool:
        """Return whether this copy leads, or has heard who does within HEARD_MS."""
        return self.leading is not None or (self._heard_ms is not None and now_ms - self._heard_ms < HEARD_MS)

    def awaits_leader(self, now_ms: int) -> bool:
        """Return whether an election is under way, as far as is known here: another one would depose its leader."""
        awaited_ms = self._awaited_ms
        return self._candidacy is not None or (awaited_ms is not None and now_ms - awaited_ms < ELECTION_MS)

    def voted_ms_ago(self, now_ms: int) -> int:
        """Return how long ago this copy has promised itself to a candidate, itself included; -1: not since it began.

        A leader that it has heard of later, because it was away, has not just begun for all that.
        """
        return -1 if self._voted_ms is None else now_ms - self._voted_ms

    def may_dispatch(self, now_ms: int) -> bool:
        """True while this copy leads and no other one can.

        Ask right before the effect: whatever comes between may take longer than the lease.
        """
        leading = self.leading
        if leading is None or leading.released < leading.began or now_ms < leading.dispatch_from_ms:
            return False
        return now_ms < leading.lease_until_ms()

    # ---- the funnel

    def step(self, event: ReplicaEvent, now_ms: int) -> list[ReplicaAction]:
        """Take one event; returns the actions to carry out, in order."""
        state = self._state
        if self.role is ReplicaRole.STOPPED:
            return []
        state.now_ms = max(state.now_ms, now_ms)
        match event:
            case CopyMessageReceived():
                self._received(event.sender, event.message)
            case SaveDone():
                state.saved(event.token)
            case AppendBatch():
                assert self.leading is not None, "only a leader commits"
                self.leading.propose(event.body)
            case ReplicaTick():
                self._tick()
            case Lead():
                self._lead(event.nonce)
            case HandLeadOver():
                self._hand_over(event)
            case LinkLost():
                self._link_lost(event.copy)
            case ChangeSet() | RequireInSync():
                self._change(event)
            case SnapshotMade():
                if self.leading is not None:
                    self.leading.snapshot_made(event)
        out, state.out = state.out, []
        return out

    def _tick(self) -> None:
        if self.leading is not None:
            self.leading.tick()
        candidacy = self._candidacy
        if candidacy is None:
            return
        if self._state.now_ms >= candidacy.deadline_ms:
            self._give_up(f"of {len(self.members.voters)} voters {len(candidacy.promised)} have promised in time")
        elif self._state.now_ms - candidacy.asked_ms >= ASK_AGAIN_MS and candidacy.promised:
            self._ask_voters(candidacy)

    def _link_lost(self, copy: str) -> None:
        if self.leading is not None:
            self.leading.greet(copy)
        elif copy == self.leader and self._heard_ms is not None:
            self._heard_ms = min(self._heard_ms, self._state.now_ms - HEARD_MS + UNLINKED_MS)

    def _change(self, event: ChangeSet | RequireInSync) -> None:
        if self.leading is None:
            self._state.out.append(SetChanged(event.request, "this copy does not lead"))
        else:
            self.leading.change(event)

    def _happens(self, event: RoleEvent) -> None:
        self.role = ROLE.after(self.role, event)

    def _stop(self, reason: str) -> None:
        self._happens(RoleEvent.CONTRADICT)
        self._state.out.append(Stopped(reason))

    def _follow(self, reason: str) -> None:
        """Whatever this copy was, it follows now."""
        if self.leading is not None:
            self._end_lead(RoleEvent.YIELD, reason)
        elif self._candidacy is not None:
            self._give_up(reason)

    def _end_lead(self, event: RoleEvent, reason: str) -> None:
        assert self.leading is not None
        self.leading.resign()
        self.leading = None
        self._happens(event)
        self.leader = ""
        self._state.out.append(LeaderEnded(reason))

    # ---- who leads

    def _hand_over(self, event: HandLeadOver) -> None:
        leading = self.leading
        refusal = "this copy does not lead" if leading is None else leading.send_rest(event.to, quiet=event.quiet)
        if leading is None or refusal:
            self._state.out.append(HandOverRefused(refusal))
            return
        self._state.send(event.to, TakeLead(leading.term, event.nonce))
        self._end_lead(RoleEvent.HAND_OVER, f"it has handed its lead over to copy {event.to}")

    def _take_lead(self, sender: str, message: TakeLead) -> None:
        """The leader leads no more; what it says late, after somebody else was promised, says nothing."""
        if message.term == self.promised and sender == self.leader:
            self._heard_ms = None
            self._lead(message.nonce, message.term)

    def _lead(self, nonce: int, after: Term = NO_TERM) -> None:
        state = self._state
        refusal = self._unfit()
        if self.role is not ReplicaRole.FOLLOWER:
            return
        if refusal:
            state.out.append(NotElected(refusal))
            return
        term = Term(state.promised.number + 1, nonce)
        candidacy = self._candidacy = Candidacy(term, state.now_ms, after)
        self._voted_ms = state.now_ms
        self._happens(RoleEvent.ASK)

        def own() -> None:
            if self._candidacy is candidacy:
                candidacy.promised.add(state.me)
                self._ask_voters(candidacy)
                self._count(candidacy)

        state.promise(term, own)

    def _unfit(self) -> str:
        state = self._state
        if state.damage:
            return "entries may be missing here: a leader has to bring this copy up to date first"
        if state.me not in state.log.members.voters:
            return "this copy has no vote"
        if self._hears_leader():
            return f"copy {self.leader} leads, and was heard within {HEARD_MS} ms"
        if self.awaits_leader(state.now_ms):
            return f"another copy was promised to within {ELECTION_MS} ms, and may lead"
        return ""

    def _hears_leader(self) -> bool:
        return self._heard_ms is not None and self._state.now_ms - self._heard_ms < HEARD_MS

    def _ask_voters(self, candidacy: Candidacy) -> None:
        state = self._state
        candidacy.asked_ms = state.now_ms
        for voter in state.log.members.voters:
            if voter not in candidacy.promised:
                state.send(voter, AskPromise(candidacy.term, state.log.last, candidacy.after))

    def _count(self, candidacy: Candidacy) -> None:
        members = self._state.log.members
        if len(candidacy.promised.intersection(members.voters)) >= members.majority:
            self._candidacy = None
            self._happens(RoleEvent.WIN)
            self.leader = self._state.me
            self._heard_ms = self._awaited_ms = None
            leading = Leading(self._state, candidacy.term)
            if candidacy.after != NO_TERM:  # A leader in between that gives out messages had one that this copy lacks.
                leading.dispatch_from_ms = self._state.now_ms + HANDED_WAIT_MS
            self.leading = leading
            self._state.out.append(LeaderBegan(candidacy.term, leading.began))
        elif len(members.voters) - len(candidacy.refused) < members.majority:
            self._give_up("; ".join(f"copy {name}: {reason}" for name, reason in sorted(candidacy.refused.items())))

    def _give_up(self, reason: str) -> None:
        self._candidacy = None
        self._happens(RoleEvent.YIELD)
        self._state.out.append(NotElected(reason))

    def _asked_promise(self, sender: str, message: AskPromise) -> None:
        state, term = self._state, message.term
        reason, end = "", state.end()
        if term < state.promised:
            reason = "another term is promised"
        elif end is None:
            reason = "entries may be missing here, and it is not known up to which"
        elif not message.last.as_recent_as(end):
            reason = f"this log went to entry {end.index}, and the candidate's to {message.last.index}"
        elif term > state.promised > message.after and self._hears_leader():
            reason = "its leader is heard"
        if reason:
            state.send(sender, PromiseRefused(term, state.promised, reason))
            return

        def answer() -> None:
            if state.promised == term:
                state.send(sender, Promised(term))

        if term == state.promised:
            state.when_saved(answer)
            return
        self._follow(f"copy {sender} leads in a later term")
        self._awaited_ms = self._voted_ms = state.now_ms
        state.promise(term, answer)

    def _refused(self, sender: str, message: PromiseRefused) -> None:
        candidacy = self._candidacy
        if message.promised > self.promised:
            # The number counts in the next try: a candidate takes one that is higher than all it has heard of.
            self._follow(f"copy {sender} has promised a later term")
            self._state.promise(message.promised)
        elif candidacy is not None and message.term == candidacy.term:
            candidacy.refused[sender] = message.reason
            self._count(candidacy)

    # ---- what a leader sends

    def _received(self, sender: str, message: CopyMessage) -> None:
        match message:
            case AskPromise():
                self._asked_promise(sender, message)
            case Promised():
                candidacy = self._candidacy
                if candidacy is not None and message.term == candidacy.term:
                    candidacy.promised.add(sender)
                    self._count(candidacy)
            case PromiseRefused():
                self._refused(sender, message)
            case TakeLead():
                self._take_lead(sender, message)
            case Append():
                if self._accepts(sender, message.term):
                    self._append(sender, message)
            case LogSnapshot():
                if self._accepts(sender, message.term):
                    self._snapshot(sender, message)
            case Appended():
                if self.leading is not None and message.term == self.leading.term:
                    self.leading.appended(sender, message)
            case Behind():
                if self.leading is not None and message.term == self.leading.term:
                    self.leading.behind(sender, message)

    def _accepts(self, sender: str, term: Term) -> bool:
        """True when ``sender`` may say what the log is."""
        state = self._state
        if term < state.promised:
            state.send(sender, PromiseRefused(term, state.promised, "a later term is promised"))
            return False
        assert self.leading is None or self.leading.term != term, "one leader a term"
        self._follow(f"copy {sender} leads")
        if term > state.promised:
            state.promise(term)
        self.leader = sender
        self._heard_ms, self._awaited_ms = state.now_ms, None
        return True

    def _append(self, sender: str, message: Append) -> None:
        state = self._state
        log = state.log
        if state.damage and state.damage != message.mends:
            self._behind(sender, message)
            return
        entries = message.entries
        reaches = message.previous.index + len(entries)
        if message.previous.index < log.base.index:
            entries = entries[log.base.index - message.previous.index :]
            reaches = max(reaches, log.base.index)
        elif log.position_at(message.previous.index) != message.previous:
            self._behind(sender, message)
            return
        new = self._new(entries)
        if new is None:
            return
        if new:
            state.extend(new)
        state.commit(min(message.committed, reaches))
        if state.damage and self._whole(message, reaches):
            state.heal()
        self._answer(sender, message, reaches)

    def _behind(self, sender: str, message: Append) -> None:
        """Say where this log ends, once that is on disk."""
        state = self._state
        last, sure = state.log.last, state.log.position_at(state.committed)
        assert sure is not None

        def answer() -> None:
            if state.promised == message.term:
                state.send(sender, Behind(message.term, last, sure, message.stamp_ms, message.round, state.damage))

        state.when_saved(answer)

    def _new(self, entries: tuple[ReplicatedEntry, ...]) -> tuple[ReplicatedEntry, ...] | None:
        """Return what of these is not here, after what contradicts them is gone; None when they cannot be taken."""
        state = self._state
        for place, entry in enumerate(entries):
            here = state.log.position_at(entry.at.index)
            if here == entry.at:
                continue
            before = state.log.position_at(entry.at.index - 1)
            assert before is not None
            for later in entries[place:]:
                if not intact(before, later):
                    return None  # it was damaged on its way
                before = later.at
            if here is not None:
                if here.index <= state.committed:
                    self._stop(f"entry {here.index} is committed here, and another one by copy {self.leader}")
                    return None
                state.cut(here.index - 1)
            return entries[place:]
        return ()

    def _whole(self, message: Append, reaches: int) -> bool:
        """True when this log has an entry of the leader's own term that is committed."""
        at = self._state.log.position_at(min(message.committed, reaches))
        return at is not None and at.index == message.committed and at.term == message.term

    def _snapshot(self, sender: str, message: LogSnapshot) -> None:
        state = self._state
        at = message.at
        if state.damage and state.damage != message.mends:
            return
        if at.index > state.committed and state.log.position_at(at.index) != at:
            state.install(at, message.members, message.content)
        state.commit(min(at.index, state.log.last.index))
        self._answer(sender, message, at.index)

    def _answer(self, sender: str, message: Append | LogSnapshot, index: int) -> None:
        """Say that the log is here up to ``index``, once it is on disk."""
        state = self._state

        def answer() -> None:
            if state.promised == message.term:
                state.send(sender, Appended(message.term, index, message.stamp_ms, message.round))

        state.when_saved(answer)
