"""The record in a table of a database, in SQLite; tests/contracts has it in PostgreSQL (K-20)."""

from __future__ import annotations

import sqlite3
import sys
import threading
from pathlib import Path

import pytest

from raybroker.model.errors import (
    ConfigError,
    IllegalStateError,
    RequestTimeoutError,
    StoreDamagedError,
    StoreError,
)
from raybroker.model.shared_record import TABLE, FoundRecord, RecordHead, TableRow
from raybroker.store.record_table import ROWS_MAX, RecordTable

HEAD = RecordHead("c", "r1", 1, 0)


def rows(first: int, count: int, by: str = "w") -> list[TableRow]:
    return [
        TableRow(number, f"body{number}", f"digest{number}", f"{by}{number}") for number in range(first, first + count)
    ]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "made" / "record.db"


@pytest.fixture
def table(file: Path) -> RecordTable:
    found = RecordTable(f"sqlite:///{file}", 300)
    found.create(HEAD, "", "the base")
    return found


def read(table: RecordTable, record: str = "r1", number: int = 0) -> FoundRecord:
    found = table.read(record, number)
    assert found is not None
    return found


def test_what_is_appended_is_read_by_whoever_comes_after(table: RecordTable, file: Path) -> None:
    assert table.insert("r1", rows(1, 3))
    another = RecordTable(f"sqlite:///{file}", 300)
    assert read(another) == FoundRecord(HEAD, 3, "", tuple(rows(1, 3)))
    assert read(another, number=2) == FoundRecord(HEAD, 3, "digest2", tuple(rows(3, 1)))
    assert read(another, number=3) == FoundRecord(HEAD, 3, "digest3", ())
    assert read(another, number=9) == FoundRecord(HEAD, 3, "", ())


def test_who_has_another_record_gets_the_whole(table: RecordTable) -> None:
    table.insert("r1", rows(1, 2))
    assert read(table, "other", 7) == FoundRecord(HEAD, 2, "", tuple(rows(1, 2)), "the base")


def test_many_rows_are_read_in_parts(table: RecordTable) -> None:
    table.insert("r1", rows(1, ROWS_MAX + 5))
    first = read(table)
    assert (len(first.rows), first.last) == (ROWS_MAX, ROWS_MAX + 5)
    assert len(read(table, number=first.rows[-1].number).rows) == 5


@pytest.mark.parametrize(
    ("record", "new"),
    [
        ("r1", rows(2, 1)),
        ("r1", rows(4, 1)),
        ("r2", rows(3, 1)),
        ("r1", rows(3, 1, "z") + rows(3, 1)),
        ("r1", [TableRow(3, "body", "digest", "w1")]),
        ("r1", [TableRow(3, "a", "d", "x"), TableRow(4, "b", "d", "x")]),
    ],
)
def test_what_does_not_follow_is_not_appended_at_all(table: RecordTable, record: str, new: list[TableRow]) -> None:
    assert table.insert("r1", rows(1, 2))
    assert not table.insert(record, new)
    assert read(table).rows == tuple(rows(1, 2))


