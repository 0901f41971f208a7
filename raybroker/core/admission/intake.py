"""The intake of a block: its messages are recorded and held, and each delivery queue gets those that it is owed.

REMOVE_OLDEST and REMOVE_LOW_PRIORITY discard afterwards what waits, until the limits hold.
"""

from __future__ import annotations

from typing import ClassVar, Protocol

from raybroker.core import command as cmd
from raybroker.core.admission.admission import DUPLICATE, Admission
from raybroker.core.admission.producer_flow import producer_credit
from raybroker.core.admission.removal import Removal
from raybroker.core.blocks import message_mask as pk
from raybroker.core.blocks.block_entry import PLAIN, BlockEntry
from raybroker.core.blocks.block_index import BlockIndex
from raybroker.core.counters import Counters
from raybroker.core.delivery.dead_letters import Dead
from raybroker.core.delivery.delivery_queue import DeliveryQueue
from raybroker.core.delivery.run import Run
from raybroker.core.durable import records
from raybroker.core.outcome import Outcome, Refused, SendAnswered
from raybroker.core.policy import DestinationPolicy
from raybroker.core.selector.content import Content
from raybroker.core.settlement import Settlement
from raybroker.core.staged_transaction import StagedBlock, StagedTransaction, stage
from raybroker.core.step import Step
from raybroker.model.blocks.record import BLOCK, LogEntry
from raybroker.model.errors import InvalidDestinationError, TransactionRolledBackError
from raybroker.model.naming.names import DestinationType


class Taking(Protocol):
    """What the intake needs of a destination; see there."""

    kind: ClassVar[DestinationType]
    name: str
    current: Step
    policy: DestinationPolicy
    admission: Admission
    counters: Counters
    block_index: BlockIndex
    settlement: Settlement
    queues: dict[int, DeliveryQueue]
    staged: dict[int, StagedTransaction]

    def claims(self, mask: int, content: Content | None, origin: tuple[str, str]) -> dict[int, int]: ...

    def owing(
        self, block: BlockEntry, mask: int, content: Content | None, origin: tuple[str, str]
    ) -> dict[int, int]: ...

    def arrived(self, ordinal: int, fresh: dict[int, int], content: Content | None) -> None: ...


def send(destination: Taking, command: cmd.Send, out: Outcome) -> None:
    producer, first, count = command.producer, command.first_seq, len(command.sizes)
    if command.only is not None and command.only not in destination.queues:
        raise InvalidDestinationError(f"{destination.kind} {destination.name} has no subscription {command.only}")
    if command.attachment and destination.admission.producers.attached.get(command.attachment) != producer:
        # The producer is on another connection by now, and sends there again what this one did not settle; but what
        # belongs to a transaction is not sent again, so that must not commit without it.
        if command.txn:
            lost = Refused(0, count, TransactionRolledBackError.code, "the producer has left the connection")
            out.immediate.append(SendAnswered(command.attachment, first, count, (lost,)))
        return
    admitted, refused = destination.admission.admit(command)
    if admitted:
        _accept(destination, command, admitted, out)
        if destination.policy.attributes.limitBehavior == "FLOW_CONTROL":
            destination.admission.slow_down()
        elif destination.policy.removing is not None:
            discard_excess(destination)
    for row in refused:
        if row.code != DUPLICATE:
            destination.counters.refuse(row.code, row.end - row.start, row.text)
    refused.sort()
    sent = SendAnswered(command.attachment, first, count, tuple(refused) if refused else ())
    if command.persistent if command.confirm is None else command.confirm:
        if not command.txn:
            out.after_durable.append(sent)
        elif refused:  # Of the others the end of the transaction tells.
            out.immediate.append(sent)
    elif refused or (command.attachment and producer_credit(destination.policy.attributes)):
        # Nobody waits for it; it counts, and gives credit back.
        out.immediate.append(sent)


