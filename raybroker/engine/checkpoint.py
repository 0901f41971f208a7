"""A host's whole state but for message bodies, as the meta of one CHECKPOINT entry; and what a host recovers.

Destinations are numbered by their host and numbers are never used again, so a block of an unknown number below the next
one belongs to a destination that was destroyed.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from raybroker.core import notes
from raybroker.core.queue import Queue
from raybroker.core.recovery import Recovery, snapshot
from raybroker.model.errors import StoreDamagedError
from raybroker.model.record import BLOCK, CHECKPOINT, Entry
from raybroker.model.settings import DestinationAttributes, destination_attributes

_HEAD: Final = struct.Struct("<II")
_ROW: Final = struct.Struct("<III")


@dataclass(frozen=True, slots=True)
class Definition:
    """What identifies a destination: its name, whether it was auto-created, and its attributes."""

    name: str
    auto_created: bool
    attributes: DestinationAttributes

    def encode(self) -> bytes:
        fields = {"name": self.name, "auto": self.auto_created, "attributes": self.attributes.as_dict()}
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> Definition:
        try:
            fields = json.loads(data)
            return cls(fields["name"], fields["auto"], destination_attributes(fields["attributes"]))
        except (ValueError, KeyError, TypeError) as error:
            raise StoreDamagedError(f"a stored destination definition does not decode: {error!r}") from None


def encode_checkpoint(next_number: int, queues: Iterable[tuple[Definition, Queue]]) -> Entry:
    rows = [(queue.number, definition.encode(), snapshot(queue)) for definition, queue in queues]
    out = [_HEAD.pack(next_number, len(rows))]
    for number, definition, state in rows:
        out.extend((_ROW.pack(number, len(definition), len(state)), definition, state))
    return Entry(CHECKPOINT, 0, 0, b"".join(out))


@dataclass(slots=True)
class Recovered:
    """What a store held: the definitions and what to build queues from; ``dead`` are blocks that can go."""

    next_number: int
    definitions: dict[int, Definition]
    recoveries: dict[int, Recovery]

    def dead(self, number: int) -> list[int]:
        """Blocks of destination ``number`` that nobody is owed."""
        recovery = self.recoveries[number]
        return recovery.dead if number in self.definitions else [*recovery.dead, *recovery.blocks]


def read_back(entries: Iterable[Entry]) -> Recovered:
    """Sort a store's entries by destination. Raises StoreDamagedError for what cannot be understood."""
    found = Recovered(1, {}, {})
    for entry in entries:
        if entry.kind == CHECKPOINT:
            _load(found, entry.meta)
            continue
        recovery = found.recoveries.get(entry.destination)
        if recovery is None:
            recovery = found.recoveries[entry.destination] = Recovery(entry.destination)
            found.next_number = max(found.next_number, entry.destination + 1)
        kind = 0 if entry.kind == BLOCK else notes.kind_of(entry.meta)
        if kind == notes.ATTRIBUTES:
            found.definitions[entry.destination] = Definition.decode(notes.attributes_of(entry.meta))
        elif kind == notes.GONE:
            found.definitions.pop(entry.destination, None)
        else:
            recovery.apply(entry)
    return found


def _load(found: Recovered, meta: bytes) -> None:
    try:
        found.next_number, count = _HEAD.unpack_from(meta)
        at = _HEAD.size
        for _ in range(count):
            number, definition_bytes, state_bytes = _ROW.unpack_from(meta, at)
            at += _ROW.size
            found.definitions[number] = Definition.decode(meta[at : at + definition_bytes])
            at += definition_bytes
            found.recoveries[number] = Recovery(number)
            found.recoveries[number].load(meta[at : at + state_bytes])
            at += state_bytes
    except struct.error as error:
        raise StoreDamagedError(f"a checkpoint does not decode: {error}") from None
