"""A queue: every message goes to exactly one consumer and stays until that consumer acknowledged it (D-01).

This is the funnel: all commands come through :meth:`Queue.step`, which looks the handler up in one table, lets it
change state, hands out what can be handed out, and returns the outcome.  A handler that raises has changed nothing.

What leaves as ``after_durable`` and why: a producer's acknowledgement (P-05), the delivery of a persistent message
(with the note that it was handed out, so that a second delivery after a crash is flagged, R-11), the confirmation of an
acknowledgement (B-06).  The delivery of a non-persistent message goes at once, and so does the answer to a release,
which has to come before whatever is delivered after it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from raybroker.core import command as cmd
from raybroker.core import limit, notes
from raybroker.core.backlog import Backlog, Run
from raybroker.core.consumers import Consumer, Consumers, Delivery
from raybroker.core.ledger import Ledger, spans
from raybroker.core.outcome import Acked, Deliver, Idle, Outcome, Promoted, Released, Retire, Sent
from raybroker.core.producers import Producers
from raybroker.core.window import make_window
from raybroker.model.errors import IllegalStateError, ResourceAllocationError
from raybroker.model.record import BLOCK, NOTE, Entry
from raybroker.model.settings import DestinationAttributes


class Counters:
    """Totals since the host started; bytes are body bytes."""

    __slots__ = ("bytes_in", "bytes_out", "messages_in", "messages_out", "redelivered", "refused")

    def __init__(self) -> None:
        self.messages_in = self.messages_out = self.bytes_in = self.bytes_out = self.redelivered = self.refused = 0


class Queue:
    """State of one queue. ``reap_ms``: unused for so long it says Idle; None for never (D-22)."""

    def __init__(
        self, number: int, name: str, attributes: DestinationAttributes, *, reap_ms: int | None = None
    ) -> None:
        self.number = number
        self.name = name
        self.attributes = attributes
        self.reap_ms = reap_ms
        self.ledger = Ledger()
        self.backlog = Backlog()
        self.consumers = Consumers()
        self.producers = Producers()
        self.counters = Counters()
        self.mark = (0, 0)
        """Every fresh persistent message before index mark[1] of block mark[0] has been handed out."""
        self.message_bytes_max = -1
        """Largest message that the host takes (B-10); -1: it says nothing, and the attribute alone holds."""
        self.idle_since_ms: int | None = None

    def step(self, command: cmd.Command, *, now_ms: int) -> Outcome:
        """Do what ``command`` asks. Raises a BrokerError and changes nothing when it is not allowed."""
        out = Outcome()
        _HANDLERS[type(command)](self, command, out)
        if self.backlog and self.consumers.turn:
            self._dispatch(out)
        if self.reap_ms is not None:
            self._watch_idleness(out, now_ms)
        return out

    # ---- producers -------------------------------------------------------------------------------------------------

    def _attach_producer(self, command: cmd.AttachProducer, out: Outcome) -> None:
        most = self.attributes.maxNumProducers
        if 0 <= most <= self.producers.others(command.producer):
            raise ResourceAllocationError(
                f"destination {self.name} has its maxNumProducers={most} producers; close one or raise the limit"
            )
        if 0 < command.generation < self.producers.generations.get(command.producer, 0):
            raise IllegalStateError(f"the producer has opened destination {self.name} again since")
        self.producers.attach(command.attachment, command.producer, command.generation)

    def _detach_producer(self, command: cmd.DetachProducer, out: Outcome) -> None:
        self.producers.detach(command.attachment, forget=command.forget)

    def _send(self, command: cmd.Send, out: Outcome) -> None:
        attachment, producer, first, sizes, persistent, floor, room = command
        if self.producers.attached.get(attachment) != producer:
            return  # The producer is on another connection by now, and sends there again what this one did not settle.
        count = len(sizes)
        offered, late = [(0, count)], []
        if persistent:
            fresh, passed = self.producers.fresh(producer, first, first + count, floor)
            offered = [(a - first, b - first) for a, b in fresh]
            late = [limit.out_of_order(a - first, b - first) for a, b in passed]
        limits = limit.Limits(
            self.attributes.maxNumMsgs,
            self.attributes.maxTotalMsgBytes,
            *limit.of_message(self.attributes.maxBytesPerMsg, self.message_bytes_max),
        )
        ledger = self.ledger
        if room or not persistent:
            admitted, refused = limit.admit(self.name, limits, ledger.messages, ledger.bytes_held, sizes, offered)
        else:
            admitted, refused = [], [limit.store_full(a, b) for a, b in offered]
        refused = late + refused
        if admitted:
            self._accept(command, admitted, out)
        if refused:
            self.counters.refused += sum(r.end - r.start for r in refused)
        if persistent:
            out.after_durable.append(Sent(attachment, first, count, tuple(refused)))

    def _accept(self, command: cmd.Send, admitted: list[tuple[int, int]], out: Outcome) -> None:
        _, producer, first, sizes, persistent, _, _ = command
        count, column = len(sizes), notes.pack_sizes(sizes)
        ordinal = out.accepted = self.ledger.accept(column, count, persistent)
        holes = [notes.Part(ordinal, a, b) for a, b in _complement(admitted, count)]
        if persistent:
            if holes:
                out.records.append(self._note(notes.encode_refused(holes)))
            meta = notes.encode_block_meta(count, producer, first, column)
            out.records.append(Entry(BLOCK, self.number, ordinal, meta))
        for hole in holes:
            self.ledger.settle(hole)
        self.ledger.note_peak()
        block = self.ledger.held[ordinal]
        for start, end in admitted:
            if persistent:
                self.producers.take(producer, first + start, first + end)
            self.backlog.append(Run(ordinal, start, end, 0))
            self.counters.messages_in += end - start
            self.counters.bytes_in += block.bytes_of(start, end)

    # ---- consumers -------------------------------------------------------------------------------------------------

    def _attach_consumer(self, command: cmd.AttachConsumer, out: Outcome) -> None:
        window = make_window(command.flow, command.limit)
        consumer = Consumer(
            command.attachment, window, limit=command.limit, no_ack=command.no_ack, held=command.held
        )
        self.consumers.attach(
            consumer,
            active_max=self.attributes.maxNumActiveConsumers,
            backup_max=self.attributes.maxNumBackupConsumers,
            name=self.name,
        )
        self.consumers.offer(consumer)

    def _detach_consumer(self, command: cmd.DetachConsumer, out: Outcome) -> None:
        consumer = self.consumers.detach(command.attachment)
        if consumer is None:
            return
        self._give_back(consumer)
        for promoted in self.consumers.promote(self.attributes.maxNumActiveConsumers):
            self.consumers.offer(promoted)
            out.after_durable.append(Promoted(promoted.attachment))

    def _grant(self, command: cmd.Grant, out: Outcome) -> None:
        consumer = self.consumers.by_attachment.get(command.attachment)
        if consumer is not None:
            consumer.window.granted(command.credit)
            self.consumers.offer(consumer)

    def _acknowledge(self, command: cmd.Acknowledge, out: Outcome) -> None:
        consumer = self.consumers.by_attachment.get(command.attachment)
        wanted = sum(max(last - first + 1, 0) for first, last in command.ranges)
        found: list[Delivery] = []
        if consumer is not None:
            for first, last in command.ranges:
                found.extend(consumer.settle(first, last))
        count = self._settled(found, out)
        if consumer is not None and count:
            consumer.window.settled(count)
            self.consumers.offer(consumer)
        if command.request:
            out.after_durable.append(Acked(command.attachment, command.request, wanted - count))

    def _release(self, command: cmd.Release, out: Outcome) -> None:
        consumer = self.consumers.by_attachment.get(command.attachment)
        next_tag = 1
        if consumer is not None:
            self._give_back(consumer)
            consumer.window.restart(command.credit)
            self.consumers.offer(consumer)
            next_tag = consumer.next_tag
        out.immediate.append(Released(command.attachment, command.request, next_tag))

    def _hold(self, command: cmd.Hold, out: Outcome) -> None:
        consumer = self.consumers.by_attachment.get(command.attachment)
        if consumer is not None:
            consumer.held = True

    def _proceed(self, command: cmd.Proceed, out: Outcome) -> None:
        consumer = self.consumers.by_attachment.get(command.attachment)
        if consumer is not None:
            consumer.held = False
            self.consumers.offer(consumer)

    def _give_back(self, consumer: Consumer) -> None:
        """What a consumer holds goes back to its old place, counted as handed out (B-07, F-25, R-11)."""
        while consumer.unsettled:
            item = consumer.unsettled.pop()
            self.backlog.give_back(Run(item.ordinal, item.start, item.end, item.attempts))

    # ---- administration --------------------------------------------------------------------------------------------

    def _update(self, command: cmd.Update, out: Outcome) -> None:
        """New attributes, checked by whoever made them (D-03); raised consumer limits promote backups."""
        self.attributes = command.attributes
        for promoted in self.consumers.promote(self.attributes.maxNumActiveConsumers):
            self.consumers.offer(promoted)
            out.after_durable.append(Promoted(promoted.attachment))

    def _purge(self, command: cmd.Purge, out: Outcome) -> None:
        self._settle_parts(self.backlog.clear(), out)

    def _tick(self, command: cmd.Tick, out: Outcome) -> None:
        """Time alone changes nothing but idleness, which every step looks at."""

    # ---- shared ----------------------------------------------------------------------------------------------------

    def _note(self, meta: bytes) -> Entry:
        return Entry(NOTE, self.number, 0, meta)

    def _settled(self, found: list[Delivery], out: Outcome) -> int:
        """Deliveries are acknowledged: note it, and retire blocks that have nothing left."""
        if not found:
            return 0
        held = self.ledger.held
        self.counters.bytes_out += sum(held[d.ordinal].bytes_of(d.start, d.end) for d in found)
        count = self._settle_parts([notes.Part(d.ordinal, d.start, d.end) for d in found], out)
        self.counters.messages_out += count
        return count

    def _settle_parts(self, parts: list[notes.Part], out: Outcome) -> int:
        count = 0
        loose: list[notes.Part] = []
        retired: tuple[list[int], list[int]] = ([], [])
        for part in parts:
            block = self.ledger.held[part.ordinal]
            count += part.end - part.start
            if self.ledger.settle(part):
                # Noted as whole, however many parts it took: the store may then drop it before the next checkpoint.
                retired[block.persistent].append(part.ordinal)
            elif block.persistent:
                loose.append(part)
        whole = spans(sorted(retired[True]))
        for rows, rest in notes.in_notes(whole, loose):
            out.records.append(self._note(notes.encode_acked(rows, rest)))
        for persistent in (False, True):
            if retired[persistent]:
                out.after_durable.append(Retire(tuple(retired[persistent]), persistent))
        return count

    def _dispatch(self, out: Outcome) -> None:
        """Hand out what waits, in order, to consumers in turn, until one of the two runs out."""
        consumers, backlog, held = self.consumers, self.backlog, self.ledger.held
        tried: list[notes.Tried] = []
        mark = self.mark
        done_with: list[Delivery] = []
        while backlog.count:
            consumer = consumers.next_with_room()
            if consumer is None:
                break
            run = backlog.take(consumer.room())
            delivery = consumer.handed(run)
            persistent = held[run.ordinal].persistent
            effects = out.after_durable if persistent else out.immediate
            effects.append(Deliver(consumer.attachment, *delivery))
            if persistent:
                if run.attempts:
                    tried.append(notes.Tried(run.ordinal, run.start, run.end, delivery.attempts))
                else:
                    mark = (run.ordinal, run.end)
            if run.attempts:
                self.counters.redelivered += run.end - run.start
            if consumer.no_ack:
                done_with.append(delivery)
        else:
            consumers.rotate()
        moved = (mark,) if mark != self.mark else ()
        for marks, rows in notes.in_notes(moved, tried):
            out.records.append(self._note(notes.encode_dispatched(marks[0] if marks else None, rows)))
        self.mark = mark
        self._settled(done_with, out)

    def _watch_idleness(self, out: Outcome, now_ms: int) -> None:
        assert self.reap_ms is not None
        if self.ledger.messages or self.consumers.by_attachment or self.producers.attached:
            self.idle_since_ms = None
            return
        if self.idle_since_ms is None:
            self.idle_since_ms = now_ms
        out.wake_at = self.idle_since_ms + self.reap_ms
        if now_ms >= out.wake_at:
            out.immediate.append(Idle())


def _complement(ranges: list[tuple[int, int]], count: int) -> list[tuple[int, int]]:
    """What of 0 … count - 1 is not in the ascending ranges."""
    gaps, at = [], 0
    for start, end in (*ranges, (count, count)):
        if at < start:
            gaps.append((at, start))
        at = end
    return gaps


_HANDLERS: Final[dict[type, Callable[[Queue, Any, Outcome], None]]] = {
    cmd.AttachProducer: Queue._attach_producer,
    cmd.DetachProducer: Queue._detach_producer,
    cmd.Send: Queue._send,
    cmd.AttachConsumer: Queue._attach_consumer,
    cmd.DetachConsumer: Queue._detach_consumer,
    cmd.Grant: Queue._grant,
    cmd.Acknowledge: Queue._acknowledge,
    cmd.Release: Queue._release,
    cmd.Hold: Queue._hold,
    cmd.Proceed: Queue._proceed,
    cmd.Update: Queue._update,
    cmd.Purge: Queue._purge,
    cmd.Tick: Queue._tick,
}
