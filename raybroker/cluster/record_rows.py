"""Entries of the record as rows of the shared table, and back, with every column checked."""

from __future__ import annotations

import json

from raybroker.cluster.backup import dump, load
from raybroker.cluster.change_record import Change, ChangeRecord, Entry
from raybroker.model.errors import ProtocolError, StoreDamagedError
from raybroker.model.shared_record import FoundRecord, RecordHead, TableRow


def row_of(entry: Entry, writer: str) -> TableRow:
    return TableRow(entry.number, entry.body().decode("ascii"), entry.digest, writer)


def check(found: FoundRecord) -> None:
    """Raises StoreDamagedError when the columns have what does not belong there: SQLite takes anything anywhere."""
    head = found.head
    texts = [head.cluster, head.record, found.digest, found.base]
    texts += [text for row in found.rows for text in (row.body, row.digest, row.writer)]
    numbers = (head.term, head.base_number, found.last, *(row.number for row in found.rows))
    if not all(isinstance(text, str) for text in texts):
        raise StoreDamagedError("a column that has text has something else")
    if not all(type(number) is int and number >= 0 for number in numbers):
        raise StoreDamagedError("a column that has numbers has something else")


def entry_of(row: TableRow) -> Entry:
    """Raises ProtocolError for a row that is no entry, or of another number than it says."""
    try:
        number, term, *change = json.loads(row.body)
        entry = Entry(number, term, Change.from_canonical(change), row.digest)
        whole = type(number) is int and type(term) is int
    except (ProtocolError, ValueError, TypeError) as error:
        raise ProtocolError(f"entry {row.number} cannot be read: {error}") from None
    if not whole or number != row.number:
        raise ProtocolError(f"the row of entry {row.number} has entry {number!r}")
    return entry


def record_of(found: FoundRecord) -> ChangeRecord:
    """The record from its base on.  Raises StoreDamagedError when the parts do not fit together."""
    head = found.head
    record = load(found.base.encode("ascii", "replace"))
    if (record.id, record.cluster, record.number) != (head.record, head.cluster, head.base_number):
        raise StoreDamagedError(
            f"the base is of record {record.id[:8]} of cluster {record.cluster!r} up to entry {record.number}; that of"
            f" {head.record[:8]} of {head.cluster!r} up to {head.base_number} belongs there"
        )
    try:
        for row in found.rows:
            record.accept(entry_of(row))
    except ProtocolError as error:
        raise StoreDamagedError(str(error)) from None
    record.term = head.term
    return record


def parts_of(record: ChangeRecord) -> tuple[RecordHead, str, str]:
    """The content of a new table for this record: head, hash and base."""
    short = record.compress()
    head = RecordHead(short.cluster, short.id, short.term, short.number)
    return head, short.digest, dump(short).decode("ascii")
