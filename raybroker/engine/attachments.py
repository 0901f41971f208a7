"""Producers and consumers on connections, and how effects reach them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from raybroker.core import command as cmd
from raybroker.core.blocks import message_mask as pk
from raybroker.core.destination import Destination
from raybroker.core.outcome import (
    Acked,
    Compose,
    Deliver,
    Drained,
    Effect,
    Gate,
    Idle,
    Promoted,
    Ready,
    Released,
    Retire,
    Sent,
    Withdrawn,
)
from raybroker.engine.meters import ConsumerMeter, ProducerMeter
from raybroker.engine.ports import Peer
from raybroker.model.block import Block
from raybroker.model.errors import StoreDamagedError, StoreError
from raybroker.model.record import Buffer

if TYPE_CHECKING:
    from raybroker.engine.host import Host

Told = Sent | Deliver | Acked | Released | Drained | Ready | Withdrawn | Promoted | Gate
"""What somebody at the other end of a connection is told."""


class Attachment:
    """A producer or consumer on a connection. Its number is the *epoch* that deliveries and acknowledgements carry."""

    __slots__ = (
        "broker", "consumer", "eager", "first_tag", "handle", "home", "leased", "meter", "number", "outbox", "peer",
    )  # fmt: skip

    def __init__(self, number: int, home: Destination, peer: Peer, handle: int, outbox: Outbox, *, eager: bool) -> None:
        self.number = number
        self.home = home
        self.peer = peer
        self.handle = handle
        self.outbox = outbox
        self.first_tag = 1
        """Deliveries tagged below were decided before the consumer gave everything back: they are not its any more."""
        self.eager = eager
        """Deliveries leave with the release that decides them, since nothing holds their bytes afterwards."""
        self.consumer = ""
        """Id of a consumer that has attachments on several brokers, the same on all of them."""
        self.broker = ""
        """Home broker of a consumer's connection; "" where there is one broker."""
        self.meter: ProducerMeter | ConsumerMeter | None = None
        self.leased = False
        """Deliveries that wait for too long are taken back, and must not leave any more."""

    def holds(self, effect: Deliver) -> bool:
        """Whether the consumer still has any of these messages."""
        queue = self.home.queue_of.get(self.number)
        consumer = queue.consumers.by_attachment.get(self.number) if queue is not None else None
        last = effect.tag + effect.mask.bit_count() - 1
        return consumer is not None and consumer.count_of([(effect.tag, last)]) > 0


class Outbox:
    """What is decided for one connection and not written yet, because the connection is full."""

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        self.waiting: list[tuple[Attachment, Deliver | Drained | Ready]] = []


