"""Clusters whose record is in a table that all brokers share, in SQLite and in a real PostgreSQL (K-20)."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy

from raybroker.cluster.change_record import ChangeRecord
from raybroker.cluster.record_rows import parts_of, record_of
from raybroker.errors import BrokerError, InvalidDestinationError, MasterUnavailableError
from raybroker.model.shared_record import TABLE
from raybroker.store.record_table import RecordTable
from tests.contracts import postgres
from tests.contracts.cluster_rig import ClusterRig
from tests.contracts.handles import WAIT_S, until

TIMEOUT_MS = 4000
POSTGRES = pytest.mark.xdist_group("postgres")


class Database:
    """One database; ``server`` None: a file of SQLite."""

    def __init__(self, url: str, server: postgres.Server | None, file: Path) -> None:
        self.url = url
        self.server = server
        self.file = file
        self.table = RecordTable(url, TIMEOUT_MS)
        if self.table.exists():
            self.table.drop()

    def create(self, cluster: str = "rig") -> None:
        self.table.create(*parts_of(ChangeRecord("first", cluster, 1)))

    @contextlib.contextmanager
    def down(self) -> Iterator[None]:
        """Nobody can use it meanwhile."""
        if self.server is not None:
            self.server.stop()
            try:
                yield
            finally:
                self.server.start()
            return
        holder = sqlite3.connect(self.file, isolation_level=None, check_same_thread=False)
        try:
            holder.execute("BEGIN EXCLUSIVE")
            yield
        finally:
            holder.close()

    def record(self) -> ChangeRecord:
        found = self.table.read("", 0)
        assert found is not None
        return record_of(found)

    def execute(self, statement: str) -> None:
        with sqlalchemy.create_engine(self.url).begin() as connection:
            connection.execute(sqlalchemy.text(statement))


@pytest.fixture(scope="module")
def running_postgres() -> Iterator[postgres.Server]:
    with postgres.server() as found:
        yield found


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=POSTGRES)])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    file = tmp_path / "shared" / "record.db"
    if request.param == "sqlite":
        return Database(f"sqlite:///{file}", None, file)
    server = request.getfixturevalue("running_postgres")
    return Database(server.url, server, file)


def rig_of(directory: Path, database: Database, brokers: int = 3, **more: Any) -> ClusterRig:
    given = {"raybroker.cluster.table_timeout_ms": TIMEOUT_MS, **more.pop("properties", {})}
    return ClusterRig(
        directory / "rig",
        brokers,
        imq__cluster__nomasterbroker=True,
        imq__cluster__sharecc__persist__jdbc__url=database.url,
        **given,
        **more,
    )


@pytest.fixture
def rig(tmp_path: Path, database: Database) -> Iterator[ClusterRig]:
    database.create()
    with rig_of(tmp_path, database) as made:
        yield made


def digests(rig: ClusterRig) -> set[str]:
    return {broker.cluster.clustering.member.durable.digest for broker in rig.brokers.values()}


def agree(rig: ClusterRig, database: Database) -> ChangeRecord:
    """All brokers have what the table has, and have carried it out."""
    until(lambda: len(database.record().state.brokers) == len(rig.plan.names))
    until(lambda: digests(rig) == {database.record().digest})
    record = database.record()
    for broker in rig.brokers.values():
        member = broker.cluster.clustering.member
        assert member.agreed == record.state
        until(lambda member=member: member.applied == record.number)
        there = {key for key in broker.local.registry.where if not key[1].startswith("mq.")}
        assert there == set(record.state.destinations)
    return record


def test_a_destination_created_anywhere_is_everywhere(rig: ClusterRig, database: Database) -> None:  # K-03, K-07
    names = {home: rig.name() for home in rig.plan.names}
    for home, name in names.items():
        rig.connect(home).admin().create_destination("queue", name, maxNumMsgs=7)
    for home in rig.plan.names:
        admin = rig.connect(home).admin()
        for name in names.values():
            assert len(admin.query_destination("queue", name)["members"]) == 3
        assert [row["broker"] for row in admin.list_brokers() if row["master"]] == []
    rig.connect("b3").admin().update_destination("queue", names["b1"], maxNumMsgs=11)
    rig.connect("b2").admin().destroy_destination("queue", names["b3"])
    with pytest.raises(InvalidDestinationError, match="exists already"):
        rig.connect("b1").admin().create_destination("queue", names["b1"])
    with pytest.raises(InvalidDestinationError):
        rig.connect("b1").admin().query_destination("queue", names["b3"])
    assert sorted(agree(rig, database).state.brokers) == ["b1", "b2", "b3"]


def test_messages_go_through_all_members(rig: ClusterRig) -> None:
    name = rig.name()
    rig.connect("b1").admin().create_destination("queue", name)
    rig.connect("b2").session().producer(name).send_many(range(50))
    consumer = rig.connect("b3").session().consumer(name)
    assert sorted(consumer.receive(timeout=WAIT_S).body for _ in range(50)) == list(range(50))


def test_three_who_create_at_once_do_not_diverge(rig: ClusterRig, database: Database) -> None:
    """Each creates its own, and all the same: of those one wins."""
    won: list[str] = []
    failed: list[BaseException] = []
    start = threading.Barrier(3)

    def create(home: str) -> None:
        try:
            admin = rig.connect(home).admin()
            start.wait()
            for number in range(8):
                admin.create_destination("queue", f"{home}-{number}", maxNumMsgs=number + 1)
                try:
                    admin.create_destination("queue", f"same-{number}")
                except InvalidDestinationError:
                    continue
                won.append(f"same-{number}")
        except BaseException as error:
            failed.append(error)
            raise

    threads = [threading.Thread(target=create, args=(home,)) for home in rig.plan.names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert sorted(won) == [f"same-{number}" for number in range(8)]
    assert len(agree(rig, database).state.destinations) == 32


def test_a_broker_that_was_killed_comes_back_with_what_it_missed(rig: ClusterRig, database: Database) -> None:  # K-11
    gone, kept = rig.name(), rig.name()
    admin = rig.connect("b1").admin()
    admin.create_destination("queue", gone)
    rig.kill("b3")
    until(lambda: [row["state"] for row in admin.list_brokers()] == ["UP", "UP", "DOWN"])
    admin.destroy_destination("queue", gone)
    rig.connect("b2").admin().create_destination("queue", kept, maxNumMsgs=3)
    rig.start("b3")
    until(lambda: rig.brokers["b3"].cluster.clustering.member.opened)
    agree(rig, database)
    rig.connect("b3", pinned=True).admin().create_destination("queue", rig.name())
    agree(rig, database)


def test_while_the_table_is_down_messages_flow_and_changes_are_refused(
    rig: ClusterRig, database: Database
) -> None:  # K-13
    name, late = rig.name(), rig.name()
    connection = rig.connect("b2", pinned=True)
    admin, session = connection.admin(), connection.session()
    admin.create_destination("queue", name)
    with database.down():
        with pytest.raises(MasterUnavailableError, match=TABLE):
            admin.create_destination("queue", late)
        until(lambda: admin.query_cluster()["state"] == "MASTER_LOST")
        with pytest.raises(MasterUnavailableError, match=TABLE):
            admin.destroy_destination("queue", name)
        session.producer(name).send("still here")
        assert session.consumer(name).receive(timeout=WAIT_S).body == "still here"
    until(lambda: _created(admin, late))
    until(lambda: admin.query_cluster()["state"] == "OPERATING")
    agree(rig, database)


def _created(admin: Any, name: str) -> bool:
    try:
        admin.create_destination("queue", name)
    except MasterUnavailableError:
        return False
    return True


def test_the_loop_of_a_broker_does_not_wait_for_the_table(rig: ClusterRig, database: Database) -> None:
    """The database is asked again and again, each time for as long as it may take, and the broker answers at once."""
    admin = rig.connect("b1", pinned=True).admin()
    with database.down():
        until(lambda: admin.query_cluster()["state"] == "MASTER_LOST")
        states = {row["state"] for _ in range(30) for row in admin.list_brokers()}
    assert states == {"UP"}


def test_brokers_that_start_while_the_table_is_down_wait_for_it(tmp_path: Path, database: Database) -> None:  # K-12
    database.create()
    with rig_of(tmp_path, database, 2, start=()) as rig, database.down():
        rig.start("b1")
        member = rig.brokers["b1"].cluster.clustering.member
        until(lambda: "; " in member.refusal)
        assert member.state == "WAITING_FOR_MASTER"
        connection = rig.connect("b1", pinned=True, raybroker__reconnect__timeout_ms=100)
        with pytest.raises(MasterUnavailableError, match=f"waits for the table {TABLE}"):
            connection.admin().list_destinations()
    # The rig has ended in the middle of waiting; another one goes on from there.
    with rig_of(tmp_path, database, 2) as rig:
        rig.connect("b2").admin().create_destination("queue", rig.name())
        agree(rig, database)


def test_brokers_without_a_table_say_how_to_make_it(tmp_path: Path, database: Database) -> None:
    with rig_of(tmp_path, database, 1, start=("b1",)) as rig:
        member = rig.brokers["b1"].cluster.clustering.member
        until(lambda: "raybroker dbmgr create sharecc_tbl" in member.refusal)
        assert not database.file.exists()
        database.create()
        until(lambda: member.opened)


def test_the_table_of_another_cluster_is_refused_with_both_names(tmp_path: Path, database: Database) -> None:
    database.create("theirs")
    with rig_of(tmp_path, database, 1, start=("b1",), imq__cluster__clusterid="ours") as rig:
        member = rig.brokers["b1"].cluster.clustering.member
        until(lambda: "'theirs'" in member.refusal)
        assert "'ours'" in member.refusal
    assert database.record().number == 0


@pytest.mark.parametrize(
    "statement",
    [
        f"UPDATE {TABLE}_entry SET digest = '{'0' * 32}' WHERE number = 5",
        f"UPDATE {TABLE}_entry SET body = '[]' WHERE number = 5",
        f"DELETE FROM {TABLE}_entry WHERE number = 5",
        f"UPDATE {TABLE}_entry SET number = 50 WHERE number = 5",
        f"UPDATE {TABLE} SET base_number = 5",
        f"UPDATE {TABLE} SET version = 2",
        f"UPDATE {TABLE} SET record = 'another'",
        f"DELETE FROM {TABLE}",
    ],
)
def test_a_table_that_somebody_has_changed_is_refused_and_stays_as_it_is(
    rig: ClusterRig, database: Database, statement: str
) -> None:
    admin = rig.connect("b1", pinned=True).admin()
    admin.create_destination("queue", "q1")
    agree(rig, database)
    rig.kill("b1")
    rig.kill("b2")
    for name in ("q2", "q3"):
        rig.connect("b3", pinned=True).admin().create_destination("queue", name)
    database.execute(statement)
    with contextlib.suppress(BrokerError):
        before = database.table.read("first", 0)
    rig.start("b1")
    member = rig.brokers["b1"].cluster.clustering.member
    until(lambda: "; " in member.refusal)
    assert not member.opened
    assert ("queue", "q1") in member.agreed.destinations
    assert ("queue", "q3") not in member.agreed.destinations
    with contextlib.suppress(BrokerError):
        assert database.table.read("first", 0) == before


def test_what_the_first_broker_had_before_there_was_a_record_is_written_into_it(
    tmp_path: Path, database: Database
) -> None:
    with rig_of(tmp_path, database, 1, start=("b1",), properties={"imq.autocreate.queue": True}) as rig:
        member = rig.brokers["b1"].cluster.clustering.member
        database.create()
        until(lambda: bool(member.agreed.brokers))
        rig.connect("b1").admin().create_destination("queue", "kept", maxNumMsgs=9)
        until(lambda: ("queue", "kept") in member.agreed.destinations)
    database.table.drop()
    database.table.create(*parts_of(ChangeRecord("second", "rig", 2)))
    with rig_of(tmp_path, database, 2) as rig:
        until(lambda: ("queue", "kept") in database.record().state.destinations)
        assert rig.connect("b2").admin().query_destination("queue", "kept")["attributes"]["maxNumMsgs"] == 9
        agree(rig, database)


def test_a_cluster_without_a_table_refuses_brokers_that_have_one(tmp_path: Path, database: Database) -> None:  # K-18
    database.create()
    with rig_of(tmp_path, database, 2, start=("b1",)) as rig:
        until(lambda: rig.brokers["b1"].cluster.clustering.member.opened)
        shared = rig.config
        rig.config = shared.with_values({"imq.cluster.sharecc.persist.jdbc.url": ""}, origin="test")
        rig.plan = type(rig.plan)(rig.plan.brokers, None)
        rig.start("b2")
        until(lambda: rig.brokers["b2"].cluster.clustering.member.opened)
        refused = rig.brokers["b2"].cluster.clustering.member._peers.refused
        until(lambda: "imq.cluster.sharecc.persist.jdbc.url is" in refused.get("b1", ""))
        assert rig.brokers["b1"].cluster.live() == ["b1"]
