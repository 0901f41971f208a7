"""What a twin does with messages that come: which are taken, who is owed them, and what of that is on disk."""

from __future__ import annotations

from raybroker.core import command as cmd
from raybroker.core.admission.producer_flow import producer_credit
from raybroker.core.outcome import Outcome, SendAnswered
from tests.simulation.history import value_of
from tests.simulation.ondisk import INDEX_BITS, Message
from tests.simulation.twin import Effects, Twin
from tests.simulation.twin_batches import came
from tests.simulation.twin_state import Item, Staged, owed
from tests.simulation.twin_units import add


def attach_producer(twin: Twin, command: cmd.AttachProducer, out: Outcome) -> Effects:
    assert command.generation >= twin.generations.get(command.producer, 0), "an old connection took over"
    twin.generations[command.producer] = command.generation
    twin.newest[command.producer] = command.attachment
    for older in [a for a, producer in twin.attached.items() if producer == command.producer]:
        del twin.attached[older]
    twin.attached[command.attachment] = command.producer
    return {}


def detach_producer(twin: Twin, command: cmd.DetachProducer, out: Outcome) -> Effects:
    twin.attached.pop(command.attachment, None)
    return {}


def send(twin: Twin, command: cmd.Send, out: Outcome) -> Effects:
    own = not command.attachment
    if not own and twin.newest.get(command.producer) != command.attachment:
        assert out.accepted is None, "a message came over a connection that its producer has left"
        told = [e for e in out.immediate if isinstance(e, SendAnswered) and command.txn]
        return {SendAnswered: told}  # Its transaction is told, so that it does not commit without the message.
    count = len(command.sizes)
    values = twin.values if own else [value_of(command.producer, command.first_seq + i) for i in range(count)]
    accepted, refused, causes = _sort(twin, command, values)
    twin.turned_down = list(causes.values())
    _accept(twin, command, values, accepted, out)
    gates = twin.gates
    gates.slow = gates.slow or (
        twin.destination.attributes.limitBehavior == "FLOW_CONTROL" and bool(accepted) and twin.full()
    )
    confirmed = command.persistent if command.confirm is None else command.confirm
    if not confirmed and not refused and (own or not producer_credit(twin.destination.attributes)):
        return {}
    if command.txn and not refused:
        return {}  # The end of the transaction tells.
    sent = [e for e in (*out.after_durable, *out.immediate) if isinstance(e, SendAnswered)]
    told = next((s for s in sent if s.first_seq == command.first_seq and s.attachment == command.attachment), None)
    assert told is not None, f"{command} is not confirmed"
    assert (told.attachment, told.first_seq, told.messages) == (command.attachment, command.first_seq, count)
    found = [i for r in told.refused for i in range(r.start, r.end)]
    assert found == refused, f"{found} were refused, expected {refused}"
    _check_causes(twin, told, causes)
    return {SendAnswered: [told]}


def _sort(twin: Twin, command: cmd.Send, values: list[int]) -> tuple[list[int], list[int], dict[int, str]]:
    """Which messages are taken, which are refused, and whose limit refuses them: of the destination ("own") or of the
    pool that it is charged to; the others are here already."""
    limits, room = twin.destination.attributes, _Room(twin, command)
    rejecting, removing = limits.limitBehavior == "REJECT_NEWEST", limits.limitBehavior.startswith("REMOVE_")
    refused, accepted, causes = [], [], dict[int, str]()
    checked = command.persistent and not command.txn and command.attachment > 0
    top = twin.top.get(command.producer, 0)
    count, held_bytes = twin.charged()
    paused = "insertion" in twin.paused or "production" in twin.paused
    for index, size in enumerate(command.sizes):
        value = values[index]
        if checked and value in twin.taken:
            continue
        if (checked and value < top) or (command.persistent and not command.room) or paused:
            refused.append(index)
        elif room.turned_away:
            refused.append(index)
            causes[index] = "pool"
        elif 0 <= limits.maxBytesPerMsg < size or (removing and 0 <= limits.maxTotalMsgBytes < size):
            refused.append(index)
        elif rejecting and (0 <= limits.maxNumMsgs <= count or 0 <= limits.maxTotalMsgBytes <= held_bytes):
            refused.append(index)
            causes[index] = "own"
        elif not room.takes(size):
            refused.append(index)
            causes[index] = "pool"
        else:
            accepted.append(index)
            count += 1
            held_bytes += size
    return accepted, refused, causes


class _Room:
    """What a pool has left for the messages of a block, one by one: a message that fills it exactly fits."""

    def __init__(self, twin: Twin, command: cmd.Send) -> None:
        account = twin.destination.policy.account if command.attachment else None
        self._limits = account.share.limits if account is not None else None
        self._messages, self._bytes = twin.pool_used
        self.turned_away = account is not None and bool(command.turned_away)

    def takes(self, size: int) -> bool:
        limits = self._limits
        if limits is None:
            return True
        if 0 <= limits.messages < self._messages + 1 or 0 <= limits.bytes < self._bytes + size:
            return False
        self._messages += 1
        self._bytes += size
        return True