class Release:
    """Turns effects into calls of peers, the payload cache and the store."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._picked: tuple[Block, int, tuple[Buffer, ...]] | None = None
        """What was picked last: subscribers with equal selectors get the same, one after the other."""

    def effect(self, home: Destination, effect: Effect) -> None:
        if isinstance(effect, Retire):
            self._retire(home, effect)
        elif isinstance(effect, Compose):
            self._host.composing.compose(home, effect)
        elif isinstance(effect, Idle):
            if self._host.idle is not None:
                self._host.idle(home.kind, home.name)
        elif isinstance(effect, Told):
            attachment = self._host.attachments.get(effect.attachment)
            if attachment is not None:
                self._tell(attachment, effect)

    def _tell(self, attachment: Attachment, effect: Told) -> None:
        peer = attachment.peer
        if isinstance(effect, Deliver):
            if effect.tag < attachment.first_tag:
                return
            if not attachment.eager and (attachment.outbox.waiting or peer.congested()):
                attachment.outbox.waiting.append((attachment, effect))
            else:
                self._hand_over(attachment, effect)
        elif isinstance(effect, Sent):
            self._host.meters.stored(attachment, effect.first_seq, effect.messages)
            peer.sent(attachment.handle, effect.first_seq, effect.messages, effect.refused)
        elif isinstance(effect, Acked):
            peer.acked(effect.request, effect.unknown)
        elif isinstance(effect, Released):
            attachment.first_tag = effect.next_tag
            attachment.outbox.waiting = [w for w in attachment.outbox.waiting if w[0] is not attachment]
            peer.released(attachment.handle, effect.request, effect.next_tag)
        elif isinstance(effect, Withdrawn):
            self._withdraw(attachment, effect)
        elif isinstance(effect, Drained | Ready):
            if effect.tag < attachment.first_tag:
                return
            if attachment.outbox.waiting and not attachment.eager:  # It follows deliveries that wait there.
                attachment.outbox.waiting.append((attachment, effect))
            else:
                self._tell_draining(attachment, effect)
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
            if attachment.number not in self._host.attachments:
                continue
            if not isinstance(effect, Deliver):
                self._tell_draining(attachment, effect)
            # A consumer may have acknowledged what it never got; then its block may be gone.
            elif effect.ordinal in attachment.home.block_index.held:
                self._hand_over(attachment, effect)
            elif attachment.leased:  # It was taken back, and has gone since.
                self._missed_later(attachment, effect.mask.bit_count())

    def _withdraw(self, attachment: Attachment, effect: Withdrawn) -> None:
        """What waits here does not leave, and the consumer forgets what it has got."""
        unsent: set[int] = set()
        kept: list[tuple[Attachment, Deliver | Drained | Ready]] = []
        for other, waiting in attachment.outbox.waiting:
            if other is not attachment or not isinstance(waiting, Deliver):
                kept.append((other, waiting))
                continue
            tags = range(waiting.tag, waiting.tag + waiting.mask.bit_count())
            void = {tag for tag in tags if any(first <= tag <= last for first, last in effect.ranges)}
            unsent |= void
            rest = [(tag, index) for tag, index in zip(tags, pk.indexes(waiting.mask), strict=True) if tag not in void]
            for tag, indexes in _in_a_row(rest):
                kept.append((attachment, waiting._replace(tag=tag, mask=pk.of_indexes(indexes))))
        attachment.outbox.waiting = kept
        if unsent:
            self._missed_later(attachment, len(unsent))
        tags_sent = [tag for first, last in effect.ranges for tag in range(first, last + 1) if tag not in unsent]
        tags_sent = [tag for tag in tags_sent if tag >= attachment.first_tag]
        if tags_sent:
            ranges = [(tag, tag + len(row) - 1) for tag, row in _in_a_row([(tag, 0) for tag in tags_sent])]
            attachment.peer.withdrawn(attachment.handle, attachment.number, ranges)

    @staticmethod
    def _tell_draining(attachment: Attachment, effect: Drained | Ready) -> None:
        if isinstance(effect, Drained):
            attachment.peer.drained(attachment.handle, attachment.number, effect.unused)
        else:
            attachment.peer.ready(attachment.handle, attachment.number)

    def _hand_over(self, attachment: Attachment, effect: Deliver) -> None:
        if attachment.leased and not attachment.eager and not attachment.holds(effect):
            self._missed_later(attachment, effect.mask.bit_count())
            return
        try:
            block = self._host.payloads.get(attachment.home.number, effect.ordinal)
        except StoreDamagedError as error:
            self._host.halt(attachment.home, error)
            return
        except StoreError as error:
            self._host.fail(error)
            return
        mask = effect.mask
        room = attachment.peer.room()
        if 0 < room < mask.bit_count() and not attachment.eager:
            mask = pk.lowest(mask, room)
            rest = effect._replace(tag=effect.tag + room, mask=effect.mask & ~mask)
            attachment.outbox.waiting.insert(0, (attachment, rest))
        parts = self._pick(block, mask)
        attachment.peer.deliver(attachment.handle, attachment.number, effect.tag, effect.attempt, parts)
        self._host.meters.delivered(attachment, effect.ordinal, effect.tag, mask, effect.attempt)

    def _missed_later(self, attachment: Attachment, count: int) -> None:
        """The consumer does not know of deliveries that never left: it may have as many others."""
        self._host.later(lambda: self._missed(attachment, count))

    def _missed(self, attachment: Attachment, count: int) -> None:
        self._host.perform(attachment.home, cmd.Missed(attachment.number, count))

    def _pick(self, block: Block, mask: int) -> tuple[Buffer, ...]:
        before = self._picked
        if before is not None and before[0] is block and before[1] == mask:
            return before[2]
        parts = block.pick(mask)
        self._picked = (block, mask, parts) if parts[0] is not block.view else None
        return parts

    def _retire(self, home: Destination, effect: Retire) -> None:
        for ordinal in effect.ordinals:
            self._host.payloads.drop(home.number, ordinal)
        if effect.persistent:
            self._host.store.free(home.number, effect.ordinals)


def _in_a_row(rows: list[tuple[int, int]]) -> Iterator[tuple[int, list[int]]]:
    """(tag, value) ascending as (first tag, values) of tags that follow each other."""
    first = 0
    values: list[int] = []
    for tag, value in rows:
        if values and tag != first + len(values):
            yield first, values
            values = []
        if not values:
            first = tag
        values.append(value)
    if values:
        yield first, values
