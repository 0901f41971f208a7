"""The consumers' side of a destination: attaching and leaving, asking for messages, and every outcome of a delivery."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from raybroker.core import command as cmd
from raybroker.core.delivery.consumers import Consumer, Delivery
from raybroker.core.delivery.delivery_queue import DeliveryQueue
from raybroker.core.delivery.window import DrainWindow
from raybroker.core.outcome import Acked, Drained, Outcome, Promoted, Released
from raybroker.core.unit_of_order.revocation import void

if TYPE_CHECKING:
    from raybroker.core.destination import Destination


def _consumer(home: Destination, attachment: int) -> tuple[DeliveryQueue, Consumer] | None:
    queue = home.queue_of.get(attachment)
    consumer = queue.consumers.by_attachment.get(attachment) if queue is not None else None
    return (queue, consumer) if queue is not None and consumer is not None else None


def attach_consumer(home: Destination, command: cmd.AttachConsumer, out: Outcome) -> None:
    queue = home.queue_for(command, out)
    consumer = Consumer(
        command.attachment, command.flow, limit=command.limit, no_ack=command.no_ack, held=command.held,
        lease_ms=command.lease_ms, drain=command.drain, owner=command.owner, remote=command.remote,
    )  # fmt: skip
    is_queue = queue.subscription is None
    queue.consumers.attach(
        consumer,
        active_max=home.attributes.maxNumActiveConsumers if is_queue else -1,
        backup_max=home.attributes.maxNumBackupConsumers if is_queue else -1,
        name=f"{home.kind} {home.name}",
    )
    try:
        consumer.selector = queue.selector_joins(command.selector)
    except Exception:
        queue.consumers.detach(command.attachment)
        raise
    queue.unfinished = queue.unfinished or any(queue.backlog.has_unsorted(p) for p in range(10))
    home.queue_of[command.attachment] = queue
    rank(home, queue)
    home.touch(queue)


def detach_consumer(home: Destination, command: cmd.DetachConsumer, out: Outcome) -> None:
    queue = home.queue_of.pop(command.attachment, None)
    consumer = queue.consumers.detach(command.attachment) if queue is not None else None
    if queue is None or consumer is None:
        return
    queue.selector_leaves(consumer.selector)
    begun = list(consumer.settle(1, consumer.begun)) if command.lost and consumer.begun else []
    queue.give_back(_given_up(queue, consumer, command.seen, out), out)
    queue.failed(begun, 0, out, rest=False)
    if queue.order is not None:
        queue.order.left()
    if queue.subscription is None:
        promote(home, queue, out)
    home.touch(queue)
    home.left_by(queue, out)


def _given_up(queue: DeliveryQueue, consumer: Consumer, seen: int, out: Outcome) -> list[Delivery]:
    """Everything that a consumer has, to be given back; what its application never saw is as it was before."""
    if seen < 0:
        known, unseen = list(consumer.unsettled), list[Delivery]()
    else:
        known = list(consumer.settle(1, seen))
        unseen = _unseen(queue, consumer.unsettled, out)
    consumer.unsettled.clear()
    return [*known, *unseen]


def _unseen(queue: DeliveryQueue, items: Iterable[Delivery], out: Outcome) -> list[Delivery]:
    """Deliveries that never reached the application, as their messages were before."""
    before = [item.not_seen() for item in items]
    queue.record_tried([item.run for item in before if queue.is_recorded(item.run.ordinal)], out)
    return before


def promote(home: Destination, queue: DeliveryQueue, out: Outcome) -> None:
    for promoted in queue.consumers.promote(home.attributes.maxNumActiveConsumers):
        out.after_durable.append(Promoted(promoted.attachment))
    rank(home, queue)


def rank(home: Destination, queue: DeliveryQueue) -> None:
    """Say which consumers are served: all, only local ones, or none before enough have come."""
    attributes, there = home.attributes, len(queue.consumers.by_attachment)
    dispatching = queue.gathering.look(there, attributes, home.now_ms)
    queue.consumers.rank(local_first=attributes.localDeliveryPreferred, dispatching=dispatching)


def grant(home: Destination, command: cmd.Grant, out: Outcome) -> None:
    found = _consumer(home, command.attachment)
    if found is not None:
        queue, consumer = found
        if queue.consumers.draining:
            queue.consumers.stand(consumer)
        consumer.window.granted(command.credit)
        _go_on(home, queue, consumer)


def drain(home: Destination, command: cmd.Drain, out: Outcome) -> None:
    found = _consumer(home, command.attachment)
    if found is not None:
        queue, consumer = found
        queue.consumers.drain(consumer, command.credit)
        _go_on(home, queue, consumer)


def missed(home: Destination, command: cmd.Missed, out: Outcome) -> None:
    found = _consumer(home, command.attachment)
    if found is not None:
        queue, consumer = found
        if isinstance(consumer.window, DrainWindow):
            out.after_durable.append(Drained(consumer.attachment, command.messages, consumer.next_tag))
            consumer.armed = True
        else:
            consumer.window.granted(command.messages)
        _go_on(home, queue, consumer)


def _go_on(home: Destination, queue: DeliveryQueue, consumer: Consumer) -> None:
    """The consumer was heard of."""
    consumer.stalled = False
    queue.consumers.offer(consumer)
    home.touch(queue)


def acknowledge(home: Destination, command: cmd.Acknowledge, out: Outcome) -> None:
    wanted = sum(max(last - first + 1, 0) for first, last in command.ranges)
    count = 0
    found = _consumer(home, command.attachment)
    if found is not None:
        queue, consumer = found
        items: list[Delivery] = []
        for first, last in command.ranges:
            items.extend(consumer.settle(first, last))
        count = home.acknowledged(queue, items, out)
        consumer.window.settled(count)
        if count or consumer.stalled:
            _go_on(home, queue, consumer)
    if command.request:
        out.after_durable.append(Acked(command.attachment, command.request, wanted - count))


def settle(home: Destination, command: cmd.Settle, out: Outcome) -> None:
    """An outcome that is not an acknowledgement."""
    wanted = sum(max(last - first + 1, 0) for first, last in command.ranges)
    count = 0
    found = _consumer(home, command.attachment)
    if found is not None:
        queue, consumer = found
        items: list[Delivery] = []
        for first, last in command.ranges:
            items.extend(consumer.settle(first, last))
        count = sum(item.count for item in items)
        consumer.window.settled(count)
        if command.outcome == "reject":
            queue.rejected(items, command.reason, out)
        elif command.outcome == "fail":
            queue.failed(items, max(command.delay_ms, 0), out, reason=command.reason)
        elif command.outcome == "expired":
            queue.done(items)
            for item in items:
                queue.bury(item.run, "EXPIRED", command.reason, out)
        elif command.outcome == "unseen":
            queue.give_back(_unseen(queue, items, out), out)
        else:
            queue.give_back(items, out)
        if count or consumer.stalled:
            _go_on(home, queue, consumer)
    if command.request:
        out.after_durable.append(Acked(command.attachment, command.request, wanted - count))


def take_back(home: Destination, command: cmd.TakeBack, out: Outcome) -> None:
    """The consumer gets nothing before it is heard of again: it does not know yet that its transaction is over."""
    found = _consumer(home, command.attachment)
    if found is not None and found[1].unsettled:
        queue, consumer = found
        seen = list(consumer.settle(1, command.tag))
        rest = list(consumer.unsettled)
        consumer.unsettled.clear()
        queue.give_back(rest, out)
        queue.failed(seen, command.delay_ms, out)
        void(consumer, [*seen, *rest], out)
        home.touch(queue)


def begun(home: Destination, command: cmd.Begun, out: Outcome) -> None:
    found = _consumer(home, command.attachment)
    if found is not None:
        found[1].begun = max(found[1].begun, command.tag)
        if found[1].stalled:
            _go_on(home, *found)


def extend(home: Destination, command: cmd.Extend, out: Outcome) -> None:
    found = _consumer(home, command.attachment)
    if found is not None and found[1].lease_ms:
        found[1].extend(command.ranges, home.now_ms)
        home.wake(found[0].next_ms())


def release(home: Destination, command: cmd.Release, out: Outcome) -> None:
    found = _consumer(home, command.attachment)
    next_tag = 1
    if found is not None:
        queue, consumer = found
        consumed = list(consumer.settle(1, command.consumed)) if command.consumed else []
        queue.give_back(_given_up(queue, consumer, command.seen, out), out)
        queue.failed(consumed, command.delay_ms, out, reason=command.reason)
        queue.consumers.restart(consumer, command.credit)
        _go_on(home, queue, consumer)
        next_tag = consumer.next_tag
    out.immediate.insert(0, Released(command.attachment, command.request, next_tag))


def hold(home: Destination, command: cmd.Hold, out: Outcome) -> None:
    found = _consumer(home, command.attachment)
    if found is not None:
        found[1].held = True


def proceed(home: Destination, command: cmd.Proceed, out: Outcome) -> None:
    found = _consumer(home, command.attachment)
    if found is not None:
        found[1].held = False
        _go_on(home, *found)
