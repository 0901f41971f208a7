"""Messages that an administrator moves between two destinations of a host, or sends back to where they died.

They go and come in one batch: a crash neither doubles nor loses them.  Only what was waiting when its turn came is
moved, and counts: a consumer may have taken others since they were chosen.

A target is filled up to its limits: under REJECT_NEWEST and FLOW_CONTROL, or with a full pool, the rest stays where it
is, and the reason is told; under REMOVE_OLDEST and REMOVE_LOW_PRIORITY all of it goes, and the target discards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from raybroker.core import command as cmd
from raybroker.core.blocks import message_mask as pk
from raybroker.core.delivery.delivery_queue import DeliveryQueue
from raybroker.core.destination import Destination
from raybroker.engine.destinations.destination_registry import DestinationRegistry
from raybroker.engine.destinations.subscription_keys import queue_with
from raybroker.engine.path.executor import DISK_FULL, DestinationStep, Done, Executor, unawaited
from raybroker.engine.path.own_sends import OwnSends
from raybroker.engine.ports import Clock, Codec
from raybroker.model.blocks.block import Block
from raybroker.model.errors import InvalidDestinationError


class MovedMessages(NamedTuple):
    """How many messages were moved, and why the first that was not was refused; "" when none was."""

    messages: int
    why: str = ""


class MessageMoves:
    """``report`` takes a line for the log."""

    def __init__(
        self,
        executor: Executor,
        registry: DestinationRegistry,
        own: OwnSends,
        codec: Codec,
        clock: Clock,
        report: Callable[[str], None],
    ) -> None:
        self._executor = executor
        self._registry = registry
        self._own = own
        self._codec = codec
        self._clock = clock
        self._report = report
        self._left: dict[tuple[Destination, str], int] = {}
        """Dead messages that stay: where they are, and where they died."""

    def revive(self, destination: Destination, ordinal: int, mask: int, block: Block) -> MovedMessages:
        """Send dead messages of a block back to the destination, or the one subscription, where each died.

        When all blocks have had their turn, :meth:`tell_left` is to be called.  One whose destination or subscription
        is gone stays, and so does one that its subscription does not select any more; neither counts as refused.
        """
        identity, first_seq = self._own.identity, self._own.take_seqs(mask.bit_count())
        parts = self._codec.revived(block, mask, producer=identity, first_seq=first_seq, now_ms=self._clock.now_ms())
        moved, refused = 0, ""
        for kind, name, subscription, some, data in parts:
            target, new, chosen, queue = self._registry.destinations.get((kind, name)), Block(data), some, None
            if target is None:
                continue
            if subscription:
                queue, wanted = self.wanted_of(target, subscription, new)
                if left := new.count - wanted.bit_count():
                    where = destination, f"subscription {subscription} of {kind} {name}"
                    self._left[where] = self._left.get(where, 0) + left
                new, chosen = _of(new, some, wanted)
            if chosen:
                count, why = self.move(destination, ordinal, chosen, target, new, queue)
                moved, refused = moved + count, refused or why
        return MovedMessages(moved, refused)

    def tell_left(self) -> None:
        """Tell the log of dead messages that nobody gets any more: one line with a count for each subscription."""
        left, self._left = self._left, {}
        for (destination, where), count in left.items():
            self._report(
                f"[B2166] {count} dead messages stay in {destination.kind} {destination.name}: they died in {where},"
                " which is gone or does not select them any more"
            )

    def wanted_of(self, target: Destination, key: str, block: Block) -> tuple[DeliveryQueue | None, int]:
        """The delivery queue with that key, and which messages of a block it gets."""
        queue = queue_with(target, key, self._own.identity)
        if queue is None:
            return None, 0
        claims = target.claims(pk.span(0, block.count), self._codec.content(block), ("", ""))
        return queue, claims.get(queue.number, 0)

    def move(
        self,
        destination: Destination,
        ordinal: int,
        mask: int,
        target: Destination,
        block: Block,
        queue: DeliveryQueue | None = None,
    ) -> MovedMessages:
        """Put ``block`` into ``target``, or one ``queue`` of it, in place of messages of ``destination`` that wait, as
        far as the target takes them.

        ``block`` has a message for each of ``mask``.
        """
        fitting, why = target.admission.fitting(block.lengths, destination.policy.account)
        if not fitting:
            return MovedMessages(0, why)
        if not self._executor.has_room(block.nbytes):
            return MovedMessages(0, DISK_FULL)
        block, mask = _of(block, mask, fitting)
        self._executor.perform(destination, cmd.Remove({ordinal: mask}, aside=True))
        found = [(one.number, one.dead_letters.masks) for one in destination.queues.values()]
        rows = [(number, masks[ordinal] & mask) for number, masks in found if ordinal in masks]
        taken = 0
        for _, some in rows:
            taken |= some
        if not taken:
            return MovedMessages(0, why)
        block, _ = _of(block, mask, _at(mask, taken))
        only = queue.number if queue is not None else None
        gone = [
            DestinationStep(destination, cmd.SettleDeadLetters(number, ordinal, some, dead=False))
            for number, some in rows
            if some
        ]
        self._executor.perform_all([self._own.step(target, block, only=only), *gone], (), unawaited)
        return MovedMessages(taken.bit_count(), why)

    def put(self, target: Destination, blocks: Sequence[Block], subscription: str, done: Done) -> None:
        """Put copies into a destination, or into the one subscription of that key, in one batch; ``done`` when they are
        durable. Raises InvalidDestinationError when the subscription is gone or does not select them."""
        only = None
        for block in blocks if subscription else ():
            queue, wanted = self.wanted_of(target, subscription, block)
            if queue is None or wanted.bit_count() < block.count:
                raise InvalidDestinationError(
                    f"subscription {subscription} of {target.kind} {target.name} is gone or does not select the"
                    " messages any more"
                )
            only = queue.number
        self._executor.perform_all([self._own.step(target, block, only=only) for block in blocks], (), done)


def _at(mask: int, chosen: int) -> int:
    """Return where ``chosen`` are among ``mask``: a mask of a block that has one message for each of those."""
    return pk.of_indexes(at for at, index in enumerate(pk.indexes(mask)) if chosen >> index & 1)


def _of(block: Block, mask: int, chosen: int) -> tuple[Block, int]:
    """The messages ``chosen`` of a block that has one for each of ``mask``, and those of ``mask`` that they are."""
    if chosen == pk.span(0, block.count):
        return block, mask
    some = pk.of_indexes(index for at, index in enumerate(pk.indexes(mask)) if chosen >> at & 1)
    return (Block(b"".join(block.pick(chosen))) if chosen else block), some
