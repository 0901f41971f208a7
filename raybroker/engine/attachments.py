"""Producers and consumers on connections, and how effects reach them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raybroker.core import command as cmd
from raybroker.core import picks as pk
from raybroker.core.destination import Destination
from raybroker.core.outcome import Acked, Deliver, Effect, Gate, Idle, Promoted, Released, Retire, Sent
from raybroker.engine.ports import Peer
from raybroker.model.block import Block
from raybroker.model.errors import StoreDamagedError, StoreError
from raybroker.model.record import Buffer

if TYPE_CHECKING:
    from raybroker.engine.host import Host


class Attachment:
    """A producer or consumer on a connection. Its number is the *epoch* that deliveries and acknowledgements carry."""

    __slots__ = ("eager", "first_tag", "handle", "home", "leased", "number", "outbox", "peer")

    def __init__(self, number: int, home: Destination, peer: Peer, handle: int, outbox: Outbox, *, eager: bool) -> None:
        self.number = number
        self.home = home
        self.peer = peer
        self.handle = handle
        self.outbox = outbox
        self.first_tag = 1
        """Deliveries tagged below were decided before the consumer gave everything back: they are not its any more."""
        self.eager = eager
        """Deliveries leave with the release that decides them, since nothing holds their bytes afterwards (R-10)."""
        self.leased = False
        """Deliveries that wait for too long are taken back, and must not leave any more (B6)."""

    def holds(self, effect: Deliver) -> bool:
        """Whether the consumer still has any of these messages."""
        lane = self.home.lane_of.get(self.number)
        consumer = lane.consumers.by_attachment.get(self.number) if lane is not None else None
        last = effect.tag + effect.picks.bit_count() - 1
        return consumer is not None and consumer.count_of([(effect.tag, last)]) > 0


class Outbox:
    """What is decided for one connection and not written yet, because the connection is full."""

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        self.waiting: list[tuple[Attachment, Deliver]] = []


class Release:
    """Turns effects into calls of peers, the payload cache and the store."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._picked: tuple[Block, int, tuple[Buffer, ...]] | None = None
        """What was picked last: subscribers with equal selectors get the same, one after the other."""

    def effect(self, home: Destination, effect: Effect) -> None:
        if isinstance(effect, Retire):
            self._retire(home, effect)
        elif isinstance(effect, Idle):
            if self._host.idle is not None:
                self._host.idle(home.kind, home.name)
        elif isinstance(effect, Deliver | Sent | Acked | Released | Promoted | Gate):
            attachment = self._host.attachments.get(effect.attachment)
            if attachment is not None:
                self._tell(attachment, effect)

    def _tell(self, attachment: Attachment, effect: Sent | Deliver | Acked | Released | Promoted | Gate) -> None:
        peer = attachment.peer
        if isinstance(effect, Deliver):
            if effect.tag < attachment.first_tag:
                return
            if not attachment.eager and (attachment.outbox.waiting or peer.congested()):
                attachment.outbox.waiting.append((attachment, effect))
            else:
                self._hand_over(attachment, effect)
        elif isinstance(effect, Sent):
            peer.sent(attachment.handle, effect.first_seq, effect.messages, effect.refused)
        elif isinstance(effect, Acked):
            peer.acked(effect.request, effect.unknown)
        elif isinstance(effect, Released):
            attachment.first_tag = effect.next_tag
            attachment.outbox.waiting = [w for w in attachment.outbox.waiting if w[0] is not attachment]
            peer.released(attachment.handle, effect.request, effect.next_tag)
        elif isinstance(effect, Gate):
            peer.gate(attachment.handle, effect.state, effect.until_ms)
        else:
            peer.promoted(attachment.handle)

    def writable(self, outbox: Outbox) -> None:
        """A connection can take more: hand over what waited for it."""
        waiting, outbox.waiting = outbox.waiting, []
        for index, (attachment, effect) in enumerate(waiting):
            if attachment.peer.congested():
                outbox.waiting += waiting[index:]
                return
            # A consumer may have acknowledged what it never got; then its block may be gone.
            if attachment.number in self._host.attachments and effect.ordinal in attachment.home.ledger.held:
                self._hand_over(attachment, effect)

    def _hand_over(self, attachment: Attachment, effect: Deliver) -> None:
        if attachment.leased and not attachment.eager and not attachment.holds(effect):
            self._host.later(lambda: self._grant_again(attachment, effect.picks.bit_count()))
            return
        try:
            block = self._host.payloads.get(attachment.home.number, effect.ordinal)
        except StoreDamagedError as error:
            self._host.halt(attachment.home, error)
            return
        except StoreError as error:
            self._host.fail(error)
            return
        picks = effect.picks
        room = attachment.peer.room()
        if 0 < room < picks.bit_count() and not attachment.eager:
            picks = pk.lowest(picks, room)
            rest = effect._replace(tag=effect.tag + room, picks=effect.picks & ~picks)
            attachment.outbox.waiting.insert(0, (attachment, rest))
        parts = self._pick(block, picks)
        attachment.peer.deliver(attachment.handle, attachment.number, effect.tag, effect.attempt, parts)

    def _grant_again(self, attachment: Attachment, count: int) -> None:
        """The consumer does not know of deliveries that never left: it may have as many others."""
        self._host.perform(attachment.home, cmd.Grant(attachment.number, count))

    def _pick(self, block: Block, picks: int) -> tuple[Buffer, ...]:
        before = self._picked
        if before is not None and before[0] is block and before[1] == picks:
            return before[2]
        parts = block.pick(picks)
        self._picked = (block, picks, parts) if parts[0] is not block.view else None
        return parts

    def _retire(self, home: Destination, effect: Retire) -> None:
        for ordinal in effect.ordinals:
            self._host.payloads.drop(home.number, ordinal)
        if effect.persistent:
            self._host.store.free(home.number, effect.ordinals)
