"""Transactions at one destination: blocks that nobody sees yet, and acknowledgements that do not count yet.

The transaction itself, which may have several destinations, is the engine's.  Here a block that waits is charged like
any other, so that a commit cannot fail for a limit.  Nothing is written down before the end of a
transaction, or before it is prepared, since what is open when the host stops is rolled back.
"""

from __future__ import annotations

from typing import Protocol

from raybroker.core import command as cmd
from raybroker.core.admission.admission import DUPLICATE
from raybroker.core.admission.intake import Taking, discard_excess, store
from raybroker.core.blocks import message_mask as pk
from raybroker.core.blocks.block_entry import BlockEntry
from raybroker.core.blocks.block_index import BlockIndex
from raybroker.core.delivery.consumer_commands import keep_state, require_fitting
from raybroker.core.delivery.consumers import Consumer, Delivery
from raybroker.core.delivery.delivery_queue import DeliveryQueue
from raybroker.core.delivery.run import Run
from raybroker.core.durable import records
from raybroker.core.outcome import Outcome, Refused, SendAnswered
from raybroker.core.staged_transaction import StagedBlock, StagedState, StagedTransaction, stage
from raybroker.core.unit_of_work import UnitsOfWork
from raybroker.model.errors import TransactionRolledBackError


class Acknowledging(Protocol):
    """What it takes to write acknowledgements down."""

    block_index: BlockIndex
    queues: dict[int, DeliveryQueue]


class Transacting(Taking, Protocol):
    """What transactions need of a destination; see there."""

    queue_of: dict[int, DeliveryQueue]
    works: UnitsOfWork


def stage_acks(destination: Transacting, command: cmd.StageAcks, out: Outcome) -> None:
    queue = destination.queue_of.get(command.attachment)
    consumer = queue.consumers.by_attachment.get(command.attachment) if queue is not None else None
    wanted = sum(last - first + 1 for first, last in command.ranges)
    if queue is None or consumer is None or consumer.count_of(command.ranges) != wanted:
        raise TransactionRolledBackError(
            f"messages of {destination.name} that the transaction consumed were given to others meanwhile;"
            " it cannot commit"
        )
    _check_units(queue, consumer, command)
    staged = stage(destination.staged, command.txn)
    for first, last in command.ranges:
        found = list(consumer.settle_tags(first, last))
        queue.pending.stage(found, command.txn)
        staged.acks.extend((queue.number, delivery) for delivery in found)
        consumer.window.settled(sum(delivery.count for delivery in found))
    queue.consumers.offer(consumer)
    destination.current.touch(queue.number)


def stage_checkpoint(destination: Transacting, command: cmd.StageCheckpoint, out: Outcome) -> None:
    queue = destination.queue_of.get(command.attachment)
    consumer = queue.consumers.by_attachment.get(command.attachment) if queue is not None else None
    item = next(consumer.tagged([(command.tag, command.tag)]), None) if consumer is not None else None
    if queue is None or item is None:
        raise TransactionRolledBackError(
            f"a message of {destination.name} that the transaction has made a checkpoint of was given to others"
            " meanwhile; it cannot commit"
        )
    before = destination.staged.get(command.txn)
    others = sum(len(one.state) for one in before.states) if before is not None else 0
    require_fitting(destination, queue, command.state, others)
    staged = stage(destination.staged, command.txn)
    staged.states.append(StagedState(queue.number, item.run.ordinal, item.run.mask, command.state))


def _check_units(queue: DeliveryQueue, consumer: Consumer, command: cmd.StageAcks) -> None:
    """Messages of one unit of order are with one transaction at a time."""
    name = queue.pending.staged_elsewhere(consumer.tagged(command.ranges), command.txn)
    if name is not None:
        raise TransactionRolledBackError(
            f"another transaction has earlier messages of unit of order {name!r}; it has to end before"
        )


