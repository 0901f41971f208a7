"""The state of a host from a damaged store: what is left of it, as the checkpoint that the mended store begins with.

Lenient reading gives the entries that are intact, and says where some are lost.  What those may have said decides:

* Messages before a lost range may have been acknowledged in it: they come again, flagged as redelivered.  Blocks that a
  checkpoint calls alive and that are lost are named.
* Destinations, and subscriptions that messages are kept for, whose definitions are lost get others, so that messages
  are not taken for those of something destroyed.
* Transactions that may have been decided in a lost range are prepared, and wait for an administrator: nobody presumes
  that they were rolled back.
* Numbers go on behind all that were given, and all that may have been.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from raybroker.core.blocks import message_mask as pk
from raybroker.core.destination import Destination
from raybroker.core.durable import records
from raybroker.core.durable.records import BlockMeta
from raybroker.core.durable.recovery import DeliveryQueueFound, DestinationRecovery, shown_spans
from raybroker.core.subscription import Subscription
from raybroker.engine import checkpoint
from raybroker.engine.checkpoint import Definition, Recovered, encode_checkpoint
from raybroker.engine.schedules.schedule_log import ScheduleLog
from raybroker.engine.transactions.transaction_log import PreparedRow, TxLog
from raybroker.model.blocks.record import CHECKPOINT, LOST, NOTE, LogEntry
from raybroker.model.errors import StoreDamagedError
from raybroker.model.naming.names import DestinationType
from raybroker.model.settings.settings import destination_attributes

KIND: Final = "salvaged"
"""The kind of a transaction that only an administrator ends."""
_KEY_BYTES: Final = 16


@dataclass
class DestinationLeft:
    """What is left of one destination.

    messages     of each of its blocks, how many are left
    lost_blocks  that a checkpoint calls alive, and that are not there; each has at least one message
    kept         messages that come out
    again        of these, how many may have been acknowledged: they come flagged as redelivered
    made         its definition is lost, and it has got this one
    """

    number: int
    destination: Destination
    definition: Definition
    messages: dict[int, int]
    lost_blocks: list[int] = field(default_factory=list)
    kept: int = 0
    again: int = 0
    made: bool = False
    notes: list[str] = field(default_factory=list)

    def as_row(self) -> dict[str, Any]:
        return {
            "type": self.definition.kind,
            "name": self.definition.name,
            "number": self.number,
            "lost_blocks": len(self.lost_blocks),
            "which": shown_spans(self.lost_blocks),
            "kept_messages": self.kept,
            "maybe_again": self.again,
            "definition_lost": self.made,
            "notes": self.notes,
        }


@dataclass
class Salvaged:
    """The state of a host; ``notes``: what else is to be told, for people."""

    next_number: int
    transactions: TxLog
    schedules: ScheduleLog
    destinations: list[DestinationLeft]
    notes: list[str] = field(default_factory=list)

    def checkpoint(self) -> LogEntry:
        destinations = [(left.definition, left.destination) for left in self.destinations]
        return encode_checkpoint(self.next_number, self.transactions, self.schedules, destinations)


class _Reading:
    """Entries in the order of the log, with what lost ranges make doubtful."""

    def __init__(self) -> None:
        self.found = Recovered(1, {}, {}, TxLog(), ScheduleLog())
        self.gone: set[int] = set()
        """Destinations that were destroyed, as a note says."""
        self.unsubscribed: set[tuple[int, int]] = set()
        self.known_below = 0
        """A destination with a lower number is in the checkpoint that was read, or was destroyed before it."""
        self.doubtful: dict[int, int] = {}
        """Destination → its blocks below this ordinal may have been acknowledged."""
        self.undecided: set[int] = set()
        """Prepared transactions that may have been decided."""

    def read_entry(self, entry: LogEntry) -> None:
        if entry.kind == LOST:
            self.doubt()
            return
        if entry.kind == NOTE and entry.destination:
            kind = records.kind_of(entry.meta)
            if kind == records.GONE:
                self.gone.add(entry.destination)
            elif kind == records.QUEUE_GONE:
                self.unsubscribed.add((entry.destination, records.decode(entry.meta).queue))
        checkpoint.apply(self.found, entry)
        if entry.kind == CHECKPOINT:
            self.known_below = self.found.next_number

    def doubt(self) -> None:
        """Entries are lost here."""
        self.undecided.update(self.found.transactions.prepared)
        for number, recovery in self.found.recoveries.items():
            self.doubtful[number] = recovery.next_ordinal


def salvage(entries: Iterable[LogEntry], lost_entries: int, now_ms: int, *, checkpoint_lost: bool = False) -> Salvaged:
    """What is left.

    lost_entries     how many are lost behind the last checkpoint that there is, at most
    checkpoint_lost  there was a checkpoint, and it is not among the entries
    Raises StoreDamagedError for an intact entry that cannot be understood.
    """
    reading = _Reading()
    for entry in entries:
        try:
            reading.read_entry(entry)
        except (struct.error, ValueError, IndexError) as error:
            raise StoreDamagedError(f"an entry of destination {entry.destination} does not decode: {error}") from None
    if checkpoint_lost:
        reading.doubt()
    found = reading.found
    notes = _settle_names(reading)
    made = _make_definitions(reading)
    notes += _settle_transactions(reading)
    lost = found.schedules.without_messages()
    if lost:
        notes.append(f"schedules {shown_spans(lost)}: their messages are lost, and they are over")
    left = []
    for number, definition in sorted(found.definitions.items()):
        one = _finish(reading, number, definition, lost_entries, now_ms)
        one.made = number in made
        left.append(one)
    found.transactions.next_number += lost_entries
    found.schedules.next_number += lost_entries
    return Salvaged(found.next_number + lost_entries, found.transactions, found.schedules, left, notes)


def _settle_names(reading: _Reading) -> list[str]:
    """Drop all but the last of destinations with one name, or of subscriptions: where their end was written is lost."""
    notes, latest = [], dict[tuple[str, str], int]()
    definitions = reading.found.definitions
    for number in sorted(definitions):
        before = latest.get(definitions[number].key)
        if before is not None:
            old = definitions.pop(before)
            reading.gone.add(before)
            notes.append(f"{old.kind} {old.name}: the earlier one of this name, number {before}, was destroyed")
        latest[definitions[number].key] = number
    for recovery in reading.found.recoveries.values():
        names: dict[tuple[str, str], int] = {}
        for number, queue in sorted(recovery.queues.items()):
            key = (queue.subscription.client_id, queue.subscription.name) if queue.subscription else ("", "")
            if key in names and any(key):
                del recovery.queues[names[key]]
            names[key] = number
    return notes


def _make_definitions(reading: _Reading) -> set[int]:
    """Definitions for destinations that have messages, and whose own are lost; which destinations those are."""
    found, made = reading.found, set[int]()
    for number, recovery in found.recoveries.items():
        if number in found.definitions or number in reading.gone or number < reading.known_below:
            continue
        if not recovery.blocks:
            continue
        topic = any(meta.claims is not None for meta in recovery.blocks.values()) or len(recovery.queues) > 1
        kind: DestinationType = "topic" if topic else "queue"
        name = f"{KIND}.{number}"
        while (kind, name) in {definition.key for definition in found.definitions.values()}:
            name += "x"
        found.definitions[number] = Definition(name, False, destination_attributes(type=kind), kind)
        made.add(number)
    return made


def _settle_transactions(reading: _Reading) -> list[str]:
    """Transactions of which a part is there have a row, and those that may have been decided wait."""
    log, notes = reading.found.transactions, list[str]()
    taking_part: dict[int, set[str]] = {}
    for number, recovery in reading.found.recoveries.items():
        definition = reading.found.definitions.get(number)
        parts = {txn for o, txn in recovery.waiting.items() if o in recovery.blocks}
        parts.update(txn for queue in recovery.queues.values() for txn in queue.staged)
        for txn in parts if definition is not None else ():
            taking_part.setdefault(txn, set()).add(f"{definition.kind} {definition.name}" if definition else "")
    for txn, names in sorted(taking_part.items()):
        if txn in log.decided or (txn in log.prepared and txn not in reading.undecided):
            continue
        row = log.prepared.get(txn)
        what = f"transaction {txn} in {', '.join(sorted(names))}"
        if row is None:
            key = b"salvaged" + txn.to_bytes(_KEY_BYTES - 8, "big")
            log.prepared[txn] = PreparedRow(txn, key, KIND, "", 0)
            log.next_number = max(log.next_number, txn + 1)
            notes.append(f"{what}: a part of it may be lost, and whether it was decided; commit txn or rollback txn")
        elif row.kind == "local":
            log.prepared[txn] = row._replace(kind=KIND)
            notes.append(
                f"{what}: it is prepared, and may have been decided; ask its coordinator {row.coordinator}"
                f" (key {row.key.hex()}), then commit txn or rollback txn"
            )
        else:
            notes.append(f"{what}: the XA branch {row.key.hex()} is prepared, and may have been decided")
    return notes


def _finish(reading: _Reading, number: int, definition: Definition, lost_entries: int, now_ms: int) -> DestinationLeft:
    recovery = reading.found.recoveries.get(number)
    if recovery is None:
        recovery = reading.found.recoveries[number] = DestinationRecovery(number)
    notes = _subscriptions(reading, number, recovery) if definition.kind == "topic" else []
    lost = sorted({*recovery.missing(), *_lost_of_transactions(recovery)})
    recovery.gone.update(lost)
    below = reading.doubtful.get(number, 0)
    for queue in recovery.queues.values():
        for ordinal, meta in recovery.blocks.items() if below else ():
            if ordinal < below:
                queue.tried.setdefault(ordinal, []).insert(0, records.RecordRow(ordinal, _due(meta, now_ms), 1))
    decided: Mapping[int, bool] = reading.found.transactions.decided
    destination = recovery.finish(definition.name, definition.attributes, kind=definition.kind, decided=dict(decided))
    destination.block_index.next_ordinal += lost_entries
    messages = {ordinal: block.left for ordinal, block in destination.block_index.held.items()}
    left = DestinationLeft(number, destination, definition, messages, lost, notes=notes)
    left.kept = sum(messages.values())
    left.again = sum(count for ordinal, count in messages.items() if ordinal < below)
    return left


def _due(meta: BlockMeta, now_ms: int) -> int:
    """The messages of a block that may have been delivered by now."""
    everything = pk.span(0, meta.messages)
    if meta.deliver_at is None:
        return everything
    return everything & pk.of_indexes(i for i, at_ms in enumerate(meta.deliver_at) if at_ms <= now_ms)


def _lost_of_transactions(recovery: DestinationRecovery) -> Iterable[int]:
    """Blocks that wait for a transaction by the snapshot, and are not there."""
    settled = {*recovery.dead, *recovery.gone}
    return [o for o in recovery.waiting if o not in recovery.blocks and o not in settled]


def _subscriptions(reading: _Reading, number: int, recovery: DestinationRecovery) -> list[str]:
    """Subscriptions that messages are kept for, and whose definitions are lost."""
    wanted: dict[int, int] = {}
    for ordinal, meta in recovery.blocks.items():
        for queue in meta.claims or () if ordinal >= recovery.snapshot_end else ():
            wanted[queue] = wanted.get(queue, 0) + 1
    for queue, one in recovery.queues.items():
        if queue and one.subscription is None and one.owed:
            wanted.setdefault(queue, len(one.owed))
    notes = []
    for queue, blocks in sorted(wanted.items()):
        known = recovery.queues.get(queue)
        if (number, queue) in reading.unsubscribed or (known is not None and known.subscription is not None):
            continue
        if known is None:
            known = recovery.queues[queue] = DeliveryQueueFound()
        name = f"{KIND}-{number}-{queue}"
        known.subscription = Subscription(name=name, durable=True, shared=True)
        recovery.next_queue = max(recovery.next_queue, queue + 1)
        notes.append(f"a durable subscription is lost; what it had of {blocks} blocks is with {name}, a shared one")
    return notes
