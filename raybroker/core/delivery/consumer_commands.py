"""The consumers' side of a destination: attaching and leaving, asking for messages, and every outcome of a delivery."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Protocol

from raybroker.core import command as cmd
from raybroker.core.counters import Counters
from raybroker.core.delivery import sharing
from raybroker.core.delivery.byte_window import CostWindow
from raybroker.core.delivery.consumers import Consumer, Delivery
from raybroker.core.delivery.dead_letters import Dead
from raybroker.core.delivery.delivery_queue import DeliveryQueue
from raybroker.core.delivery.window import BatchWindow, DrainWindow
from raybroker.core.durable import records
from raybroker.core.outcome import Acked, CheckpointKept, Drained, Outcome, Promoted, Released
from raybroker.core.policy import DestinationPolicy
from raybroker.core.settlement import Settlement
from raybroker.core.step import Step
from raybroker.core.unit_of_order.revocation import void
from raybroker.model.causes import ERROR, FAILS, LOST
from raybroker.model.errors import IllegalStateError, MessageFormatError
from raybroker.model.naming.names import DestinationType


class ServingQueue(Protocol):
    """What the commands of consumers need of a destination. ``queue_of``: attachment → its delivery queue."""

    kind: ClassVar[DestinationType]
    name: str
    current: Step
    policy: DestinationPolicy
    counters: Counters
    settlement: Settlement
    queue_of: dict[int, DeliveryQueue]

    def queue_for(self, command: cmd.AttachConsumer) -> DeliveryQueue: ...

    def left_by(self, queue: DeliveryQueue) -> None: ...

    def discard_given(self, queue: DeliveryQueue, given: int) -> None: ...


def _consumer(destination: ServingQueue, attachment: int) -> tuple[DeliveryQueue, Consumer] | None:
    queue = destination.queue_of.get(attachment)
    consumer = queue.consumers.by_attachment.get(attachment) if queue is not None else None
    return (queue, consumer) if queue is not None and consumer is not None else None


def attach_consumer(destination: ServingQueue, command: cmd.AttachConsumer, out: Outcome) -> None:
    queue = destination.queue_for(command)
    consumer = Consumer(command)
    is_queue = queue.subscription is None
    if command.batch is not None and queue.plain.by_keys:
        raise IllegalStateError(
            f"{destination.kind} {destination.name} is sorted by destinationKeys, and batches are formed in the order"
            " of arrival: consume it without batch=, or make it without destinationKeys"
        )
    queue.consumers.attach(
        consumer,
        active_max=destination.policy.attributes.maxNumActiveConsumers if is_queue else -1,
        backup_max=destination.policy.attributes.maxNumBackupConsumers if is_queue else -1,
        name=f"{destination.kind} {destination.name}",
    )
    try:
        consumer.selector = queue.selector_joins(command.selector, command.attachment, command.labels)
    except Exception:
        queue.consumers.detach(command.attachment)
        queue.plain.labels_leave(command.attachment)
        raise
    if command.buffer_cost and command.batch is None:
        consumer.bytes = CostWindow(command.buffer_cost, destination.current.glance)
    queue.plain.weigh(_weight(command))
    destination.queue_of[command.attachment] = queue
    if command.fenced:
        queue.consumers.begin_fences(command.attachment)
    rank(destination, queue)
    destination.current.touch(queue.number)


def detach_consumer(destination: ServingQueue, command: cmd.DetachConsumer, out: Outcome) -> None:
    queue = destination.queue_of.pop(command.attachment, None)
    consumer = queue.consumers.detach(command.attachment) if queue is not None else None
    if queue is None or consumer is None:
        return
    queue.plain.selector_index.leave(consumer.selector)
    queue.plain.labels_leave(command.attachment)
    queue.plain.weigh(-_weight(consumer.asked))
    begun = list(consumer.settle_tags(1, consumer.begun)) if command.lost and consumer.begun else []
    queue.give_back(_given_up(destination, queue, consumer, command.seen))
    cause = LOST if LOST in destination.policy.named_causes else ERROR
    destination.settlement.failed(queue, queue.failed(begun, 0, rest=False, cause=cause))
    queue.pending.consumer_left()
    if queue.subscription is None:
        promote(destination, queue)
    else:
        rank(destination, queue)
    destination.current.touch(queue.number)
    destination.left_by(queue)


def _weight(command: cmd.AttachConsumer) -> int:
    """1 for a consumer that gets what the headers of messages say it has room for, or goes together; else 0."""
    if command.batch is not None:
        return int(command.batch.needs_headers)
    return int(command.buffer_cost > 0)


def _given_up(destination: ServingQueue, queue: DeliveryQueue, consumer: Consumer, seen: int) -> list[Delivery]:
    """Everything that a consumer has, to be given back; what its application never saw is as it was before."""
    if seen < 0:
        return consumer.let_go()
    known = list(consumer.settle_tags(1, seen))
    return [*known, *_unseen(destination, queue, consumer.let_go())]


def _unseen(destination: ServingQueue, queue: DeliveryQueue, items: Iterable[Delivery]) -> list[Delivery]:
    """Deliveries that never reached the application, as their messages were before."""
    before = [item.not_seen() for item in items]
    destination.settlement.record_attempts(queue, [item.run for item in before if queue.is_recorded(item.run.ordinal)])
    return before


def promote(destination: ServingQueue, queue: DeliveryQueue) -> None:
    for promoted in queue.consumers.promote(destination.policy.attributes.maxNumActiveConsumers):
        destination.current.out.after_durable.append(Promoted(promoted.attachment))
    rank(destination, queue)


def rank(destination: ServingQueue, queue: DeliveryQueue) -> None:
    """Say which consumers are served: all, only local ones, or none before enough have come."""
    attributes, there = destination.policy.attributes, len(queue.consumers.by_attachment)
    dispatching = queue.dispatch_gate.is_open_for(there, attributes, destination.current.now_ms)
    queue.consumers.lend("Never" if attributes.affinityKey else attributes.prefetchRecall)
    queue.consumers.rank(local_first=attributes.localDeliveryPreferred, dispatching=dispatching)
    queue.consumers.bound(attributes.maxNumMsgs if destination.policy.removing is not None else -1)


def grant(destination: ServingQueue, command: cmd.Grant, out: Outcome) -> None:
    found = _consumer(destination, command.attachment)
    if found is not None:
        queue, consumer = found
        if queue.consumers.draining:
            queue.consumers.stand(consumer)
        consumer.window.granted(command.credit)
        _go_on(destination, queue, consumer)


def drain(destination: ServingQueue, command: cmd.Drain, out: Outcome) -> None:
    found = _consumer(destination, command.attachment)
    if found is not None:
        queue, consumer = found
        if isinstance(consumer.window, BatchWindow):  # It asks for nothing more; what has left has been told of.
            if consumer.window.asked:
                out.after_durable.append(Drained(consumer.attachment, 1, consumer.next_tag))
            consumer.window.asked = False
            return
        queue.consumers.drain(consumer, command.credit)
        _go_on(destination, queue, consumer)


def missed(destination: ServingQueue, command: cmd.Missed, out: Outcome) -> None:
    found = _consumer(destination, command.attachment)
    if found is not None:
        queue, consumer = found
        if isinstance(consumer.window, DrainWindow):
            out.after_durable.append(Drained(consumer.attachment, command.messages, consumer.next_tag))
            consumer.armed = True
        elif not isinstance(consumer.window, BatchWindow):
            consumer.window.granted(command.messages)
        _go_on(destination, queue, consumer)


def _go_on(destination: ServingQueue, queue: DeliveryQueue, consumer: Consumer) -> None:
    """The consumer was heard of."""
    consumer.stalled = False
    queue.consumers.offer(consumer)
    destination.current.touch(queue.number)


def acknowledge(destination: ServingQueue, command: cmd.Acknowledge, out: Outcome) -> None:
    wanted = count = 0
    for first, last in command.ranges:
        wanted += max(last - first + 1, 0)
    queue = destination.queue_of.get(command.attachment)
    consumer = queue.consumers.by_attachment.get(command.attachment) if queue is not None else None
    if queue is not None and consumer is not None:
        items: list[Delivery] = []
        for first, last in command.ranges:
            items.extend(consumer.settle_tags(first, last))
        count = destination.settlement.acknowledged(queue, items)
        consumer.window.settled(count)
        if count or consumer.stalled:
            consumer.stalled = False
            queue.consumers.offer(consumer)
            destination.current.touched[queue.number] = None
    if command.request:
        out.after_durable.append(Acked(command.attachment, command.request, wanted - count))


def settle(destination: ServingQueue, command: cmd.Settle, out: Outcome) -> None:
    """An outcome that is not an acknowledgement."""
    wanted = sum(max(last - first + 1, 0) for first, last in command.ranges)
    count = 0
    found = _consumer(destination, command.attachment)
    if found is not None:
        queue, consumer = found
        items: list[Delivery] = []
        for first, last in command.ranges:
            items.extend(consumer.settle_tags(first, last))
        count = sum(item.count for item in items)
        consumer.window.settled(count)
        if command.outcome == "reject":
            destination.settlement.failed(queue, queue.rejected(items, command.reason))
        elif (cause := FAILS.get(command.outcome)) is not None:
            delay_ms = max(command.delay_ms, 0)
            destination.settlement.failed(queue, queue.failed(items, delay_ms, reason=command.reason, cause=cause))
        elif command.outcome == "expired":
            destination.settlement.failed(queue, queue.expired(items, command.reason))
        elif command.outcome == "unseen":
            queue.give_back(_unseen(destination, queue, items))
        else:
            queue.give_back(items)
        if count or consumer.stalled:
            _go_on(destination, queue, consumer)
    if command.request:
        out.after_durable.append(Acked(command.attachment, command.request, wanted - count))


def recalled(destination: ServingQueue, command: cmd.Recalled, out: Outcome) -> None:
    """What a topic has removed meanwhile is not for anybody any more."""
    found = _consumer(destination, command.attachment)
    if found is None:
        return
    queue, consumer = found
    items: list[Delivery] = []
    for first, last in command.ranges:
        items.extend(consumer.settle_tags(first, last))
    consumer.window.settled(sum(item.count for item in items))
    given = _unseen(destination, queue, items)
    queue.give_back(given)
    waits = sum(item.count for item in given)
    destination.counters.recalled += waits
    for item in given if queue.owes is not None else ():
        gone = item.run.mask & queue.held[item.run.ordinal].told_dead
        for run in queue.remove({item.run.ordinal: gone}) if gone else ():
            waits -= run.count
            destination.settlement.dead_letter(queue, Dead(run, "OLDEST"))
    if consumer.recall is not None and consumer.recall.asker is None:
        destination.discard_given(queue, waits)
    if command.last:
        sharing.answered(queue, consumer, given=bool(items))
    queue.consumers.offer(consumer)
    destination.current.touch(queue.number)


def leave(destination: ServingQueue, command: cmd.LeaveNode, out: Outcome) -> None:
    found = _consumer(destination, command.attachment)
    if found is None or found[1].leaving == command.leaving:
        return
    queue, consumer = found
    consumer.leaving = command.leaving
    if command.leaving:
        sharing.evacuate(queue, consumer)
    rank(destination, queue)
    destination.current.touch(queue.number)


def take_back(destination: ServingQueue, command: cmd.TakeBack, out: Outcome) -> None:
    """The consumer gets nothing before it is heard of again: it does not know yet that its transaction is over."""
    found = _consumer(destination, command.attachment)
    if found is not None and found[1].unsettled:
        queue, consumer = found
        seen = list(consumer.settle_tags(1, command.tag))
        rest = consumer.let_go()
        queue.give_back(rest)
        destination.settlement.failed(queue, queue.failed(seen, command.delay_ms))
        void(consumer, [*seen, *rest], out)
        destination.current.touch(queue.number)


def begun(destination: ServingQueue, command: cmd.Begun, out: Outcome) -> None:
    found = _consumer(destination, command.attachment)
    if found is not None:
        found[1].begun = max(found[1].begun, command.tag)
        if found[1].stalled:
            _go_on(destination, *found)


def taken(destination: ServingQueue, command: cmd.Taken, out: Outcome) -> None:
    found = _consumer(destination, command.attachment)
    if found is not None and found[1].bytes is not None and found[1].bytes.taken(command.tag):
        found[0].consumers.offer(found[1])
        destination.current.touch(found[0].number)


def tuned(destination: ServingQueue, command: cmd.Tuned, out: Outcome) -> None:
    found = _consumer(destination, command.attachment)
    if found is not None:
        found[1].limit = command.limit


def extend(destination: ServingQueue, command: cmd.Extend, out: Outcome) -> None:
    found = _consumer(destination, command.attachment)
    if found is not None and found[1].asked.lease_ms:
        found[1].extend(command.ranges, destination.current.now_ms)
        found[0].plan_wake()


def checkpoint(destination: ServingQueue, command: cmd.Checkpoint, out: Outcome) -> None:
    """Raises IllegalStateError for a message that the consumer does not hold any more, MessageFormatError for too
    much, and ResourceAllocationError when there is no room."""
    found = _consumer(destination, command.attachment)
    item = next(found[1].tagged([(command.tag, command.tag)]), None) if found is not None else None
    if found is None or item is None:
        raise IllegalStateError("the checkpoint was not kept: the message is settled, or the broker had taken it back")
    require_fitting(destination, found[0], command.state)
    keep_state(destination, found[0], item.run.ordinal, item.run.mask, command.state)
    out.after_durable.append(CheckpointKept(command.attachment, command.request))


class Checkpointing(Protocol):
    """What checkpoints need of a destination."""

    name: str
    current: Step
    policy: DestinationPolicy


def require_fitting(destination: Checkpointing, queue: DeliveryQueue, state: bytes, others: int = 0) -> None:
    """Raises MessageFormatError for a checkpoint that is too large, and ResourceAllocationError when there is no room
    for it beside so many bytes of ``others``."""
    most = destination.policy.attributes.maxCheckpointBytes
    if len(state) > most:
        raise MessageFormatError(
            f"a checkpoint of {len(state)} bytes; maxCheckpointBytes of {destination.name} is {most}"
        )
    queue.consumers.checkpoints.require_room(len(state) + others)


def keep_state(destination: Checkpointing, queue: DeliveryQueue, ordinal: int, mask: int, state: bytes) -> None:
    """A message, the one in ``mask``, has a checkpoint from now on."""
    queue.consumers.checkpoints.put(ordinal, mask.bit_length() - 1, state)
    if queue.is_recorded(ordinal):
        row = records.RecordRow(ordinal, mask)
        destination.current.record_rows(records.CHECKPOINT, queue.number, [row], (), state)


def release(destination: ServingQueue, command: cmd.Release, out: Outcome) -> None:
    found = _consumer(destination, command.attachment)
    next_tag = 1
    if found is not None:
        queue, consumer = found
        consumed = list(consumer.settle_tags(1, command.consumed)) if command.consumed else []
        queue.give_back(_given_up(destination, queue, consumer, command.seen))
        destination.settlement.failed(queue, queue.failed(consumed, command.delay_ms, reason=command.reason))
        queue.consumers.restart(consumer, command.credit)
        _go_on(destination, queue, consumer)
        next_tag = consumer.next_tag
    # First: what this step hands out has tags from ``next_tag`` on, which the consumer is to know before.
    out.immediate.insert(0, Released(command.attachment, command.request, next_tag))


def hold(destination: ServingQueue, command: cmd.Hold, out: Outcome) -> None:
    found = _consumer(destination, command.attachment)
    if found is not None:
        found[1].held = True


def proceed(destination: ServingQueue, command: cmd.Proceed, out: Outcome) -> None:
    found = _consumer(destination, command.attachment)
    if found is not None:
        found[1].held = False
        _go_on(destination, *found)