def prepare(destination: Transacting, command: cmd.Prepare, out: Outcome) -> None:
    staged = stage(destination.staged, command.txn)
    assert not staged.states, "checkpoints are decided where they are"
    staged.prepared = True
    for block in staged.blocks:
        held = destination.block_index.held[block.ordinal]
        claims = destination.owing(held, block.mask, block.content, block.origin)
        staged.claims[block.ordinal] = claims
        _write(destination, block, claims, command.txn)
    for number, rows in rows_of(destination, staged.acks).items():
        meta = records.encode(records.STAGED, number, (), rows, records.encode_number(command.txn))
        destination.current.record(meta)


def rows_of(destination: Acknowledging, acks: list[tuple[int, Delivery]]) -> dict[int, list[records.RecordRow]]:
    """Delivery queue → what of it was acknowledged, as far as it survives a restart."""
    rows: dict[int, list[records.RecordRow]] = {}
    for number, delivery in acks:
        block = destination.block_index.held[delivery.run.ordinal]
        if block.stored and destination.queues[number].durable:
            run = delivery.run
            rows.setdefault(number, []).append(records.RecordRow(run.ordinal, run.mask, run.attempts))
    return rows


def _write(destination: Transacting, staged: StagedBlock, claims: dict[int, int], txn: int) -> None:
    block = destination.block_index.held[staged.ordinal]
    for a, b in pk.runs_of(staged.mask):
        if staged.persistent:
            destination.admission.producers.take_sequences(staged.producer, staged.first_seq + a, staged.first_seq + b)
    came = records.MOVED if staged.moved else records.SENT
    store(destination, staged.ordinal, block, staged.mask, claims, staged.producer, staged.first_seq, txn, came)


def decide(destination: Transacting, command: cmd.Decide, out: Outcome) -> None:
    staged = destination.staged.pop(command.txn, None)
    if staged is None:
        return
    if command.commit:
        _commit(destination, staged)
        discard_excess(destination)
    else:
        _roll_back(destination, staged, command.delay_ms)


def _commit(destination: Transacting, staged: StagedTransaction) -> None:
    for waiting in staged.blocks:
        _show(destination, staged, waiting)
    for one in staged.states:
        if one.queue in destination.queues:
            keep_state(destination, destination.queues[one.queue], one.ordinal, one.mask, one.state)
    by_queue: dict[int, list[Delivery]] = {}
    for number, delivery in staged.acks:
        by_queue.setdefault(number, []).append(delivery)
    for number, deliveries in by_queue.items():
        if number in destination.queues:
            queue = destination.queues[number]
            queue.pending.stage(deliveries, 0, -1)
            destination.settlement.acknowledged(queue, deliveries)


def _show(destination: Transacting, staged: StagedTransaction, waiting: StagedBlock) -> None:
    """The messages of a block become visible, without those whose deduplication ids were taken meanwhile."""
    ordinal, everything = waiting.ordinal, waiting
    block = destination.block_index.held[ordinal]
    waiting = _without_duplicates(destination, waiting)
    destination.counters.count_received(waiting.mask.bit_count(), block.bytes_of(waiting.mask), moved=waiting.moved)
    claims = _claims(destination, staged, waiting) if waiting.mask or staged.prepared else {}
    if not staged.prepared and waiting.mask:
        _write(destination, waiting, claims, 0)
    elif staged.prepared and waiting is not everything:
        claims = _leave_out(destination, block, waiting, claims)
    owed = 0
    for chosen in claims.values():
        owed |= chosen
    block.claims = len(claims)
    _keep_places(destination, everything, claims)
    rest = everything.mask & ~owed
    if rest and destination.block_index.settle_messages(ordinal, rest):
        destination.settlement.gone(ordinal, block)
    else:
        destination.arrived(ordinal, claims, waiting.content)


