"""The member machine of one broker in a cluster, which takes every event.

    STARTING           the incarnation is being made durable
    WAITING_FOR_MASTER no client is taken until the master is found; tried again every ``retry_ms``
    REPLAYING          the record is carried out here, up to where the master was
    EXCHANGING         the active consumers of all live brokers are exchanged
    OPERATING          fully integrated
    MASTER_LOST        as OPERATING, but changes raise MasterUnavailableError
    STOPPED            left, or replaced by a newer instance

The master itself, and a broker of a cluster without a master, go from STARTING to REPLAYING.  Where the record
is in a table, the table is what is waited for and lost.  Which state may
follow which is the table ``member_state.NEXT``, and that module names the parts of the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from raybroker.cluster import events as e
from raybroker.cluster import member_messages as m
from raybroker.cluster import start_up
from raybroker.cluster.broadcast import Teller
from raybroker.cluster.events import Action, Event
from raybroker.cluster.follower import Follower
from raybroker.cluster.handshake import Peers
from raybroker.cluster.master import Master
from raybroker.cluster.member_state import INTEGRATED, MemberContext, MemberEvent, MemberSettings, MemberState
from raybroker.cluster.member_view import Shown
from raybroker.cluster.membership import HEARD
from raybroker.cluster.record_application import Applier
from raybroker.cluster.saved_record import backed_up, life_frame, load_frames, restored
from raybroker.cluster.shared_table import Sharer
from raybroker.cluster.term import Leadership
from raybroker.model.errors import MasterUnavailableError, StaleError

__all__ = ["Member", "MemberSettings", "MemberState", "backed_up", "restored"]


class Member(Shown):
    """The machine of broker ``name``.

    ``frames`` is what its record file holds, nothing at the first start; ``new_id`` is random text, for a record or a
    cluster that begins here.  Raises StoreDamagedError when the frames cannot be used.
    """

    def __init__(
        self, name: str, settings: MemberSettings, frames: Sequence[bytes], *, now_ms: int, new_id: str
    ) -> None:
        found = load_frames(frames)
        life = MemberContext(name, settings, found, now_ms)
        applier = Applier(life)
        peers = Peers(life, self._adopt)
        super().__init__(life, applier, peers, Master(life, applier, peers.beat))
        self._new_id = new_id
        self._found = found
        self._follower = Follower(self._life, self._applier)
        self._teller = Teller(self._life, self._applier)
        self._sharer = Sharer(life, applier, peers.beat, self._follower.adopt_record)
        self._source: Follower | Sharer = self._sharer if settings.table else self._follower
        """Where the copy of the record comes from."""
        self._fresh = True
        self._asked: dict[str, int] = {}
        self._exchanging: set[str] = set()
        self._deadline_ms = 0
        self._until_ms = 0

    # ---- the funnel

    def step(self, event: Event, now_ms: int) -> list[Action]:
        """Take one event; returns the actions to carry out, in order."""
        life = self._life
        if life.state is MemberState.STOPPED:
            return []
        assert self._fresh == isinstance(event, e.Started), "Started comes first, and once"
        life.now_ms = max(life.now_ms, now_ms)
        version = life.membership.version
        _EVENTS[type(event)](self, event)
        self._advance()
        if life.membership.version != version:
            life.out.append(e.ViewChanged(life.membership.version))
        out, life.out = life.out, []
        return out

    def _started(self, event: e.Started) -> None:
        self._fresh = False
        life, found = self._life, self._found
        if not life.cluster and life.settings.master == life.name:
            life.cluster = life.record.cluster = self._new_id
        life.persist([life_frame(life.incarnation, life.cluster)])
        start_up.begin(life, self._master, found, self._new_id)
        self._deadline_ms = life.now_ms + life.settings.down_ms

        def greet() -> None:
            self._peers.tick()
            self._leave_starting()

        life.when_durable(greet)

    def _leave_starting(self) -> None:
        life = self._life
        life.happens(MemberEvent.FOLLOW if life.follows else MemberEvent.KEEP)

    def _adopt(self, claim: Leadership) -> None:
        """Follow a later term."""
        life = self._life
        life.held = None
        if life.is_master:
            self._master.resign(f"broker {claim.master} is the master of term {claim.term}")
        self._follower.abandon(f"the cluster got another master, {claim.master}")
        self._follower.reset()
        if claim.master == life.name:
            if not self._master.take_over(claim):
                life.keep_claim(claim)
                life.trouble = (
                    f"broker {life.name} is the master of term {claim.term}, and the record of that term is missing"
                    " here: restore a backup"
                )
            return
        life.keep_claim(claim)
        if claim.master != life.settings.master:
            life.note(
                f"the master is {claim.master} since term {claim.term}; imq.cluster.masterbroker says"
                f" {life.settings.master}: correct it",
                warning=True,
            )

    def _tick(self, event: e.MemberTick) -> None:
        if self._life.state is MemberState.STARTING:
            return
        self._peers.tick()
        self._source.tick()
        self._master.tick()
        self._teller.tick()
        self._applier.tell_late()

    def _persisted(self, event: e.Persisted) -> None:
        self._life.persisted(event.token)

    def _applied(self, event: e.Applied) -> None:
        self._applier.done(event.number, event.failure, partly=event.partly)

    def _host_back(self, event: e.HostBack) -> None:
        self._applier.whole()

    def _exchanged(self, event: e.Exchanged) -> None:
        self._exchanging.discard(event.peer)

    def _propose(self, event: e.Propose) -> None:
        life = self._life
        if not life.settings.master and not life.settings.table:
            self._teller.propose(event)
            return
        try:
            self.check_change()
        except MasterUnavailableError as error:
            life.out.append(e.Answer(event.request, error))
            return
        if life.settings.table:
            self._sharer.propose(event)
        elif life.is_master:
            self._master.propose(event)
        else:
            self._follower.propose(event)

    def _change_master(self, event: e.ChangeMaster) -> None:
        self._master.change(event)

    def _compress(self, event: e.Compress) -> None:
        if not self._master.frozen:
            self._life.compress()
        self._sharer.compress()

    def _brokers(self, event: e.BrokersConfigured) -> None:
        self._life.membership.expect(event.names)
        for name in event.names:
            if name != self._life.name and self._life.membership.state(name) not in HEARD:
                self._peers.greet(name)

    def _table_done(self, event: e.TableDone) -> None:
        self._sharer.done(event)

    def _leave(self, event: e.Leave) -> None:
        self._life.send_all(m.Bye())
        self._halt("the broker has left")

    def _halt(self, why: str) -> None:
        self._life.happens(MemberEvent.END)
        self._life.is_master = False
        self._life.out.append(e.Halt(why))

    # ---- messages

    def _received(self, event: e.EnvelopeReceived) -> None:
        life, envelope = self._life, event.envelope
        sender, incarnation = envelope.sender, envelope.incarnation
        mine = max(envelope.to, incarnation if sender == life.name else 0)
        if mine > life.incarnation:
            self._halt(f"a later instance of broker {life.name} is running ({mine} after {life.incarnation})")
            return
        if life.state is MemberState.STARTING or sender == life.name:
            return
        try:
            life.membership.check(sender, incarnation)
        except StaleError as error:
            answer = m.Refuse(str(error), stale=True)
            life.out.append(e.SendEnvelope(sender, m.Envelope(life.name, life.incarnation, incarnation, answer)))
            return
        message: Any = envelope.message
        if envelope.to not in (0, life.incarnation):
            self._peers.strange(sender)
        elif isinstance(message, m.Greet):
            self._peers.greeted(sender, incarnation, message)
        elif isinstance(message, m.Refuse):
            if message.stale:
                self._halt(message.text)
            else:
                self._peers.refuse(sender, message)
        elif life.matched.get(sender) != incarnation:
            self._peers.strange(sender)
        else:
            _MESSAGES[type(message)](self, sender, incarnation, message)

    def _beat(self, sender: str, incarnation: int, message: m.Beat) -> None:
        if not self._peers.beaten(sender, incarnation, message):
            return
        if self._life.settings.table:
            self._sharer.beaten(message)
        elif sender == self._life.claim.master:
            self._follower.beaten(message)

    def _from_master(self, handle: Callable[[Any], None], sender: str, message: Any) -> None:
        if self._life.follows and sender == self._life.claim.master:
            handle(message)

    def _to_master(self, handle: Callable[[], None]) -> None:
        if self._life.is_master:
            handle()

    def _bye(self, sender: str, incarnation: int, message: m.Bye) -> None:
        self._life.matched.pop(sender, None)
        self._peers.tell(self._life.membership.left(sender, incarnation))

    # ---- the states

    def _advance(self) -> None:
        """Enter the next states as far as their conditions hold."""
        life = self._life
        before = None
        while before is not life.state:
            before = life.state
            rule = _ADVANCE.get(before)
            if rule is not None:
                rule(self)
        if life.state in INTEGRATED:
            self._exchange_new()
        if life.settings.table:
            self._sharer.pump()
        if self._is_copy():
            self._applier.pump(self._target())

    def _is_copy(self) -> bool:
        """Whether the record on disk here is a copy of the master's."""
        return not self._life.follows or self._life.durable.record == self._life.claim.record

    def _target(self) -> int:
        """The entry up to which the record has to be carried out before this broker is integrated."""
        return (self._source.target or 0) if self._life.follows else self._life.durable.number

    def _wait(self) -> None:
        life = self._life
        if life.is_master or (self._source.target is not None and not life.trouble and life.keeper_heard):
            life.happens(MemberEvent.HEAR)

    def _replay(self) -> None:
        life = self._life
        if self._master_is_missing():
            life.happens(MemberEvent.MISS)
        elif self._applier.settled and self._applier.applied >= self._target() and self._is_copy():
            life.happens(MemberEvent.CATCH_UP)
            self._until_ms = life.now_ms + life.settings.exchange_ms

    def _master_is_missing(self) -> bool:
        """Whether the master, or the table, is missing; a broker that does not operate yet then waits for it."""
        life = self._life
        if life.follows and (not life.keeper_heard or life.trouble):
            self._source.target = None
        return life.follows and self._source.target is None

    def _exchange_new(self) -> None:
        """Exchange consumers with every instance once, and again after it was silent."""
        life = self._life
        now = {peer: life.matched[peer] for peer in life.peers()}
        for peer, incarnation in now.items():
            if self._asked.get(peer) != incarnation:
                self._exchanging.add(peer)
                life.out.append(e.ExchangeConsumers(peer))
        self._asked = now
        self._exchanging &= now.keys()

    def _exchange(self) -> None:
        """Consumers are exchanged with every live broker, and every configured broker had time to be heard."""
        life = self._life
        if self._master_is_missing():
            life.happens(MemberEvent.MISS)
            return
        self._exchange_new()
        everybody = all(name == life.name or name in life.matched for name in life.membership)
        if not everybody and life.now_ms < self._deadline_ms:
            return
        if self._exchanging and life.now_ms < self._until_ms:
            return
        if self._applier.applied < 0:
            return  # The record was replaced by another meanwhile, which is carried out first.
        life.happens(MemberEvent.EXCHANGE)
        life.membership.operating(life.now_ms)
        life.out.append(e.OpenForClients())
        self._peers.beat()

    def _operate(self) -> None:
        life = self._life
        taking_over = life.claim.master == life.name and not life.trouble
        if life.follows and not taking_over and (not life.keeper_heard or life.trouble):
            life.happens(MemberEvent.MISS)
            self._follower.abandon(f"{life.keeper} is lost")
            life.note(f"{life.keeper} cannot be reached: no change can be made", warning=True)

    def _master_lost(self) -> None:
        life = self._life
        if not life.follows or (life.keeper_heard and not life.trouble):
            life.happens(MemberEvent.HEAR)
            life.note(f"the record is with {life.keeper}")


