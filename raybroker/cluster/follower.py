"""The follower: a broker that is not the master keeps a copy of the master's record and sends changes to the master.

The master pushes each entry; its heartbeats say how far it is, and a broker that lags asks.  A copy with entries that
the master's record lacks is never dropped silently: the master has lost data, and an administrator has to decide.
"""

from __future__ import annotations

from dataclasses import dataclass

from raybroker.cluster.backup import load
from raybroker.cluster.change_record import ChangeRecord, differences
from raybroker.cluster.events import Answer, Propose
from raybroker.cluster.member_messages import (
    Ask,
    Beat,
    ChangeDecided,
    ChangeProposal,
    Disagree,
    Entries,
    MasterTaken,
    Position,
    RecordOffer,
    Whole,
)
from raybroker.cluster.member_state import MemberContext
from raybroker.cluster.record_application import Applier
from raybroker.cluster.saved_record import SavedOffer, entry_frame, offer_frame
from raybroker.model.errors import BrokerError, ProtocolError, RequestTimeoutError, from_code


@dataclass(slots=True)
class PendingChange:
    """A change that one instance of the master was asked for; ``number`` 0 until it decided.

    No other instance is asked the same: it cannot know whether the change was made, and might make it twice.
    """

    propose: Propose
    until_ms: int
    again_ms: int
    master: str
    instance: int
    number: int = 0


