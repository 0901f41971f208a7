"""What a twin does with transactions, administrators and time; and the table of all commands."""

from __future__ import annotations

from typing import Any

from raybroker.core import command as cmd
from raybroker.core.blocks import message_mask as pk
from raybroker.core.outcome import Outcome, Promoted
from tests.simulation import twin_consuming as consuming
from tests.simulation import twin_draining as draining
from tests.simulation import twin_producing as producing
from tests.simulation import twin_recalling as recalling
from tests.simulation import twin_staleness as staleness
from tests.simulation.ondisk import INDEX_BITS, Message
from tests.simulation.twin import Effects, Twin
from tests.simulation.twin_batches import came
from tests.simulation.twin_consuming import end_queue, holder_of, promote, take
from tests.simulation.twin_producing import arrive, record, store
from tests.simulation.twin_state import Staged, owed
from tests.simulation.twin_units import came_back

# ---- transactions --------------------------------------------------------------------------------------------------


def stage_acks(twin: Twin, command: cmd.StageAcks, out: Outcome) -> Effects:
    found = holder_of(twin, command.attachment)
    assert found is not None, "a consumer that is gone acknowledges"
    keys, unknown = take(found[1], command.ranges)
    assert not unknown, f"{unknown} messages are acknowledged in a transaction and were not with this consumer"
    twin.staged.setdefault(command.txn, Staged()).acks.extend((found[0].number, key) for key in keys)
    return {}


def stage_checkpoint(twin: Twin, command: cmd.StageCheckpoint, out: Outcome) -> Effects:
    found = holder_of(twin, command.attachment)
    assert found is not None, "a consumer that is gone makes a checkpoint"
    queue, holder = found
    assert command.tag in holder.unsettled, (
        "a transaction has a checkpoint of a message that its consumer does not hold"
    )
    staged = twin.staged.setdefault(command.txn, Staged())
    staged.states[queue.number, holder.unsettled[command.tag]] = command.state
    return {}


def prepare(twin: Twin, command: cmd.Prepare, out: Outcome) -> Effects:
    staged = twin.staged.setdefault(command.txn, Staged())
    staged.prepared = True
    for ordinal, messages in _blocks(staged).items():
        claims = {key: owed(twin, message, staged.origins[key]) for key, message in messages.items()}
        staged.claims |= claims
        if store(twin, ordinal, claims, messages):
            for key, queues in claims.items():
                durable = tuple(number for number in queues if twin.queues[number].durable)
                twin.delta.add("wait", command.txn, key, twin.messages[key], durable)
    for number, key in staged.acks:
        if twin.queues[number].durable and key >> INDEX_BITS in twin.stored:
            twin.delta.add("stage", command.txn, number, key)
    return {}


def _blocks(staged: Staged) -> dict[int, dict[int, Message]]:
    found: dict[int, dict[int, Message]] = {}
    for key, message in staged.blocks.items():
        found.setdefault(key >> INDEX_BITS, {})[key] = message
    return found


def decide(twin: Twin, command: cmd.Decide, out: Outcome) -> Effects:
    staged = twin.staged.pop(command.txn, None)
    if staged is None:
        return {}
    keys = (*staged.blocks, *(key for _, key in staged.acks))
    if staged.prepared and any(key >> INDEX_BITS in twin.stored for key in keys):
        twin.delta.add("decided", command.txn)
    if not command.commit:
        for key in staged.blocks:
            twin.release(key)
        for number, key in staged.acks:
            twin.fail(twin.queues[number], key, command.delay_ms)
        return {}
    for ordinal, messages in _blocks(staged).items():
        claims = {key: _claims(twin, staged, key, message) for key, message in messages.items()}
        stored = ordinal in twin.stored if staged.prepared else store(twin, ordinal, claims, messages)
        if stored:
            record(twin, claims)
        for key, queues in claims.items():
            if not queues:
                twin.release(key)
        arrive(twin, {key: queues for key, queues in claims.items() if queues})
    for (number, key), state in staged.states.items():
        consuming.keep_state(twin, twin.queues[number], key, state, out)
    for number, key in staged.acks:
        twin.settle(twin.queues[number], key)
    return {}


def _claims(twin: Twin, staged: Staged, key: int, message: Message) -> tuple[int, ...]:
    """Who gets it: durable delivery queues as they were when it was prepared, others as they are now."""
    now = owed(twin, message, staged.origins.get(key, ("", "")))
    if not staged.prepared:
        return now
    then = [number for number in staged.claims[key] if number in twin.queues and twin.queues[number].durable]
    return tuple(sorted({*then, *(number for number in now if not twin.queues[number].durable)}))


# ---- administration and time ---------------------------------------------------------------------------------------


def update(twin: Twin, command: cmd.Update, out: Outcome) -> Effects:
    expected: Effects = {Promoted: []}
    for queue in twin.queues.values():
        expected[Promoted] += promote(twin, queue)[Promoted]
    return expected


