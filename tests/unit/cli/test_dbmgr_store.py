"""``raybroker dbmgr`` and the tables with messages (A-56, A-57, A-58, A-59)."""

from __future__ import annotations

import sqlite3
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from raybroker.actors.stores.store_tables import StoreManager, check_tables, hosts_of, remove_host
from raybroker.cli import connecting
from raybroker.config import Config
from raybroker.config.brokers import plan_of
from raybroker.model.blocks.record import BLOCK, CHECKPOINT, NOTE, LogEntry
from raybroker.model.errors import ConfigError, IllegalStateError, StoreDamagedError, StoreError
from raybroker.store.sql.opening import holder_of, open_store
from raybroker.store.sql.store import SqlStore
from raybroker.system.clock import SystemClock

TABLES = {f"raybroker1_{part}_Sdefault_b1" for part in ("store", "host", "log", "block")}
COMMITTED = [
    [LogEntry(BLOCK, 1, 0, b"m0", (b"zero",)), LogEntry(NOTE, 1, 0, b"note")],
    [LogEntry(CHECKPOINT, 0, 0, b"state"), LogEntry(BLOCK, 1, 2**64 - 1, b"", (b"\0" * 3000,))],
    [LogEntry(NOTE, 2, 0, b"last")],
]


class Place:
    """A cluster file and the database that it names."""

    def __init__(self, directory: Path, more: str = "") -> None:
        self.file = directory / "made" / "store.db"
        self.config = directory / "cluster.toml"
        self.config.write_text(
            f'imq.persist.store = "sql"\nimq.persist.jdbc.sqlite.opendburl = "sqlite:///{self.file}"\n{more}'
        )

    @property
    def arguments(self) -> tuple[str, str]:
        return "--config", str(self.config)

    @property
    def loaded(self) -> Config:
        return Config.load(cluster_file=self.config)

    def tables(self) -> set[str]:
        if not self.file.exists():
            return set()
        with sqlite3.connect(self.file) as connection:
            return {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}

    def open(self, host: str = "h1", *, cluster: str = "default", holder: str = "one") -> SqlStore:
        clock = SystemClock()
        return open_store(
            self.loaded,
            Path(),
            cluster=cluster,
            broker="b1",
            host=host,
            hosting="dedicated",
            holder=holder,
            monotonic_ns=clock.monotonic_ns,
            sleep=clock.sleep,
            report=print,
        )

    def fill(self) -> None:
        store = self.open()
        assert list(store.recover()) == []
        for batch in COMMITTED:
            store.commit(batch)
        store.close()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """For a cluster that does not run."""
    monkeypatch.setattr(connecting, "running", lambda cluster: [])
    return Place(tmp_path)


def content(store: SqlStore) -> tuple[list[LogEntry], list[bytes]]:
    entries = list(store.recover())
    return entries, [store.read(e.destination, e.ordinal) for e in entries if e.kind == BLOCK]


def test_tables_are_made_looked_at_saved_emptied_restored_and_removed(
    raybroker: Any, place: Place, tmp_path: Path
) -> None:
    file = tmp_path / "store.backup"
    assert raybroker.json("dbmgr", "query", *place.arguments)[0]["tables"] == "missing"
    assert not place.file.exists(), "looking makes nothing"
    assert "created tables raybroker1_*_Sdefault_b1" in raybroker.output("dbmgr", "create", "tbl", *place.arguments)
    assert place.tables() == TABLES
    place.fill()
    row = raybroker.json("dbmgr", "query", *place.arguments)[0]
    assert (row["id"], row["version"], row["tables"], row["blocks"]) == ("default_b1", 1, "there", 2)
    assert row["url"] == f"sqlite:///{place.file}"
    assert [(host["name"], host["held"], host["owner"]) for host in row["hosts"]] == [("h1", False, "")]
    assert "default_b1" in raybroker.output("dbmgr", "query", *place.arguments)
    raybroker.output("dbmgr", "backup", "tbl", "-f", str(file), *place.arguments)
    raybroker.output("dbmgr", "recreate", "tbl", "--force", *place.arguments)
    assert raybroker.json("dbmgr", "query", *place.arguments)[0]["hosts"] == []
    told = raybroker.output("dbmgr", "restore", "tbl", "--force", "-f", str(file), *place.arguments)
    assert "restored 2 blocks of 1 hosts" in told
    store = place.open()
    entries, payloads = content(store)
    assert [entry[:4] for entry in entries] == [
        (CHECKPOINT, 0, 0, b"state"),
        (BLOCK, 1, 0, b"m0"),
        (BLOCK, 1, 2**64 - 1, b""),
        (NOTE, 2, 0, b"last"),
    ]
    assert payloads == [b"zero", b"\0" * 3000]
    assert store.incarnation > 2, "an incarnation is never used again"
    store.close()
    other = place.open("h2")
    list(other.recover())
    other.close()
    raybroker.output("dbmgr", "delete", "tbl", "--force", *place.arguments)
    assert place.tables() == set()
    assert not list(place.file.parent.glob("*.lock"))
    raybroker.output("dbmgr", "restore", "tbl", "--force", "-f", str(file), *place.arguments)
    assert place.tables() == TABLES


