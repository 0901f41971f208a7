"""Effects for the clients of a host, and deliveries that wait until a connection can take more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Protocol

from raybroker.core import command as cmd
from raybroker.core.admission.admission import Admission
from raybroker.core.blocks import message_mask as pk
from raybroker.core.destination import Destination
from raybroker.core.outcome import (
    Acked,
    CheckpointKept,
    Deliver,
    Drained,
    Effect,
    Gate,
    Promoted,
    Ready,
    Recall,
    Released,
    SendAnswered,
    Withdrawn,
)
from raybroker.engine.measuring.meters import Meters
from raybroker.engine.memory.block_reader import BlockReader
from raybroker.engine.path.executor import Executor
from raybroker.engine.sessions.attachments import Attachment, Attachments, Outbox
from raybroker.model.blocks.block import BLOCK_BYTES_MAX, Block
from raybroker.model.blocks.large_block import LargeBlock, in_pieces
from raybroker.model.blocks.record import Buffer


class Gated(Protocol):
    """A destination, as its gate is told of."""

    @property
    def admission(self) -> Admission: ...


class ClientEffects:
    """Carries out what a producer or consumer is told; an effect for an attachment that has ended is dropped.

    ``holds``: what a producer, by attachment, is told that is to wait although its destination would let it send.
    ``may_dispatch``: nobody else can be serving the same messages; None: nobody ever can.
    """

    def __init__(
        self,
        executor: Executor,
        attachments: Attachments,
        blocks: BlockReader,
        usage: Meters,
        holds: Callable[[int], str],
        may_dispatch: Callable[[], bool] | None = None,
    ) -> None:
        self._executor = executor
        self._live = attachments.by_number
        self._blocks = blocks
        self._usage = usage
        self._holds = holds
        self._may_dispatch = may_dispatch
        self._withheld = False
        """Deliveries wait until nobody else can be serving the same messages."""
        self._picked: tuple[Block, int, tuple[Buffer, ...]] | None = None
        """The last selection of a block: subscribers with equal selectors get the same one after another."""

    def handlers(self) -> dict[type[Effect], Callable[[Destination, Any], None]]:
        """Return the handlers for the effect dispatcher."""
        return {
            SendAnswered: self._sent,
            Deliver: self._deliver,
            Acked: self._acked,
            CheckpointKept: self._kept,
            Released: self._released,
            Drained: self._draining,
            Ready: self._draining,
            Withdrawn: self._withdrawn,
            Recall: self._recall,
            Promoted: self._promoted,
            Gate: self._gate,
        }

    def _sent(self, destination: Destination, effect: SendAnswered) -> None:
        attachment = self._live.get(effect.attachment)
        if attachment is not None:
            self._usage.stored(attachment, effect.first_seq, effect.messages)
            attachment.peer.sent(attachment.handle, effect.first_seq, effect.messages, effect.refused)

    def _deliver(self, destination: Destination, effect: Deliver) -> None:
        attachment = self._live.get(effect.attachment)
        # The effect may have waited for the disk: meanwhile the consumer has gone, or begun anew with larger tags.
        if attachment is None or effect.tag < attachment.first_tag:
            return
        withheld = self._may_dispatch is not None and not self._dispatches()
        if withheld or (not attachment.eager and (attachment.outbox.waiting or attachment.peer.congested())):
            attachment.outbox.waiting.append((attachment, effect))
        else:
            self._hand_over(attachment, effect)

    def _dispatches(self) -> bool:
        """Whether messages may be handed out; once they may not, none is until :meth:`dispatch_again`."""
        if not self._withheld and self._may_dispatch is not None and not self._may_dispatch():
            self._withheld = True
        return not self._withheld

    def dispatch_again(self) -> None:
        """Hand out what was withheld because another one could have been serving the same messages, if none can now;
        called several times a second where the log has copies elsewhere."""
        if self._withheld and self._may_dispatch is not None and self._may_dispatch():
            self._withheld = False
            for outbox in {id(one.outbox): one.outbox for one in self._live.values() if one.outbox.waiting}.values():
                self.writable(outbox)

    def _acked(self, destination: Destination, effect: Acked) -> None:
        attachment = self._live.get(effect.attachment)
        if attachment is not None:
            attachment.peer.acked(effect.request, effect.unknown)

    def _kept(self, destination: Destination, effect: CheckpointKept) -> None:
        attachment = self._live.get(effect.attachment)
        if attachment is not None:
            attachment.peer.reply(effect.request, None)

    def _released(self, destination: Destination, effect: Released) -> None:
        attachment = self._live.get(effect.attachment)
        if attachment is not None:
            attachment.first_tag = effect.next_tag
            attachment.outbox.waiting = [w for w in attachment.outbox.waiting if w[0] is not attachment]
            attachment.peer.released(attachment.handle, effect.request, effect.next_tag)

    def _draining(self, destination: Destination, effect: Drained | Ready) -> None:
        attachment = self._live.get(effect.attachment)
        if attachment is None or effect.tag < attachment.first_tag:
            return
        if attachment.outbox.waiting and not attachment.eager:  # It follows deliveries that wait there.
            attachment.outbox.waiting.append((attachment, effect))
        else:
            _tell_draining(attachment, effect)

    def _promoted(self, destination: Destination, effect: Promoted) -> None:
        attachment = self._live.get(effect.attachment)
        if attachment is not None:
            attachment.peer.promoted(attachment.handle)

    def _gate(self, destination: Gated, effect: Gate) -> None:
        """What holds now: what a step changed that waited for the disk may have been changed back since."""
        attachment = self._live.get(effect.attachment)
        if attachment is not None:
            state, until_ms = destination.admission.gate_state()
            state = (state == "open" and self._holds(effect.attachment)) or state
            attachment.peer.gate(attachment.handle, state, until_ms)

    def _withdrawn(self, destination: Destination, effect: Withdrawn) -> None:
        """Drop waiting deliveries that are void, and tell the consumer of those that were sent."""
        attachment = self._live.get(effect.attachment)
        if attachment is None:
            return
        unsent, sent = self._cut_unsent(attachment, effect.ranges)
        if unsent:
            self._missed_later(attachment, len(unsent))
        if sent:
            attachment.peer.withdrawn(attachment.handle, attachment.number, sent)

    def _recall(self, destination: Destination, effect: Recall) -> None:
        """Ask the consumer; what has not been sent to it comes back at once."""
        attachment = self._live.get(effect.attachment)
        if attachment is None:
            return
        unsent, sent = self._cut_unsent(attachment, effect.ranges)
        if unsent:
            self._missed_later(attachment, len(unsent))
        if unsent or not sent:
            back = cmd.Recalled(attachment.number, _ranges_of(sorted(unsent)), last=not sent)
            self._executor.later(partial(self._executor.perform, destination, back))
        if sent:
            attachment.peer.recall(attachment.handle, attachment.number, sent)

    def _cut_unsent(
        self, attachment: Attachment, ranges: tuple[tuple[int, int], ...]
    ) -> tuple[set[int], list[tuple[int, int]]]:
        """Drop waiting deliveries that are void; returns their tags, and the ranges of those that were sent."""
        unsent: set[int] = set()
        kept: list[tuple[Attachment, Deliver | Drained | Ready]] = []
        for other, waiting in attachment.outbox.waiting:
            if other is not attachment or not isinstance(waiting, Deliver):
                kept.append((other, waiting))
                continue
            tags = range(waiting.tag, waiting.tag + waiting.mask.bit_count())
            void = {tag for tag in tags if any(first <= tag <= last for first, last in ranges)}
            unsent |= void
            rest = [(tag, index) for tag, index in zip(tags, pk.indexes(waiting.mask), strict=True) if tag not in void]
            for tag, indexes in _in_a_row(rest):
                kept.append((attachment, waiting._replace(tag=tag, mask=pk.of_indexes(indexes))))
        attachment.outbox.waiting = kept
        sent = [tag for first, last in ranges for tag in range(first, last + 1) if tag not in unsent]
        return unsent, _ranges_of(tag for tag in sent if tag >= attachment.first_tag)

    # ---- deliveries ------------------------------------------------------------------------------------------------

    def writable(self, outbox: Outbox) -> None:
        """A connection can take more: hand over what waited for it, before anything that follows from that."""
        self._executor.undisturbed(partial(self._hand_over_waiting, outbox))

    def _hand_over_waiting(self, outbox: Outbox) -> None:
        if not self._dispatches():
            return
        waiting, outbox.waiting = outbox.waiting, []
        for index, (attachment, effect) in enumerate(waiting):
            if attachment.peer.congested() and not attachment.eager:
                outbox.waiting += waiting[index:]
                return
            if attachment.number not in self._live:
                continue
            if not isinstance(effect, Deliver):
                _tell_draining(attachment, effect)
            # A consumer may have acknowledged what it never got; then its block may be gone.
            elif effect.ordinal in attachment.destination.block_index.held:
                self._hand_over(attachment, effect)
            elif not attachment.may_leave(effect):  # It was taken back, and has gone since.
                self._missed_later(attachment, effect.mask.bit_count())

    def _hand_over(self, attachment: Attachment, effect: Deliver) -> None:
        if not attachment.may_leave(effect):
            self._missed_later(attachment, effect.mask.bit_count())
            return
        # What has left eagerly cannot be asked for piece by piece.
        read = self._blocks.whole if attachment.eager else self._blocks.read
        block = read(attachment.destination, effect.ordinal)
        if block is None:
            return
        mask = effect.mask
        if effect.fence:
            attachment.peer.mark(attachment.handle, attachment.number, effect.tag, effect.fence)
        if effect.states:
            for tag, index in enumerate(pk.indexes(mask), effect.tag):
                if index in effect.states:
                    attachment.peer.checkpoint(attachment.handle, attachment.number, tag, effect.states[index])
        # No frame has room for one that came by reference and is larger than other messages may be.
        large = in_pieces(block) if attachment.pieces or block.nbytes > BLOCK_BYTES_MAX else block
        if type(large) is LargeBlock:
            attachment.peer.deliver_large(
                attachment.handle, attachment.number, effect.tag, effect.attempt, effect.ordinal, large.front
            )
            self._usage.delivered(attachment, effect.ordinal, effect.tag, mask, effect.attempt)
            return
        room = attachment.peer.room()
        if 0 < room < mask.bit_count() and not attachment.eager:
            mask = pk.lowest(mask, room)
            rest = effect._replace(tag=effect.tag + room, mask=effect.mask & ~mask)
            attachment.outbox.waiting.insert(0, (attachment, rest))
        before = self._picked
        if before is not None and before[0] is block and before[1] == mask:
            parts = before[2]
        else:
            parts = block.pick(mask)
            self._picked = (block, mask, parts) if parts[0] is not block.view else None
        attachment.peer.deliver(attachment.handle, attachment.number, effect.tag, effect.attempt, parts)
        self._usage.delivered(attachment, effect.ordinal, effect.tag, mask, effect.attempt)

    def _missed_later(self, attachment: Attachment, count: int) -> None:
        """Give back the credit of deliveries that were never sent."""
        missed = cmd.Missed(attachment.number, count)
        self._executor.later(partial(self._executor.perform, attachment.destination, missed))


def _tell_draining(attachment: Attachment, effect: Drained | Ready) -> None:
    if isinstance(effect, Drained):
        attachment.peer.drained(attachment.handle, attachment.number, effect.unused)
    else:
        attachment.peer.ready(attachment.handle, attachment.number)


def _ranges_of(tags: Iterable[int]) -> list[tuple[int, int]]:
    """Ascending tags as ranges."""
    return [(tag, tag + len(row) - 1) for tag, row in _in_a_row([(tag, 0) for tag in tags])]


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
