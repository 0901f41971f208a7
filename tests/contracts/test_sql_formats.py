"""The version of tables with messages: the least that allows what is in them, in SQLite and in PostgreSQL (P-06)."""

from __future__ import annotations

import io
import itertools
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import raybroker as rb
from raybroker.config import Config
from raybroker.content.packed_block import PACKED
from raybroker.model.blocks.record import BLOCK, NOTE, LogEntry, PackedPayload
from raybroker.model.errors import ConfigError, IllegalStateError, StoreError, StoreFullError
from raybroker.store.sql import administration, backup, registration
from raybroker.store.sql.address import Address, address_of
from raybroker.store.sql.administration import StoreTables
from raybroker.store.sql.database import Database
from raybroker.store.sql.registration import StoreOwner, versions
from raybroker.store.sql.schema import VERSION
from raybroker.store.sql.store import SqlStore
from raybroker.system.clock import SystemClock
from tests.contracts import postgres
from tests.contracts.handles import bodies, take

PLAIN, WITH_COMPRESSED = {1}, {1, 2}
BODY = bytes((PACKED,)) + b"c" * 99


class Rig:
    """The tables of a broker, newly made."""

    numbers = itertools.count(1)

    def __init__(self, address: Address) -> None:
        self.database = Database(address)
        self.id = f"formats{next(self.numbers)}"
        self.tables = StoreTables(self.database, self.id, "c", "b")
        self.tables.create()

    def open(self, host: str = "h1") -> SqlStore:
        store = SqlStore(
            self.database, self.id, host, owner=StoreOwner("c", "b", "", "1"), monotonic_ns=SystemClock().monotonic_ns
        )
        list(store.recover())
        return store

    def commit(self, *entries: LogEntry) -> None:
        store = self.open()
        store.commit(entries)
        store.close()

    def sql(self, statement: str) -> None:
        with self.database.connected() as connection:
            connection.exec_driver_sql(statement)


@pytest.fixture(scope="module")
def server() -> Iterator[postgres.Server]:
    with postgres.server() as found:
        yield found


@pytest.fixture(
    params=["sqlite", pytest.param("postgresql", marks=[pytest.mark.sweep, pytest.mark.xdist_group("postgres")])]
)
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Rig:
    if request.param == "sqlite":
        return Rig(Address("sqlite", f"sqlite:///{tmp_path}/store.db"))
    return Rig(Address("postgresql", request.getfixturevalue("server").url))


def plain(ordinal: int) -> LogEntry:
    return LogEntry(BLOCK, 1, ordinal, b"", (bytes(100),))


def compressed(ordinal: int) -> LogEntry:
    return LogEntry(BLOCK, 1, ordinal, b"", PackedPayload((BODY,), (bytes(100),)))


def saved(rig: Rig, path: Path) -> int:
    """The version of a backup that is written there."""
    with path.open("wb") as file:
        backup.save(rig.tables, file)
    return int(struct.unpack_from("<I", path.read_bytes(), 8)[0])


def test_tables_without_compressed_blocks_keep_the_version_that_older_releases_read(rig: Rig) -> None:
    rig.commit(plain(1), LogEntry(NOTE, 1, 0, b"note"))
    assert rig.tables.versions() == PLAIN
    rig.commit(plain(2))
    assert rig.tables.versions() == PLAIN


