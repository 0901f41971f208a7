"""A queue as dumb as possible: one entry per message, no runs, no ranges, nothing incremental that could be wrong.

It does by itself what each command asks and is compared with every outcome of the real queue: which messages are taken
and refused, which are handed to whom and in which order, what is settled, what retires, what must be recorded.
"""

from __future__ import annotations

from bisect import insort
from typing import Any

from raybroker.core import command as cmd
from raybroker.core.outcome import Acked, Deliver, Outcome, Promoted, Released, Retire, Sent
from raybroker.core.queue import Queue
from tests.simulation.history import value_of
from tests.simulation.windows import make_twin_window

INDEX_BITS = 11


class Message:
    """``attempts``: how often it was handed out."""

    __slots__ = ("attempts", "persistent", "size", "value")

    def __init__(self, value: int, size: int, persistent: bool, attempts: int = 0) -> None:
        self.value = value
        self.size = size
        self.persistent = persistent
        self.attempts = attempts


class Holder:
    """A consumer: tag → key of what it has not settled."""

    def __init__(self, command: cmd.AttachConsumer) -> None:
        self.window = make_twin_window(command.flow, command.limit)
        self.no_ack = command.no_ack
        self.held = command.held
        self.active = False
        self.next_tag = 1
        self.unsettled: dict[int, int] = {}


class Delta:
    """What one outcome changes on disk: messages added (key, value, size), removed, handed out (key → attempts)."""

    __slots__ = ("added", "gone", "number", "removed", "tried")

    def __init__(self, number: int) -> None:
        self.number = number
        self.added: list[tuple[int, int, int]] = []
        self.removed: list[int] = []
        self.tried: dict[int, int] = {}
        self.gone = False

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.tried or self.gone)


