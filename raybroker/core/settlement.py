"""Settlement of messages: a record is written, the block index settles them, and the consumer is told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from raybroker.core.blocks.block_entry import BlockEntry
from raybroker.core.blocks.block_index import BlockIndex, spans
from raybroker.core.counters import Counters
from raybroker.core.delivery.consumers import Delivery
from raybroker.core.delivery.dead_letters import Dead
from raybroker.core.delivery.decided import Dispatched, FailedDeliveries
from raybroker.core.delivery.delivery_queue import DeliveryQueue
from raybroker.core.delivery.run import Run
from raybroker.core.durable import records
from raybroker.core.outcome import DeadLetter, Retire
from raybroker.core.step import Step

QUEUE_ALL: Final = 0xFFFF_FFFF
"""In a record: the block is gone for everybody."""
Clear = Callable[[DeliveryQueue, int, int], tuple[int, bool]]
"""Take messages off what a delivery queue is owed; see ``Destination.clear_queue``."""


class Settlement:
    """Carries out the decisions of the delivery queues of one destination."""

    __slots__ = ("_clear", "_counters", "_index", "_step")

    def __init__(self, step: Step, block_index: BlockIndex, counters: Counters, clear: Clear) -> None:
        self._step = step
        self._index = block_index
        self._counters = counters
        self._clear = clear

    def dispatched(self, queue: DeliveryQueue, found: Dispatched) -> None:
        """A delivery queue has handed messages out."""
        self._counters.redelivered += found.redelivered
        for batch in found.batches:
            self._counters.formed.count_batch(batch.messages, batch.waited_ms, full=batch.full)
        for dead in found.dead:
            self.dead_letter(queue, dead)
        for recorded, settled in (*found.before, (found.recorded, found.settled)):
            if recorded:
                self.record_attempts(queue, recorded)
            if settled:
                self._consumed(queue, settled)

    def failed(self, queue: DeliveryQueue, found: FailedDeliveries) -> None:
        """Handing messages out has failed."""
        if found.messages:
            self._counters.failed[found.cause] = self._counters.failed.get(found.cause, 0) + found.messages
        for dead in found.dead:
            self.dead_letter(queue, dead)
        self._step.record_rows(records.FAILED, queue.number, found.rows)

    def record_attempts(self, queue: DeliveryQueue, runs: Sequence[Run]) -> None:
        """Write down how often messages were handed out; all that the queue has of a block takes a span."""
        loose: list[records.RecordRow] = []
        whole: list[records.Span] = []
        for run in runs:
            ordinal, attempts = run.ordinal, run.attempts
            if run.mask != queue.owed(ordinal):
                loose.append(records.RecordRow(ordinal, run.mask, attempts))
            elif whole and whole[-1].last + 1 == ordinal and whole[-1].value == attempts:
                whole[-1] = records.Span(whole[-1].first, ordinal, attempts)
            else:
                whole.append(records.Span(ordinal, ordinal, attempts))
        self._step.record_rows(records.DISPATCHED, queue.number, loose, whole)

    def acknowledged(self, queue: DeliveryQueue, found: Sequence[Delivery]) -> int:
        """Deliveries, which no consumer has any more, are acknowledged; returns how many messages that are."""
        if not found:
            return 0
        if queue.pending is not queue.plain:
            queue.pending.settled([item.run for item in found])
        return self._consumed(queue, found)

    def _consumed(self, queue: DeliveryQueue, found: Sequence[Delivery]) -> int:
        held, parts = self._index.held, []
        for item in found:
            ordinal, mask = item.run.ordinal, item.run.mask
            self._counters.bytes_out += held[ordinal].bytes_of(mask)
            parts.append((ordinal, mask))
        count = self.settle_parts(queue, parts, consumed=True)
        self._counters.messages_out += count
        return count

    def settle_parts(self, queue: DeliveryQueue, parts: Iterable[tuple[int, int]], *, consumed: bool = False) -> int:
        """The delivery queue is done with these messages; blocks that have nothing left retire. ``consumed``: consumers
        had them, which recovery counts."""
        count = 0
        loose: list[records.RecordRow] = []
        whole: list[int] = []
        retired: tuple[list[int], list[int]] = ([], [])
        for ordinal, mask in parts:
            block = self._index.held[ordinal]
            count += mask.bit_count()
            free, done = self._clear(queue, ordinal, mask)
            if queue.consumers.checkpoints.by_block:
                queue.consumers.checkpoints.drop(ordinal, mask)
            if free and self._index.settle_messages(ordinal, free):
                retired[block.stored].append(ordinal)
            if block.stored and queue.durable:
                # Written as whole, however many parts it took: the store may then drop it before the next checkpoint.
                if done:
                    whole.append(ordinal)
                else:
                    loose.append(records.RecordRow(ordinal, mask))
        if whole or loose:
            edges = spans(sorted(whole)) if len(whole) > 1 else zip(whole, whole, strict=True)
            rest = b"" if consumed else records.LEFT
            self._step.record_rows(records.ACKED, queue.number, loose, [records.Span(a, b) for a, b in edges], rest)
        self.retire(retired)
        return count

    def retire(self, retired: tuple[list[int], list[int]]) -> None:
        """Retire blocks of which nothing is left: those that are not stored, and those that are."""
        for stored in (False, True):
            if retired[stored]:
                self._step.out.after_durable.append(Retire(tuple(retired[stored]), stored))

    def gone(self, ordinal: int, block: BlockEntry) -> None:
        """A block is no longer held although no delivery queue has settled it: its transaction was rolled back."""
        if block.stored:
            self._step.record(records.encode(records.ACKED, QUEUE_ALL, (records.Span(ordinal, ordinal),)))
        self._step.out.after_durable.append(Retire((ordinal,), block.stored))

    def dead_letter(self, queue: DeliveryQueue, dead: Dead) -> None:
        """Messages are dead; they stay held until it is settled where they go. A topic tells each death once."""
        run, reason, comment, failure, cause = dead
        block = self._index.held[run.ordinal]
        mask = run.mask
        if queue.owes is not None and reason not in ("UNDELIVERABLE", "ERROR"):
            told = mask & block.told_dead
            block.told_dead |= mask
            mask &= ~told
            if told:
                self.settle_parts(queue, [(run.ordinal, told)])
        if mask:
            queue.dead_letters.add(run._replace(mask=mask))
            effect = DeadLetter(queue.number, run.ordinal, mask, run.attempts, reason, comment, failure, cause)
            self._step.out.immediate.append(effect)

    def dead_letters_settled(self, queue: DeliveryQueue, ordinal: int, mask: int) -> None:
        """It is settled what became of dead letters."""
        parts = [(run.ordinal, run.mask) for run in queue.dead_letters.take_dead(ordinal, mask)]
        if not parts:
            return
        block = self._index.held[ordinal]
        told = block.told_dead & mask
        if told and block.stored:  # Other subscriptions must not report the death again after a restart.
            self._step.record_rows(records.BURIED, queue.number, [records.RecordRow(ordinal, told)])
        self.settle_parts(queue, parts)
