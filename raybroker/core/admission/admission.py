"""Admission: the messages of a block that a destination takes, and when its producers have to wait.

In this order: a retry of what was taken already is not taken again (exactly, by sequence number), nor is an id of the
deduplication window; what exceeds the largest message, or the limits under REJECT_NEWEST, is refused, as is what has no
room in the pool that the destination is charged to; the rest is taken.  What the host itself sends is not held against
the pool here: it asks before, by ``fitting``, what of it would be taken.  Under FLOW_CONTROL a full destination tells
producers to wait; the host, which cannot wait, sends it nothing more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from raybroker.core import command as cmd
from raybroker.core.admission import limits
from raybroker.core.admission.deduplication import Deduplication, first_of_each
from raybroker.core.admission.pool_share import Account
from raybroker.core.admission.producer_sequences import ProducerSequences
from raybroker.core.blocks import message_mask as pk
from raybroker.core.blocks.block_index import BlockIndex
from raybroker.core.counters import Counters
from raybroker.core.delivery.delivery_queue import DeliveryQueue
from raybroker.core.durable import records
from raybroker.core.outcome import Gate, Refused
from raybroker.core.policy import DestinationPolicy
from raybroker.core.step import Step
from raybroker.core.unit_of_work import UnitsOfWork
from raybroker.model.definitions.pauses import PRODUCING
from raybroker.model.errors import (
    DestinationPausedError,
    IllegalStateError,
    MemoryLowError,
    QuotaExceededError,
    ResourceAllocationError,
)

DUPLICATE: Final = "duplicate"
"""In place of an error code: the message was taken already."""


class Admission:
    """The admission to one destination. ``slow``: producers were told to wait, since the destination is full."""

    def __init__(
        self,
        name: str,
        step: Step,
        policy: DestinationPolicy,
        block_index: BlockIndex,
        counters: Counters,
        works: UnitsOfWork,
        queues: Mapping[int, DeliveryQueue],
    ) -> None:
        self._name = name
        self._step = step
        self._policy = policy
        self._index = block_index
        self._counters = counters
        self._works = works
        self._queues = queues
        self.producers = ProducerSequences()
        self.duplicates = Deduplication()
        self.slow = False

    def attach_producer(self, command: cmd.AttachProducer) -> None:
        most = self._policy.attributes.maxNumProducers
        if 0 <= most <= self.producers.others(command.producer):
            raise ResourceAllocationError(
                f"destination {self._name} has its maxNumProducers={most} producers; close one or raise the limit"
            )
        if 0 < command.generation < self.producers.generations.get(command.producer, 0):
            raise IllegalStateError(f"the producer has opened destination {self._name} again since")
        self.producers.attach(command.attachment, command.producer, command.generation)
        state, until_ms = self.gate_state()
        if state != "open":
            self._step.out.immediate.append(Gate(command.attachment, state, until_ms))

    def detach_producer(self, command: cmd.DetachProducer) -> None:
        self.producers.detach(command.attachment, forget=command.forget)

    def admit(self, command: cmd.Send) -> tuple[int, list[Refused]]:
        """Which messages of a block are taken, and which are refused, or were taken before."""
        policy, index = self._policy, self._index
        producer, first, count = command.producer, command.first_seq, len(command.sizes)
        offered, refused = (1 << count) - 1, list[Refused]()
        if command.persistent and not command.txn and command.attachment:
            fresh, passed = self.producers.fresh(producer, first, first + count, command.floor)
            if fresh != [(first, first + count)]:
                offered = pk.of_ranges((a - first, b - first) for a, b in fresh)
            if passed:
                late = pk.of_ranges((a - first, b - first) for a, b in passed)
                late = self._without_known(command, late, refused)
                refused += [limits.out_of_order(a, b) for a, b in pk.runs_of(late)]
        if command.columns.units is not None and policy.attributes.versionKey:
            ordered = offered & pk.of_indexes(i for i, name in enumerate(command.columns.units) if name is not None)
            refused += [limits.ordered(self._name, a, b) for a, b in pk.runs_of(ordered)]
            offered &= ~ordered
        if command.dedup_ids is not None and policy.attributes.duplicateWindowMs > 0:
            return self._admit_each_once(command, command.dedup_ids, offered, refused), refused
        usual = not (policy.paused or index.dead or self._works.enabled or policy.account or command.barred) and (
            (command.room or not command.persistent) and command.heads is None
        )
        if usual and policy.limits.take_all(index.messages, index.bytes_held, command.sizes, count):
            return offered, refused
        return self._admit(command, offered, 0, refused), refused

    def _admit(self, command: cmd.Send, offered: int, before: int, refused: list[Refused]) -> int:
        """Which of the offered messages are taken; the others go to ``refused``. ``before``: messages of the block that
        were admitted already, for the limits."""
        paused = self._paused() if self._policy.paused else None
        if paused is not None:
            refused += [Refused(a, b, DestinationPausedError.code, paused) for a, b in pk.runs_of(offered)]
            return 0
        if command.barred:
            refused += [Refused(a, b, MemoryLowError.code, command.barred) for a, b in pk.runs_of(offered)]
            return 0
        if command.persistent and not command.room:
            refused += [limits.store_full(a, b) for a, b in pk.runs_of(offered)]
            return 0
        held_messages, held_bytes = self.charged()
        if before:
            held_messages += before.bit_count()
            held_bytes += sum(pk.chosen(command.sizes, before))
        policy = self._policy
        own, works = (
            policy.reference_limits if command.referred else policy.limits,
            self._works.enabled and command.columns.works is not None,
        )
        account = self._policy.account if command.attachment else None
        if account is not None and command.turned_away:
            some = list(pk.runs_of(offered))
            account.share.refused += offered.bit_count()
            refused += [Refused(a, b, QuotaExceededError.code, command.turned_away) for a, b in some]
            return 0
        if command.heads is not None:
            kept, too_large = limits.oversized(self._name, own, command.sizes, command.heads, list(pk.runs_of(offered)))
            refused += too_large
            offered = pk.of_ranges(kept)
        plain = account is None and not works
        if plain and own.take_all(held_messages, held_bytes, command.sizes, offered.bit_count()):
            return offered
        some = list(pk.runs_of(offered))
        pool, block = (account.share if account is not None else None), (0, 0)
        if before and pool is not None:
            block = before.bit_count(), sum(pk.chosen(command.sizes, before))
        admitted, too_many = limits.admit(self._name, own, held_messages, held_bytes, command.sizes, some, pool, block)
        refused += too_many
        if works:
            admitted, faults = self._works.admit(command, admitted, self._policy.message_bytes_max)
            refused += faults
        return pk.of_ranges(admitted)

    def _admit_each_once(
        self, command: cmd.Send, ids: Sequence[str | None], offered: int, refused: list[Refused]
    ) -> int:
        """Do what :meth:`_admit` does, without ids of the window; of equal ones in the block the first that is admitted
        counts.

        An open transaction takes no ids: its commit decides which of its messages are duplicates.
        """
        offered, admitted = self._without_known(command, offered, refused), 0
        if command.txn:
            return self._admit(command, offered, 0, refused)
        while offered:
            first = first_of_each(ids, offered)
            some = self._admit(command, first, admitted, refused)
            admitted |= some
            taken, left = {ids[index] for index in pk.indexes(some)}, offered & ~first
            twins = pk.of_indexes(index for index in pk.indexes(left) if ids[index] in taken)
            self._refuse_duplicates(ids, twins, refused)
            offered = left & ~twins
        return admitted

    def _without_known(self, command: cmd.Send, offered: int, refused: list[Refused]) -> int:
        """Leave out messages whose id is in the window."""
        ids = command.dedup_ids
        if ids is None or self._policy.attributes.duplicateWindowMs <= 0:
            return offered
        self.duplicates.forget_before(self._step.now_ms - self._policy.attributes.duplicateWindowMs)
        fresh = self.duplicates.without_known(ids, offered, persistent=command.persistent)
        self._refuse_duplicates(ids, offered & ~fresh, refused)
        return fresh

    def _refuse_duplicates(self, ids: Sequence[str | None], mask: int, refused: list[Refused]) -> None:
        self._counters.duplicates += mask.bit_count()
        refused += [Refused(index, index + 1, DUPLICATE, ids[index] or "") for index in pk.indexes(mask)]

    def would_take(self, sizes: Sequence[int], source: Account | None = None) -> bool:
        """Whether messages of these sizes would all be taken now; see :meth:`fitting`."""
        return not self.fitting(sizes, source)[1]

    def fitting(self, sizes: Sequence[int], source: Account | None = None) -> tuple[int, str]:
        """Which messages of these sizes would be taken now if the host itself sent them, and why the first of the
        others would not; "" when all would be.

        ``source``: what they are charged to until then; in the same pool they need no more room.
        """
        paused, count = self._paused(), len(sizes)
        if paused is not None or not count:
            return 0, paused or ""
        admitted, refused = pk.span(0, count), list[Refused]()
        own, charged = self._policy.own_limits, self.charged()
        if not own.take_all(*charged, sizes, count):
            some, refused = limits.admit(self._name, own, *charged, sizes, [(0, count)])
            admitted = pk.of_ranges(some)
        account = self._policy.account
        if account is None or (source is not None and source.share is account.share):
            return admitted, refused[0].text if refused else ""
        return self._fitting_pool(account, sizes, admitted, refused[0].text if refused else "")

    def _fitting_pool(self, account: Account, sizes: Sequence[int], admitted: int, why: str) -> tuple[int, str]:
        """Return those of ``admitted`` that have room in the pool too; the broker is asked for what lacks."""
        share, chosen = account.share, list(pk.chosen(sizes, admitted))
        if share.fits(len(chosen), sum(chosen)):
            return admitted, why
        share.want(len(chosen), sum(chosen))
        taken = messages = nbytes = 0
        for index in pk.indexes(admitted):
            if share.fits(messages + 1, nbytes + sizes[index]):
                taken |= 1 << index
                messages += 1
                nbytes += sizes[index]
            else:
                why = why or share.refusal(messages + 1, sizes[index])
        return taken, why

    def too_large(self, size: int, head: int) -> str:
        """Why a message of this size, body and headers, is not taken however much room there is; "" when it is."""
        return limits.largest_exceeded(self._name, self._policy.limits, size, head)

    def charged(self) -> tuple[int, int]:
        """Messages, and their bytes, that count for the limits: all but those dead for whoever they are owed to."""
        block_index = self._index
        if not block_index.dead or len(self._queues) == 1:
            return block_index.messages - block_index.dead, block_index.bytes_held - block_index.dead_bytes
        dead: dict[int, int] = {}
        for queue in self._queues.values():
            for ordinal, mask in queue.dead_letters.masks.items():
                dead[ordinal] = dead.get(ordinal, 0) | mask
        for queue in self._queues.values():
            for ordinal in dead:
                dead[ordinal] &= ~(queue.owed(ordinal) & ~queue.dead_letters.masks.get(ordinal, 0))
        count = sum(mask.bit_count() for mask in dead.values())
        return block_index.messages - count, block_index.bytes_held - sum(
            block_index.held[o].bytes_of(mask) for o, mask in dead.items()
        )

    def _paused(self) -> str | None:
        for which in PRODUCING:
            if which in self._policy.paused:
                return f"destination {self._name} is paused for producers; resume it, or wait until it is"
        return None

    def take_ids(self, ids: Sequence[str | None], mask: int, *, persistent: bool) -> None:
        """The deduplication ids of messages that are taken are in the window from now on, and on disk if they are."""
        if self._policy.attributes.duplicateWindowMs <= 0:
            return
        taken = [(text, self._step.now_ms) for index in pk.indexes(mask) if (text := ids[index]) is not None]
        self.duplicates.take_ids(taken, self._policy.attributes.duplicateIdsMax, persistent=persistent)
        if persistent:
            ahead_ms = self._step.ahead_ms
            for record in records.dedup_records([(text, at_ms + ahead_ms) for text, at_ms in taken]):
                self._step.record(record)

    def known_ids(self) -> list[tuple[str, int, bool]]:
        """Return the ids of the window, when each was taken by the wall clock, and whether that outlives a restart."""
        ahead_ms, found = self._step.ahead_ms, self.duplicates
        return [(text, at_ms + ahead_ms, text not in found.volatile) for text, at_ms in found.taken.items()]

    def take_known_ids(self, command: cmd.TakeKnownIds) -> None:
        attributes, step = self._policy.attributes, self._step
        if attributes.duplicateWindowMs <= 0:
            return
        ids = [(text, min(wall_ms - step.ahead_ms, step.now_ms), lasting) for text, wall_ms, lasting in command.ids]
        self.duplicates.take_earlier(ids, attributes.duplicateIdsMax)
        for record in records.dedup_records([(text, at_ms + step.ahead_ms) for text, at_ms, lasting in ids if lasting]):
            step.record(record)

    def leave_out_duplicates(self, ids: Sequence[str | None], mask: int, *, persistent: bool) -> int:
        """Which messages of a transaction that commits are none: their ids were taken since they were sent, or stand
        before them."""
        if self._policy.attributes.duplicateWindowMs <= 0:
            return mask
        self.duplicates.forget_before(self._step.now_ms - self._policy.attributes.duplicateWindowMs)
        fresh = first_of_each(ids, self.duplicates.without_known(ids, mask, persistent=persistent))
        self._counters.duplicates += (mask & ~fresh).bit_count()
        return fresh

    def _full(self) -> bool:
        attributes, (count, held_bytes) = self._policy.attributes, self.charged()
        return 0 <= attributes.maxNumMsgs <= count or 0 <= attributes.maxTotalMsgBytes <= held_bytes

    def gate_state(self) -> tuple[str, int]:
        """What producers are told: "paused", "slow" or "open", and until when, milliseconds or 0."""
        for which in PRODUCING:
            if which in self._policy.paused:
                return "paused", self._policy.paused[which]
        return ("slow" if self.slow else "open"), 0

    def tell_producers(self) -> None:
        state, until_ms = self.gate_state()
        self._step.out.immediate.extend(Gate(attachment, state, until_ms) for attachment in self.producers.attached)

    def open_gate(self) -> None:
        """Tell waiting producers that there is room again."""
        if self._policy.attributes.limitBehavior == "FLOW_CONTROL" and self._full():
            return
        self.slow = False
        self._counters.slow.ms += self._step.now_ms - self._counters.slow.since_ms
        self.tell_producers()

    def slow_down(self) -> None:
        """A full destination tells its producers to wait."""
        if not self.slow and self._full():
            self.slow = True
            self._counters.slow.episodes += 1
            self._counters.slow.since_ms = self._step.now_ms
            self.tell_producers()

    def excess(self, waiting: Iterable[tuple[int, int]], gone: int = 0, gone_bytes: int = 0) -> int:
        """How many messages have to go at least before the limits hold; 1 when only ``maxTotalMsgBytes`` is exceeded.

        waiting  blocks and messages of open transactions, which do not count before their commits
        gone     messages, of ``gone_bytes`` bytes, that are on their way out
        """
        attributes, (messages, held_bytes) = self._policy.attributes, self.charged()
        messages, held_bytes = messages - gone, held_bytes - gone_bytes
        most, most_bytes = attributes.maxNumMsgs, attributes.maxTotalMsgBytes
        if not 0 <= most < messages and not 0 <= most_bytes < held_bytes:
            return 0  # The blocks of transactions are gone through only when it matters.
        for ordinal, mask in waiting:
            messages -= mask.bit_count()
            held_bytes -= self._index.held[ordinal].bytes_of(mask)
        if 0 <= most < messages:
            return messages - most
        return int(0 <= most_bytes < held_bytes)
