"""A shared table in memory: what ``store.record_table`` does to a database, one call at a time."""

from __future__ import annotations

from raybroker.cluster import events as ev
from raybroker.cluster.change_record import ChangeRecord
from raybroker.cluster.record_rows import parts_of
from raybroker.model.shared_record import FoundRecord, RecordHead, TableRow

ROWS_MAX = 7
"""Few, so that a broker often has to read again."""


class MemoryTable:
    """``head`` None: there is no table."""

    def __init__(self) -> None:
        self.head: RecordHead | None = None
        self.base_digest = ""
        self.base = ""
        self.rows: list[TableRow] = []
        self.appended = 0
        self.refused = 0

    @property
    def last(self) -> int:
        assert self.head is not None
        return self.head.base_number + len(self.rows)

    def fill(self, record: ChangeRecord) -> None:
        """Make it, or replace what it has."""
        self.head, self.base_digest, self.base = parts_of(record)
        self.rows = []

    def carry_out(self, call: ev.OnTable) -> ev.TableDone:
        match call:
            case ev.ReadTable(token, record, number):
                return ev.TableDone(token, found=self._read(record, number))
            case ev.AppendTable(token, record, rows):
                return ev.TableDone(token, done=self._append(record, rows))
            case ev.ShortenTable():
                return ev.TableDone(call.token, done=self._shorten(call))

    def _read(self, record: str, number: int) -> FoundRecord | None:
        if self.head is None:
            return None
        head = self.head
        digest, base, start = "", "", number
        if head.record != record or number < head.base_number:
            start, base = head.base_number, self.base
        elif number == head.base_number:
            digest = self.base_digest
        elif number <= self.last:
            digest = self.rows[number - head.base_number - 1].digest
        after = [row for row in self.rows if row.number > start]
        return FoundRecord(head, self.last, digest, tuple(after[:ROWS_MAX]), base)

    def _append(self, record: str, rows: tuple[TableRow, ...]) -> bool:
        fits = self.head is not None and self.head.record == record and rows[0].number == self.last + 1
        fits = fits and not {row.writer for row in rows} & {row.writer for row in self.rows}
        if fits:
            self.rows += rows
            self.appended += len(rows)
        self.refused += not fits
        return fits

    def _shorten(self, call: ev.ShortenTable) -> bool:
        head = self.head
        if head is None or (head.record, head.base_number) != (call.record, call.before):
            return False
        self.rows = [row for row in self.rows if row.number > call.number]
        self.head = RecordHead(head.cluster, head.record, head.term, call.number)
        self.base_digest, self.base = call.digest, call.base
        return True