def composed(destination: Taking, command: cmd.Composed, out: Outcome) -> None:
    """The message of a complete unit of work takes the place of its parts; not when some of them were purged."""
    queue, send = destination.queues.get(command.queue), command.send
    if queue is None or any(queue.dead_letters.masks.get(o, 0) & mask != mask for o, mask in command.parts):
        return
    for ordinal, mask in command.parts:
        destination.settlement.dead_letters_settled(queue, ordinal, mask)
    block = BlockEntry(1, records.pack_sizes(send.sizes), send.persistent, send.columns, stored=False)
    claims = destination.claims(1, send.content, send.origin)
    if claims:
        _hold(destination, send, block, 1, claims, out, records.COMPOSED)


def _accept(destination: Taking, command: cmd.Send, mask: int, out: Outcome) -> None:
    count = len(command.sizes)
    sizes = command.sizes[0] if count == 1 else records.pack_sizes(command.sizes)
    block = BlockEntry(count, sizes, command.persistent, command.columns, stored=False)
    if command.txn:  # Its messages count when it commits.
        _stage(destination, command, block, mask, out)
        return
    nbytes = command.sizes[0] if count == 1 else block.bytes_of(mask)  # A mask is not empty.
    destination.counters.count_received(mask.bit_count(), nbytes, moved=command.moved)
    if command.dedup_ids is not None:
        destination.admission.take_ids(command.dedup_ids, mask, persistent=command.persistent)
    if command.persistent and command.attachment:
        if mask == block.everything:
            destination.admission.producers.take_sequences(
                command.producer, command.first_seq, command.first_seq + count
            )
        else:
            for a, b in pk.runs_of(mask):
                destination.admission.producers.take_sequences(
                    command.producer, command.first_seq + a, command.first_seq + b
                )
    if command.only is None and not block.parts:
        claims = destination.claims(mask, command.content, command.origin)
    elif command.only is None:
        claims = destination.owing(block, mask, command.content, command.origin)
    else:
        claims = {command.only: mask}
    if claims:
        _hold(destination, command, block, mask, claims, out, records.MOVED if command.moved else records.SENT)
    if command.persistent and command.attachment and not block.stored:
        for a, b in pk.runs_of(mask):
            destination.admission.producers.leave_unwritten(
                command.producer, command.first_seq + a, command.first_seq + b
            )


def _hold(
    destination: Taking,
    command: cmd.Send,
    block: BlockEntry,
    mask: int,
    claims: dict[int, int],
    out: Outcome,
    came: int,
) -> None:
    """Whether a delivery queue is owed any of it; a topic without subscribers holds nothing."""
    owed = 0
    for chosen in claims.values():
        owed |= chosen
    ordinal = out.accepted = destination.block_index.accept(block, whole=owed == block.everything)
    destination.current.arriving = command.content
    store(destination, ordinal, block, mask, claims, command.producer, command.first_seq, 0, came)
    if owed != block.everything:
        _settle_rest(destination, ordinal, block, owed)
        destination.block_index.note_peak()
    block.claims = len(claims)
    destination.arrived(ordinal, claims, command.content)


def _settle_rest(destination: Taking, ordinal: int, block: BlockEntry, owed: int) -> None:
    destination.block_index.settle_messages(ordinal, block.everything & ~owed)


def _stage(destination: Taking, command: cmd.Send, block: BlockEntry, mask: int, out: Outcome) -> None:
    """Hold the block for its transaction: it counts for limits, and no consumer sees it."""
    block.transacted = True
    ordinal = out.accepted = destination.block_index.accept(block, whole=mask == block.everything)
    if mask != block.everything:
        _settle_rest(destination, ordinal, block, mask)
        destination.block_index.note_peak()
    staged = StagedBlock(
        ordinal,
        mask,
        command.producer,
        command.first_seq,
        command.content,
        command.origin,
        command.persistent,
        command.attachment,
        command.dedup_ids,
        command.moved,
    )
    stage(destination.staged, command.txn).blocks.append(staged)
    if block.ordered:  # Whoever is to get it keeps its place in its units from now on.
        for number, chosen in destination.claims(mask, command.content, command.origin).items():
            destination.queues[number].reserve(ordinal, chosen)


