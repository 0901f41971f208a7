"""State that the parts of a member machine share: its name, its master, its record, and the actions it asks for.

The parts are ``handshake`` (other brokers), ``follower`` and ``master`` (the two sides of a record), ``shared_table``
(a record in a table), ``broadcast`` (no master) and ``record_application`` (changes carried out here).  They share this
object; ``member`` takes every event.

    STARTING                made the keeper of the record   REPLAYING
    STARTING                made a follower                 WAITING_FOR_MASTER
    WAITING_FOR_MASTER      given its master                REPLAYING
    REPLAYING               caught up                       EXCHANGING
    REPLAYING, EXCHANGING   left by its master              WAITING_FOR_MASTER
    EXCHANGING              integrated                      OPERATING
    OPERATING               left by its master              MASTER_LOST
    MASTER_LOST             given its master                OPERATING
    any other               stopped                         STOPPED
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from raybroker.cluster.change_record import ChangeRecord, Entry, RecordState
from raybroker.cluster.events import Action, Note, Persist, SendEnvelope
from raybroker.cluster.member_messages import Envelope, Greet, MemberMessage, Position
from raybroker.cluster.membership import DOWN_MS, HEARTBEAT_MS, SUSPECT_MS, BrokerState, Membership
from raybroker.cluster.saved_record import Saved, claim_frame
from raybroker.cluster.term import Leadership
from raybroker.model.machine import Machine

RETRY_MS: Final = 5000
REQUEST_MS: Final = 10_000
CARRY_OUT_MS: Final = 15_000
TABLE_POLL_MS: Final = 5000
EXCHANGE_MS: Final = 5000
COMPRESS_MIN: Final = 500
HISTORY_RATIO: Final = 2
"""A broker shortens its copy by itself when it has that many entries for each row of the state, and COMPRESS_MIN."""


class MemberState(StrEnum):
    STARTING = "STARTING"
    WAITING_FOR_MASTER = "WAITING_FOR_MASTER"
    REPLAYING = "REPLAYING"
    EXCHANGING = "EXCHANGING"
    OPERATING = "OPERATING"
    MASTER_LOST = "MASTER_LOST"
    STOPPED = "STOPPED"


class MemberEvent(StrEnum):
    """KEEP: it keeps the record itself. FOLLOW: another broker or a table does. HEAR: the master is there, and lets it
    follow; MISS: it is not, or does not. CATCH_UP: all of the record is carried out. EXCHANGE: brokers know the
    consumers of each other. END: it left, or a later instance runs."""

    KEEP = "made the keeper of the record"
    FOLLOW = "made a follower"
    HEAR = "given its master"
    MISS = "left by its master"
    CATCH_UP = "caught up"
    EXCHANGE = "integrated"
    END = "stopped"


_S, _E = MemberState, MemberEvent
MEMBER: Final = Machine(
    "the member",
    [
        ((_S.STARTING,), _E.KEEP, _S.REPLAYING),
        ((_S.STARTING,), _E.FOLLOW, _S.WAITING_FOR_MASTER),
        ((_S.WAITING_FOR_MASTER,), _E.HEAR, _S.REPLAYING),
        ((_S.REPLAYING,), _E.CATCH_UP, _S.EXCHANGING),
        ((_S.REPLAYING, _S.EXCHANGING), _E.MISS, _S.WAITING_FOR_MASTER),
        ((_S.EXCHANGING,), _E.EXCHANGE, _S.OPERATING),
        ((_S.OPERATING,), _E.MISS, _S.MASTER_LOST),
        ((_S.MASTER_LOST,), _E.HEAR, _S.OPERATING),
        (tuple(one for one in _S if one is not _S.STOPPED), _E.END, _S.STOPPED),
    ],
)

INTEGRATED: Final = frozenset({MemberState.OPERATING, MemberState.MASTER_LOST})


@dataclass(frozen=True, slots=True)
class MemberSettings:
    """What the configuration says.  Times in milliseconds.

    cluster                imq.cluster.clusterid, "" to take that of the master
    brokers                names of the configured brokers
    master                 imq.cluster.masterbroker, "" without a master
    table                  names the table that has the record instead of a master, "" without one
    dynamic_change_master  imq.cluster.dynamicChangeMasterBrokerEnabled
    properties             of ``matching.properties``
    retry_ms               between two attempts to reach a broker that is not heard
    request_ms             a change that is not decided by then is answered as unknown
    carry_out_ms           a change that is in the record, and not carried out here by then, is answered as late; with
                           request_ms less than a call waits
    exchange_ms            longest wait for the consumers of a peer before going without
    table_poll_ms          a table is read again after so long, also when nobody says that there is more
    """

    cluster: str = ""
    brokers: tuple[str, ...] = ()
    master: str = ""
    table: str = ""
    dynamic_change_master: bool = False
    properties: Mapping[str, object] = field(default_factory=dict)
    heartbeat_ms: int = HEARTBEAT_MS
    suspect_ms: int = SUSPECT_MS
    down_ms: int = DOWN_MS
    retry_ms: int = RETRY_MS
    request_ms: int = REQUEST_MS
    carry_out_ms: int = CARRY_OUT_MS
    exchange_ms: int = EXCHANGE_MS
    table_poll_ms: int = TABLE_POLL_MS


class MemberContext:
    """One broker's state in the cluster.

    agreed    the state that the durable entries of the record lead to
    durable   how far the record is on disk
    is_master this broker is the master and may accept changes
    trouble   why this broker cannot follow the master although it hears it, or use the table; "" when it can
    matched   brokers that were greeted, and which instance of them
    instance  name and incarnation of the master that was greeted last
    queue     durable entries that are not carried out here yet
    """

    def __init__(self, name: str, settings: MemberSettings, found: Saved, now_ms: int) -> None:
        self.name = name
        self.settings = settings
        self.now_ms = now_ms
        self.state = MemberState.STARTING
        self.incarnation = max(found.incarnation + 1, now_ms)
        self.cluster = settings.cluster or found.cluster
        self.claim = Leadership()
        self.configured = found.configured
        self.record = found.record or ChangeRecord("", self.cluster, 0)
        self.offer = found.offer
        self.is_master = False
        self.trouble = ""
        self.table_heard = False
        """The shared table was read, and it is ours, at the last attempt."""
        self.held: tuple[str, Callable[[], None]] | None = None
        """A broker that has to be greeted before this one becomes master, and the action to take then."""
        self.agreed = RecordState()
        self.durable = Position("", 0, "")
        self.take_record_as_durable()
        self.instance = found.instance
        known = {self.instance[0]: self.instance[1]} if self.instance[0] not in ("", name) else {}
        self.matched: dict[str, int] = {}
        self.membership = Membership(
            name,
            self.incarnation,
            settings.brokers,
            known=known,
            suspect_ms=settings.suspect_ms,
            down_ms=settings.down_ms,
        )
        self.out: list[Action] = []
        self.queue: deque[Entry] = deque()
        self._token = 0
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()

    # ---- actions

    def send(self, to: str, message: MemberMessage) -> None:
        """Send a greeting to any instance of that name, every other message to the instance that was greeted."""
        instance = 0 if isinstance(message, Greet) else self.matched.get(to, 0)
        self.out.append(SendEnvelope(to, Envelope(self.name, self.incarnation, instance, message)))

    def send_all(self, message: MemberMessage) -> None:
        """Send the message to every broker that lives and is greeted."""
        for peer in self.peers():
            self.send(peer, message)

    def note(self, text: str, *, warning: bool = False) -> None:
        self.out.append(Note(text, warning))

    def persist(
        self, frames: Iterable[bytes], then: Callable[[], None] | None = None, *, replace: bool = False
    ) -> None:
        """Write, and call ``then`` once that is durable."""
        self._token += 1
        self._waiting.append((self._token, then or (lambda: None)))
        self.out.append(Persist(self._token, tuple(frames), replace))

    def when_durable(self, then: Callable[[], None]) -> None:
        """Call ``then`` once all that was written so far is durable; at once if it is."""
        if self._waiting:
            self._waiting.append((self._waiting[-1][0], then))
        else:
            then()

    def persisted(self, token: int) -> None:
        while self._waiting and self._waiting[0][0] <= token:
            self._waiting.popleft()[1]()

    # ---- state

    def happens(self, event: MemberEvent) -> None:
        self.state = MEMBER.after(self.state, event)

    def peers(self) -> list[str]:
        """Other brokers that live and are greeted."""
        return [name for name in self.membership.heard_peers() if name in self.matched]

    @property
    def follows(self) -> bool:
        """The record is kept elsewhere: there is a master and it is another broker, or all share a table."""
        return bool(self.settings.table) or (bool(self.settings.master) and not self.is_master)

    @property
    def keeper(self) -> str:
        """Who has the record, in words."""
        return f"the table {self.settings.table}" if self.settings.table else f"the master broker {self.claim.master}"

    @property
    def keeper_heard(self) -> bool:
        """The master that this broker follows is heard, or the table was read at the last attempt."""
        return self.table_heard if self.settings.table else self.master_heard

    @property
    def master_heard(self) -> bool:
        """The master that this broker follows lives, and was greeted."""
        master = self.claim.master
        heard = self.membership.state(master) in (BrokerState.JOINING, BrokerState.UP, BrokerState.SUSPECT)
        return heard and master in self.matched and bool(self.claim.record)

    def saved(self) -> Saved:
        claim = self.claim if self.claim.term or not self.settings.master else None
        record = self.record if self.record.id else None
        return Saved(self.incarnation, self.cluster, claim, self.configured, self.instance, record, self.offer)

    # ---- the record

    def entries_durable(self, entries: Iterable[Entry]) -> None:
        """These are on disk, in order."""
        for entry in entries:
            self.agreed.apply(entry.change)
            self.queue.append(entry)
            self.durable = Position(self.durable.record, entry.number, entry.digest)
        self.membership.progress(self.durable.number)

    def take_record_as_durable(self) -> None:
        """All of the record is on disk, whatever was before."""
        self.agreed = self.record.state.copy()
        self.durable = Position(self.record.id, self.record.number, self.record.digest)

    def forget_past(self) -> None:
        """The whole record is carried out here: nothing that it destroyed is left."""
        self.record.forget_past()
        self.agreed.past.clear()

    def compress(self) -> None:
        """Replace the durable part of the record's history by its state."""
        if self.durable.record != self.record.id or self.durable.number <= self.record.base_number:
            return
        self.record = self.record.compress(self.durable.number)
        self.persist(self.saved().frames(), replace=True)

    @property
    def record_rows(self) -> int:
        """Rows of the record's state, whatever the length of its history."""
        return len(self.agreed.destinations) + len(self.agreed.subscriptions) + len(self.agreed.templates)

    def compress_when_long(self) -> None:
        if len(self.record.entries) > COMPRESS_MIN + HISTORY_RATIO * self.record_rows:
            self.compress()

    def keep_claim(self, claim: Leadership) -> None:
        """Follow ``claim`` from now on, also after a restart."""
        self.claim, self.configured = claim, self.settings.master
        self.persist([claim_frame(claim, self.configured)])
