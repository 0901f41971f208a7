"""What a twin does when consumers come, ask, settle and leave."""

from __future__ import annotations

from typing import Any

from raybroker.core import command as cmd
from raybroker.core.durable.records import REJECTED
from raybroker.core.outcome import Acked, CheckpointKept, Outcome, Promoted, Released
from tests.simulation.ondisk import INDEX_BITS
from tests.simulation.twin import Effects, Twin
from tests.simulation.twin_batches import TwinBatch, left
from tests.simulation.twin_state import Holder, TwinDeliveryQueue, TwinDrain
from tests.simulation.twin_units import came_back


def attach_consumer(twin: Twin, command: cmd.AttachConsumer, out: Outcome) -> Effects:
    holder = Holder(command)
    if command.batch is not None:
        holder.window = TwinBatch()
    number = twin.destination.queue_of[command.attachment].number
    queue = twin.queues.get(number)
    if command.subscription is not None:
        wanted = command.subscription
        same = [
            one
            for one in twin.queues.values()
            if wanted.name and one.subscription is not None and one.subscription[:3] == wanted[:3]
        ]
        if same and same[0].subscription != wanted:
            assert same[0].subscription is not None
            assert same[0].subscription.shared == wanted.shared, "a subscription became shared, or the other way round"
            assert not same[0].holders, "a subscription in use was replaced"
            assert same[0].subscription is not None
            assert same[0].subscription.shared == wanted.shared, "a shared and an unshared one exclude each other"
            end_queue(twin, same[0])
            same = []
        if same:
            assert same[0] is queue, "a consumer serves another subscription than its own"
            assert wanted.shared or not queue.holders, "a second consumer came to a subscription that is not shared"
        else:
            assert queue is None, "a new subscription has an old number"
            queue = twin.queues[number] = TwinDeliveryQueue(number, wanted)
            if queue.durable:
                twin.delta.add("queue", number, wanted)
    assert queue is not None
    holder.active = _has_place(twin, queue)
    queue.holders[command.attachment] = holder
    twin.queue_of[command.attachment] = queue
    return {}


def _has_place(twin: Twin, queue: TwinDeliveryQueue) -> bool:
    most = twin.destination.attributes.maxNumActiveConsumers if twin.destination.kind == "queue" else -1
    return most < 0 or sum(h.active for h in queue.holders.values()) < most


def detach_consumer(twin: Twin, command: cmd.DetachConsumer, out: Outcome) -> Effects:
    queue = twin.queue_of.pop(command.attachment, None)
    if queue is None:
        return {}
    holder = queue.holders.pop(command.attachment)
    left(queue, twin.destination.attributes.affinityKey)
    for tag, key in holder.unsettled.items():
        came_back(twin, queue, key)
        if command.lost and tag <= holder.begun:
            named = "lost=" in twin.destination.attributes.redeliveryLimitByCause
            twin.fail(queue, key, 0, rest=False, cause="lost" if named else "error")
        else:
            unsee(twin, queue, key, tag, command.seen)
            twin.give_back(queue, key)
    expected = promote(twin, queue)
    if not queue.durable and not queue.holders:
        end_queue(twin, queue)
    return expected


def unsee(twin: Twin, queue: TwinDeliveryQueue, key: int, tag: int, seen: int) -> None:
    """A delivery that never reached the application does not count."""
    if 0 <= seen < tag:
        item = queue.items[key]
        item.attempts -= 1
        twin.unseen.append((queue.number, item.message.value))
        if queue.durable and key >> INDEX_BITS in twin.stored:
            twin.delta.add("tried", queue.number, key, item.attempts)


def end_queue(twin: Twin, queue: TwinDeliveryQueue) -> None:
    if queue.durable:
        twin.delta.add("queue_gone", queue.number)
    for staged in twin.staged.values():
        staged.acks = [(number, key) for number, key in staged.acks if number != queue.number]
    queue.dying.clear()
    for key in list(queue.items):
        twin.discarded.append((queue.number, queue.items[key].message.value))
        twin.doomed.pop((queue.number, key), None)
        twin.settle(queue, key, recorded=False)
    del twin.queues[queue.number]


def promote(twin: Twin, queue: TwinDeliveryQueue) -> Effects:
    promoted = []
    for number, holder in queue.holders.items():
        if not holder.active and _has_place(twin, queue):
            holder.active = True
            promoted.append(Promoted(number))
    return {Promoted: promoted}


def holder_of(twin: Twin, attachment: int) -> tuple[TwinDeliveryQueue, Holder] | None:
    queue = twin.queue_of.get(attachment)
    return (queue, queue.holders[attachment]) if queue is not None else None


