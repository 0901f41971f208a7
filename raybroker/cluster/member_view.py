"""The view that others have of a member machine: its name, its master, and why it takes no clients yet."""

from __future__ import annotations

from raybroker.cluster.change_record import ChangeRecord, RecordState
from raybroker.cluster.handshake import Peers
from raybroker.cluster.master import Master
from raybroker.cluster.member_messages import Position
from raybroker.cluster.member_state import INTEGRATED, MemberContext, MemberState
from raybroker.cluster.membership import Membership
from raybroker.cluster.record_application import Applier
from raybroker.cluster.term import Leadership
from raybroker.model.errors import MasterUnavailableError


class Shown:
    """The part of a member that is read only."""

    def __init__(self, life: MemberContext, applier: Applier, peers: Peers, master: Master) -> None:
        self._life = life
        self._applier = applier
        self._peers = peers
        self._master = master

    @property
    def name(self) -> str:
        return self._life.name

    @property
    def incarnation(self) -> int:
        """Number of this instance; a later one of the same broker has a greater number."""
        return self._life.incarnation

    @property
    def state(self) -> MemberState:
        return self._life.state

    @property
    def opened(self) -> bool:
        """Whether clients are accepted."""
        return self._life.state in INTEGRATED

    @property
    def claim(self) -> Leadership:
        """Who the master is, as far as this broker knows."""
        return self._life.claim

    @property
    def is_master(self) -> bool:
        return self._life.is_master

    @property
    def cluster(self) -> str:
        """The cluster's id; "" while it is not known."""
        return self._life.cluster

    @property
    def record(self) -> ChangeRecord:
        """The record, or the copy of it here. To be read only; its end may not be durable yet."""
        return self._life.record

    @property
    def durable(self) -> Position:
        """How far the record is on disk here."""
        return self._life.durable

    @property
    def agreed(self) -> RecordState:
        """The state that the durable part of the record leads to. To be read only."""
        return self._life.agreed

    @property
    def applied(self) -> int:
        """The entry up to which the record is carried out here; -1 before the first time."""
        return self._applier.applied

    @property
    def membership(self) -> Membership:
        """The view of the brokers. To be read only."""
        return self._life.membership

    @property
    def contradiction(self) -> str:
        """How the configuration and the record contradict each other about the master, in words; "" when they agree."""
        life = self._life
        wanted, master = life.settings.master, life.claim.master
        if not wanted or not master or wanted == master:
            return ""
        return (
            f"imq.cluster.masterbroker is {wanted}, and the master is {master} since term {life.claim.term}: set"
            f" it to {master}, or move the record: raybroker changemaster cls -o imq.cluster.masterbroker={wanted}"
        )

    @property
    def faults(self) -> tuple[str, ...]:
        """Why this broker cannot take part, where somebody has to do something about it."""
        return tuple(text for text in (self._life.trouble, *self._peers.refused.values()) if text)

    @property
    def refusal(self) -> str:
        """Why clients are not taken now, in words; "" when they are."""
        life = self._life
        if life.state in INTEGRATED:
            return ""
        texts = [text for text in (life.trouble, *self._peers.refused.values(), self._applier.failure) if text]
        what = {
            MemberState.STARTING: "it is starting",
            MemberState.WAITING_FOR_MASTER: f"it waits for {life.keeper}",
            MemberState.REPLAYING: "it replays the configuration record",
            MemberState.EXCHANGING: "it gets to know the consumers of the other brokers",
            MemberState.STOPPED: "it has stopped",
        }[life.state]
        return f"broker {life.name} takes no clients yet: {'; '.join([what, *texts])}"

    def check_change(self) -> None:
        """Raises MasterUnavailableError when a change would be refused at once."""
        life = self._life
        if life.settings.table and not life.table_heard:
            raise MasterUnavailableError(
                f"{life.keeper} cannot be used: {life.trouble or 'it has not been read yet'}; destinations and durable"
                " subscriptions cannot be created, changed or destroyed until it can"
            )
        if not life.settings.master:
            return
        if life.is_master:
            if self._master.frozen:
                raise MasterUnavailableError("the cluster is getting another master; try again in a moment")
        elif life.trouble or not life.master_heard or life.claim.master == life.name:
            why = f": {life.trouble}" if life.trouble else ""
            raise MasterUnavailableError(
                f"the master broker {life.claim.master} cannot be reached{why}; destinations and durable subscriptions"
                " cannot be created, changed or destroyed until it is back"
            )

    @property
    def wake_at_ms(self) -> int:
        """A Tick is needed then, if nothing happens before."""
        return max(self._peers.next_ms(), self._life.now_ms)