class Twin:
    """``waiting`` is the sorted keys of messages with nobody; a key is ordinal and index in one integer."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.messages: dict[int, Message] = {}
        self.bytes_held = 0
        self.waiting: list[int] = []
        self.left: dict[int, int] = {}
        self.holders: dict[int, Holder] = {}
        self.newest: dict[int, int] = {}
        self.generations: dict[int, int] = {}
        self.taken: set[int] = set()
        self.top: dict[int, int] = {}
        self.first: dict[tuple[int, bool], int] = {}
        self.delta = Delta(queue.number)
        self.discarded: list[int] = []
        self._settled: list[int] = []

    def restore(self, key: int, message: Message) -> None:
        """A message that a disk gave back."""
        self.messages[key] = message
        self.bytes_held += message.size
        insort(self.waiting, key)
        self.left[key >> INDEX_BITS] = self.left.get(key >> INDEX_BITS, 0) + 1

    # ---- one step --------------------------------------------------------------------------------------------------

    def step(self, command: cmd.Command, out: Outcome) -> None:
        """``command`` led to ``out``; raises AssertionError when it should not have."""
        self.delta = Delta(self.queue.number)
        self.discarded = []
        self._settled = []
        by_type: dict[type, list[Any]] = {}
        assert not any(isinstance(e, Released) for e in (*out.immediate[1:], *out.after_durable)), "released too late"
        for effect in out.immediate:
            assert not isinstance(effect, Sent | Acked | Retire), f"{effect} does not wait for the disk"
            by_type.setdefault(type(effect), []).append(effect)
        early = len(by_type.get(Deliver, ()))
        for effect in out.after_durable:
            by_type.setdefault(type(effect), []).append(effect)
        expected = _COMMANDS[type(command)](self, command, out)
        for kind in (Sent, Acked, Released, Promoted):
            found = by_type.get(kind, [])
            assert found == expected.get(kind, []), f"{command} led to {found}, expected {expected.get(kind, [])}"
        if Deliver in by_type:
            self._handed_out(by_type[Deliver], early)
        if self.waiting:
            for number, holder in self.holders.items():
                assert not self._room(holder), f"consumer {number:#x} has room and {len(self.waiting)} messages wait"
        self._check_retired(by_type.get(Retire, []))
        ledger = self.queue.ledger
        assert (ledger.messages, ledger.bytes_held) == (len(self.messages), self.bytes_held), "totals differ"
        assert bool(self.delta) <= bool(out.records), f"nothing is recorded of what {command} did"

    def _room(self, holder: Holder) -> int:
        return holder.window.room() if holder.active and not holder.held else 0

    def _handed_out(self, deliveries: list[Deliver], early: int) -> None:
        """Messages leave in order, to active consumers, as far as windows have room, each with its next attempt."""
        for index, item in enumerate(deliveries):
            message = self.messages.get(item.ordinal << INDEX_BITS | item.start)
            assert message is not None, f"{item} is of a message that is not held"
            assert message.persistent == (index >= early), f"{item} is in the wrong tuple"
            assert item.attachment in self.holders, f"{item} goes to nobody"
        deliveries = sorted(deliveries, key=lambda d: (d.ordinal, d.start))
        waiting, messages = self.waiting, self.messages
        at = 0
        for item in deliveries:
            holder, size = self.holders[item.attachment], item.end - item.start
            assert self._room(holder) >= size, f"{item} exceeds the window of its consumer"
            holder.window.sent(size)
            assert item.tag == holder.next_tag, f"{item} should have tag {holder.next_tag}"
            for offset in range(size):
                key = (item.ordinal << INDEX_BITS) + item.start + offset
                assert at < len(waiting), f"{item} does not wait"
                assert waiting[at] == key, f"{item} is not next; next is {_text(waiting[at])}"
                at += 1
                message = messages[key]
                message.attempts += 1
                assert message.attempts == item.attempt, f"{item} should be attempt {message.attempts}"
                if message.attempts == 1:
                    self._check_first(message)
                if message.persistent:
                    self.delta.tried[key] = message.attempts
                if holder.no_ack:
                    self.discarded.append(message.value)
                    self._settle(key)
                else:
                    holder.unsettled[holder.next_tag + offset] = key
            if holder.no_ack:
                holder.window.settled(size)
            holder.next_tag += size
        del waiting[:at]

    def _check_first(self, message: Message) -> None:
        """A producer's messages of one class are handed out in the order of sending."""
        key = message.value >> 32, message.persistent
        before = self.first.get(key, 0)
        assert message.value > before, f"{message.value:#x} is first handed out after {before:#x}"
        self.first[key] = message.value

    def _settle(self, key: int) -> None:
        message = self.messages.pop(key)
        self.bytes_held -= message.size
        self.left[key >> INDEX_BITS] -= 1
        self._settled.append(key)
        if message.persistent:
            self.delta.removed.append(key)

    def _check_retired(self, effects: list[Retire]) -> None:
        """A block retires with its last message, once."""
        retired = sorted(ordinal for effect in effects for ordinal in effect.ordinals)
        done = sorted({key >> INDEX_BITS for key in self._settled})
        expected = [ordinal for ordinal in done if not self.left[ordinal]]
        assert retired == expected, f"blocks {retired} retire, expected {expected}"
        for ordinal in expected:
            del self.left[ordinal]

    # ---- commands --------------------------------------------------------------------------------------------------

    def attach_producer(self, command: cmd.AttachProducer, out: Outcome) -> dict[type, list[Any]]:
        assert command.generation >= self.generations.get(command.producer, 0), "an old connection took over"
        self.generations[command.producer] = command.generation
        self.newest[command.producer] = command.attachment
        return {}

    def send(self, command: cmd.Send, out: Outcome) -> dict[type, list[Any]]:
        attachment, producer, first, sizes, persistent, _, room = command
        if self.newest.get(producer) != attachment:
            assert out.accepted is None, "a message came over a connection that its producer has left"
            return {}
        limits = self.queue.attributes
        refused, accepted = [], []
        top = self.top.get(producer, 0)
        count, held_bytes = len(self.messages), self.bytes_held
        for index, size in enumerate(sizes):
            value = value_of(producer, first + index)
            if persistent and value in self.taken:
                continue
            if (
                (persistent and (value < top or not room))
                or 0 <= limits.maxBytesPerMsg < size
                or 0 <= limits.maxNumMsgs <= count
                or 0 <= limits.maxTotalMsgBytes <= held_bytes
            ):
                refused.append(index)
            else:
                accepted.append(index)
                count += 1
                held_bytes += size
        self._accept(command, accepted, out)
        if not persistent:
            return {}
        sent = [e for e in out.after_durable if isinstance(e, Sent)]
        assert len(sent) == 1
        found = [i for r in sent[0].refused for i in range(r.start, r.end)]
        assert found == refused, f"{found} were refused, expected {refused}"
        return {Sent: [Sent(attachment, first, len(sizes), sent[0].refused)]}

    def _accept(self, command: cmd.Send, accepted: list[int], out: Outcome) -> None:
        _, producer, first, sizes, persistent, _, _ = command
        ordinal = out.accepted
        assert (ordinal is not None) == bool(accepted), f"block {ordinal} was made for {len(accepted)} messages"
        if ordinal is None:
            return
        for index in accepted:
            message = Message(value_of(producer, first + index), sizes[index], persistent)
            key = ordinal << INDEX_BITS | index
            assert key not in self.messages, "an ordinal was used twice"
            self.restore(key, message)
            if persistent:
                self.taken.add(message.value)
                self.top[producer] = message.value
                self.delta.added.append((key, message.value, message.size))

    def attach_consumer(self, command: cmd.AttachConsumer, out: Outcome) -> dict[type, list[Any]]:
        holder = Holder(command)
        holder.active = self._has_place()
        self.holders[command.attachment] = holder
        return {}

    def _has_place(self) -> bool:
        most = self.queue.attributes.maxNumActiveConsumers
        return most < 0 or sum(h.active for h in self.holders.values()) < most

    def detach_consumer(self, command: cmd.DetachConsumer, out: Outcome) -> dict[type, list[Any]]:
        holder = self.holders.pop(command.attachment, None)
        if holder is None:
            return {}
        self._give_back(holder)
        return self._promote()

    def _promote(self) -> dict[type, list[Any]]:
        promoted = []
        for number, holder in self.holders.items():
            if not holder.active and self._has_place():
                holder.active = True
                promoted.append(Promoted(number))
        return {Promoted: promoted}

    def _give_back(self, holder: Holder) -> None:
        for key in holder.unsettled.values():
            insort(self.waiting, key)
        holder.unsettled.clear()

    def grant(self, command: cmd.Grant, out: Outcome) -> dict[type, list[Any]]:
        holder = self.holders.get(command.attachment)
        if holder is not None:
            holder.window.granted(command.credit)
        return {}

    def acknowledge(self, command: cmd.Acknowledge, out: Outcome) -> dict[type, list[Any]]:
        holder = self.holders.get(command.attachment)
        unknown = count = 0
        for first, last in command.ranges:
            for tag in range(first, last + 1):
                key = holder.unsettled.pop(tag, None) if holder is not None else None
                if key is None:
                    unknown += 1
                else:
                    self._settle(key)
                    count += 1
        if holder is not None:
            holder.window.settled(count)
        return {Acked: [Acked(command.attachment, command.request, unknown)] if command.request else []}

    def release(self, command: cmd.Release, out: Outcome) -> dict[type, list[Any]]:
        holder = self.holders.get(command.attachment)
        if holder is None:
            return {Released: [Released(command.attachment, command.request, 1)]}
        self._give_back(holder)
        holder.window.restart(command.credit)
        return {Released: [Released(command.attachment, command.request, holder.next_tag)]}

    def hold(self, command: cmd.Hold | cmd.Proceed, out: Outcome) -> dict[type, list[Any]]:
        holder = self.holders.get(command.attachment)
        if holder is not None:
            holder.held = isinstance(command, cmd.Hold)
        return {}

    def update(self, command: cmd.Update, out: Outcome) -> dict[type, list[Any]]:
        return self._promote()

    def purge(self, command: cmd.Purge, out: Outcome) -> dict[type, list[Any]]:
        for key in self.waiting:
            self.discarded.append(self.messages[key].value)
            self._settle(key)
        self.waiting.clear()
        return {}

    def nothing(self, command: cmd.Command, out: Outcome) -> dict[type, list[Any]]:
        return {}


def _text(key: int) -> str:
    return f"message {key & (1 << INDEX_BITS) - 1} of block {key >> INDEX_BITS}"


_COMMANDS: dict[type, Any] = {
    cmd.AttachProducer: Twin.attach_producer,
    cmd.DetachProducer: Twin.nothing,
    cmd.Send: Twin.send,
    cmd.AttachConsumer: Twin.attach_consumer,
    cmd.DetachConsumer: Twin.detach_consumer,
    cmd.Grant: Twin.grant,
    cmd.Acknowledge: Twin.acknowledge,
    cmd.Release: Twin.release,
    cmd.Hold: Twin.hold,
    cmd.Proceed: Twin.hold,
    cmd.Update: Twin.update,
    cmd.Purge: Twin.purge,
    cmd.Tick: Twin.nothing,
}