def purge(twin: Twin, command: cmd.Purge, out: Outcome) -> Effects:
    for queue in list(twin.queues.values()):
        if command.queue in (None, queue.number):
            for key in queue.dying:
                if key in twin.told and key >> INDEX_BITS in twin.stored:
                    twin.delta.add("tell", key)
            for key in [*(row[2] for row in queue.waiting), *queue.delayed, *queue.hidden, *queue.dying]:
                twin.discard(queue, key)
            queue.dying.clear()
            queue.waiting.clear()
            queue.delayed.clear()
            queue.hidden.clear()
    return {}


def remove(twin: Twin, command: cmd.Remove, out: Outcome) -> Effects:
    for queue in list(twin.queues.values()):
        keys = [o << INDEX_BITS | index for o, mask in command.chosen.items() for index in pk.indexes(mask)]
        for key in keys:
            if key in queue.items and key not in queue.dying and queue.take_out(key):
                if command.aside:
                    queue.dying[key] = "MOVED"
                else:
                    twin.discard(queue, key)
    return {}


def buried(twin: Twin, command: cmd.SettleDeadLetters, out: Outcome) -> Effects:
    queue = twin.queues.get(command.queue)
    for index in range(command.mask.bit_length()) if queue is not None else ():
        key = command.ordinal << INDEX_BITS | index
        if command.mask >> index & 1 and queue is not None and queue.dying.pop(key, None):
            if key in twin.told and command.ordinal in twin.stored:
                twin.delta.add("tell", key)
            twin.discard(queue, key)
    return {}


def pause(twin: Twin, command: cmd.Pause, out: Outcome) -> Effects:
    twin.paused[command.which] = command.until_ms
    return {}


def resume(twin: Twin, command: cmd.Resume, out: Outcome) -> Effects:
    if twin.paused.pop(command.which, None) is not None and command.which == "insertion":
        for queue in twin.queues.values():
            hidden, queue.hidden = sorted(queue.hidden), set()
            for key in hidden:
                queue.put(key, hidden=False)
    return {}


def unsubscribe(twin: Twin, command: cmd.Unsubscribe, out: Outcome) -> Effects:
    for queue in list(twin.queues.values()):
        own = queue.subscription
        if own is not None and (own.client_id, own.name, own.durable) == (command.client_id, command.name, True):
            assert not queue.holders, "a subscription in use ended"
            end_queue(twin, queue)
    return {}


def tick(twin: Twin, command: cmd.Tick, out: Outcome) -> Effects:
    for which in [w for w, until in twin.paused.items() if 0 < until <= twin.wall]:
        resume(twin, cmd.Resume(which), out)
    for queue in twin.queues.values():
        born = sorted((*row, key) for key, row in queue.delayed.items() if row[0] <= twin.now)
        places: dict[tuple[int, int], int] = {}
        for due, _, key in born:
            del queue.delayed[key]
            item = queue.items[key]
            if not item.attempts and item.message.unit is None:
                item.place = places.setdefault((due, key >> INDEX_BITS), queue.next_place)
                item.since_ms = came(queue, twin.now, twin.destination.attributes.affinityKey)
                queue.next_place = max(queue.next_place, item.place + 1)
            twin.give_back(queue, key)
        for attachment, holder in queue.holders.items():
            late = [tag for tag, until in holder.until.items() if until <= twin.now]
            for tag in late:
                del holder.until[tag]
                key = holder.unsettled.pop(tag)
                twin.overdue.add((attachment, tag))
                if "timeout=" in twin.destination.attributes.redeliveryLimitByCause:
                    twin.fail(queue, key, 0, rest=False, cause="timeout")
                    continue
                came_back(twin, queue, key)
                twin.give_back(queue, key)
            holder.window.settled(len(late))
            holder.stalled = holder.stalled or bool(late)
    return {}


def nothing(twin: Twin, command: cmd.Command, out: Outcome) -> Effects:
    return {}


HANDLERS: dict[type, Any] = {
    cmd.AttachProducer: producing.attach_producer,
    cmd.DetachProducer: producing.detach_producer,
    cmd.Send: producing.send,
    cmd.AttachConsumer: consuming.attach_consumer,
    cmd.DetachConsumer: consuming.detach_consumer,
    cmd.Grant: consuming.grant,
    cmd.Drain: draining.drain,
    cmd.Missed: draining.missed,
    cmd.Acknowledge: consuming.acknowledge,
    cmd.Settle: consuming.acknowledge,
    cmd.Recalled: recalling.recalled,
    cmd.LeaveNode: recalling.leave,
    cmd.Begun: consuming.begun,
    cmd.Extend: consuming.extend,
    cmd.Checkpoint: consuming.checkpoint,
    cmd.Release: consuming.release,
    cmd.Hold: consuming.hold,
    cmd.Proceed: consuming.hold,
    cmd.Update: update,
    cmd.Purge: purge,
    cmd.Remove: remove,
    cmd.SettleDeadLetters: buried,
    cmd.PublishVersion: staleness.publish,
    cmd.Pause: pause,
    cmd.Resume: resume,
    cmd.Unsubscribe: unsubscribe,
    cmd.StageAcks: stage_acks,
    cmd.StageCheckpoint: stage_checkpoint,
    cmd.Prepare: prepare,
    cmd.Decide: decide,
    cmd.Tick: tick,
}