_EVENTS: Final[dict[type, Callable[[Member, Any], None]]] = {
    e.Started: Member._started,
    e.MemberTick: Member._tick,
    e.EnvelopeReceived: Member._received,
    e.Persisted: Member._persisted,
    e.Applied: Member._applied,
    e.HostBack: Member._host_back,
    e.Exchanged: Member._exchanged,
    e.Propose: Member._propose,
    e.ChangeMaster: Member._change_master,
    e.Compress: Member._compress,
    e.BrokersConfigured: Member._brokers,
    e.TableDone: Member._table_done,
    e.Leave: Member._leave,
}
_MESSAGES: Final[dict[type, Callable[[Member, str, int, Any], None]]] = {
    m.Beat: Member._beat,
    m.Ask: lambda self, sender, _, message: self._to_master(lambda: self._master.send_missing(sender, message)),
    m.Entries: lambda self, sender, _, message: self._from_master(self._follower.entries, sender, message),
    m.Whole: lambda self, sender, _, message: self._from_master(self._follower.whole, sender, message),
    m.Disagree: lambda self, sender, _, message: self._from_master(self._follower.disagree, sender, message),
    m.ChangeProposal: lambda self, sender, number, message: self._to_master(
        lambda: self._master.proposed(sender, number, message)
    ),
    m.ChangeDecided: lambda self, sender, _, message: self._follower.decided(sender, message),
    m.Tell: lambda self, sender, number, message: self._teller.tell(sender, number, message),
    m.Told: lambda self, sender, _, message: self._teller.told(sender, message),
    m.RecordOffer: lambda self, sender, _, message: self._follower.offered(sender, message),
    m.MasterTaken: lambda self, sender, _, message: self._to_master(lambda: self._master.taken(sender, message)),
    m.Bye: Member._bye,
}
_ADVANCE: Final[dict[MemberState, Callable[[Member], None]]] = {
    MemberState.WAITING_FOR_MASTER: Member._wait,
    MemberState.REPLAYING: Member._replay,
    MemberState.EXCHANGING: Member._exchange,
    MemberState.OPERATING: Member._operate,
    MemberState.MASTER_LOST: Member._master_lost,
}
