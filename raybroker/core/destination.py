"""A destination: the funnel through which every command comes, and what queues and topics have in common.

:meth:`Destination.step` looks the handler up in one table, lets it change state, hands out what can be handed out, and
returns the outcome.  A handler that raises has changed nothing.

What leaves as ``after_durable`` and why: a producer's acknowledgement, the delivery of a persistent message
(with the note that it was handed out, so that a second delivery after a crash is flagged), the confirmation of
an acknowledgement.  The delivery of a non-persistent message goes at once, and so does the answer to a release,
which has to come before whatever is delivered after it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heappush
from typing import Any, ClassVar, Final

from raybroker.core import command as cmd
from raybroker.core import expiry, transaction
from raybroker.core.admission import admission
from raybroker.core.admission.deduplication import Duplicates
from raybroker.core.admission.producer_sequences import Producers
from raybroker.core.blocks.block_index import NEVER, BlockEntry, BlockIndex, spans
from raybroker.core.delivery import consumer_commands, dead_letters
from raybroker.core.delivery.consumers import Delivery
from raybroker.core.delivery.delivery_queue import DeliveryQueue
from raybroker.core.durable import records
from raybroker.core.outcome import Idle, Outcome, Retire
from raybroker.core.selector.content import Content
from raybroker.core.staged_transaction import Staged
from raybroker.core.unit_of_work import works_for
from raybroker.model.errors import IllegalStateError
from raybroker.model.names import DestinationType
from raybroker.model.record import NOTE, Entry
from raybroker.model.settings import DestinationAttributes

PAUSES: Final = ("production", "consumption", "insertion")
QUEUE_ALL: Final = 0xFFFF_FFFF
"""In a note: the block is gone for everybody."""


class Counters:
    """Totals since the host started; bytes are body bytes; ``slow_since_ms``: of the latest time of slow producers.

    ``moved_in``: messages that came from elsewhere, see command.Send; those of a transaction count when it commits.
    ``removed``: messages that REMOVE_OLDEST or REMOVE_LOW_PRIORITY discarded; ``refusals``: code → messages refused
    for that reason, and the text of the latest refusal.
    """

    __slots__ = (
        "bytes_in", "bytes_out", "dead", "duplicates", "expired", "messages_in", "messages_out", "moved_in",
        "redelivered", "refusals", "refused", "removed", "slow_ms", "slow_since_ms", "slowed",
    )  # fmt: skip

    def __init__(self) -> None:
        self.messages_in = self.messages_out = self.bytes_in = self.bytes_out = self.redelivered = self.refused = 0
        self.dead = self.duplicates = self.expired = self.removed = self.moved_in = 0
        self.slowed = self.slow_ms = self.slow_since_ms = 0
        self.refusals: dict[str, tuple[int, str]] = {}

    def take(self, messages: int, nbytes: int, *, moved: bool) -> None:
        """Messages are here for good."""
        if moved:
            self.moved_in += messages
        else:
            self.messages_in += messages
            self.bytes_in += nbytes

    def refuse(self, code: str, count: int, text: str) -> None:
        """``count`` messages were not taken."""
        self.refused += count
        self.refusals[code] = self.refusals.get(code, (0, ""))[0] + count, text


class Destination(ABC):
    """State of one destination. ``reap_ms``: unused for so long it says Idle; None for never.

    ``peek``: the headers of a held block, from wherever they are; the engine sets it.
    """

    kind: ClassVar[DestinationType]

    def __init__(
        self, number: int, name: str, attributes: DestinationAttributes, *, reap_ms: int | None = None
    ) -> None:
        self.number = number
        self.name = name
        self.attributes = attributes
        self.reap_ms = reap_ms
        self.block_index = BlockIndex()
        self.producers = Producers()
        self.counters = Counters()
        self.duplicates = Duplicates()
        self.queues: dict[int, DeliveryQueue] = {}
        self.queue_of: dict[int, DeliveryQueue] = {}
        """Consumer's attachment → its delivery queue."""
        self.works = works_for(attributes)
        """Its units of work, if it composes them."""
        self.staged: dict[int, Staged] = {}
        self.dying = self.dying_bytes = 0
        """Messages in the delivery queues that are dead and not settled, and their bytes."""
        self.paused: dict[str, int] = {}
        """Which of PAUSES → until when, milliseconds; 0 until told otherwise."""
        self.slow = False
        """Producers were told to wait."""
        self.message_bytes_max = -1
        """Largest message that the host takes; -1: it says nothing, and the attribute alone holds."""
        self.rollbacks_max = 0
        """After so many failures a message is dead, whatever redeliveryLimit says; 0: it alone counts."""
        self.scan_ms = 0
        """How often expired messages are looked for; 0: only when they are touched."""
        self.next_scan_ms = 0
        self.expiring: list[tuple[int, int]] = []
        """(when, block) for the scan."""
        self.ended_before = False
        """A restart found messages that had failed: some may have been on their way to where the dead go."""
        self.idle_since_ms: int | None = None
        self.kept = False
        """The host has something to do for it later, so it is never idle."""
        self.now_ms = 0
        self.read_headers: Callable[[int], Content | None] = lambda ordinal: None
        self.arriving: Content | None = None
        """Headers of the block that this step brings: whoever reads blocks does not have it yet."""
        self._out = Outcome()
        self._touched: dict[int, DeliveryQueue] = {}

    def step(self, command: cmd.Command, *, now_ms: int) -> Outcome:
        """Do what ``command`` asks. Raises a BrokerError and changes nothing when it is not allowed."""
        out = self._out = Outcome()
        self.now_ms = now_ms
        self._touched.clear()
        _HANDLERS[type(command)](self, command, out)
        if self._touched:
            consumer_commands = "consumption" not in self.paused
            for queue in self._touched.values():
                if queue.unfinished:
                    queue.unfinished = queue.sort_some()
                if queue.order is not None:
                    queue.settle_order()
                if consumer_commands and queue.consumers.turn and (queue.backlog.count or queue.order is not None):
                    queue.dispatch(out)
                if queue.consumers.draining:
                    queue.tell_draining(out, paused=not consumer_commands)
                if queue.unfinished:
                    out.unfinished = True
                self.wake(queue.next_ms())
        if self.works is not None:
            self.works.settle(self, out)
        if self.slow:
            admission.open_gate(self, out)
        if self.reap_ms is not None:
            self._watch_idleness(out)
        self.arriving = None
        return out

    # ---- what queues and topics do differently ---------------------------------------------------------------------

    @abstractmethod
    def queue_for(self, command: cmd.AttachConsumer, out: Outcome) -> DeliveryQueue:
        """The delivery queue that a new consumer serves; raises when it may not."""

    @abstractmethod
    def claims(
        self, mask: int, content: Content | None, origin: tuple[str, str]
    ) -> dict[int, int]:
        """Which delivery queues are owed which of these new messages."""

    @abstractmethod
    def left_by(self, queue: DeliveryQueue, out: Outcome) -> None:
        """A consumer of the delivery queue is gone."""

    @abstractmethod
    def clear_queue(self, queue: DeliveryQueue, ordinal: int, mask: int) -> tuple[int, bool]:
        """The delivery queue is done with these: the messages nobody is owed any more, and whether the delivery queue
        is done with all."""

    def parts_queue(self, out: Outcome) -> int:
        """The delivery queue that parts of units of work are owed to."""
        return 0

    # ---- for the handlers and delivery queues
    # --------------------------------------------------------------------------------

    def peek(self, ordinal: int) -> Content | None:
        content = self.arriving if ordinal == self._out.accepted else self.read_headers(ordinal)
        if content is None:
            self._out.damaged.append(ordinal)
        return content

    @property
    def selective(self) -> bool:
        """Somebody here has a selector, so that headers are needed."""
        return any(queue.matching for queue in self.queues.values())

    @property
    def insertion_paused(self) -> bool:
        return "insertion" in self.paused

    @property
    def failures_max(self) -> int:
        """A message with more failures is dead; -1: none is."""
        limit = self.attributes.redeliveryLimit
        if self.rollbacks_max > 0 and not 0 <= limit < self.rollbacks_max:
            return self.rollbacks_max - 1
        return limit

    def touch(self, queue: DeliveryQueue) -> None:
        """Something has changed that may let the delivery queue hand out messages."""
        self._touched[queue.number] = queue

    def wake(self, at_ms: int | None) -> None:
        """Time alone will change something then."""
        if at_ms is not None and (self._out.wake_at is None or at_ms < self._out.wake_at):
            self._out.wake_at = at_ms

    def note(self, meta: bytes) -> Entry:
        return Entry(NOTE, self.number, 0, meta)

    def note_rows(self, out: Outcome, kind: int, queue: DeliveryQueue, rows: Sequence[records.Row]) -> None:
        for some, _ in records.in_notes(rows, ()):
            out.records.append(self.note(records.encode(kind, queue.number, (), some)))

    def record_rows(self, out: Outcome, kind: int, queue: DeliveryQueue, rows: Sequence[tuple[int, int, int]]) -> None:
        """Rows of (block, messages, value); what is all that the delivery queue has of a block takes a span instead."""
        loose: list[records.Row] = []
        whole: list[records.Span] = []
        for ordinal, mask, value in rows:
            if mask != queue.owed(ordinal):
                loose.append(records.Row(ordinal, mask, value))
            elif whole and whole[-1].last + 1 == ordinal and whole[-1].value == value:
                whole[-1] = records.Span(whole[-1].first, ordinal, value)
            else:
                whole.append(records.Span(ordinal, ordinal, value))
        for some, others in records.in_notes(whole, loose):
            out.records.append(self.note(records.encode(kind, queue.number, some, others)))

    def accepted(self, ordinal: int, claims: dict[int, int], content: Content | None) -> None:
        """A block has become visible: its delivery queues get what they are owed of it."""
        for number, mask in claims.items():
            owes = self.queues[number].owes
            if owes is not None:
                owes[ordinal] = mask
        self.arrived(ordinal, claims, content, {})

    def arrived(
        self, ordinal: int, fresh: dict[int, int], content: Content | None, places: Mapping[int, int]
    ) -> None:
        """Messages of a block that were never handed out wait in their delivery queues; ``places``: where, if not at
        the end."""
        block = self.block_index.held[ordinal]
        if block.soonest < NEVER:
            heappush(self.expiring, (block.soonest, ordinal))
            expiry.plan_scan(self)
        for number, mask in fresh.items():
            queue = self.queues[number]
            queue.arrive(ordinal, mask, content, places.get(number) or queue.take_place())
            self.touch(queue)

    def acknowledged(self, queue: DeliveryQueue, found: Sequence[Delivery], out: Outcome) -> int:
        """Deliveries are acknowledged: note it, and retire blocks that have nothing left."""
        if not found:
            return 0
        held = self.block_index.held
        if queue.order is not None:
            queue.done(found)
        self.counters.bytes_out += sum(held[d.run.ordinal].bytes_of(d.run.mask) for d in found)
        count = self.settle(queue, [(d.run.ordinal, d.run.mask) for d in found], out)
        self.counters.messages_out += count
        return count

    def settle(self, queue: DeliveryQueue, parts: Iterable[tuple[int, int]], out: Outcome) -> int:
        """The delivery queue is done with these messages: note it, and retire blocks that have nothing left."""
        count = 0
        loose: list[records.Row] = []
        whole: list[int] = []
        retired: tuple[list[int], list[int]] = ([], [])
        for ordinal, mask in parts:
            block = self.block_index.held[ordinal]
            count += mask.bit_count()
            free, done = self.clear_queue(queue, ordinal, mask)
            if free and self.block_index.settle(ordinal, free):
                retired[block.stored].append(ordinal)
            if block.stored and queue.durable:
                # Noted as whole, however many parts it took: the store may then drop it before the next checkpoint.
                if done:
                    whole.append(ordinal)
                else:
                    loose.append(records.Row(ordinal, mask))
        rows = [records.Span(a, b) for a, b in spans(sorted(whole))]
        for some, others in records.in_notes(rows, loose):
            out.records.append(self.note(records.encode(records.ACKED, queue.number, some, others)))
        self.retire(retired, out)
        return count

    def retire(self, retired: tuple[list[int], list[int]], out: Outcome) -> None:
        for stored in (False, True):
            if retired[stored]:
                out.after_durable.append(Retire(tuple(retired[stored]), stored))

    def gone(self, ordinal: int, block: BlockEntry, out: Outcome) -> None:
        """A block is no longer held although no delivery queue has settled it: its transaction was rolled back."""
        if block.stored:
            span = records.Span(ordinal, ordinal)
            out.records.append(self.note(records.encode(records.ACKED, QUEUE_ALL, (span,))))
        out.after_durable.append(Retire((ordinal,), block.stored))

    def stage(self, txn: int) -> Staged:
        """What a transaction does here."""
        return self.staged.setdefault(txn, Staged())

    # ---- administration --------------------------------------------------------------------------------------------

    def _update(self, command: cmd.Update, out: Outcome) -> None:
        """New attributes, checked by whoever made them; raised consumer limits promote backups."""
        self.attributes = command.attributes
        self.works = self.works or works_for(command.attributes)
        for queue in self.queues.values():
            if queue.subscription is None:
                consumer_commands.promote(self, queue, out)
                self.touch(queue)

    def _purge(self, command: cmd.Purge, out: Outcome) -> None:
        for queue in [self.queues[command.queue]] if command.queue is not None else list(self.queues.values()):
            self.settle(queue, [(run.ordinal, run.mask) for run in queue.clear()], out)
            for ordinal, mask in list(queue.dying.items()):
                dead_letters.buried(queue, ordinal, mask, out)

    def _remove(self, command: cmd.Remove, out: Outcome) -> None:
        for queue in self.queues.values():
            runs = queue.remove(command.chosen)
            if command.aside:
                for run in runs:
                    queue.set_aside(run)
            else:
                self.settle(queue, [(run.ordinal, run.mask) for run in runs], out)

    def _buried(self, command: cmd.Buried, out: Outcome) -> None:
        queue = self.queues.get(command.queue)
        if queue is not None:
            self.counters.dead += command.mask.bit_count() if command.dead else 0
            dead_letters.buried(queue, command.ordinal, command.mask, out)

    def _unbury(self, command: cmd.Unbury, out: Outcome) -> None:
        queue = self.queues.get(command.queue)
        if queue is not None:
            dead_letters.unbury(queue, command.ordinal, command.mask, out)
            self.touch(queue)

    def _pause(self, command: cmd.Pause, out: Outcome) -> None:
        if command.which not in PAUSES:
            raise IllegalStateError(f"{command.which!r} cannot be paused; {', '.join(PAUSES)} can")
        self.paused[command.which] = command.until_ms
        if command.until_ms:
            self.wake(command.until_ms)
        if command.which != "consumption":
            admission.tell_producers(self, out)

    def _resume(self, command: cmd.Resume, out: Outcome) -> None:
        self.resume(command.which, out)

    def resume(self, which: str, out: Outcome) -> None:
        """A pause ends."""
        if self.paused.pop(which, None) is None:
            return
        if which == "insertion":
            for queue in self.queues.values():
                queue.show_hidden()
        for queue in self.queues.values():
            self.touch(queue)
        if which != "consumption":
            admission.tell_producers(self, out)

    def _subscribe(self, command: cmd.Subscribe, out: Outcome) -> None:
        raise IllegalStateError(f"{self.kind} {self.name} has no subscriptions")

    def _unsubscribe(self, command: cmd.Unsubscribe, out: Outcome) -> None:
        raise IllegalStateError(f"{self.kind} {self.name} has no subscriptions")

    def _watch_idleness(self, out: Outcome) -> None:
        assert self.reap_ms is not None
        used = self.block_index.messages or self.queue_of or self.producers.attached
        if used or self.kept or self.has_durable_queues():
            self.idle_since_ms = None
            return
        if self.idle_since_ms is None:
            self.idle_since_ms = self.now_ms
        self.wake(self.idle_since_ms + self.reap_ms)
        if self.now_ms >= self.idle_since_ms + self.reap_ms:
            out.immediate.append(Idle())

    def has_durable_queues(self) -> bool:
        return False