def test_of_those_who_append_at_once_each_number_has_one(file: Path, table: RecordTable) -> None:
    won: list[int] = []

    def work(name: str) -> None:
        mine = RecordTable(f"sqlite:///{file}", 20_000)
        for attempt in range(10):
            while True:
                last = read(mine).last
                if mine.insert("r1", [TableRow(last + 1, "body", "digest", f"{name}{attempt}")]):
                    won.append(last + 1)
                    break

    threads = [threading.Thread(target=work, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == list(range(1, 31))
    assert len({row.writer for row in read(table).rows}) == 30


def test_a_long_history_becomes_the_base(table: RecordTable) -> None:
    table.insert("r1", rows(1, 5))
    assert table.shorten("r1", 0, 3, "digest3", "shorter")
    head = RecordHead("c", "r1", 1, 3)
    assert read(table, number=3) == FoundRecord(head, 5, "digest3", tuple(rows(4, 2)))
    assert read(table, number=1) == FoundRecord(head, 5, "", tuple(rows(4, 2)), "shorter")
    assert not table.shorten("r1", 0, 4, "digest4", "late")
    assert not table.shorten("r2", 3, 4, "digest4", "another")
    assert table.shorten("r1", 3, 5, "digest5", "all")
    assert read(table, number=5) == FoundRecord(RecordHead("c", "r1", 1, 5), 5, "digest5", ())
    assert not table.insert("r1", rows(5, 1))
    assert table.insert("r1", rows(6, 1))


def test_a_replaced_record_takes_nothing_of_the_old(table: RecordTable) -> None:
    table.insert("r1", rows(1, 2))
    new = RecordHead("c", "r2", 1000, 7)
    assert not table.replace(new, "digest7", "of the backup", before="r0")
    assert table.replace(new, "digest7", "of the backup", before="r1")
    assert not table.insert("r1", rows(3, 1))
    assert read(table) == FoundRecord(new, 7, "", (), "of the backup")
    assert read(table, "r2", 7) == FoundRecord(new, 7, "digest7", ())


def test_without_a_table_there_is_nothing_and_nothing_is_made(tmp_path: Path) -> None:
    file = tmp_path / "none.db"
    table = RecordTable(f"sqlite:///{file}", 300)
    assert table.read("", 0) is None
    assert not table.exists()
    with pytest.raises(StoreError, match="no such table"):
        table.insert("r1", rows(1, 1))
    assert not file.exists()
    sqlite3.connect(file).execute("CREATE TABLE something (one INTEGER)").connection.close()
    assert table.read("", 0) is None


def test_a_table_is_made_once_and_removed(table: RecordTable) -> None:
    with pytest.raises(IllegalStateError, match="there already"):
        table.create(HEAD, "", "another")
    assert read(table, "", 0).base == "the base"
    table.drop()
    assert table.read("", 0) is None
    table.create(HEAD, "", "anew")
    assert read(table, "", 0).base == "anew"


def test_a_table_that_somebody_locks_is_given_up_in_time_and_nothing_is_changed(table: RecordTable, file: Path) -> None:
    holder = sqlite3.connect(file, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StoreError, match="locked"):
        table.read("r1", 0)
    with pytest.raises(StoreError, match="locked"):
        table.insert("r1", rows(1, 1))
    holder.close()
    assert read(table).last == 0


def test_a_commit_whose_end_is_not_seen_is_said_to_be_unknown(table: RecordTable, file: Path) -> None:
    """A reader keeps the writer of a file from committing."""
    reader = sqlite3.connect(file, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute(f"SELECT * FROM {TABLE}").fetchall()
    with pytest.raises(RequestTimeoutError, match="locked"):
        table.insert("r1", rows(1, 1))
    reader.close()
    assert read(table).last == 0
    assert table.insert("r1", rows(1, 1))


def test_a_commit_is_on_disk_when_it_returns(table: RecordTable) -> None:
    with table._engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 3  # EXTRA


@pytest.mark.parametrize(
    ("statement", "error", "said"),
    [
        (f"UPDATE {TABLE} SET version = 2", ConfigError, "version 2"),
        (f"DELETE FROM {TABLE}", StoreDamagedError, "0 rows"),
        (f"ALTER TABLE {TABLE} DROP COLUMN term", StoreError, "term"),
        (f"DROP TABLE {TABLE}_entry", StoreError, "entry"),
    ],
)
def test_what_is_no_table_of_ours_is_refused(
    table: RecordTable, file: Path, statement: str, error: type[Exception], said: str
) -> None:
    with sqlite3.connect(file) as connection:
        connection.execute(statement)
    connection.close()
    with pytest.raises(error, match=said):
        table.read("", 0)


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "text"
    file.write_text("no database at all\n" * 100)
    with pytest.raises(StoreError, match="not a database"):
        RecordTable(f"sqlite:///{file}", 300).read("", 0)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("no url", "no address"),
        ("", "no address"),
        ("sqlite://", "needs a file"),
        ("sqlite:///:memory:", "needs a file"),
        ("mysql://user@host/base", "mysql is not supported"),
        ("postgresql://user@host:many/base", "no address"),
        ("oracle://x", "oracle is not supported"),
    ],
)
def test_addresses_that_cannot_be_used_are_named(url: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as found:
        RecordTable(url, 300)
    assert "imq.cluster.sharecc.persist.jdbc.url" in str(found.value)


def test_a_password_is_in_no_text() -> None:
    table = RecordTable("postgresql://user:secret@127.0.0.1:1/base?options=-csearch_path%3Dsecret", 300)
    assert "secret" not in table.shown
    assert "127.0.0.1" in table.shown
    with pytest.raises(StoreError, match=r"127\.0\.0\.1") as found:
        table.read("", 0)
    assert "secret" not in str(found.value)


@pytest.mark.parametrize("module", ["sqlalchemy", "psycopg"])
def test_without_the_libraries_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigError, match=r"raybroker\[sql\]"):
        RecordTable("postgresql://user@127.0.0.1:1/base", 300)