def test_the_first_compressed_block_changes_the_version_in_its_own_transaction(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = rig.open()
    with monkeypatch.context() as patch:
        patch.setattr("raybroker.store.sql.store.chained", _no_room)
        with pytest.raises(StoreFullError):
            store.commit([compressed(1)])
    assert rig.tables.versions() == PLAIN, "what was not written leaves no version behind"
    store.commit([plain(1), compressed(2)])
    assert rig.tables.versions() == WITH_COMPRESSED
    store.commit([compressed(3), plain(4)])
    store.close()
    store = rig.open()
    assert [store.read(1, n)[0] for n in (1, 2, 3, 4)] == [0, PACKED, PACKED, 0]
    store.commit([compressed(5)])
    store.close()
    assert rig.tables.versions() == WITH_COMPRESSED


def _no_room(body: bytes, before: int) -> int:
    raise StoreFullError("no room")


def test_hosts_write_their_first_compressed_blocks_at_once(rig: Rig) -> None:
    stores = [rig.open(f"h{n}") for n in range(3)]
    begin, failed = threading.Barrier(len(stores)), []

    def commit(store: SqlStore) -> None:
        begin.wait()
        try:
            for ordinal in range(5):
                store.commit([compressed(ordinal)])
        except StoreError as error:
            failed.append(error)

    threads = [threading.Thread(target=commit, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert rig.tables.versions() == WITH_COMPRESSED
    for store in stores:
        assert [store.read(1, ordinal) for ordinal in range(5)] == [BODY] * 5
        store.close()


def test_the_release_of_before_refuses_such_tables_by_name_and_reads_the_others(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def of_before() -> None:
        for module in (registration, administration, backup):
            monkeypatch.setattr(module, "NEWEST", VERSION)  # All that its check of the version knew.

    rig.commit(plain(1))
    with monkeypatch.context():
        of_before()
        rig.commit(plain(2))
        monkeypatch.undo()
    rig.commit(compressed(3))
    assert saved(rig, tmp_path / "backup") == 2
    of_before()
    refused: tuple[Callable[[], object], ...] = (
        rig.open,
        rig.tables.require,
        rig.tables.drop,
        rig.tables.recreate,
        rig.tables.upgrade,
        rig.tables.hosts,
    )
    for call in refused:
        with pytest.raises(ConfigError, match="are of version 2, and this release reads versions 1 to 1"):
            call()
    with pytest.raises(IllegalStateError, match="already, of version 2"):
        rig.tables.create()
    with pytest.raises(ConfigError, match="backup is of version 2, and this release reads"):
        backup.load(rig.tables, tmp_path / "backup")
    monkeypatch.undo()
    store = rig.open()
    assert store.read(1, 3) == BODY
    store.close()


def test_tables_of_before_that_have_compressed_blocks_are_read_and_upgraded(rig: Rig) -> None:
    """Tables were given such blocks before there was a version for it."""
    rig.commit(LogEntry(BLOCK, 1, 1, b"", (BODY,)))
    assert rig.tables.versions() == PLAIN
    store = rig.open()
    assert rig.tables.upgrade(), "also while a host has them open"
    assert not rig.tables.upgrade()
    assert rig.tables.versions() == WITH_COMPRESSED
    store.commit([compressed(2)])
    assert (store.read(1, 1), store.read(1, 2)) == (BODY, BODY)
    store.close()


def test_a_backup_has_the_version_of_the_tables_and_gives_it_back(rig: Rig, tmp_path: Path) -> None:
    rig.commit(plain(1))
    assert saved(rig, tmp_path / "plain") == 1
    rig.commit(compressed(2))
    assert saved(rig, tmp_path / "compressed") == 2
    backup.load(rig.tables, tmp_path / "plain")
    assert rig.tables.versions() == PLAIN
    backup.load(rig.tables, tmp_path / "compressed")
    assert rig.tables.versions() == WITH_COMPRESSED
    store = rig.open()
    assert store.read(1, 2) == BODY
    store.close()
    rig.tables.recreate()
    assert rig.tables.versions() == PLAIN, "empty tables have nothing that an older release could not read"
    rig.tables.drop()
    assert rig.tables.versions() == set()
    backup.load(rig.tables, tmp_path / "compressed")
    assert rig.tables.versions() == WITH_COMPRESSED
    rig.tables.drop()


@pytest.mark.parametrize("version", [0, 3, 2**32 - 1])
def test_versions_that_nobody_has_made_yet_are_refused_and_nothing_is_changed(
    rig: Rig, tmp_path: Path, version: int
) -> None:
    rig.commit(plain(1))
    path = tmp_path / "backup"
    saved(rig, path)
    content = path.read_bytes()
    path.write_bytes(content[:8] + struct.pack("<I", version) + content[12:])
    with pytest.raises(ConfigError, match=f"is of version {version}, and this release reads versions 1 to 2"):
        backup.load(rig.tables, path)
    store = rig.open()
    assert store.read(1, 1)
    store.close()
    if 0 < version < 10:
        rig.sql(f'CREATE TABLE "raybroker{version}_log_S{rig.id}" (id INTEGER)')
        with pytest.raises(ConfigError, match=f"of version {version}, and this release reads versions 1 to 2"):
            rig.open()


def test_a_marker_without_tables_is_no_store(rig: Rig) -> None:
    rig.commit(compressed(1))
    with rig.database.connected() as connection:
        rig.tables.tables.metadata.drop_all(connection)
    assert rig.tables.versions() == {2}
    for call in (rig.open, rig.tables.require, rig.tables.upgrade):
        with pytest.raises(ConfigError, match=r"there are no tables .* dbmgr create tbl"):
            call()
    rig.tables.create()
    rig.commit(plain(1))


def test_a_backup_counts_the_version_of_its_own_moment(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A first compressed block that is written after the backup began is not in it, and neither is its version."""
    store, file = rig.open(), io.BytesIO()
    store.commit([plain(1)])
    ask = backup.versions

    def then_commit(*arguments: object) -> set[int]:
        found = ask(*arguments)  # type: ignore[arg-type]
        store.commit([compressed(2)])
        return found

    monkeypatch.setattr(backup, "versions", then_commit)
    assert backup.save(rig.tables, file) == (1, 1)
    assert struct.unpack_from("<I", file.getvalue(), 8) == (1,)
    assert rig.tables.versions() == WITH_COMPRESSED
    store.close()


def test_a_broker_that_compresses_has_tables_that_say_so(tmp_path: Path) -> None:  # W-52
    off = {"imq.persist.store": "sql"}
    on = {**off, "raybroker.store.message_compression_enabled": True}
    text = "departure of a flight, delayed " * 100
    database = Database(address_of(Config.from_values(off), tmp_path / "store"))
    tables = StoreTables(database, "loopback_loopback", "loopback", "loopback")
    with rb.loopback(tmp_path / "store", properties=off) as connection:
        connection.session().producer("q").send(text)
        assert tables.versions() == PLAIN
    with rb.loopback(tmp_path / "store", properties=on) as connection:
        connection.session().producer("q").send(text)
        assert tables.versions() == WITH_COMPRESSED
    with rb.loopback(tmp_path / "store", properties=off) as connection:
        assert bodies(take(connection.session().consumer("q"), 2)) == [text, text]
    with database.connected() as open_:
        assert versions(database, open_, tables.tables) == WITH_COMPRESSED


def test_a_store_that_was_closed_can_be_opened_at_once(rig: Rig) -> None:
    """PostgreSQL ends a session, and what it has locked, some time after its connection was closed."""
    for _ in range(30):
        rig.open().close()
