"""The producers' side of a destination: attaching, what of a block is taken, and what happens at the limits.

In this order: a retry of what was taken already is not taken again (exactly, by sequence number), nor is an id of the
deduplication window; what exceeds the largest message, or the limits under REJECT_NEWEST, is refused; the rest is
taken.  The other behaviours act afterwards: FLOW_CONTROL tells producers to wait, none of which has more under
way than its credit, REMOVE_OLDEST and REMOVE_LOW_PRIORITY discard what waits until the limits hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from raybroker.core import command as cmd
from raybroker.core import unit_of_work
from raybroker.core.admission import limits
from raybroker.core.admission.deduplication import first_of_each
from raybroker.core.admission.producer_flow import producer_credit
from raybroker.core.blocks import message_mask as pk
from raybroker.core.blocks.block_index import BlockEntry
from raybroker.core.blocks.ranges import Ranges
from raybroker.core.delivery import dead_letters
from raybroker.core.durable import records
from raybroker.core.outcome import Gate, Outcome, Refused, Sent
from raybroker.core.staged_transaction import StagedBlock
from raybroker.model.errors import (
    DestinationPausedError,
    IllegalStateError,
    InvalidDestinationError,
    ResourceAllocationError,
    TransactionRolledBackError,
)
from raybroker.model.record import BLOCK, Entry

if TYPE_CHECKING:
    from raybroker.core.destination import Destination

DUPLICATE: Final = "duplicate"
"""In place of an error code: the message was taken already."""
REMOVING: Final = ("REMOVE_OLDEST", "REMOVE_LOW_PRIORITY")


def attach_producer(home: Destination, command: cmd.AttachProducer, out: Outcome) -> None:
    most = home.attributes.maxNumProducers
    if 0 <= most <= home.producers.others(command.producer):
        raise ResourceAllocationError(
            f"destination {home.name} has its maxNumProducers={most} producers; close one or raise the limit"
        )
    if 0 < command.generation < home.producers.generations.get(command.producer, 0):
        raise IllegalStateError(f"the producer has opened destination {home.name} again since")
    home.producers.attach(command.attachment, command.producer, command.generation)
    state, until_ms = gate_state(home)
    if state != "open":
        out.immediate.append(Gate(command.attachment, state, until_ms))


def detach_producer(home: Destination, command: cmd.DetachProducer, out: Outcome) -> None:
    home.producers.detach(command.attachment, forget=command.forget)


def send(home: Destination, command: cmd.Send, out: Outcome) -> None:
    producer, first, count = command.producer, command.first_seq, len(command.sizes)
    if command.only is not None and command.only not in home.queues:
        raise InvalidDestinationError(f"{home.kind} {home.name} has no subscription {command.only}")
    if command.attachment and home.producers.attached.get(command.attachment) != producer:
        # The producer is on another connection by now, and sends there again what this one did not settle; but what
        # belongs to a transaction is not sent again, so that must not commit without it.
        if command.txn:
            lost = Refused(0, count, TransactionRolledBackError.code, "the producer has left the connection")
            out.immediate.append(Sent(command.attachment, first, count, (lost,)))
        return
    offered, refused = (1 << count) - 1, list[Refused]()
    if command.persistent and not command.txn and command.attachment:
        fresh, passed = home.producers.fresh(producer, first, first + count, command.floor)
        offered = pk.of_ranges((a - first, b - first) for a, b in fresh)
        late = pk.of_ranges((a - first, b - first) for a, b in passed)
        if late:
            late = _without_known(home, command, late, refused)
            refused += [limits.out_of_order(a, b) for a, b in pk.runs_of(late)]
    if command.dedup_ids is not None and home.attributes.duplicateWindowMs > 0:
        admitted = _admit_each_once(home, command, command.dedup_ids, offered, refused)
    else:
        admitted = _admit(home, command, offered, 0, refused)
    if admitted:
        _accept(home, command, admitted, out)
        _make_room(home, out)
    for row in refused:
        if row.code != DUPLICATE:
            home.counters.refuse(row.code, row.end - row.start, row.text)
    refused.sort()
    sent = Sent(command.attachment, first, count, tuple(refused))
    if command.persistent if command.confirm is None else command.confirm:
        if not command.txn:
            out.after_durable.append(sent)
        elif refused:  # Of the others the end of the transaction tells.
            out.immediate.append(sent)
    elif refused or (command.attachment and producer_credit(home.attributes)):
        # Nobody waits for it; it counts, and gives credit back.
        out.immediate.append(sent)


def _admit(home: Destination, command: cmd.Send, offered: int, before: int, refused: list[Refused]) -> int:
    """Which of the offered messages are taken; the others go to ``refused``. ``before``: messages of the block that
    were admitted already, for the limits."""
    some: Ranges = list(pk.runs_of(offered))
    paused = _paused(home)
    if paused is not None:
        refused += [Refused(a, b, DestinationPausedError.code, paused) for a, b in some]
        return 0
    if command.persistent and not command.room:
        refused += [limits.store_full(a, b) for a, b in some]
        return 0
    held_messages, held_bytes = _charged(home)
    if before:
        held_messages += before.bit_count()
        held_bytes += sum(pk.chosen(command.sizes, before))
    admitted, too_many = limits.admit(home.name, _limits(home), held_messages, held_bytes, command.sizes, some)
    refused += too_many
    if home.works is not None and command.columns.works is not None:
        admitted, faults = home.works.admit(command, admitted, home.message_bytes_max)
        refused += faults
    return pk.of_ranges(admitted)


def _admit_each_once(
    home: Destination, command: cmd.Send, ids: Sequence[str | None], offered: int, refused: list[Refused]
) -> int:
    """As :meth:`_admit`, leaving out ids of the window; of equal ones in the block the first that is admitted counts.

    An open transaction takes no ids: its commit decides which of its messages are duplicates.
    """
    offered, admitted = _without_known(home, command, offered, refused), 0
    if command.txn:
        return _admit(home, command, offered, 0, refused)
    while offered:
        first = first_of_each(ids, offered)
        some = _admit(home, command, first, admitted, refused)
        admitted |= some
        taken, left = {ids[index] for index in pk.indexes(some)}, offered & ~first
        twins = pk.of_indexes(index for index in pk.indexes(left) if ids[index] in taken)
        _refuse_duplicates(home, ids, twins, refused)
        offered = left & ~twins
    return admitted


def _without_known(home: Destination, command: cmd.Send, offered: int, refused: list[Refused]) -> int:
    """Leave out messages whose id is in the window."""
    ids = command.dedup_ids
    if ids is None or home.attributes.duplicateWindowMs <= 0:
        return offered
    home.duplicates.forget(home.now_ms - home.attributes.duplicateWindowMs)
    fresh = home.duplicates.without_known(ids, offered)
    _refuse_duplicates(home, ids, offered & ~fresh, refused)
    return fresh


def _refuse_duplicates(
    home: Destination, ids: Sequence[str | None], mask: int, refused: list[Refused]
) -> None:
    home.counters.duplicates += mask.bit_count()
    refused += [Refused(index, index + 1, DUPLICATE, ids[index] or "") for index in pk.indexes(mask)]


def composed(home: Destination, command: cmd.Composed, out: Outcome) -> None:
    """The message of a complete unit of work takes the place of its parts; not when some of them were purged."""
    queue, send = home.queues.get(command.queue), command.send
    if queue is None or any(queue.dying.get(ordinal, 0) & mask != mask for ordinal, mask in command.parts):
        return
    for ordinal, mask in command.parts:
        dead_letters.buried(queue, ordinal, mask, out)
    block = BlockEntry(1, records.pack_sizes(send.sizes), send.persistent, send.columns, stored=False)
    claims = home.claims(1, send.content, send.origin)
    if claims:
        _hold(home, send, block, 1, claims, out)


def would_take(home: Destination, sizes: Sequence[int]) -> bool:
    """Whether messages of these sizes would all be taken now."""
    if _paused(home) is not None:
        return False
    return not limits.admit(home.name, _limits(home), *_charged(home), sizes, [(0, len(sizes))])[1]


def would_ever_take(home: Destination, sizes: Sequence[int]) -> bool:
    """Whether messages of these sizes are taken while there is room: none of them is too large."""
    most, _ = limits.of_message(home.attributes.maxBytesPerMsg, home.message_bytes_max)
    return most < 0 or max(sizes) <= most


def _limits(home: Destination) -> limits.Limits:
    attributes = home.attributes
    rejecting = attributes.limitBehavior == "REJECT_NEWEST"
    return limits.Limits(
        attributes.maxNumMsgs if rejecting else -1,
        attributes.maxTotalMsgBytes if rejecting else -1,
        *limits.of_message(attributes.maxBytesPerMsg, home.message_bytes_max),
    )


def _charged(home: Destination) -> tuple[int, int]:
    """Messages, and their bytes, that count for the limits: all but those dead for whoever they are owed to."""
    block_index = home.block_index
    if not home.dying or home.kind == "queue":
        return block_index.messages - home.dying, block_index.bytes_held - home.dying_bytes
    dead: dict[int, int] = {}
    for queue in home.queues.values():
        for ordinal, mask in queue.dying.items():
            dead[ordinal] = dead.get(ordinal, 0) | mask
    for queue in home.queues.values():
        for ordinal in dead:
            dead[ordinal] &= ~(queue.owed(ordinal) & ~queue.dying.get(ordinal, 0))
    count = sum(mask.bit_count() for mask in dead.values())
    return block_index.messages - count, block_index.bytes_held - sum(
        block_index.held[o].bytes_of(mask) for o, mask in dead.items()
    )


def _paused(home: Destination) -> str | None:
    for which in ("insertion", "production"):
        if which in home.paused:
            return f"destination {home.name} is paused for producers; resume it, or wait until it is"
    return None


def _accept(home: Destination, command: cmd.Send, mask: int, out: Outcome) -> None:
    count, sizes = len(command.sizes), records.pack_sizes(command.sizes)
    block = BlockEntry(count, sizes, command.persistent, command.columns, stored=False)
    if not command.txn:  # Those of a transaction count when it commits.
        home.counters.take(mask.bit_count(), block.bytes_of(mask), moved=command.moved)
    if command.txn:
        _stage(home, command, block, mask, out)
        return
    if command.dedup_ids is not None:
        take_ids(home, command.dedup_ids, mask, out, persistent=command.persistent)
    if command.persistent and command.attachment:
        for a, b in pk.runs_of(mask):
            home.producers.take(command.producer, command.first_seq + a, command.first_seq + b)
    if command.only is None:
        claims = unit_of_work.owing(home, block, mask, command.content, command.origin, out)
    else:
        claims = {command.only: mask}
    if claims:
        _hold(home, command, block, mask, claims, out)
    if command.persistent and command.attachment and not block.stored:
        for a, b in pk.runs_of(mask):
            home.producers.leave_unwritten(command.producer, command.first_seq + a, command.first_seq + b)


def _hold(
    home: Destination, command: cmd.Send, block: BlockEntry, mask: int, claims: dict[int, int], out: Outcome
) -> None:
    """Somebody is owed something of it; a topic without subscribers holds nothing."""
    ordinal = out.accepted = home.block_index.accept(block)
    home.arriving = command.content
    store(home, ordinal, block, mask, claims, command.producer, command.first_seq, 0, out)
    owed = 0
    for chosen in claims.values():
        owed |= chosen
    _settle_rest(home, ordinal, block, owed)
    home.block_index.note_peak()
    block.claims = len(claims)
    home.accepted(ordinal, claims, command.content)


def _settle_rest(home: Destination, ordinal: int, block: BlockEntry, owed: int) -> None:
    rest = block.everything & ~owed
    if rest:
        home.block_index.settle(ordinal, rest)


def take_ids(
    home: Destination, ids: Sequence[str | None], mask: int, out: Outcome, *, persistent: bool
) -> None:
    """The deduplication ids of messages that are taken are in the window from now on, and on disk if they are."""
    if home.attributes.duplicateWindowMs <= 0:
        return
    taken = [(text, home.now_ms) for index in pk.indexes(mask) if (text := ids[index]) is not None]
    home.duplicates.take(taken, home.attributes.duplicateIdsMax)
    if persistent:
        out.records.extend(home.note(note) for note in records.dedup_notes(taken))


def leave_out_duplicates(home: Destination, ids: Sequence[str | None], mask: int) -> int:
    """Which messages of a transaction that commits are none: their ids were taken since they were sent, or stand
    before them."""
    if home.attributes.duplicateWindowMs <= 0:
        return mask
    home.duplicates.forget(home.now_ms - home.attributes.duplicateWindowMs)
    fresh = first_of_each(ids, home.duplicates.without_known(ids, mask))
    home.counters.duplicates += (mask & ~fresh).bit_count()
    return fresh


def _stage(home: Destination, command: cmd.Send, block: BlockEntry, mask: int, out: Outcome) -> None:
    """Hold the block for its transaction: it is charged, and nobody sees it."""
    block.transacted = True
    ordinal = out.accepted = home.block_index.accept(block)
    _settle_rest(home, ordinal, block, mask)
    home.block_index.note_peak()
    staged = StagedBlock(
        ordinal, mask, command.producer, command.first_seq, command.content, command.origin, command.persistent,
        command.attachment, command.dedup_ids, command.moved,
    )  # fmt: skip
    home.stage(command.txn).blocks.append(staged)
    if block.ordered:  # Whoever is to get it keeps its place in its units from now on.
        for number, chosen in home.claims(mask, command.content, command.origin).items():
            home.queues[number].reserve(ordinal, chosen)


def store(
    home: Destination,
    ordinal: int,
    block: BlockEntry,
    mask: int,
    claims: dict[int, int],
    producer: int,
    first_seq: int,
    txn: int,
    out: Outcome,
) -> None:
    """Write the block down, if it is to survive a restart: it is persistent, and owed to somebody who does."""
    durable = {queue: chosen for queue, chosen in claims.items() if home.queues[queue].durable}
    if not block.persistent or not durable:
        return
    block.stored = True
    for some, _ in records.in_notes(home.producers.unwritten.pop(producer, ()), ()):
        spans = [records.Span(a, b - 1) for a, b in some]
        out.records.append(home.note(records.encode(records.TAKEN, 0, spans, (), records.encode_number(producer))))
    columns = block.columns
    missing = block.everything & ~mask
    if missing:
        out.records.append(home.note(records.encode(records.REFUSED, 0, (), [records.Row(ordinal, missing)])))
    rows = {queue: None if chosen == block.everything else chosen for queue, chosen in durable.items()}
    meta = records.BlockMeta(
        block.count, producer, first_seq, block.sizes, columns.priority, columns.priorities, columns.expires,
        columns.deliver_at, txn, None if home.kind == "queue" else rows, columns.units, columns.works,
    )  # fmt: skip
    out.records.append(Entry(BLOCK, home.number, ordinal, records.encode_block_meta(meta)))


# ---- at the limits ---------------------------------------------------------------------------------------------------


def _full(home: Destination) -> bool:
    attributes, (count, held_bytes) = home.attributes, _charged(home)
    return 0 <= attributes.maxNumMsgs <= count or 0 <= attributes.maxTotalMsgBytes <= held_bytes


def gate_state(home: Destination) -> tuple[str, int]:
    """What producers are told: "paused", "slow" or "open", and until when, milliseconds or 0."""
    for which in ("insertion", "production"):
        if which in home.paused:
            return "paused", home.paused[which]
    return ("slow" if home.slow else "open"), 0


def tell_producers(home: Destination, out: Outcome) -> None:
    state, until_ms = gate_state(home)
    out.immediate.extend(Gate(attachment, state, until_ms) for attachment in home.producers.attached)


def open_gate(home: Destination, out: Outcome) -> None:
    """There is room again: producers that wait go on."""
    if home.attributes.limitBehavior == "FLOW_CONTROL" and _full(home):
        return
    home.slow = False
    home.counters.slow_ms += home.now_ms - home.counters.slow_since_ms
    tell_producers(home, out)


def _make_room(home: Destination, out: Outcome) -> None:
    """The limits under the behaviours that take every message first."""
    behavior = home.attributes.limitBehavior
    if behavior == "FLOW_CONTROL":
        if not home.slow and _full(home):
            home.slow = True
            home.counters.slowed += 1
            home.counters.slow_since_ms = home.now_ms
            tell_producers(home, out)
    else:
        discard_excess(home, out)


def discard_excess(home: Destination, out: Outcome) -> None:
    """REMOVE_OLDEST and REMOVE_LOW_PRIORITY; what open transactions have sent counts from their commits on."""
    behavior = home.attributes.limitBehavior
    if behavior in REMOVING:
        _discard(home, "OLDEST" if behavior == "REMOVE_OLDEST" else "LOW_PRIORITY", out)


def _excess(home: Destination) -> int:
    """How many messages have to go at least before the limits hold; those of open transactions do not count."""
    messages, held_bytes = _charged(home)
    if not _too_many(home, messages, held_bytes):  # The blocks of transactions are gone through only when it matters.
        return 0
    for staged in home.staged.values():
        for block in staged.blocks:
            messages -= block.mask.bit_count()
            held_bytes -= home.block_index.held[block.ordinal].bytes_of(block.mask)
    return _too_many(home, messages, held_bytes)


def _too_many(home: Destination, messages: int, held_bytes: int) -> int:
    """Messages over ``maxNumMsgs``, or 1 when only ``maxTotalMsgBytes`` is exceeded."""
    attributes = home.attributes
    count = messages - attributes.maxNumMsgs if attributes.maxNumMsgs >= 0 else 0
    if count <= 0 and 0 <= attributes.maxTotalMsgBytes < held_bytes:
        count = 1
    return max(count, 0)


def _discard(home: Destination, reason: str, out: Outcome) -> None:
    """Discard what waits, in every delivery queue that has it, until the limits hold or nothing waits."""
    queues = sorted(home.queues.values(), key=lambda queue: -queue.waiting)
    for queue in queues:
        while excess := _excess(home):
            runs = queue.take_to_remove(excess, lowest_priority=reason == "LOW_PRIORITY")
            if not runs:
                break
            comment = f"limitBehavior {home.attributes.limitBehavior}"
            for run in runs:
                home.counters.removed += run.count
                queue.bury(run, reason, comment, out)
                for other in queues:
                    for copy in other.remove({run.ordinal: run.mask}) if other is not queue else ():
                        other.bury(copy, reason, comment, out)
