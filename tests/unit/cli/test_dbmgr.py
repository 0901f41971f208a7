"""``raybroker dbmgr``: the shared table by hand (K-20, A-59)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from raybroker.actors.join import check_table
from raybroker.actors.stores.record_tables import TableManager
from raybroker.cli import connecting
from raybroker.cluster.backup import dump, load
from raybroker.cluster.change_record import Change, ChangeRecord
from raybroker.cluster.record_rows import row_of
from raybroker.config import Config
from raybroker.config.brokers import plan_of
from raybroker.model.errors import ConfigError
from raybroker.store.record_table import ROWS_MAX, RecordTable

NO_MASTER = "imq.cluster.nomasterbroker = true\n"


class Place:
    """A cluster file and the database that it names."""

    def __init__(self, directory: Path) -> None:
        self.database = directory / "record.db"
        self.config = directory / "cluster.toml"
        self.url = f"sqlite:///{self.database}"
        self.config.write_text(f'{NO_MASTER}imq.cluster.sharecc.persist.jdbc.url = "{self.url}"\n')
        self.table = RecordTable(self.url, 500)

    @property
    def arguments(self) -> tuple[str, str]:
        return "--config", str(self.config)

    def head(self) -> Any:
        found = self.table.read("", 0)
        assert found is not None
        return found.head

    def append(self, count: int) -> ChangeRecord:
        """Queues, as a broker would create them."""
        record = ChangeRecord(self.head().record, "default", self.head().term)
        for number in range(count):
            entry = record.propose(Change("create_destination", ("queue", f"q{number}"), {}))
            assert self.table.insert(record.id, [row_of(entry, f"b1.{number}")])
        return record


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """For a cluster that does not run."""
    monkeypatch.setattr(connecting, "running", lambda cluster: [])
    return Place(tmp_path)


@pytest.mark.parametrize("verb", ["delete", "recreate", "restore"])
def test_the_table_of_brokers_that_run_is_not_lost_by_mistake(
    raybroker: Any, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    file = tmp_path / "record.backup"
    raybroker.output("dbmgr", "create", "sharecc_tbl", *place.arguments)
    raybroker.output("dbmgr", "backup", "sharecc_tbl", "-f", str(file), *place.arguments)
    monkeypatch.setattr(connecting, "running", lambda cluster: ["b1", "b2"])
    before = place.head()
    of = ("-f", str(file)) if verb == "restore" else ()
    result = raybroker("dbmgr", verb, "sharecc_tbl", *of, *place.arguments)
    assert result.exit_code == 2
    assert "b1, b2" in result.stderr
    assert "--force" in result.stderr
    assert place.head() == before
    raybroker.output("dbmgr", verb, "sharecc_tbl", *of, "--force", *place.arguments)


def test_brokers_are_not_started_without_their_table(place: Place) -> None:
    config = Config.load(cluster_file=place.config)
    with pytest.raises(ConfigError, match="raybroker dbmgr create sharecc_tbl"):
        check_table(plan_of(config), config)
    TableManager(config, "default").create()
    check_table(plan_of(config), config)


def test_a_backup_into_a_folder_that_is_not_there_is_refused(raybroker: Any, place: Place, tmp_path: Path) -> None:
    raybroker.output("dbmgr", "create", "sharecc_tbl", *place.arguments)
    file = tmp_path / "nowhere" / "record.backup"
    for command in (("dbmgr", "backup", "sharecc_tbl", *place.arguments), ("backup", "cls")):
        result = raybroker(*command, "-f", str(file))
        assert result.exit_code == 2
        assert f"there is no folder {file.parent}" in result.stderr


def test_a_table_is_made_saved_emptied_restored_and_removed(raybroker: Any, place: Place, tmp_path: Path) -> None:
    file = tmp_path / "record.backup"
    assert "created table raybroker_sharecc" in raybroker.output("dbmgr", "create", "sharecc_tbl", *place.arguments)
    first = place.head()
    assert (first.cluster, first.term, first.base_number) == ("default", 1, 0)
    record = place.append(3)
    raybroker.output("dbmgr", "backup", "sharecc_tbl", "-f", str(file), *place.arguments)
    saved = load(file.read_bytes(), cluster="default")
    assert (saved.digest, saved.state) == (record.digest, record.state)
    raybroker.output("dbmgr", "recreate", "sharecc_tbl", "--force", *place.arguments)
    emptied = place.head()
    assert emptied.record != first.record
    assert (emptied.term, emptied.base_number) == (1000, 0)
    told = raybroker.output("dbmgr", "restore", "sharecc_tbl", "--force", "-f", str(file), *place.arguments)
    assert "restored 3 destinations" in told
    assert (place.head().term, place.head().base_number) == (2000, 3)
    raybroker.output("dbmgr", "delete", "sharecc_tbl", "--force", *place.arguments)
    assert not place.table.exists()
    raybroker.output("dbmgr", "restore", "sharecc_tbl", "--force", "-f", str(file), *place.arguments)
    assert (place.head().term, place.head().base_number) == (1000, 3)


def test_a_long_record_is_saved_whole(raybroker: Any, place: Place, tmp_path: Path) -> None:
    raybroker.output("dbmgr", "create", "sharecc_tbl", *place.arguments)
    record = ChangeRecord(place.head().record, "default", 1)
    entries = [record.propose(Change("set_template", ("t",), {"n": n})) for n in range(ROWS_MAX * 2 + 3)]
    assert place.table.insert(record.id, [row_of(entry, f"w{entry.number}") for entry in entries])
    raybroker.output("dbmgr", "backup", "sharecc_tbl", "-f", str(tmp_path / "b"), *place.arguments)
    assert (tmp_path / "b").read_bytes() == dump(record)


def test_a_backup_of_a_master_is_restored_into_a_table(raybroker: Any, place: Place, tmp_path: Path) -> None:
    record = ChangeRecord("of-the-master", "default", 5)
    record.propose(Change("create_destination", ("queue", "q"), {}))
    (tmp_path / "b").write_bytes(dump(record))
    raybroker.output("dbmgr", "restore", "sharecc_tbl", "--force", "-f", str(tmp_path / "b"), *place.arguments)
    assert (place.head().term, place.head().base_number) == (1000, 1)
    assert place.head().record != "of-the-master"


def test_what_is_wrong_is_said(raybroker: Any, place: Place, tmp_path: Path) -> None:
    plain = tmp_path / "plain.toml"
    plain.write_text(NO_MASTER)
    master = tmp_path / "master.toml"
    master.write_text(f'imq.cluster.sharecc.persist.jdbc.url = "{place.url}"\n')
    there = tmp_path / "there"
    there.write_text("kept")
    for arguments, code, said in (
        (("create", "lck", *place.arguments), 2, "there is tbl and all and sharecc_tbl"),
        (("create", "tbl", *place.arguments), 2, "imq.persist.store is file (default)"),
        (("create", "sharecc_tbl", "--config", str(plain)), 2, "jdbc.url is not set"),
        (("create", "sharecc_tbl", "--config", str(master)), 2, "nomasterbroker is false"),
        (("create", "sharecc_tbl", "--config", str(tmp_path / "none.toml")), 2, "none.toml"),
        (("backup", "sharecc_tbl", "-f", str(there), *place.arguments), 2, "not overwritten"),
        (("backup", "sharecc_tbl", "-f", str(tmp_path / "b"), *place.arguments), 1, "there is none; create it"),
        (("recreate", "sharecc_tbl", "--force", *place.arguments), 1, "there is none"),
        (("delete", "sharecc_tbl", "--force", *place.arguments), 1, "there is none"),
        (("restore", "sharecc_tbl", "--force", "-f", str(tmp_path / "none"), *place.arguments), 2, "none"),
        (("restore", "sharecc_tbl", "--force", "-f", str(there), *place.arguments), 1, "no backup"),
        (("create", "sharecc_tbl", *place.arguments), 0, ""),
        (("create", "sharecc_tbl", *place.arguments), 1, "there already"),
        (
            ("delete", "sharecc_tbl", "--force", "--cluster", "other", *place.arguments),
            1,
            "belongs to cluster 'default'",
        ),
        (("recreate", "sharecc_tbl", "--force", "--cluster", "other", *place.arguments), 1, "this is cluster 'other'"),
    ):
        result = raybroker("dbmgr", *arguments)
        assert (result.exit_code, said in result.output) == (code, True), (arguments, result.output)
    assert there.read_text() == "kept"
    assert place.head().cluster == "default"


def test_a_backup_of_another_cluster_is_not_restored(raybroker: Any, place: Place, tmp_path: Path) -> None:
    raybroker.output("dbmgr", "create", "sharecc_tbl", *place.arguments)
    (tmp_path / "b").write_bytes(dump(ChangeRecord("r", "other", 1)))
    result = raybroker("dbmgr", "restore", "sharecc_tbl", "--force", "-f", str(tmp_path / "b"), *place.arguments)
    assert result.exit_code == 1
    assert "of cluster 'other' and this is cluster 'default'" in result.output
    assert place.head().term == 1


def test_a_damaged_table_is_not_saved_and_may_be_removed(raybroker: Any, place: Place, tmp_path: Path) -> None:
    raybroker.output("dbmgr", "create", "sharecc_tbl", *place.arguments)
    place.append(3)
    for statement in (
        "UPDATE raybroker_sharecc_entry SET body = '[]' WHERE number = 2",
        "DELETE FROM raybroker_sharecc_entry WHERE number = 2",
        "DELETE FROM raybroker_sharecc",
    ):
        with place.table._engine.begin() as connection:
            connection.exec_driver_sql(statement)
        result = raybroker("dbmgr", "backup", "sharecc_tbl", "-f", str(tmp_path / "b"), *place.arguments)
        assert result.exit_code == 1, statement
        assert not (tmp_path / "b").exists()
    raybroker.output("dbmgr", "delete", "sharecc_tbl", "--force", *place.arguments)
    raybroker.output("dbmgr", "create", "sharecc_tbl", *place.arguments)


def test_the_id_of_the_configuration_counts_before_the_name(place: Place) -> None:
    given: dict[str, object] = {
        "imq.cluster.nomasterbroker": True,
        "imq.cluster.sharecc.persist.jdbc.url": place.url,
        "imq.cluster.clusterid": "the-id",
    }
    TableManager(Config.from_values(given), "the-name").create()
    assert place.head().cluster == "the-id"
    with pytest.raises(ConfigError, match=r"raybroker_sharecc .* belongs to cluster 'the-id'"):
        TableManager(Config.from_values({**given, "imq.cluster.clusterid": ""}), "the-name").backup()