def _check_causes(twin: Twin, told: SendAnswered, causes: dict[int, str]) -> None:
    """A refusal names the limit that it is for."""
    for row in told.refused:
        if row.code == "quota_exceeded" and "was refused when it came first" not in row.text:
            own = "maxNumMsgs=" in row.text or "maxTotalMsgBytes=" in row.text
            found = {causes.get(index, "neither") for index in range(row.start, row.end)}
            assert found == {"own" if own else "pool"}, f"{found} limits refused, the text is {row.text!r}"


def _accept(twin: Twin, command: cmd.Send, values: list[int], accepted: list[int], out: Outcome) -> None:
    columns = command.columns
    messages: dict[int, Message] = {}
    for index in accepted:
        messages[index] = Message(
            values[index],
            command.sizes[index],
            command.persistent,
            columns.priority if columns.priorities is None else columns.priorities[index],
            columns.expires[index] if columns.expires else 0,
            columns.deliver_at[index] if columns.deliver_at else 0,
            columns.units[index] if columns.units else None,
            twin.made.get(values[index]),
        )
        if command.persistent and command.attachment and not command.txn:
            twin.taken.add(values[index])
            twin.top[command.producer] = values[index]
            twin.delta.add("take", values[index])
    claims = {i: owed(twin, message, command.origin) for i, message in messages.items()}
    if command.only is not None:
        assert all(command.only in queues for queues in claims.values()), "a subscription gets what it does not select"
        claims = dict.fromkeys(messages, (command.only,))
    for index, queues in claims.items():
        if not command.txn and not any(twin.queues[number].durable for number in queues):
            twin.transient.add(values[index])
    ordinal = out.accepted
    wanted = bool(accepted) if command.txn else any(claims.values())
    assert (ordinal is not None) == wanted, f"block {ordinal} was made for {len(accepted)} messages"
    if ordinal is None:
        _leave_unwritten(twin, command)  # Nobody is owed anything of it, so it need not be remembered.
        return
    keys = {ordinal << INDEX_BITS | index: message for index, message in messages.items()}
    assert not keys.keys() & twin.messages.keys(), "an ordinal was used twice"
    if command.txn:
        staged = twin.staged.setdefault(command.txn, Staged())
        twin.transacted.add(ordinal)
        for key, message in keys.items():
            twin.hold(key, message)
            staged.blocks[key] = message
            staged.origins[key] = command.origin
        return
    for index, queues in claims.items():
        if queues:
            twin.hold(ordinal << INDEX_BITS | index, messages[index])
    if store(twin, ordinal, claims, messages):
        for value in twin.unwritten.pop(command.producer, ()):
            twin.delta.add("take", value)
        record(twin, {ordinal << INDEX_BITS | i: queues for i, queues in claims.items()})
    else:
        _leave_unwritten(twin, command)
    arrive(twin, {ordinal << INDEX_BITS | i: queues for i, queues in claims.items()})


def _leave_unwritten(twin: Twin, command: cmd.Send) -> None:
    """What was taken is written down when a later block of its producer is."""
    twin.unwritten.setdefault(command.producer, []).extend(args[0] for op, *args in twin.delta.ops if op == "take")
    twin.delta.ops.clear()


def store(twin: Twin, ordinal: int, claims: dict[int, tuple[int, ...]], messages: dict[int, Message]) -> bool:
    """A block is stored when it is persistent and owed to somebody who outlives a restart."""
    persistent = any(message.persistent for message in messages.values())
    if persistent and any(twin.queues[number].durable for queues in claims.values() for number in queues):
        twin.stored.add(ordinal)
        return True
    return False


def record(twin: Twin, claims: dict[int, tuple[int, ...]]) -> None:
    for key, queues in claims.items():
        for number in queues:
            if twin.queues[number].durable:
                twin.delta.add("add", number, key, twin.messages[key])


def arrive(twin: Twin, claims: dict[int, tuple[int, ...]]) -> None:
    """New messages of one block come to their delivery queues."""
    by_queue: dict[int, list[int]] = {}
    for key, queues in sorted(claims.items()):
        for number in queues:
            by_queue.setdefault(number, []).append(key)
    for number, keys in by_queue.items():
        queue = twin.queues[number]
        place = queue.next_place
        queue.next_place += 1
        for key in keys:
            message = twin.messages[key]
            message.claims += 1
            queue.items[key] = Item(message, place)
            queue.items[key].since_ms = came(queue, twin.now, twin.destination.attributes.affinityKey)
            add(queue, key, message)
            if queue.subscription is not None:
                twin.arrived.append((number, message.value))
            if message.deliver_at > twin.wall:
                queue.rest(key, message.deliver_at - twin.ahead)
            else:
                twin.give_back(queue, key)