_HANDLERS: Final[dict[type, Callable[[Destination, Any, Outcome], None]]] = {
    cmd.AttachProducer: admission.attach_producer,
    cmd.DetachProducer: admission.detach_producer,
    cmd.Send: admission.send,
    cmd.AttachConsumer: consumer_commands.attach_consumer,
    cmd.DetachConsumer: consumer_commands.detach_consumer,
    cmd.Grant: consumer_commands.grant,
    cmd.Drain: consumer_commands.drain,
    cmd.Missed: consumer_commands.missed,
    cmd.Acknowledge: consumer_commands.acknowledge,
    cmd.Settle: consumer_commands.settle,
    cmd.TakeBack: consumer_commands.take_back,
    cmd.Begun: consumer_commands.begun,
    cmd.Extend: consumer_commands.extend,
    cmd.Release: consumer_commands.release,
    cmd.Hold: consumer_commands.hold,
    cmd.Proceed: consumer_commands.proceed,
    cmd.Update: Destination._update,
    cmd.Purge: Destination._purge,
    cmd.Remove: Destination._remove,
    cmd.Buried: Destination._buried,
    cmd.Composed: admission.composed,
    cmd.Unbury: Destination._unbury,
    cmd.Pause: Destination._pause,
    cmd.Resume: Destination._resume,
    cmd.Subscribe: lambda home, command, out: home._subscribe(command, out),
    cmd.Unsubscribe: lambda home, command, out: home._unsubscribe(command, out),
    cmd.StageAcks: transaction.stage_acks,
    cmd.Prepare: transaction.prepare,
    cmd.Decide: transaction.decide,
    cmd.Tick: expiry.tick,
}
