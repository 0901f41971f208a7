"""Messages that an administrator moves between two destinations of a host, or sends back to where they died.

They go and come in one batch: a crash neither doubles nor loses them.  Only what was waiting when its turn came is
moved, and counts: a consumer may have taken others since they were chosen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raybroker.core import command as cmd
from raybroker.core.blocks import message_mask as pk
from raybroker.core.delivery.delivery_queue import DeliveryQueue
from raybroker.core.destination import Destination
from raybroker.engine.dead_letters import own_send
from raybroker.engine.executor import Step
from raybroker.engine.subscription_keys import queue_with
from raybroker.model.block import Block
from raybroker.model.errors import ResourceAllocationError

if TYPE_CHECKING:
    from raybroker.engine.host import Host


def revive(host: Host, home: Destination, ordinal: int, mask: int, block: Block) -> int:
    """Send dead messages of a block back to the destination, or the one subscription, where each died; how many.

    One whose destination or subscription is gone stays, and so does one that its subscription does not select any more.
    Raises ResourceAllocationError as :func:`move`.
    """
    first_seq = host.burial.take_seqs(mask.bit_count())
    parts = host.codec.revived(
        block, mask, producer=host.identity, first_seq=first_seq, now_ms=host.clock.now_ms()
    )  # fmt: skip
    moved = 0
    for kind, name, subscription, some, data in parts:
        target, new, chosen, queue = host.destinations.get((kind, name)), Block(data), some, None
        if target is None:
            continue
        if subscription:
            queue = queue_with(target, subscription, host.identity)
            wanted = _wanted(host, target, queue, new)
            left = new.count - wanted.bit_count()
            if left:
                host.report(
                    f"[B2166] {left} dead messages stay in {home.kind} {home.name}: they died in subscription"
                    f" {subscription} of {kind} {name}, which is gone or does not select them any more"
                )
            new, chosen = _of(new, some, wanted)
        moved += move(host, home, ordinal, chosen, target, new, queue) if chosen else 0
    return moved


def wanted_of(host: Host, target: Destination, key: str, block: Block) -> tuple[DeliveryQueue | None, int]:
    """The delivery queue with that key, and which messages of a block it gets."""
    queue = queue_with(target, key, host.identity)
    return queue, _wanted(host, target, queue, block)


def _wanted(host: Host, target: Destination, queue: DeliveryQueue | None, block: Block) -> int:
    if queue is None:
        return 0
    return target.claims(pk.span(0, block.count), host.codec.content(block), ("", "")).get(queue.number, 0)


def move(
    host: Host, home: Destination, ordinal: int, mask: int, target: Destination, block: Block,
    queue: DeliveryQueue | None = None,
) -> int:  # fmt: skip
    """Put ``block`` into ``target``, or one ``queue`` of it, in place of messages of ``home`` that wait; how many.

    ``block`` has a message for each of ``mask``. Raises ResourceAllocationError when they are not taken.
    """
    if not target.admission.would_take(block.lengths):
        raise ResourceAllocationError(
            f"{target.kind} {target.name} does not take more messages now; the rest was not moved"
        )
    if not host.has_room(block.view.nbytes):
        raise ResourceAllocationError("the store's disk is full; free space there; the rest was not moved")
    host.perform(home, cmd.Remove({ordinal: mask}, aside=True))
    found = [(one.number, one.dead_letters.masks) for one in home.queues.values()]
    rows = [(number, masks[ordinal] & mask) for number, masks in found if ordinal in masks]
    taken = 0
    for _, some in rows:
        taken |= some
    if not taken:
        return 0
    block, _ = _of(block, mask, _at(mask, taken))
    only = queue.number if queue is not None else None
    gone = [Step(home, cmd.SettleDeadLetters(number, ordinal, some, dead=False)) for number, some in rows if some]
    host.perform_all([own_send(host, target, block, only=only), *gone], (), _nobody)
    return taken.bit_count()


def _at(mask: int, chosen: int) -> int:
    """Where ``chosen`` are among ``mask``: a mask of a block that has one message for each of those."""
    return pk.of_indexes(at for at, index in enumerate(pk.indexes(mask)) if chosen >> index & 1)


def _of(block: Block, mask: int, chosen: int) -> tuple[Block, int]:
    """The messages ``chosen`` of a block that has one for each of ``mask``, and those of ``mask`` that they are."""
    if chosen == pk.span(0, block.count):
        return block, mask
    some = pk.of_indexes(index for at, index in enumerate(pk.indexes(mask)) if chosen >> at & 1)
    return (Block(b"".join(block.pick(chosen))) if chosen else block), some


def _nobody() -> None:
    """Nobody waits for it."""
