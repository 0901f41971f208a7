"""The form of log entries: the body that goes between copies, and the note by which a journal's batch is an entry.

    body   head | rows and metas of the batch, as the journal has them | payloads
    note   of destination 0, the last entry of its batch: position, kind, what is known to be committed, the replica set

The note is in the same batch as what it numbers, so that neither is there without the other, and it survives wherever
the batch does: behind the last checkpoint.  A store that knows nothing of copies refuses a journal that has such notes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from raybroker.model.blocks.record import NOTE, Buffer
from raybroker.model.errors import StoreDamagedError
from raybroker.replication.positions import Body, EntryKind, LogPosition, ReplicatedEntry, Term
from raybroker.replication.replica_set import ReplicaSet, unpacked_set
from raybroker.store.journal.format import (
    NOTHING,
    FormatError,
    JournalRow,
    Packed,
    joined,
    rows_body,
    unpack_body,
    with_note,
)

NOTE_MAGIC: Final = b"\0copy1"
_NOTE: Final = struct.Struct("<6sBBQQQ16sQ")
_HEAD: Final = struct.Struct("<BII")
_COMPRESSED: Final = 1
JOINED_BYTES_MAX: Final = 64 << 10
"""Payloads of a batch that are copied together: many small buffers cost more, and keep what they are parts of."""


class EntryNote(NamedTuple):
    """What a journal says of an entry.  ``members``: the set that holds from it on; ``flags``: of its body's head."""

    at: LogPosition
    kind: EntryKind
    flags: int
    committed: int
    members: ReplicaSet

    def encode(self) -> bytes:
        term, index, chain = self.at.term, self.at.index, self.at.chain
        head = _NOTE.pack(NOTE_MAGIC, self.kind, self.flags, index, term.number, term.nonce, chain, self.committed)
        return head + self.members.packed()


def is_note(kind: int, destination: int, meta: bytes) -> bool:
    """Whether an entry of a store is the note of a log entry."""
    return kind == NOTE and destination == 0 and meta.startswith(NOTE_MAGIC)


def note_of(rows: Sequence[JournalRow]) -> EntryNote | None:
    """Return the note of a journal's batch; None for a batch that is this copy's own, such as survivors that moved."""
    last = rows[-1]
    if not is_note(last.kind, last.destination, last.meta):
        return None
    try:
        _, kind, flags, index, number, nonce, chain, committed = _NOTE.unpack_from(last.meta)
        members = unpacked_set(last.meta[_NOTE.size :])
        return EntryNote(LogPosition(Term(number, nonce), index, chain), EntryKind(kind), flags, committed, members)
    except (struct.error, ValueError) as error:
        raise StoreDamagedError(f"the note of a log entry does not decode: {error}") from None


def body_of(packed: Packed) -> Body:
    """Return the body of an entry that is this batch."""
    payloads: Sequence[Buffer] = packed.payloads
    if len(payloads) > 1 and packed.payload_bytes <= JOINED_BYTES_MAX:
        payloads = (b"".join(payloads),)
    head = _HEAD.pack(_COMPRESSED if packed.compressed else 0, packed.count, len(packed.body))
    return (head + packed.body, *payloads)


def packed_of(entry: ReplicatedEntry) -> Packed:
    """Return the batch of an entry; raises StoreDamagedError for a body that none of these functions has made."""
    if entry.kind is not EntryKind.BATCH:
        return NOTHING
    try:
        first = memoryview(entry.body[0]).cast("B")
        flags, count, nbytes = _HEAD.unpack_from(first)
        end = _HEAD.size + nbytes
        payloads: list[Buffer] = list(entry.body[1:])
        if len(first) > end:
            payloads.insert(0, first[end:])
        return unpack_body(count, bytes(first[_HEAD.size : end]), payloads, compressed=bool(flags & _COMPRESSED))
    except (struct.error, IndexError, FormatError) as error:
        raise StoreDamagedError(f"entry {entry.at.index} of the log does not decode: {error}") from None


def noted(entries: Sequence[ReplicatedEntry], committed: int, members: ReplicaSet, own: Packed | None = None) -> Packed:
    """Return the batch that a journal gets for an entry, or for several of which all are committed: its note is that of
    the last, because a log is never cut before it.  ``own``: the batch of the only entry, if it is known."""
    entry = entries[-1]
    assert len(entries) == 1 or entry.at.index <= committed
    packed = own if own is not None else joined([packed_of(one) for one in entries])
    note = EntryNote(entry.at, entry.kind, _COMPRESSED if packed.compressed else 0, committed, members)
    return with_note(packed, note.encode())


def entry_of(note: EntryNote, rows: Sequence[JournalRow], payload: bytes) -> ReplicatedEntry:
    """Return the entry that a journal's batch was written for; ``rows`` with its note."""
    body: Body = ()
    if note.kind is EntryKind.BATCH:
        packed = rows_body(rows[:-1])
        body = (_HEAD.pack(note.flags, len(rows) - 1, len(packed)) + packed, *((payload,) if payload else ()))
    elif note.kind is EntryKind.MEMBERS:
        body = (note.members.packed(),)
    return ReplicatedEntry(note.at, note.kind, body, sum(map(len, body)))