def test_a_store_that_is_open_is_not_lost_by_mistake(raybroker: Any, place: Place, tmp_path: Path) -> None:
    file = tmp_path / "store.backup"
    raybroker.output("dbmgr", "create", "all", *place.arguments)
    store = place.open()
    list(store.recover())
    store.commit(COMMITTED[0])
    raybroker.output("dbmgr", "backup", "tbl", "-f", str(file), *place.arguments)
    with pytest.raises(StoreError, match="is open in process"):
        place.open()
    manager = StoreManager(place.loaded, "default")
    for lose in (manager.delete, manager.recreate, partial(manager.restore, file)):
        with pytest.raises(IllegalStateError, match=r"are open: h1 \(process \d+ on "):
            lose()
        assert store.read(1, 0) == b"zero"
    assert raybroker("dbmgr", "reset", "lck", "--force", *place.arguments).exit_code == 1, "its process runs"
    raybroker.output("dbmgr", "recreate", "tbl", "--force", *place.arguments)
    with pytest.raises(StoreError, match="another process has opened it since"):
        store.commit([LogEntry(NOTE, 1, 0, b"late")])
    with pytest.raises(StoreError, match="was stopped"):
        store.commit([LogEntry(NOTE, 1, 0, b"later")])
    store.close()


@pytest.mark.parametrize("verb", ["delete", "recreate", "restore", "reset"])
def test_the_tables_of_brokers_that_run_are_not_lost_by_mistake(
    raybroker: Any, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    file = tmp_path / "store.backup"
    raybroker.output("dbmgr", "create", "tbl", *place.arguments)
    place.fill()
    raybroker.output("dbmgr", "backup", "tbl", "-f", str(file), *place.arguments)
    monkeypatch.setattr(connecting, "running", lambda cluster: ["b1", "b2"])
    of = ("lck",) if verb == "reset" else ("tbl", "-f", str(file)) if verb == "restore" else ("tbl",)
    result = raybroker("dbmgr", verb, *of, *place.arguments)
    assert result.exit_code == 2
    assert "b1, b2" in result.stderr
    assert raybroker.json("dbmgr", "query", *place.arguments)[0]["blocks"] == 2
    raybroker.output("dbmgr", verb, *of, "--force", *place.arguments)


def test_tables_of_a_lost_installation_are_taken_after_the_lock_is_reset(raybroker: Any, place: Place) -> None:
    raybroker.output("dbmgr", "create", "tbl", *place.arguments)
    place.fill()
    config, token = place.loaded, b"another"
    with pytest.raises(StoreError, match="reset lck"):
        place.open(holder="two")
    assert hosts_of(config, Path(), "default", "b1", holder_of(token)) == {}
    raybroker.output("dbmgr", "reset", "lck", "--force", *place.arguments)
    assert hosts_of(config, Path(), "default", "b1", holder_of(token)) == {"h1": "dedicated"}
    store = place.open(holder=holder_of(token))
    assert len(content(store)[0]) == 4
    store.close()
    assert hosts_of(config, Path(), "default", "b1", holder_of(token)) == {"h1": "dedicated"}
    remove_host(config, Path(), "default", "b1", "h1")
    assert hosts_of(config, Path(), "default", "b1", holder_of(token)) == {}
    with sqlite3.connect(place.file) as connection:
        for part in ("host", "log", "block"):
            assert connection.execute(f"SELECT count(*) FROM raybroker1_{part}_Sdefault_b1").fetchone() == (0,)


def test_tables_of_another_broker_or_version_are_refused_with_the_reason(
    raybroker: Any, place: Place, tmp_path: Path
) -> None:
    named = Place(tmp_path, 'imq.brokerid = "mine"\n')
    with pytest.raises(ConfigError, match="dbmgr create tbl"):
        check_tables(plan_of(named.loaded), named.loaded, "default")
    with pytest.raises(ConfigError, match="dbmgr create tbl"):
        named.open()
    raybroker.output("dbmgr", "create", "tbl", *named.arguments)
    check_tables(plan_of(named.loaded), named.loaded, "default")
    plan = plan_of(named.loaded)
    for refused in (lambda: named.open(cluster="other"), lambda: check_tables(plan, named.loaded, "other")):
        with pytest.raises(ConfigError, match=r"belong to broker 'b1' of cluster 'default', and this is .*'other'"):
            refused()
    assert raybroker("dbmgr", "delete", "tbl", "--force", "--cluster", "other", *named.arguments).exit_code == 1
    with sqlite3.connect(named.file) as connection:
        connection.execute("CREATE TABLE raybroker3_store_Smine_b1 (id INTEGER)")
    with pytest.raises(ConfigError, match="are of version 3, and this release reads versions 1 to 2"):
        named.open()
    assert raybroker.json("dbmgr", "query", *named.arguments)[0]["other_versions"] == "3"


def test_tables_are_brought_to_the_newest_version(raybroker: Any, place: Place) -> None:
    assert "upgraded" not in raybroker("dbmgr", "upgrade", "tbl", *place.arguments).output
    raybroker.output("dbmgr", "create", "tbl", *place.arguments)
    place.fill()
    told = raybroker.output("dbmgr", "upgrade", "tbl", *place.arguments)
    assert told.startswith("upgraded raybroker1_*_Sdefault_b1 at ")
    assert told.endswith("to version 2\n")
    assert raybroker.json("dbmgr", "query", *place.arguments)[0]["version"] == 2
    assert "upgraded nothing" in raybroker.output("dbmgr", "upgrade", "tbl", *place.arguments)
    store = place.open()
    assert content(store)[1] == [b"zero", b"\0" * 3000]
    store.close()
    raybroker.output("dbmgr", "delete", "tbl", "--force", *place.arguments)
    assert place.tables() == set()


def test_tables_of_older_versions_go_by_their_own_verb(raybroker: Any, place: Place) -> None:
    raybroker.output("dbmgr", "create", "tbl", *place.arguments)
    with sqlite3.connect(place.file) as connection:
        connection.execute("CREATE TABLE raybroker0_log_Sdefault_b1 (id INTEGER)")
        connection.execute("CREATE TABLE raybroker0_log_Sdefault_b10 (id INTEGER)")
    assert "deleted version 0" in raybroker.output("dbmgr", "delete", "oldtbl", *place.arguments)
    assert "deleted nothing" in raybroker.output("dbmgr", "delete", "oldtbl", *place.arguments)
    assert place.tables() == {*TABLES, "raybroker0_log_Sdefault_b10"}


def test_several_brokers_have_tables_each(raybroker: Any, tmp_path: Path, place: Place) -> None:
    both = Place(tmp_path, 'imq.cluster.brokerlist = "b1,b2"\n')
    raybroker.output("dbmgr", "create", "tbl", "-b", "b2", *both.arguments)
    told = raybroker.output("dbmgr", "create", "tbl", *both.arguments)
    assert "Sdefault_b1" in told
    assert "Sdefault_b2" not in told, "its tables were there"
    assert len(both.tables()) == 8
    assert [row["broker"] for row in raybroker.json("dbmgr", "query", *both.arguments)] == ["b1", "b2"]
    for arguments, code, said in (
        (("backup", "tbl", "-f", str(tmp_path / "f")), 1, "say which of b1, b2 by -b"),
        (("create", "tbl", "-b", "b3"), 2, "'b3' is none of the brokers b1, b2"),
        (("create", "tbl"), 1, "there already"),
        (("restore", "tbl", "-f", str(tmp_path / "none")), 2, "no such file"),
    ):
        result = raybroker("dbmgr", *arguments, *both.arguments)
        assert (result.exit_code, said in result.output) == (code, True), (arguments, result.output)


def test_a_damaged_backup_changes_nothing(raybroker: Any, place: Place, tmp_path: Path) -> None:
    file = tmp_path / "store.backup"
    manager = StoreManager(place.loaded, "default")
    manager.create(database=False)
    place.fill()
    manager.backup(file)
    data = file.read_bytes()
    flipped = bytearray(data)
    flipped[len(data) // 2] ^= 1
    for damaged in (data[:-40], bytes(flipped), b"RB" + data, data * 2, b""):
        file.write_bytes(damaged)
        with pytest.raises(StoreDamagedError, match=str(file)):
            manager.restore(file)
        assert manager.query()[0]["blocks"] == 2


def test_a_backup_of_another_broker_is_not_restored(raybroker: Any, place: Place, tmp_path: Path) -> None:
    file = tmp_path / "store.backup"
    raybroker.output("dbmgr", "create", "tbl", *place.arguments)
    raybroker.output("dbmgr", "backup", "tbl", "-f", str(file), *place.arguments)
    result = raybroker("dbmgr", "restore", "tbl", "--force", "-f", str(file), "-b", "b2", *place.arguments)
    assert result.exit_code == 1
    assert "broker 'b1'" in result.output
    assert place.tables() == TABLES


def test_what_belongs_to_a_takeover_is_refused_with_what_to_do_in_its_place(raybroker: Any, tmp_path: Path) -> None:
    place = Place(tmp_path)
    for words, told in (
        (("remove", "bkr"), "say which broker, with -b"),
        (("remove", "bkr", "-b", "b1", "--force"), "imq.cluster.ha is false (default): each broker has a store of its"),
        (("upgrade", "hastore"), "dbmgr upgrade hastore: imq.cluster.ha is false"),
        (("remove", "tbl", "-b", "b1"), "'tbl' is not known here; there is bkr"),
    ):
        result = raybroker("dbmgr", *words, *place.arguments)
        assert result.exit_code == 2
        assert told in " ".join(result.output.replace("│", " ").split())
    shared = Place(tmp_path, "imq.cluster.ha = true\n")
    result = raybroker("dbmgr", "create", "tbl", *shared.arguments)
    assert result.exit_code == 2
    assert "set imq.persist.store = sql and imq.persist.jdbc.dbVendor = postgresql" in " ".join(
        result.output.replace("│", " ").split()
    )
