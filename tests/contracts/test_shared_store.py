"""The shared store of brokers that take each other's messages over, in SQLite and in a real PostgreSQL (K-21)."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from raybroker.actors.stores.shared_stores import begin_tenure
from raybroker.actors.stores.store_tables import StoreManager, check_shared, shared_brokers
from raybroker.config import Config, store_directory
from raybroker.config.brokers import plan_of
from raybroker.errors import ConfigError, IllegalStateError, StoreError
from raybroker.model.blocks.record import BLOCK, NOTE, LogEntry
from raybroker.model.shared_store import StoreState
from raybroker.store.catalogue import Catalogue
from raybroker.store.sql.address import Address
from raybroker.store.sql.administration import StoreTables
from raybroker.store.sql.database import Database
from raybroker.store.sql.lock import session_name
from raybroker.store.sql.opening import holder_of_tenure, open_store
from raybroker.store.sql.registration import StoreOwner, TakenOverError
from raybroker.store.sql.shared import SharedBrokers, SharedFrames
from raybroker.store.sql.store import SqlStore
from tests.contracts import postgres

POSTGRES = pytest.mark.xdist_group("postgres")
PATIENCE_S = 15.0


@pytest.fixture(scope="module")
def server() -> Iterator[postgres.Server]:
    with postgres.server() as found:
        with Database(Address("postgresql", found.url)).connected() as connection:
            connection.exec_driver_sql("CREATE ROLE weak LOGIN")
            connection.exec_driver_sql("GRANT ALL ON SCHEMA public TO weak")
        yield found


class Place:
    """The tables of one broker, and the table of all."""

    numbers = itertools.count(1)

    def __init__(self, address: Address) -> None:
        self.id = f"shared{next(self.numbers)}"
        self.address = address
        self.tables = StoreTables(Database(address), self.id, "c", "b")
        self.tables.create()
        self.brokers = SharedBrokers(Database(address), self.id)
        assert self.brokers.create()

    def open(self, tenure: int, address: Address | None = None) -> SqlStore:
        owner = StoreOwner("c", "b", holder_of_tenure(tenure), f"process of tenure {tenure}")
        database = Database(address or self.address, session_name(self.id, "h1"))
        store = SqlStore(database, self.id, "h1", owner=owner, monotonic_ns=time.monotonic_ns)
        self.found = list(store.recover())
        return store

    def hand_over(self, tenure: int, patience_s: float = PATIENCE_S) -> list[str]:
        return self.tables.hand_over(
            holder_of_tenure(tenure), monotonic_ns=time.monotonic_ns, sleep=time.sleep, patience_s=patience_s
        )


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=POSTGRES)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "sqlite":
        return Place(Address("sqlite", f"sqlite:///{tmp_path / 'store.db'}"))
    return Place(Address("postgresql", request.getfixturevalue("server").url))


@pytest.fixture
def on_server(server: postgres.Server) -> Place:
    return Place(Address("postgresql", server.url))


def block(ordinal: int) -> list[LogEntry]:
    return [LogEntry(BLOCK, 1, ordinal, b"meta", (b"payload",)), LogEntry(NOTE, 1, 0, b"note")]


def ordinals(place: Place) -> list[int]:
    return [entry.ordinal for entry in place.found if entry.kind == BLOCK]


def test_one_of_two_gets_a_tenure_and_the_one_before_has_no_say_any_more(place: Place) -> None:
    brokers = place.brokers
    assert not brokers.create(), "the table is there"
    assert brokers.take("b", tenure=0, beats=0, node="n1")
    assert not brokers.take("b", tenure=0, beats=0, node="n2"), "somebody was first"
    assert brokers.set_state("b", 1, StoreState.OPERATING)
    before = brokers.beat("b", 1)
    assert before is not None
    (row,) = before.rows
    assert (row.state, row.tenure, row.node, row.taken_ms) == (StoreState.OPERATING, 1, "n1", 0)
    assert before.now_ms - 60_000 < row.beat_ms <= before.now_ms
    assert brokers.keep("b", 1, "what it kept")
    assert not brokers.take("b", tenure=1, beats=1, node="n2", taker="c"), "it has shown a sign of life since"
    assert [brokers.take("b", tenure=1, beats=2, node="n2", taker=taker) for taker in ("c", "d")] == [True, False]
    assert brokers.beat("b", 1) is None
    assert not brokers.set_state("b", 1, StoreState.BROKER_DOWN)
    assert not brokers.keep("b", 1, "late")
    row = brokers.view().rows[0]
    assert (row.state, row.tenure, row.taker, row.takeovers) == (StoreState.TAKEOVER_STARTED, 2, "c", 1)
    assert row.taken_ms > 0
    assert row.beats > before.rows[0].beats, "its successor has shown a sign of life"
    assert brokers.kept("b") == "what it kept"
    assert brokers.set_state("b", 2, StoreState.TAKEOVER_FAILED, "no process")
    assert brokers.view().rows[0].reason == "no process"


def test_two_takers_at_the_same_time_are_one(place: Place) -> None:
    brokers, won = place.brokers, list[bool]()
    assert brokers.take("b", tenure=0, beats=0, node="n1")
    at_once = threading.Barrier(4)

    def take(number: int) -> None:
        at_once.wait()
        won.append(brokers.take("b", tenure=1, beats=1, node="n2", taker=f"c{number}"))

    threads = [threading.Thread(target=take, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == [False, False, False, True]


def test_rows_are_added_once_and_removed(place: Place) -> None:
    assert [place.brokers.add("b", kept) for kept in ("kept", "other")] == [True, False]
    assert place.brokers.kept("b") == "kept"
    row = place.brokers.view().row_of("b")
    assert row is not None
    assert (row.state, row.tenure) == (StoreState.UNKNOWN, 0)
    assert place.brokers.take("b", tenure=0, beats=0, node="n"), "a row that was added is nobody's yet"
    assert [place.brokers.remove("b") for _ in range(2)] == [True, False]
    place.brokers.drop()
    with pytest.raises(ConfigError, match="upgrade hastore"):
        place.brokers.view()


def test_a_tenure_that_is_over_commits_nothing_and_does_not_come_back(place: Place) -> None:
    zombie = place.open(1)
    zombie.commit(block(1))
    if place.address.vendor == "sqlite":  # Its lock goes with the process alone.
        zombie._host_lock.release()
    assert place.hand_over(2) == (["h1"] if place.address.vendor == "postgresql" else [])
    with pytest.raises(StoreError, match="another process has opened it since"):
        zombie.commit(block(2))
    with pytest.raises(TakenOverError, match=r"taken over: .* belong to its tenure 2, and this is tenure 1"):
        place.open(1)
    with pytest.raises(TakenOverError, match="belong to its tenure 2 already"):
        place.hand_over(1)
    successor = place.open(2)
    assert ordinals(place) == [1]
    successor.commit(block(3))
    zombie.close()
    successor.commit(block(4))
    successor.close()
    again = place.open(2)
    assert ordinals(place) == [1, 3, 4]
    again.close()


def test_the_map_of_units_is_written_by_one_tenure(place: Place) -> None:
    brokers = place.brokers
    assert brokers.take("b", tenure=0, beats=0, node="n1")
    first = SharedFrames(brokers, "b", 1)
    first.append([b"one", b"two"])
    first.append([b"three"])
    first.replace([b"1+2+3"])
    first.append([])
    assert brokers.take("b", tenure=1, beats=1, node="n2", taker="c")
    with pytest.raises(StoreError, match="its tenure 1 is over"):
        first.append([b"late"])
    second = SharedFrames(brokers, "b", 2)
    assert second.open() == [b"1+2+3"]
    second.append([b"four"])
    second.close()
    assert second.open() == [b"1+2+3", b"four"]


@POSTGRES
def test_a_commit_that_stands_still_half_way_is_ended_and_was_none(on_server: Place) -> None:
    """As of a machine that is gone without a word: its transaction has the row of the host locked."""
    zombie = on_server.open(1)
    zombie.commit(block(1))
    zombie._writer.begin()
    zombie._writer.exec_driver_sql(f'UPDATE "raybroker1_host_S{on_server.id}" SET batch = batch + 1')
    assert on_server.hand_over(2) == ["h1"]
    zombie._database.abandon(zombie._writer)
    zombie._writer = zombie._database.connect()
    with pytest.raises(StoreError):
        zombie.commit(block(2))
    on_server.open(2).close()
    assert ordinals(on_server) == [1]
    zombie.close()


@POSTGRES
def test_an_idle_store_that_was_taken_over_notices(on_server: Place) -> None:
    zombie = on_server.open(1)
    on_server.hand_over(2)
    with pytest.raises(StoreError, match="another process has opened it since"):
        zombie._check_connections()
    zombie.close()


@POSTGRES
def test_sessions_that_may_not_be_ended_are_waited_for_and_named(on_server: Place, server: postgres.Server) -> None:
    zombie = on_server.open(1)
    weak = Address("postgresql", server.url.replace("broker@", "weak@"))
    with Database(on_server.address).connected() as connection:
        for part in ("store", "host"):
            connection.exec_driver_sql(f'GRANT ALL ON "raybroker1_{part}_S{on_server.id}" TO weak')
    tables = StoreTables(Database(weak), on_server.id, "c", "b")

    def hand_over(patience_s: float) -> list[str]:
        return tables.hand_over(
            holder_of_tenure(2), monotonic_ns=time.monotonic_ns, sleep=time.sleep, patience_s=patience_s
        )

    with pytest.raises(StoreError, match=r"in 0\.3 s: h1 still open; .*terminate"):
        hand_over(0.3)
    ending = threading.Timer(0.5, zombie.close)
    ending.start()
    assert hand_over(PATIENCE_S) == ["h1"]
    ending.join()
    on_server.open(2).close()


# ---- what administrators do ------------------------------------------------------------------------------------------


class Managed:
    """Two brokers whose configuration names the server, by ``raybroker dbmgr``."""

    def __init__(self, server: postgres.Server, directory: Path, **properties: object) -> None:
        self.cluster = f"managed{next(Place.numbers)}"
        self.given = {
            "imq.cluster.ha": True,
            "imq.cluster.brokerlist": "b1,b2",
            "imq.cluster.nomasterbroker": True,
            "imq.cluster.sharecc.persist.jdbc.url": server.url,
            "imq.persist.store": "sql",
            "imq.persist.jdbc.dbVendor": "postgresql",
            "imq.persist.jdbc.postgresql.opendburl": server.url,
            "raybroker.store.dir": str(directory),
            **properties,
        }

    def config(self, **more: object) -> Config:
        return Config.from_values({**self.given, **more})

    def manager(self, broker: str | None = None, *, ha: bool = True) -> StoreManager:
        return StoreManager(self.config(**{"imq.cluster.ha": ha}), self.cluster, broker)

    def store(self, broker: str, holder: str) -> SqlStore:
        store = open_store(
            self.config(),
            Path(),
            cluster=self.cluster,
            broker=broker,
            host="h1",
            hosting="shared",
            holder=holder,
            monotonic_ns=time.monotonic_ns,
            sleep=time.sleep,
            report=print,
        )
        list(store.recover())
        return store

    def begin(self, broker: str) -> int:
        config = self.config()
        return begin_tenure(config, store_directory(config, self.cluster, broker), self.cluster, broker, "n1")

    def shared(self) -> SharedBrokers:
        return shared_brokers(self.config(), Path(), self.cluster)


@pytest.fixture
def managed(server: postgres.Server, tmp_path: Path) -> Managed:
    return Managed(server, tmp_path)


@POSTGRES
def test_tables_are_made_with_the_one_that_brokers_share_and_removed_with_it(managed: Managed) -> None:
    with pytest.raises(ConfigError, match=r"dbmgr create tbl, or .* upgrade hastore"):
        managed.shared().view()
    made = managed.manager().create(database=False)
    assert [shown.partition(" ")[0] for shown in made] == [
        f"raybroker1_*_S{managed.cluster}_b1",
        f"raybroker1_*_S{managed.cluster}_b2",
        f"raybroker1_broker_C{managed.cluster}",
    ]
    assert managed.begin("b1") == 1
    row = managed.manager("b1").query()[0]
    assert (row["state"], row["tenure"], row["node"]) == ("UNKNOWN", 1, "n1")
    with pytest.raises(ConfigError, match="whoever is started, or takes over, has the tables"):
        managed.manager().reset_lock()
    managed.manager().delete()
    assert not managed.shared().exists()


@POSTGRES
def test_a_store_of_each_broker_becomes_one_that_they_share(managed: Managed, tmp_path: Path) -> None:
    managed.manager(ha=False).create(database=False)
    store = managed.store("b1", "an installation")
    store.commit(block(1))
    directory = store_directory(managed.config(), managed.cluster, "b1")
    Catalogue(b"token", 3, {"h1": "shared"}, properties={"imq.log.level": ["ERROR", "INFO"]}).save(directory)
    with pytest.raises(ConfigError, match=r"dbmgr upgrade hastore: imq.cluster.ha is false"):
        managed.manager(ha=False).share()
    with pytest.raises(IllegalStateError, match="are open: h1"):
        managed.manager().share()
    with pytest.raises(ConfigError, match="dbmgr upgrade hastore"):
        managed.begin("b1")
    store.close()
    done = managed.manager().share()
    assert len(done) == 3
    assert managed.manager().share() == []
    assert Catalogue.kept_elsewhere(b"t", managed.shared().kept("b1")).properties == {
        "imq.log.level": ["ERROR", "INFO"]
    }
    old = managed.store("b1", "an installation")
    with pytest.raises(IllegalStateError, match="are open: h1"):
        managed.begin("b1")
    old.close()
    assert managed.begin("b1") == 1
    with pytest.raises(StoreError, match=r"belong to tenure 1 of a broker with imq.cluster.ha = true"):
        managed.store("b1", "an installation")
    managed.store("b1", holder_of_tenure(1)).close()
    managed.manager(ha=False).reset_lock()
    managed.store("b1", "an installation").close()


@POSTGRES
def test_a_broker_that_lives_is_not_started_a_second_time(managed: Managed) -> None:
    fast = {"imq.cluster.monitor.threshold": 1}
    managed.given |= fast
    managed.manager().create(database=False)
    assert managed.begin("b1") == 1
    shared, stop = managed.shared(), threading.Event()

    def live() -> None:
        while not stop.wait(0.1):
            shared.beat("b1", 1)

    living = threading.Thread(target=live)
    living.start()
    try:
        with pytest.raises(IllegalStateError, match="b1 gives signs of life from node n1, and is UNKNOWN"):
            managed.begin("b1")
    finally:
        stop.set()
        living.join()
    assert managed.begin("b1") == 2, "it has ended, and is waited for until it counts as silent"


@POSTGRES
def test_a_broker_that_is_over_is_removed_and_its_messages_only_by_force(managed: Managed) -> None:
    managed.given |= {"imq.cluster.monitor.threshold": 1}
    managed.manager().create(database=False)
    with pytest.raises(ConfigError, match="has no broker 'b2'; it has none"):
        managed.manager("b2").remove_broker()
    with pytest.raises(ConfigError, match=r"dbmgr remove bkr: imq.cluster.ha is false"):
        managed.manager("b2", ha=False).remove_broker()
    assert managed.begin("b2") == 1
    store = managed.store("b2", holder_of_tenure(1))
    store.commit(block(1))
    shared = managed.shared()
    shared.beat("b2", 1)
    with pytest.raises(IllegalStateError, match=r"sign of life \d+ ms ago, and is UNKNOWN: stop it first"):
        managed.manager("b2").remove_broker(force=True)
    shared.set_state("b2", 1, StoreState.BROKER_DOWN)
    with pytest.raises(IllegalStateError, match="are open: h1"):
        managed.manager("b2").remove_broker(force=True)
    store.close()
    with pytest.raises(IllegalStateError, match=r"b2 has 1 blocks of messages .*takeover bkr -n b2"):
        managed.manager("b2").remove_broker()
    assert managed.manager("b2").remove_broker(force=True) == 1
    assert shared.view().row_of("b2") is None
    assert managed.manager("b2").query()[0]["tables"] == "missing"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"imq.persist.store": "file"}, "imq.persist.store is file: set"),
        ({"imq.persist.jdbc.dbVendor": "sqlite"}, "imq.persist.store is sql with imq.persist.jdbc.dbVendor sqlite"),
        ({"imq.cluster.sharecc.persist.jdbc.url": ""}, "needs the configuration change record"),
    ],
)
def test_what_cannot_be_taken_over_is_refused_before_anything_starts(given: dict[str, object], said: str) -> None:
    config = Config.from_values(
        {
            "imq.cluster.ha": True,
            "imq.cluster.nomasterbroker": True,
            "imq.cluster.sharecc.persist.jdbc.url": "postgresql://u@h/d",
            "imq.persist.store": "sql",
            "imq.persist.jdbc.dbVendor": "postgresql",
            **given,
        }
    )
    with pytest.raises(ConfigError, match=said):
        check_shared(config, plan_of(config))
