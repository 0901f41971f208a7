"""Entries of a record as rows of a table, and what is refused of rows that say something else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from raybroker.cluster.change_record import ChangeRecord
from raybroker.cluster.record_rows import check, entry_of, parts_of, record_of, row_of
from raybroker.model.errors import ProtocolError, StoreDamagedError
from raybroker.model.shared_record import FoundRecord, TableRow
from tests.unit.cluster.parts import queue


def record(*names: str) -> ChangeRecord:
    found = ChangeRecord("r", "c", 3)
    for name in names:
        found.propose(queue(name))
    return found


def found_of(base: ChangeRecord, later: ChangeRecord) -> FoundRecord:
    """A table with that base, and the entries of ``later`` behind it."""
    head, digest, text = parts_of(base)
    rows = tuple(row_of(entry, "b1") for entry in later.entries if entry.number > base.number)
    return FoundRecord(head, later.number, digest, rows, text)


def test_an_entry_comes_back_as_it_was() -> None:
    (entry,) = record("q").entries
    row = row_of(entry, "b1/7")
    assert (row.number, row.digest, row.writer) == (1, entry.digest, "b1/7")
    assert entry_of(row) == entry


@pytest.mark.parametrize(
    "body",
    [
        "",
        "{}",
        "[1]",
        "[1, 3]",
        '[1, 3, "no change", ["queue", "q"], {}]',
        '["1", 3, "create_destination", ["queue", "q"], {}]',
        '[1, null, "create_destination", ["queue", "q"], {}]',
    ],
)
def test_a_row_that_is_no_entry_is_refused(body: str) -> None:
    with pytest.raises(ProtocolError, match="entry 1"):
        entry_of(TableRow(1, body, "digest", "b1"))


def test_a_row_of_another_number_is_refused() -> None:
    row = row_of(record("q").entries[0], "b1")
    with pytest.raises(ProtocolError, match="the row of entry 2 has entry 1"):
        entry_of(replace(row, number=2))


def test_a_record_is_its_base_with_the_entries_behind_it() -> None:
    whole = record("a", "b", "c")
    again = record_of(found_of(record("a"), whole))
    assert (again.id, again.cluster, again.term, again.number) == ("r", "c", whole.term, 3)
    assert (again.digest, again.base_number) == (whole.digest, 1)
    assert again.state.canonical() == whole.state.canonical()


def test_a_base_of_another_record_is_damage() -> None:
    found = found_of(record("a"), record("a", "b"))
    others: list[dict[str, Any]] = [{"record": "other"}, {"cluster": "x"}, {"base_number": 9}]
    for other in others:
        head = replace(found.head, **other)
        with pytest.raises(StoreDamagedError, match="the base is of record"):
            record_of(replace(found, head=head))


def test_a_missing_or_changed_row_is_damage() -> None:
    found = found_of(record("a"), record("a", "b", "c"))
    with pytest.raises(StoreDamagedError):
        record_of(replace(found, rows=found.rows[1:]))
    with pytest.raises(StoreDamagedError):
        record_of(replace(found, rows=(replace(found.rows[0], digest="0" * 32), found.rows[1])))


def test_columns_have_what_belongs_there() -> None:
    found = found_of(record("a"), record("a", "b"))
    check(found)
    strange: list[Any] = [
        replace(found, digest=None),
        replace(found, base=b""),
        replace(found, last=-1),
        replace(found, last=True),
        replace(found, head=replace(found.head, term="3")),
        replace(found, rows=(replace(found.rows[0], writer=7),)),
        replace(found, rows=(replace(found.rows[0], number="1"),)),
    ]
    for one in strange:
        with pytest.raises(StoreDamagedError, match="has something else"):
            check(one)
