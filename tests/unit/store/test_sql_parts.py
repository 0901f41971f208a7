"""Parts of the SQL store, each alone: addresses, names, packing, what may be deleted, the lock."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy

from raybroker.config import Config
from raybroker.model.blocks.record import BLOCK, CHECKPOINT, NOTE, LogEntry
from raybroker.model.errors import StoreDamagedError, StoreError, StoreFullError
from raybroker.store.sql import backup
from raybroker.store.sql.address import Address, address_of, store_id
from raybroker.store.sql.administration import StoreTables
from raybroker.store.sql.database import Database, size_bytes
from raybroker.store.sql.lock import HostLock, advisory_key
from raybroker.store.sql.opening import holder_of, is_sql
from raybroker.store.sql.packing import Item, chained, pack, row_crc, signed, unpack, unsigned
from raybroker.store.sql.reclaim import PART_RANGES, PART_ROWS, Range, SqlReclaimer, ranges_of
from raybroker.store.sql.recovery import place, place_parts
from raybroker.store.sql.registration import HostRow, StoreOwner, check_owner, create_tables, register, require_tables
from raybroker.store.sql.schema import NUMBER_MAX, key, statements_of, table_name, tables_of, version_of


def test_the_properties_name_the_database_and_the_tables() -> None:
    given = {
        "imq.persist.jdbc.dbVendor": "postgresql",
        "imq.persist.jdbc.postgresql.user": "u",
        "imq.persist.jdbc.postgresql.opendburl": "jdbc:postgresql://h:5/d?sslmode=require",
        "imq.persist.jdbc.postgresql.passfile": "/etc/pass",
        "raybroker.store.database_timeout_ms": 700,
    }
    found = address_of(Config.from_values(given), Path("/b"))
    assert found == Address("postgresql", "postgresql://u@h:5/d?sslmode=require", "", "/etc/pass", timeout_ms=700)
    assert (found.shown, found.file) == ("postgresql://u@h:5/d", None)
    own = address_of(Config.from_values({}), Path("/b"))
    assert (own.file, own.embedded) == (Path("/b/store.db"), True)
    named = address_of(Config.from_values({"imq.persist.jdbc.sqlite.opendburl": "sqlite:////x/y.db"}), Path("/b"))
    assert (named.file, named.embedded) == (Path("/x/y.db"), False)
    assert store_id(Config.from_values({}), "c", "b1") == "c_b1"
    assert store_id(Config.from_values({"imq.brokerid": "me"}), "c", "b1") == "me_b1"
    assert [is_sql(Config.from_values({"imq.persist.store": kind})) for kind in ("file", "memory", "sql", "jdbc")] == [
        False,
        False,
        True,
        True,
    ]
    assert holder_of(b"t") != holder_of(b"u")


def test_names_of_tables_tell_their_version() -> None:
    name = table_name("block", "c_b1")
    assert name == "raybroker1_block_Sc_b1"
    assert version_of(name, "c_b1") == 1
    assert version_of("raybroker12_log_Sc_b1", "c_b1") == 12
    for other in ("raybroker1_block_Sc_b10", "raybroker1_block_Sxc_b1", "raybroker_sharecc", "raybroker1_other_Sc_b1"):
        assert version_of(other, "c_b1") is None
    assert key(1, NUMBER_MAX) + 1 == key(2, 0)


def test_a_batch_is_packed_in_its_order() -> None:
    entries = [
        LogEntry(NOTE, 3, 0, b"n"),
        LogEntry(BLOCK, 1, 2**64 - 1, b"m", (b"ab", bytearray(b"c"))),
        LogEntry(BLOCK, 2, 5, b""),
        LogEntry(CHECKPOINT, 0, 0, b"state"),
        LogEntry(BLOCK, 1, 6, b"", (memoryview(b"x"),)),
    ]
    packed = pack(entries, 10)
    assert [(row.number, row.destination, row.ordinal, row.payload) for row in packed.blocks] == [
        (10, 1, 2**64 - 1, b"abc"),
        (11, 2, 5, b""),
        (12, 1, 6, b"x"),
    ]
    crcs = [row.row_crc for row in packed.blocks]
    assert crcs[0] == row_crc(10, 1, 2**64 - 1, 3, packed.blocks[0].crc, b"m")
    assert packed.checkpoint == 5
    assert list(unpack(packed.body)) == [
        Item(NOTE, 3, b"n", ()),
        Item(BLOCK, 0, b"", (crcs[0], crcs[1])),
        Item(CHECKPOINT, 0, b"state", ()),
        Item(BLOCK, 0, b"", (crcs[2],)),
    ]
    assert chained(packed.body, 1) != chained(packed.body, 2)
    for cut in range(1, len(packed.body)):
        body = packed.body[:cut]
        try:
            shorter = list(unpack(body))
        except ValueError:
            continue
        assert len(shorter) < 4
    with pytest.raises(ValueError, match="unknown kind"):
        list(unpack(b"\x07" + packed.body[1:]))


@pytest.mark.parametrize("ordinal", [0, 1, 2**63 - 1, 2**63, 2**64 - 1])
def test_columns_have_all_bits_of_an_ordinal(ordinal: int) -> None:
    assert unsigned(signed(ordinal)) == ordinal
    assert -(2**63) <= signed(ordinal) < 2**63


@pytest.mark.parametrize("number", [1, 2**31 - 1, 2**31, NUMBER_MAX])
def test_a_place_has_number_size_and_checksum(number: int) -> None:
    assert place_parts(place(number, 7, 2**32 - 1)) == (number, 7, 2**32 - 1)


def test_blocks_go_by_ranges() -> None:
    assert list(ranges_of([])) == []
    assert list(ranges_of([(1, 10), (2, 10), (4, 1), (9, 2), (10, 2)])) == [
        Range(1, 2, 2, 20),
        Range(4, 4, 1, 1),
        Range(9, 10, 2, 4),
    ]


class Prepared:
    """Empty tables in a file of SQLite."""

    def __init__(self, directory: Path) -> None:
        self.database = Database(Address("sqlite", f"sqlite:///{directory}/a b?.db"))
        self.tables = StoreTables(self.database, "i", "c", "b")
        self.tables.create()

    def reclaimer(self, checkpoint: int = 0, first_log: int = 1) -> SqlReclaimer:
        return SqlReclaimer(self.database, self.tables.tables, HostRow(1, 1, 0, 0, checkpoint, 0, ""), first_log)


@pytest.fixture
def prepared(tmp_path: Path) -> Prepared:
    return Prepared(tmp_path)


def test_what_was_freed_after_a_checkpoint_stays_until_the_next(prepared: Prepared) -> None:
    reclaimer = prepared.reclaimer()
    reclaimer.fresh += [(2, 10), (1, 10)]
    reclaimer.log_bytes = 100
    freed = reclaimer.freed()
    reclaimer.fresh.append((3, 10))
    assert reclaimer.part() is None
    reclaimer.supersede(freed, 5)
    part = reclaimer.part()
    assert part is not None
    assert part == ([Range(1, 2, 2, 20)], 4)
    assert reclaimer.rows == 6
    assert reclaimer.done(part) == 20
    assert (reclaimer.rows, reclaimer.dead_log_bytes, reclaimer.part()) == (0, 0, None)
    reclaimer.supersede(reclaimer.freed(), 6)
    assert reclaimer.part() == ([Range(3, 3, 1, 10)], 5)


def test_a_part_is_bounded(prepared: Prepared) -> None:
    reclaimer = prepared.reclaimer(checkpoint=3 * PART_ROWS)
    reclaimer.fresh += [(number, 1) for number in range(0, 4 * PART_RANGES, 2)]
    reclaimer.supersede(reclaimer.freed(), 3 * PART_ROWS + 1)
    counted = 0
    while (part := reclaimer.part()) is not None:
        assert len(part.ranges) <= PART_RANGES
        with prepared.database.connected() as connection:
            reclaimer.delete(connection, part)
        reclaimer.done(part)
        counted += 1
        assert counted < 20
    assert reclaimer.rows == 0


def test_a_host_is_registered_once_and_its_incarnation_grows(prepared: Prepared) -> None:
    database, tables = prepared.database, prepared.tables.tables

    def opened(name: str, holder: str = "") -> HostRow:
        with database.connected() as connection:
            require_tables(database, connection, tables)
            return register(database, connection, tables, StoreOwner("c", "b", holder, "7"), name, "shared")

    assert [opened("h1")[:2], opened("h1", "x")[:2], opened("h2", "x")[:2]] == [(1, 1), (1, 2), (2, 1)]
    with pytest.raises(StoreError, match="another installation of broker b"):
        opened("h1", "y")
    assert prepared.tables.names() == {"h1": "shared", "h2": "shared"}
    with database.connected() as connection:
        assert check_owner(database, connection, tables, "c", "b") == "x"
        connection.execute(sqlalchemy.delete(tables.store))
    with pytest.raises(StoreDamagedError, match="0 rows say"):
        opened("h1")


def test_statements_are_made_for_both_databases() -> None:
    from sqlalchemy.dialects import postgresql, sqlite

    made = statements_of(sqlalchemy, tables_of(sqlalchemy, "i"))
    for dialect in (postgresql.dialect(), sqlite.dialect()):
        texts = [str(statement.compile(dialect=dialect)) for statement in made]
        assert all("raybroker1_" in text for text in texts)


def test_a_lock_has_one_holder_and_goes_with_it(prepared: Prepared) -> None:
    database = prepared.database
    connection = database.connect(autocommit=True)
    locks = [HostLock(database, connection, "i", "h1") for _ in range(2)]
    assert [lock.acquire() for lock in locks] == [True, False]
    assert locks[1].held()
    assert HostLock(database, connection, "i", "h2").acquire()
    locks[0].release()
    assert not locks[1].held()
    assert locks[1].acquire()
    locks[1].remove()
    database.close_connection(connection)
    assert advisory_key("i", "h1") != advisory_key("i", "h2")
    assert -(2**63) <= advisory_key("i", "h1") < 2**63


def test_the_file_is_for_its_owner_alone_and_its_errors_have_a_kind(prepared: Prepared, tmp_path: Path) -> None:
    database = prepared.database
    file = database.address.file
    assert file is not None
    assert os.stat(file).st_mode & 0o077 == 0
    assert size_bytes(file) > 0
    with pytest.raises(StoreError, match="no such table") as caught, database.connected() as connection:
        connection.exec_driver_sql("SELECT secret FROM absent WHERE x = 'value'")
    assert not isinstance(caught.value, StoreFullError)
    assert "value" not in str(caught.value)


def fill(database: Database) -> None:
    with database.connected() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count = 1")
        connection.exec_driver_sql("CREATE TABLE large AS SELECT zeroblob(1000000)")


def test_a_database_without_room_is_told_apart(prepared: Prepared) -> None:
    with pytest.raises(StoreFullError, match="full"):
        fill(prepared.database)


def test_a_backup_is_read_back_in_another_database(prepared: Prepared, tmp_path: Path) -> None:
    database, tables = prepared.database, prepared.tables.tables
    with database.connected() as connection:
        register(database, connection, tables, StoreOwner("c", "b", "", "7"), "h1", "shared")
        row = {"destination": 1, "nbytes": 1, "crc": 2, "row_crc": 3, "meta": b"m", "payload": b"p"}
        connection.execute(
            sqlalchemy.insert(tables.block),
            [{"id": key(1, number), "ordinal": signed(2**64 - number), **row} for number in range(1, 500)],
        )
    with (tmp_path / "file").open("wb") as out:
        assert backup.save(prepared.tables, out) == (1, 499)
    (tmp_path / "other").mkdir()
    other = Prepared(tmp_path / "other")
    other.tables.drop()
    assert backup.load(other.tables, tmp_path / "file") == (1, 499)

    def rows(of: Prepared, name: str) -> list[Any]:
        with of.database.connected() as connection:
            table = getattr(of.tables.tables, name)
            return list(connection.execute(sqlalchemy.select(table).order_by(table.c.id)).all())

    assert rows(other, "block") == rows(prepared, "block")
    assert rows(other, "host")[0].incarnation == 1 + backup.REOPENED
    assert rows(other, "store")[0].next_host == 2


def test_the_tables_are_made_in_one_transaction(prepared: Prepared) -> None:
    connection = prepared.database.connect()
    with connection.begin() as transaction:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        prepared.tables.tables.metadata.drop_all(connection)
        create_tables(prepared.database, connection, prepared.tables.tables, "other", "b")
        transaction.rollback()
    connection.close()
    assert prepared.tables.require() == ""
