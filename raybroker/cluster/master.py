"""The master: it alone appends to the record, answers brokers that lag, and hands over to another master.

Handing over: no change is taken any more; the whole record is offered to the successor, which makes it
durable and says up to where; only then the old master makes its own decision durable, *who the master of the next term
is*, and tells everybody.  Until that write nothing has changed and the old master may go on; after it the old master
never accepts a change again.  The successor is master once it hears of the decision, from any broker.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from raybroker.cluster.backup import dump
from raybroker.cluster.change_record import Change, ChangeRecord, Entry, Gap
from raybroker.cluster.events import (
    BAD_REQUEST,
    NOT_ALLOWED,
    OK,
    PRECONDITION_FAILED,
    UNAVAILABLE,
    Answer,
    ChangeMaster,
    Propose,
)
from raybroker.cluster.follower import recorded
from raybroker.cluster.member_messages import (
    Ask,
    ChangeDecided,
    ChangeProposal,
    Disagree,
    Entries,
    MasterTaken,
    Position,
    RecordOffer,
    Whole,
)
from raybroker.cluster.member_state import INTEGRATED, MemberContext
from raybroker.cluster.membership import BrokerState
from raybroker.cluster.record_application import Applier
from raybroker.cluster.saved_record import claim_frame, entry_frame
from raybroker.cluster.term import FIRST_TERM, Leadership
from raybroker.model.errors import BrokerError, MasterUnavailableError, RequestTimeoutError

ENTRIES_MAX: Final = 500
"""Entries in one message; a broker that lags further asks again."""
REMEMBERED: Final = 256
"""Decisions that are kept for each broker, in case it asks again; also the most it can have open."""


@dataclass(slots=True)
class AskedChange:
    """Proposals of one instance of a broker.  ``decided``: by its number, None while under way.

    ``floor``: numbers up to here are forgotten, and ignored when they come again.
    """

    incarnation: int
    decided: OrderedDict[int, ChangeDecided | None] = field(default_factory=OrderedDict)
    floor: int = 0


@dataclass(slots=True)
class HandOver:
    """A change of master under way; ``taken``: the successor has the record, our decision is being written."""

    event: ChangeMaster
    claim: Leadership
    offer: RecordOffer
    until_ms: int
    again_ms: int
    taken: bool = False


class Master:
    """The part of a member machine that is active while ``life.is_master``."""

    def __init__(self, life: MemberContext, applier: Applier, beat: Callable[[], None]) -> None:
        self._life = life
        self._applier = applier
        self._beat = beat
        self._asked: dict[str, AskedChange] = {}
        self._own: dict[int, Propose] = {}
        self._over: HandOver | None = None

    @property
    def frozen(self) -> bool:
        """A change of master is under way: no change is taken."""
        return self._over is not None

    # ---- the beginning and the end of a term

    def begin_record(self, claim: Leadership) -> None:
        """Begin a new record from the state of this broker; it counts once it is on disk."""
        life = self._life
        old = life.record
        life.record = ChangeRecord(claim.record, life.cluster, claim.term, state=old.state.copy())
        self._reign(claim)

    def take_over(self, claim: Leadership) -> bool:
        """The old master has handed over to this broker; False when its record is not here."""
        life = self._life
        if life.offer is None or life.offer.claim != claim:
            return False
        life.offer.record.succeed(life.record)
        life.record = life.offer.record
        life.record.term = claim.term
        self._reign(claim)
        return True

    def _reign(self, claim: Leadership) -> None:
        life = self._life
        assert claim.term >= FIRST_TERM
        assert claim.master == life.name
        life.claim, life.configured, life.offer = claim, life.settings.master, None
        life.trouble = ""

        def durable() -> None:
            record = life.record
            if life.durable != Position(record.id, record.number, record.digest):
                life.queue.clear()
                life.take_record_as_durable()
                self._applier.whole()
            life.membership.progress(life.durable.number)
            if life.claim != claim:
                return  # a later term was announced while this was written
            life.is_master = True
            life.note(f"this broker is the master of term {claim.term}")
            self._beat()

        life.persist(life.saved().frames(), durable, replace=True)

    def resign(self, why: str) -> None:
        """Another broker is master in a later term: the outcome of what is under way here is unknown."""
        life = self._life
        life.is_master = False
        life.note(f"this broker is not the master any more: {why}", warning=True)
        for event in self._own.values():
            text = f"{why}; whether the change '{event.change}' was made is unknown"
            life.out.append(Answer(event.request, RequestTimeoutError(text)))
        self._own.clear()
        self._asked.clear()
        if self._over is not None:
            self._refuse(self._over.event, UNAVAILABLE, why)
            self._over = None

    # ---- changes

    def propose(self, event: Propose) -> None:
        """A change that is wanted on this broker."""
        life = self._life

        def decided(decision: ChangeDecided) -> None:
            self._own.pop(event.request, None)
            self._applier.when(
                decision.number,
                lambda failure: life.out.append(
                    Answer(event.request, recorded(failure, decision.number), decision.number)
                ),
            )

        try:
            self._own[event.request] = event
            self._append(event.change, 0, decided)
        except BrokerError as error:
            del self._own[event.request]
            life.out.append(Answer(event.request, error))

    def proposed(self, sender: str, incarnation: int, message: ChangeProposal) -> None:
        """A change that is wanted on another broker; the same one may come again."""
        life = self._life
        asked = self._asked.get(sender)
        if asked is None or asked.incarnation != incarnation:
            asked = self._asked[sender] = AskedChange(incarnation)
        number = message.request
        if number in asked.decided:
            known = asked.decided[number]
            if known is not None:
                life.send(sender, known)
            return
        if number <= asked.floor:
            return

        def decided(decision: ChangeDecided) -> None:
            asked.decided[number] = decision
            life.send(sender, decision)

        asked.decided[number] = None
        while len(asked.decided) > REMEMBERED:
            asked.floor = max(asked.floor, asked.decided.popitem(last=False)[0])
        try:
            self._append(message.change, number, decided)
        except BrokerError as error:
            decided(ChangeDecided(number, life.record.id, 0, error.code, str(error)))

    def _append(self, change: Change, request: int, decided: Callable[[ChangeDecided], None]) -> None:
        life = self._life
        if self.frozen:
            raise MasterUnavailableError("the cluster is getting another master; try again in a moment")
        entry, record = life.record.propose(change), life.record.id

        def durable() -> None:
            life.entries_durable([entry])
            if life.is_master:
                life.send_all(Entries(life.claim, (entry,), entry.number))
                decided(ChangeDecided(request, record, entry.number))

        life.persist([entry_frame(entry)], durable)
        life.compress_when_long()

    # ---- brokers that lag

    def send_missing(self, sender: str, message: Ask) -> None:
        life = self._life
        position, end = message.position, life.durable.number
        found: list[Entry] | Gap
        if position.record != life.record.id:
            found = Gap.COMPRESSED
        elif position.number > end:
            found = Gap.AHEAD
        else:
            after = life.record.after(position.number, position.digest)
            found = after if isinstance(after, Gap) else [entry for entry in after if entry.number <= end]
        if found is Gap.COMPRESSED:
            life.send(sender, Whole(life.claim, dump(life.record, number=end)))
        elif isinstance(found, Gap):
            text = (
                f"the record of the master {life.name} ends at entry {end}, that of {sender} at {position.number}"
                " with another history: the master lost some; restore a backup of the record on the master"
            )
            life.note(text, warning=True)
            life.send(sender, Disagree(position, text))
        else:
            life.send(sender, Entries(life.claim, tuple(found[:ENTRIES_MAX]), end))

    # ---- handing over

    def change(self, event: ChangeMaster) -> None:
        life = self._life
        target = event.target
        if not life.settings.master:
            return self._refuse(event, PRECONDITION_FAILED, "the cluster has no master broker")
        if not life.settings.dynamic_change_master:
            return self._refuse(event, NOT_ALLOWED, "imq.cluster.dynamicChangeMasterBrokerEnabled is false")
        if not life.is_master:
            return self._refuse(event, NOT_ALLOWED, f"ask the master broker, {life.claim.master}")
        if target == life.name:
            return self._refuse(event, BAD_REQUEST, f"{target} is the master already")
        if target not in life.membership:
            return self._refuse(event, BAD_REQUEST, f"there is no broker {target!r} in the cluster")
        if self.frozen or life.state not in INTEGRATED:
            why = "another change of master is under way" if self.frozen else f"this broker is {life.state}"
            return self._refuse(event, PRECONDITION_FAILED, why)
        if life.membership.state(target) is not BrokerState.UP or target not in life.matched:
            return self._refuse(event, UNAVAILABLE, f"broker {target} is {life.membership.state(target)}")
        claim = Leadership(life.claim.term + 1, target, life.claim.record)
        until_ms = life.now_ms + life.settings.request_ms
        self._over = over = HandOver(event, claim, RecordOffer(claim, b""), until_ms, until_ms)

        def offer() -> None:
            if self._over is over:
                over.offer = RecordOffer(claim, dump(life.record))
                self._say(over)

        return life.when_durable(offer)

    def _say(self, over: HandOver) -> None:
        over.again_ms = self._life.now_ms + self._life.settings.heartbeat_ms
        self._life.send(over.claim.master, over.offer)

    def taken(self, sender: str, message: MasterTaken) -> None:
        """The successor has the record: make the decision durable."""
        life, over = self._life, self._over
        if over is None or over.taken or message.claim != over.claim or sender != over.claim.master:
            return
        if message.position != Position(life.record.id, life.record.number, life.record.digest):
            return
        over.taken = True
        configured = life.settings.master

        def decided() -> None:
            if self._over is over:
                self._over = None
                life.claim, life.configured = over.claim, configured
                life.is_master = False
                self._asked.clear()
                life.note(f"broker {sender} is the master of term {over.claim.term} now")
                life.out.append(Answer(over.event.request, result=OK, text=f"the master is {sender}"))
                self._beat()

        life.persist([claim_frame(over.claim, configured)], decided)

    def tick(self) -> None:
        life, over = self._life, self._over
        if over is None or over.taken or not over.offer.dump:
            return
        if life.now_ms >= over.until_ms:
            self._over = None
            self._refuse(over.event, UNAVAILABLE, f"broker {over.claim.master} did not take the record in time")
        elif life.now_ms >= over.again_ms:
            self._say(over)

    def _refuse(self, event: ChangeMaster, result: str, why: str) -> None:
        self._life.out.append(Answer(event.request, result=result, text=f"{why}; nothing was changed"))