def _without_duplicates(destination: Transacting, waiting: StagedBlock) -> StagedBlock:
    """The ids of what is committed are taken now; the producer is told of those that others took before."""
    ids = waiting.ids
    if ids is None and not waiting.attachment and destination.policy.attributes.duplicateWindowMs > 0:
        content = destination.current.peek(waiting.ordinal)  # It was prepared before a restart.
        ids = content.dedup_ids() if content is not None else None
    if ids is None:
        return waiting
    fresh = destination.admission.leave_out_duplicates(ids, waiting.mask, persistent=waiting.persistent)
    destination.admission.take_ids(ids, fresh, persistent=waiting.persistent)
    twice = waiting.mask & ~fresh
    if not twice:
        return waiting
    if destination.works.enabled:
        destination.works.release(destination.block_index.held[waiting.ordinal], twice)
    rows = tuple([Refused(a, b, DUPLICATE, "") for a, b in pk.runs_of(twice)])
    count = destination.block_index.held[waiting.ordinal].count
    destination.current.out.after_durable.append(SendAnswered(waiting.attachment, waiting.first_seq, count, rows))
    return waiting._replace(mask=fresh)


def _leave_out(
    destination: Transacting, block: BlockEntry, waiting: StagedBlock, claims: dict[int, int]
) -> dict[int, int]:
    """A prepared block was written with messages that nobody gets: write that down, and return who gets the others."""
    for number, chosen in claims.items():
        dropped = chosen & ~waiting.mask
        if dropped and block.stored and destination.queues[number].durable:
            row = records.RecordRow(waiting.ordinal, dropped)
            destination.current.record_rows(records.ACKED, number, [row], (), records.LEFT)
    kept = {number: chosen & waiting.mask for number, chosen in claims.items()}
    return {number: chosen for number, chosen in kept.items() if chosen}


def _keep_places(destination: Transacting, waiting: StagedBlock, claims: dict[int, int]) -> None:
    """Messages that a delivery queue does not get after all leave their places in their units of order."""
    if destination.block_index.held[waiting.ordinal].ordered:
        for number, queue in destination.queues.items():
            queue.pending.unreserve(waiting.ordinal, waiting.mask & ~claims.get(number, 0))


def _claims(destination: Transacting, staged: StagedTransaction, waiting: StagedBlock) -> dict[int, int]:
    """Who gets a block: those written down for it that are still there, and whoever is never written down."""
    content = waiting.content
    if content is None and destination.kind == "topic":
        content = destination.current.peek(waiting.ordinal)  # It was prepared before a restart.
    claims = destination.owing(destination.block_index.held[waiting.ordinal], waiting.mask, content, waiting.origin)
    if not staged.prepared:
        return claims
    claims = {number: mask for number, mask in claims.items() if not destination.queues[number].durable}
    written = staged.claims.get(waiting.ordinal, {})
    return claims | {number: mask for number, mask in written.items() if number in destination.queues}


def _roll_back(destination: Transacting, staged: StagedTransaction, delay_ms: int) -> None:
    for waiting in staged.blocks:
        block = destination.block_index.held[waiting.ordinal]
        _keep_places(destination, waiting, {})
        if destination.works.enabled:
            destination.works.release(block, waiting.mask)
        if destination.block_index.settle_messages(waiting.ordinal, waiting.mask):
            destination.settlement.gone(waiting.ordinal, block)
    by_queue: dict[int, list[Delivery]] = {}
    for number, delivery in staged.acks:
        by_queue.setdefault(number, []).append(delivery)
    for number, deliveries in by_queue.items():
        queue = destination.queues.get(number)
        if queue is not None:
            queue.pending.stage(deliveries, 0, -1)
            destination.settlement.failed(queue, queue.failed(sorted(deliveries, key=_order), delay_ms))
            destination.current.touch(queue.number)


def _order(delivery: Delivery) -> tuple[int, int]:
    run: Run = delivery.run
    return run.arrival, run.mask & -run.mask