def store(
    destination: Taking,
    ordinal: int,
    block: BlockEntry,
    mask: int,
    claims: dict[int, int],
    producer: int,
    first_seq: int,
    txn: int,
    came: int,
) -> None:
    """Write the block down, if it is to survive a restart: it is persistent, and owed to somebody who does. ``came``:
    records.SENT, MOVED or COMPOSED."""
    if not block.persistent:
        return
    everything, queues, producers = block.everything, destination.queues, destination.admission.producers
    rows = {n: None if chosen == everything else chosen for n, chosen in claims.items() if queues[n].durable}
    if not rows:
        return
    block.stored = True
    unwritten = producers.unwritten.pop(producer, ()) if producers.unwritten else ()
    for some, _ in records.in_records(unwritten, ()) if unwritten else ():
        spans = [records.Span(a, b - 1) for a, b in some]
        destination.current.record(records.encode(records.TAKEN, 0, spans, (), records.encode_number(producer)))
    columns = block.columns
    missing = everything & ~mask
    if missing:
        destination.current.record_rows(records.REFUSED, 0, [records.RecordRow(ordinal, missing)])
    sizes, count = block.sizes, block.count
    if columns is PLAIN and not txn and not came and destination.kind == "queue" and type(sizes) is int:
        data = records.encode_plain_meta(count, producer, first_seq, sizes)
    else:
        meta = records.BlockMeta(
            count,
            producer,
            first_seq,
            sizes,
            columns.priority,
            columns.priorities,
            columns.expires,
            columns.deliver_at,
            txn,
            None if destination.kind == "queue" else rows,
            columns.units,
            columns.works and columns.works.later(destination.current.ahead_ms),
            came,
        )
        data = records.encode_block_meta(meta)
    destination.current.out.records.append(LogEntry(BLOCK, destination.current.destination, ordinal, data))


def discard_excess(destination: Taking) -> None:
    """Discard what waits, in every delivery queue that has it, until the limits hold or nothing waits; what lies with a
    consumer is asked back for that (``removal``).

    What rests until a time, or is hidden, counts for the limits and is discarded like what consumers could have.  What
    open transactions have sent counts from their commits on.
    """
    if destination.policy.removing is not None:
        _discard(destination, destination.policy.removing)


def _excess(destination: Taking, gone: Removal | None = None) -> int:
    waiting = ((block.ordinal, block.mask) for staged in destination.staged.values() for block in staged.blocks)
    return destination.admission.excess(waiting, gone.messages if gone else 0, gone.nbytes if gone else 0)


def discard_given(destination: Taking, queue: DeliveryQueue, given: int) -> None:
    """Remove messages now that ``given`` of those that were asked back to make room wait again: as many go, unless the
    limits hold by now. They are those, or others that are older and have come back meanwhile."""
    reason = destination.policy.removing
    while given > 0 and reason is not None and (excess := _excess(destination)):
        runs = queue.take_to_remove(min(excess, given), lowest_priority=reason == "LOW_PRIORITY")
        if not runs:
            break
        for run in runs:
            given -= run.count
            _discard_run(destination, queue, run, reason)


def _discard(destination: Taking, reason: str) -> None:
    if not _excess(destination):
        return
    lowest = reason == "LOW_PRIORITY"
    removal = Removal(destination.queues, destination.block_index.held, by_priority=lowest)
    for queue in sorted(destination.queues.values(), key=lambda queue: -removal.removable(queue)):
        while excess := _excess(destination, removal):
            if removal.recalls(queue, queue.next_to_remove(lowest_priority=lowest), excess):
                continue
            runs = queue.take_to_remove(excess, lowest_priority=lowest)
            if not runs:
                break
            for run in runs:
                _discard_run(destination, queue, run, reason)
                removal.discarded(queue, run)
    removal.request_chosen(bytes_count=destination.policy.attributes.maxTotalMsgBytes >= 0)


def _discard_run(destination: Taking, queue: DeliveryQueue, run: Run, reason: str) -> None:
    """Messages that waited are dead, and so are those copies of them that wait for other subscriptions."""
    comment = f"limitBehavior {destination.policy.attributes.limitBehavior}"
    destination.counters.removed += run.count
    destination.settlement.dead_letter(queue, Dead(run, reason, comment))
    for other in destination.queues.values():
        for copy in other.remove({run.ordinal: run.mask}) if other is not queue else ():
            destination.settlement.dead_letter(other, Dead(copy, reason, comment))