class Follower:
    """``target``: the entry that the copy has to reach before this broker is integrated; None: not known."""

    def __init__(self, life: MemberContext, applier: Applier) -> None:
        self._life = life
        self._applier = applier
        self.target: int | None = None
        self._ask_ms = 0
        self._sequence = 0
        self._pending: dict[int, PendingChange] = {}

    # ---- the copy

    def reset(self) -> None:
        """There is another master."""
        self.target = None
        self._ask_ms = 0
        self._life.trouble = ""

    def request_missing(self) -> None:
        """Ask the master for missing entries, at most once a heartbeat."""
        life = self._life
        if life.now_ms >= self._ask_ms and life.master_heard:
            self._ask_ms = life.now_ms + life.settings.heartbeat_ms
            life.send(life.claim.master, Ask(self._position()))

    def _position(self) -> Position:
        record = self._life.record
        return Position(record.id, record.number, record.digest)

    def beaten(self, message: Beat) -> None:
        """A heartbeat of the master, with the end of its record."""
        unclear = self.target is None or bool(self._life.trouble)
        if message.claim == self._life.claim and (unclear or message.position != self._position()):
            self.request_missing()

    def entries(self, message: Entries) -> None:
        life = self._life
        record = life.record
        if message.claim != life.claim:
            return
        if record.id != life.claim.record:
            self.request_missing()
            return
        new, fault = [], ""
        try:
            for entry in message.entries:
                if entry.number > record.number + 1:
                    break
                if entry.number > record.number:
                    record.accept(entry)
                    new.append(entry)
                elif record.digest_at(entry.number) not in (None, entry.digest):
                    raise ProtocolError(f"entry {entry.number} of the master is another one than here")
        except ProtocolError as error:
            fault = str(error)
        if new:
            life.persist([entry_frame(entry) for entry in new], lambda: life.entries_durable(new))
            life.compress_when_long()
        if fault:
            self._disagree(fault)
        elif new or not message.entries:
            life.trouble = ""
            self.target = max(self.target or 0, message.last)
        if record.number < message.last:
            self.request_missing()

    def whole(self, message: Whole) -> None:
        """The master's whole record: what was compressed away is missing here, or this is another record."""
        life = self._life
        if message.claim != life.claim:
            return
        try:
            record = load(message.dump, cluster=life.cluster)
        except BrokerError as error:
            self._disagree(str(error))
            return
        old = life.record
        if record.id == old.id:
            if record.number < old.number and old.digest_at(record.number) in (None, record.digest):
                return  # it was overtaken by what came after it
            if record.digest_at(old.number) not in (None, old.digest) or record.number < old.number:
                self._disagree(
                    f"the master's record {record.id[:8]} ends at entry {record.number} and has another"
                    f" history than the copy here, which ends at {old.number}"
                )
                return
            if (record.number, record.digest) == (old.number, old.digest):
                life.trouble = ""
                self.target = max(self.target or 0, record.number)
                return
        elif old.state:
            lost = differences(old.state, record.state)
            life.note(
                f"the configuration record is replaced by that of {life.claim.master};"
                f" {len(lost)} changes: {', '.join(map(str, lost[:10]))}",
                warning=bool(lost),
            )
        life.trouble = ""
        self.target = max(self.target or 0, record.number) if record.id == old.id else record.number
        self.adopt_record(record)

    def adopt_record(self, record: ChangeRecord) -> None:
        """The record is agreed once it is on disk; entries that come meanwhile are appended to it."""
        life = self._life
        position = Position(record.id, record.number, record.digest)
        record.succeed(life.record)
        state = record.state.copy()

        def taken() -> None:
            life.queue.clear()
            life.agreed, life.durable = state, position
            self._applier.whole()

        if record.id != life.record.id:
            self._applier.anew("the configuration record was replaced by another")
        life.record = record
        life.persist(life.saved().frames(), taken, replace=True)

    def disagree(self, message: Disagree) -> None:
        if message.position == self._position():
            self._disagree(message.text)

    def _disagree(self, text: str) -> None:
        if self._life.trouble != text:
            self._life.note(text, warning=True)
        self._life.trouble = text

    # ---- taking over

    def offered(self, sender: str, message: RecordOffer) -> None:
        """The master offers its record before it hands over: keep the record until the hand-over is decided."""
        life = self._life
        claim = message.claim
        if sender != life.claim.master or claim.term != life.claim.term + 1 or claim.master != life.name:
            return
        try:
            record = load(message.dump, cluster=life.cluster)
        except BrokerError as error:
            life.note(f"the record that {sender} offers cannot be used: {error}", warning=True)
            return
        old = life.offer
        if old is not None and old.claim == claim and old.record.number > record.number:
            return
        answer = MasterTaken(claim, Position(record.id, record.number, record.digest))
        life.offer = SavedOffer(claim, record)
        life.persist([offer_frame(life.offer)], lambda: life.send(sender, answer))

    # ---- changes that are wanted here

    def propose(self, event: Propose) -> None:
        life = self._life
        self._sequence += 1
        master = life.claim.master
        pending = PendingChange(event, life.now_ms + life.settings.request_ms, 0, master, life.matched[master])
        self._pending[self._sequence] = pending
        self._say(self._sequence, pending)

    def _say(self, sequence: int, pending: PendingChange) -> None:
        pending.again_ms = self._life.now_ms + self._life.settings.heartbeat_ms
        self._life.send(pending.master, ChangeProposal(sequence, pending.propose.change))

    def decided(self, sender: str, message: ChangeDecided) -> None:
        life = self._life
        pending = self._pending.get(message.request)
        if pending is None or pending.number or sender != pending.master:
            return
        request = pending.propose.request
        if message.code:
            del self._pending[message.request]
            life.out.append(Answer(request, from_code(message.code, message.text)))
            return
        if message.record != life.record.id:
            self._give_up(message.request, f"it is entry {message.number} of another record, {message.record}")
            return
        pending.number = message.number
        self._applier.when(message.number, lambda failure: self._applied(message.request, failure))

    def _applied(self, sequence: int, failure: str) -> None:
        pending = self._pending.pop(sequence, None)
        if pending is not None:
            self._life.out.append(Answer(pending.propose.request, recorded(failure, pending.number), pending.number))

    def tick(self) -> None:
        life = self._life
        if life.follows and (self.target is None or self.target > life.record.number):
            self.request_missing()
        for sequence, pending in list(self._pending.items()):
            if pending.number:
                continue  # It is in the record, and the applier says when it is carried out, or that it is late.
            if life.matched.get(pending.master, pending.instance) != pending.instance:
                self._give_up(sequence, f"the master broker {pending.master} was restarted meanwhile")
            elif life.now_ms >= pending.until_ms:
                self._give_up(sequence, f"no answer from the master broker {pending.master} in time")
            elif life.now_ms >= pending.again_ms:
                self._say(sequence, pending)

    def abandon(self, why: str) -> None:
        """Answer changes that the lost master did not decide: their outcome is unknown."""
        for sequence in [s for s, pending in self._pending.items() if not pending.number]:
            self._give_up(sequence, why)

    def _give_up(self, sequence: int, why: str) -> None:
        pending = self._pending.pop(sequence)
        text = f"{why}; whether the change '{pending.propose.change}' was made is unknown"
        self._life.out.append(Answer(pending.propose.request, RequestTimeoutError(text), pending.number))


def recorded(failure: str, number: int) -> BrokerError | None:
    """What a client is told whose change is in the record, and may not be carried out here yet."""
    if not failure:
        return None
    entry = f" (entry {number})" if number else ""
    return RequestTimeoutError(f"the change is recorded{entry} and will be carried out here later: {failure}")
