"""The checkpoint of a host: its whole state but for message bodies, as the meta of one entry; and recovery from it.

Destinations are numbered by their host and numbers are never used again, so a block of an unknown number below the next
one belongs to a destination that was destroyed.  Number 0 is the host itself: its notes are about transactions.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from raybroker.core.destination import Destination
from raybroker.core.durable import records
from raybroker.core.durable.recovery import DestinationRecovery
from raybroker.core.durable.snapshot import snapshot
from raybroker.engine.schedules.schedule_log import ScheduleLog
from raybroker.engine.transactions.transaction_log import TxLog
from raybroker.model.blocks.record import BLOCK, CHECKPOINT, EntryRun, LogEntry
from raybroker.model.errors import StoreDamagedError
from raybroker.model.settings.settings import DestinationAttributes, destination_attributes

_HEAD: Final = struct.Struct("<III")
_ROW: Final = struct.Struct("<III")
_ATTRIBUTES_HEAD: Final = len(records.encode(records.ATTRIBUTES, 0))


@dataclass(frozen=True, slots=True)
class Definition:
    """What identifies a destination. ``kind`` "queue" or "topic"; ``owner``: connection of a temporary one;
    ``paused``: what an administrator has paused → until when, milliseconds, 0 until resumed."""

    name: str
    auto_created: bool
    attributes: DestinationAttributes
    kind: str = "queue"
    owner: str | None = None
    paused: Mapping[str, int] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str]:
        return self.kind, self.name

    def encode(self) -> bytes:
        fields = {
            "name": self.name,
            "auto": self.auto_created,
            "kind": self.kind,
            "attributes": self.attributes.as_dict(),
        }
        if self.paused:
            fields["paused"] = dict(self.paused)
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> Definition:
        try:
            fields = json.loads(data)
            kind = fields["kind"]
            attributes = destination_attributes(fields["attributes"], type=kind)
            return cls(fields["name"], fields["auto"], attributes, kind, paused=fields.get("paused", {}))
        except (ValueError, KeyError, TypeError) as error:
            raise StoreDamagedError(f"a stored destination definition does not decode: {error!r}") from None


def encode_checkpoint(
    next_number: int,
    transactions: TxLog,
    schedules: ScheduleLog,
    destinations: Iterable[tuple[Definition, Destination]],
) -> LogEntry:
    rows = [
        (destination.number, definition.encode(), snapshot(destination)) for definition, destination in destinations
    ]
    log = transactions.encode()
    out = [_HEAD.pack(next_number, len(rows), len(log)), log]
    for number, definition, state in rows:
        out.extend((_ROW.pack(number, len(definition), len(state)), definition, state))
    out.append(schedules.encode())
    return LogEntry(CHECKPOINT, 0, 0, b"".join(out))


@dataclass(slots=True)
class Recovered:
    """The content of a store: definitions, recoveries of destinations, transactions and schedules."""

    next_number: int
    definitions: dict[int, Definition]
    recoveries: dict[int, DestinationRecovery]
    transactions: TxLog
    schedules: ScheduleLog

    def dead(self, number: int) -> list[int]:
        """Blocks of destination ``number`` that no delivery queue is owed."""
        recovery = self.recoveries[number]
        return recovery.dead if number in self.definitions else [*recovery.dead, *recovery.ordinals()]


def read_back(entries: Iterable[LogEntry | EntryRun]) -> Recovered:
    """Sort a store's entries by destination. Raises StoreDamagedError for what cannot be understood."""
    found = Recovered(1, {}, {}, TxLog(), ScheduleLog())
    for entry in entries:
        try:
            if isinstance(entry, EntryRun) and entry.destination:
                _recovery_of(found, entry.destination).apply_run(entry)
                continue
            for single in entry.entries() if isinstance(entry, EntryRun) else (entry,):
                apply(found, single)
        except (struct.error, ValueError, IndexError) as error:
            raise StoreDamagedError(f"an entry of destination {entry.destination} does not decode: {error}") from None
    return found


def apply(found: Recovered, entry: LogEntry) -> None:
    """One entry; those of destination 0 are of transactions and schedules."""
    if entry.kind == CHECKPOINT:
        _load(found, entry.meta)
        return
    if entry.destination == 0:
        if ScheduleLog.owns(entry):
            found.schedules.apply(entry)
        else:
            found.transactions.apply(entry.meta)
        return
    recovery = _recovery_of(found, entry.destination)
    kind = 0 if entry.kind == BLOCK else records.kind_of(entry.meta)
    if kind == records.ATTRIBUTES:
        found.definitions[entry.destination] = Definition.decode(entry.meta[_ATTRIBUTES_HEAD:])
    elif kind == records.GONE:
        found.definitions.pop(entry.destination, None)
    else:
        recovery.apply(entry)


def _recovery_of(found: Recovered, number: int) -> DestinationRecovery:
    recovery = found.recoveries.get(number)
    if recovery is None:
        recovery = found.recoveries[number] = DestinationRecovery(number)
        found.next_number = max(found.next_number, number + 1)
    return recovery


def _load(found: Recovered, meta: bytes) -> None:
    try:
        found.next_number, count, log_bytes = _HEAD.unpack_from(meta)
        at = _HEAD.size
        found.transactions = TxLog.decode(meta[at : at + log_bytes])
        at += log_bytes
        for _ in range(count):
            number, definition_bytes, state_bytes = _ROW.unpack_from(meta, at)
            at += _ROW.size
            found.definitions[number] = Definition.decode(meta[at : at + definition_bytes])
            at += definition_bytes
            found.recoveries[number] = DestinationRecovery(number)
            found.recoveries[number].load(meta[at : at + state_bytes])
            at += state_bytes
        found.schedules = ScheduleLog.decode(meta[at:])
    except (struct.error, ValueError, IndexError) as error:
        raise StoreDamagedError(f"a checkpoint does not decode: {error}") from None