def grant(twin: Twin, command: cmd.Grant, out: Outcome) -> Effects:
    found = holder_of(twin, command.attachment)
    if found is not None:
        found[1].stalled = False
        found[1].stand()
        found[1].window.granted(command.credit)
    return {}


def take(holder: Holder | None, ranges: Any) -> tuple[list[int], int]:
    """Keys of these tags, and how many tags were unknown."""
    keys, unknown = [], 0
    for first, last in ranges:
        for tag in range(first, last + 1):
            key = holder.unsettled.pop(tag, None) if holder is not None else None
            if key is None:
                unknown += 1
            else:
                assert holder is not None
                holder.until.pop(tag, None)
                keys.append(key)
    if holder is not None:
        holder.window.settled(len(keys))
    return keys, unknown


def acknowledge(twin: Twin, command: cmd.Acknowledge | cmd.Settle, out: Outcome) -> Effects:
    found = holder_of(twin, command.attachment)
    keys, unknown = take(found[1] if found is not None else None, command.ranges)
    if found is not None:
        found[1].stalled = False
    for key in keys:
        assert found is not None
        queue = found[0]
        outcome = command.outcome if isinstance(command, cmd.Settle) else "acknowledge"
        if outcome == "acknowledge":
            twin.settle(queue, key)
        elif outcome == "reject":
            twin.doomed[queue.number, key] = "ERROR"
            if queue.durable and key >> INDEX_BITS in twin.stored:
                twin.delta.add("failed", queue.number, key, queue.items[key].failures >> 32 << 32 | REJECTED, 0)
        elif outcome.startswith("fail"):
            assert isinstance(command, cmd.Settle)
            twin.fail(queue, key, max(command.delay_ms, 0), cause=outcome.partition(".")[2] or "error")
        elif outcome == "expired":
            twin.doomed[queue.number, key] = "EXPIRED"
        else:
            came_back(twin, queue, key)
            twin.give_back(queue, key)
    return {Acked: [Acked(command.attachment, command.request, unknown)] if command.request else []}


def begun(twin: Twin, command: cmd.Begun, out: Outcome) -> Effects:
    found = holder_of(twin, command.attachment)
    if found is not None:
        found[1].stalled = False
        found[1].begun = max(found[1].begun, command.tag)
    return {}


def checkpoint(twin: Twin, command: cmd.Checkpoint, out: Outcome) -> Effects:
    found = holder_of(twin, command.attachment)
    assert found is not None, "a checkpoint of nobody is kept"
    queue, holder = found
    assert command.tag in holder.unsettled, "a checkpoint is kept of a message that its consumer does not hold"
    keep_state(twin, queue, holder.unsettled[command.tag], command.state, out)
    return {CheckpointKept: [CheckpointKept(command.attachment, command.request)]}


def keep_state(twin: Twin, queue: TwinDeliveryQueue, key: int, state: bytes, out: Outcome) -> None:
    queue.items[key].state = state
    if queue.durable and key >> INDEX_BITS in twin.stored:
        assert any(entry.meta.endswith(state) for entry in out.records), "a checkpoint is not written down"
        twin.delta.add("checkpoint", queue.number, key, state)


def extend(twin: Twin, command: cmd.Extend, out: Outcome) -> Effects:
    found = holder_of(twin, command.attachment)
    if found is not None and found[1].lease_ms:
        for first, last in command.ranges:
            for tag in range(first, last + 1):
                if tag in found[1].until:
                    found[1].until[tag] = twin.now + found[1].lease_ms
    return {}


def release(twin: Twin, command: cmd.Release, out: Outcome) -> Effects:
    found = holder_of(twin, command.attachment)
    if found is None:
        return {Released: [Released(command.attachment, command.request, 1)]}
    queue, holder = found
    holder.stalled = False
    for tag, key in holder.unsettled.items():
        came_back(twin, queue, key)
        if tag <= command.consumed:
            twin.fail(queue, key, command.delay_ms)
        else:
            unsee(twin, queue, key, tag, command.seen)
            twin.give_back(queue, key)
    holder.unsettled.clear()
    holder.until.clear()
    if command.credit:
        holder.stand()
    elif isinstance(holder.window, TwinDrain):
        holder.armed = True
        holder.next_tag += 1
        holder.window.void = 0
    holder.window.restart(command.credit)
    return {Released: [Released(command.attachment, command.request, holder.next_tag)]}


def hold(twin: Twin, command: cmd.Hold | cmd.Proceed, out: Outcome) -> Effects:
    found = holder_of(twin, command.attachment)
    if found is not None:
        found[1].held = isinstance(command, cmd.Hold)
        found[1].stalled = found[1].stalled and found[1].held
    return {}
