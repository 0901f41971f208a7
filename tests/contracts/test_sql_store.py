"""A broker whose messages are in a database: what is there afterwards, and what a failing database does (P-13)."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import raybroker as rb
from raybroker.config import Config
from raybroker.errors import ConfigError, QuotaExceededError, StoreDamagedError, StoreError, StoreFullError
from raybroker.store.sql import opening
from raybroker.store.sql.address import address_of
from raybroker.store.sql.administration import StoreTables
from raybroker.store.sql.database import Database, UnreachableError
from raybroker.store.sql.lock import session_name
from raybroker.store.sql.store import SqlStore
from raybroker.system.clock import SystemClock
from tests.contracts import postgres
from tests.contracts.handles import WAIT_S, bodies, state_of, take, until

DMQ = "mq.sys.dmq"
SQL = {
    "imq.persist.store": "sql",
    "raybroker.reconnect.timeout_ms": 2000,
    "imq.persist.jdbc.connection.retry.delay": 50,
}


def opened(folder: Path, **properties: object) -> Any:
    return rb.loopback(folder / "store", properties={**SQL, **properties})


def body(n: int) -> str:
    return f"message number {n:04d} " * 5


def test_what_was_confirmed_is_there_again_and_what_was_settled_is_not(tmp_path: Path) -> None:
    with opened(tmp_path) as connection:
        session = connection.session(ack="client")
        producer = session.producer("orders")
        producer.send_many(range(100))
        producer.send("volatile", persistent=False)
        take(session.consumer("orders", prefetch=40), 30)[-1].acknowledge()
    with opened(tmp_path, **{"imq.persist.store": "jdbc"}) as connection:
        work = connection.session(transacted=True)
        found = take(work.consumer("orders", prefetch=20), 20)
        assert bodies(found) == list(range(30, 50))
        work.producer("invoices").send("paid")
        work.commit()
        with pytest.raises(StoreError, match="is open in process"):
            opened(tmp_path)
    with opened(tmp_path) as connection:
        session = connection.session()
        assert bodies(take(session.consumer("orders"), 50)) == list(range(50, 100))
        assert bodies(take(session.consumer("invoices"), 1)) == ["paid"]


def test_a_damaged_message_is_named_and_contained(tmp_path: Path) -> None:
    nothing_kept = {"raybroker.memory.block_cache_bytes": 0}
    with opened(tmp_path) as connection:
        producer = connection.session().producer("q")
        for n in range(9):
            producer.send(body(n))
        connection.session().producer("other").send("well")
    with sqlite3.connect(tmp_path / "store" / "store.db") as database:
        table = "raybroker1_block_Sloopback_loopback"
        rows = database.execute(f"SELECT id, payload FROM {table}").fetchall()
        ((key, payload),) = [row for row in rows if body(4).encode() in row[1]]
        at = payload.index(body(4).encode())
        rotten = payload[:at] + bytes([payload[at] ^ 1]) + payload[at + 1 :]
        database.execute(f"UPDATE {table} SET payload = ? WHERE id = ?", (rotten, key))
    with opened(tmp_path, **nothing_kept) as connection:
        admin = connection.admin()
        consumer, found = connection.session(ack="client").consumer("q"), []
        with pytest.raises(StoreDamagedError, match=f"row {key} of {table} .* is damaged"):
            found.extend(message.body for message in iter(lambda: consumer.receive(timeout=WAIT_S), None))
        assert found == [body(n) for n in range(len(found))]
        assert admin.query_destination("queue", "q")["state"] == "HALTED"
        assert bodies(take(connection.session().consumer("other"), 1)) == ["well"]
        assert admin.skip_messages("queue", "q") == 1
        left = bodies(take(connection.session().consumer("q"), 8))
        assert sorted(left) == [body(n) for n in range(9) if n != 4]
        (record,) = admin.browse_messages("queue", DMQ, body_bytes_max=4096)["messages"]
        assert body(4)[10:].encode() in record["body"], "what can be read of it is kept"


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE raybroker1_log_Sloopback_loopback SET body = zeroblob(length(body)) WHERE id & 0xffffffffff = 3",
        "DELETE FROM raybroker1_log_Sloopback_loopback WHERE id & 0xffffffffff = 3",
        "UPDATE raybroker1_block_Sloopback_loopback SET meta = zeroblob(length(meta)) WHERE id & 0xffffffffff = 2",
        "DELETE FROM raybroker1_block_Sloopback_loopback WHERE id & 0xffffffffff = 2",
        "UPDATE raybroker1_host_Sloopback_loopback SET batch = batch - 1",
        "UPDATE raybroker1_host_Sloopback_loopback SET chain = chain + 1",
    ],
)
def test_rows_that_are_not_what_was_written_refuse_the_store(tmp_path: Path, statement: str) -> None:
    clock = SystemClock()

    def store() -> SqlStore:
        return opening.open_store(
            Config.from_values(SQL),
            tmp_path,
            cluster="loopback",
            broker="loopback",
            host="h1",
            hosting="",
            holder="",
            monotonic_ns=clock.monotonic_ns,
            sleep=clock.sleep,
            report=print,
        )

    from raybroker.model.blocks.record import BLOCK, NOTE, LogEntry

    first = store()
    list(first.recover())
    for n in range(6):
        first.commit([LogEntry(BLOCK, 1, n, b"meta", (b"payload",)), LogEntry(NOTE, 1, 0, b"note")])
    first.close()
    with sqlite3.connect(tmp_path / "store.db") as database:
        assert database.execute(statement).rowcount == 1
    damaged = store()
    with pytest.raises(StoreDamagedError, match="raybroker1_"):
        list(damaged.recover())
    damaged.close()


class Watched:
    """The stores that are opened, so that a test may reach the connection of the latest one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stores: list[Any] = []
        monkeypatch.setattr("raybroker.store.sql.store.SqlStore", self._make)

    def _make(self, *args: Any, **options: Any) -> SqlStore:
        self.stores.append(SqlStore(*args, **options))
        return self.stores[-1]

    def pages(self, most: int) -> None:
        """How large the database may become; the committing thread owns the connection, and does it itself."""
        database = self.stores[-1]._database
        database.sql.event.listen(
            database._engine,
            "before_cursor_execute",
            lambda _c, cursor, *_: cursor.connection.execute(f"PRAGMA max_page_count = {most}"),
        )


def test_a_full_database_refuses_messages_until_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch)
    with opened(tmp_path) as connection:
        connection.admin().create_destination("queue", "orders")
        producer = connection.session().producer("orders")
        watched.pages(400)
        confirmed, futures = 0, []
        while not futures or not futures[-1].done() or futures[-1].exception() is None:
            try:
                futures.append(producer.send_async(b"x" * 10_000))
                confirmed += futures[-1].exception(0.3) is None
            except (StoreFullError, QuotaExceededError, TimeoutError):
                break
            assert confirmed < 1000
        assert confirmed > 10
        watched.pages(1 << 30)
        until(lambda: _accepted(producer))
    with opened(tmp_path) as connection:
        found = bodies(take(connection.session().consumer("orders"), confirmed + 1))
        assert found.count(b"x" * 10_000) >= confirmed


def _accepted(producer: Any) -> bool:
    try:
        producer.send(b"again")
    except (StoreFullError, QuotaExceededError):
        return False
    return True


def test_addresses_that_cannot_be_used_are_refused_without_telling_a_password(tmp_path: Path) -> None:
    url, vendor = "imq.persist.jdbc.postgresql.opendburl", "imq.persist.jdbc.dbVendor"
    for given, said in (
        ({vendor: "postgresql"}, "opendburl is not set"),
        ({url: "postgresql://h/d"}, "set imq.persist.jdbc.dbVendor = postgresql"),
        ({vendor: "postgresql", url: "postgresql://u:geheim@h/d"}, "has a password in it"),
        ({vendor: "postgresql", url: "postgresql://u@h/d?password=geheim"}, "has a password in it"),
        ({vendor: "postgresql", url: "mysql://u:geheim@h/d"}, "is no address of postgresql"),
        ({vendor: "postgresql", url: "postgresql://u@h"}, "names no database"),
        ({"imq.persist.jdbc.sqlite.opendburl": "sqlite://"}, "has to name a file"),
        ({"imq.brokerid": "a-b"}, "letters, digits"),
        ({"imq.brokerid": "x" * 40}, "at most 45"),
    ):
        with pytest.raises(ConfigError) as caught:
            rb.loopback(tmp_path / "store", properties={**SQL, **given})
        assert said in str(caught.value)
        assert "geheim" not in str(caught.value)
    with pytest.raises(ConfigError, match="password' is not a broker property"):
        rb.loopback(tmp_path / "store", properties={**SQL, "imq.persist.jdbc.postgresql.password": "geheim"})


def test_a_database_that_is_not_there_is_waited_for_as_often_as_is_set(tmp_path: Path) -> None:
    given = {
        "imq.persist.jdbc.dbVendor": "postgresql",
        "imq.persist.jdbc.connection.retry.max": 3,
        "imq.persist.jdbc.postgresql.opendburl": "jdbc:postgresql://127.0.0.1:1/none",
        "imq.persist.jdbc.postgresql.user": "somebody",
    }
    clock, slept, told = SystemClock(), [], []
    with pytest.raises(UnreachableError, match=r"postgresql://somebody@127.0.0.1:1/none cannot be reached"):
        opening.open_store(
            Config.from_values({**SQL, **given}),
            tmp_path,
            cluster="c",
            broker="b",
            host="h1",
            hosting="",
            holder="",
            monotonic_ns=clock.monotonic_ns,
            sleep=slept.append,
            report=told.append,
        )
    assert slept == [0.05] * 3
    assert len(told) == 1


# ---- a real PostgreSQL -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[postgres.Server]:
    with postgres.server() as found:
        yield found


def on_server(server: postgres.Server, name: str) -> dict[str, object]:
    """Properties of a loopback whose tables, newly made, are there."""
    given = {
        **SQL,
        "imq.persist.jdbc.dbVendor": "postgresql",
        "imq.persist.jdbc.postgresql.opendburl": server.url,
        "imq.brokerid": name,
    }
    database = Database(address_of(Config.from_values(given), Path()))
    StoreTables(database, f"{name}_loopback", "loopback", "loopback").create()
    return given


@pytest.mark.sweep
@pytest.mark.xdist_group("postgres")
def test_a_postgresql_that_dies_in_the_middle_of_commits_loses_nothing(server: postgres.Server) -> None:
    properties = on_server(server, "killed")
    confirmed: list[int] = []
    connection = rb.loopback(properties=properties)
    producer, some = connection.session().producer("orders"), threading.Event()

    def send() -> None:
        for number in range(1_000_000):
            producer.send(number)
            confirmed.append(number)
            if len(confirmed) == 50:
                some.set()

    failed: list[BaseException] = []

    def work() -> None:
        try:
            send()
        except BaseException as error:  # noqa: BLE001 - looked at below
            failed.append(error)

    sender = threading.Thread(target=work)
    sender.start()
    assert some.wait(WAIT_S)
    server.kill()
    sender.join(WAIT_S)
    assert not sender.is_alive(), "a sender waits for a database that is gone"
    assert isinstance(failed[0], StoreError)
    with pytest.raises(StoreError):
        producer.send("later")
    connection.close()
    starting = threading.Timer(1, server.start)
    starting.start()
    patient = {**properties, "imq.persist.jdbc.connection.retry.max": 400}
    with rb.loopback(properties=patient) as again:  # It waits for the database.
        starting.join()
        messages = state_of(again, "orders")["messages"]
        assert messages in (len(confirmed), len(confirmed) + 1)
        assert bodies(take(again.session().consumer("orders"), messages))[: len(confirmed)] == confirmed


@pytest.mark.sweep
@pytest.mark.xdist_group("postgres")
def test_an_error_of_the_server_is_a_full_disk_or_the_end(server: postgres.Server) -> None:
    properties = on_server(server, "errors")
    database = Database(address_of(Config.from_values(properties), Path()))

    def on_insert(action: str) -> None:
        with database.connected() as connection:
            connection.exec_driver_sql('DROP TRIGGER IF EXISTS t ON "raybroker1_block_Serrors_loopback"')
            if action:
                connection.exec_driver_sql(
                    f"CREATE OR REPLACE FUNCTION f() RETURNS trigger AS $$BEGIN {action}; END$$ LANGUAGE plpgsql"
                )
                connection.exec_driver_sql(
                    'CREATE TRIGGER t BEFORE INSERT ON "raybroker1_block_Serrors_loopback" EXECUTE FUNCTION f()'
                )

    with rb.loopback(properties=properties) as connection:
        producer = connection.session().producer("orders")
        producer.send("first")
        on_insert("RAISE EXCEPTION 'no space left on device' USING ERRCODE = 'disk_full'")
        waiting = producer.send_async("waits")
        with pytest.raises((StoreFullError, QuotaExceededError, TimeoutError)):
            until(lambda: producer.send_async("refused").result(0.5) and None)
        on_insert("")
        assert waiting.exception(WAIT_S) is None
        until(lambda: _accepted(producer))
        on_insert("RAISE EXCEPTION 'out of luck'")
        assert isinstance(producer.send_async("fails").exception(WAIT_S), StoreError)
        with pytest.raises(StoreError, match="out of luck"):
            producer.send("later")
    on_insert("")
    with rb.loopback(properties=properties) as connection:
        found = bodies(take(connection.session().consumer("orders"), 3))
        assert found[:2] == ["first", "waits"]
        assert b"again" in found or "refused" in found


@pytest.mark.sweep
@pytest.mark.xdist_group("postgres")
def test_the_locks_of_postgresql_keep_a_second_process_out_until_they_are_reset(server: postgres.Server) -> None:
    properties = on_server(server, "locked")
    database = Database(address_of(Config.from_values(properties), Path()))
    tables = StoreTables(database, "locked_loopback", "loopback", "loopback")
    connection = rb.loopback(properties=properties)
    producer = connection.session().producer("orders")
    producer.send("one")
    with pytest.raises(StoreError, match="is open in process"):
        rb.loopback(properties=properties)
    assert [host.held for host in tables.hosts()] == [True]
    assert tables.reset_lock() == ["loopback"]
    assert [host.held for host in tables.hosts()] == [False]
    with rb.loopback(properties=properties) as again:
        with pytest.raises(StoreError):
            producer.send("late")
        assert bodies(take(again.session().consumer("orders"), 1)) == ["one"]
    connection.close()


# ---- a connection that is cut, and a database that goes away ---------------------------------------------------------


def cut_connections(database: Database, name: str) -> int:
    """End every session of that loopback's store, as an administrator of the database does; how many there were."""
    with database.connected() as connection:
        found = connection.exec_driver_sql(
            "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity"
            f" WHERE starts_with(application_name, '{session_name(f'{name}_loopback', '')}')"
        )
        return int(found.scalar())


@pytest.mark.xdist_group("postgres")
def test_connections_that_are_cut_are_made_anew_and_nobody_notices(server: postgres.Server) -> None:
    properties = {**on_server(server, "cut"), "raybroker.memory.block_cache_bytes": 0}
    database = Database(address_of(Config.from_values(properties), Path()))
    over, written = threading.Event(), threading.Event()

    def cut() -> None:
        """At any moment, but never twice without a commit in between: a store tries it once again."""
        while not over.wait(0.3):
            if written.wait(60):
                cut_connections(database, "cut")
                written.clear()

    with rb.loopback(properties=properties) as connection:
        session = connection.session()
        producer = session.producer("orders")
        producer.send("first")
        assert cut_connections(database, "cut") >= 2
        producer.send("second")
        assert bodies(take(session.consumer("orders"), 2)) == ["first", "second"]
        cutting = threading.Thread(target=cut)
        cutting.start()
        try:
            for number in range(100):
                producer.send(number)
                written.set()
                time.sleep(0.01)
        finally:
            over.set()
            written.set()
            cutting.join()
        producer.send(100)  # It has a connection again, when it was cut just now.
        assert cut_connections(database, "cut")
        assert bodies(take(session.consumer("orders"), 101)) == list(range(101))


@pytest.mark.xdist_group("postgres")
@pytest.mark.parametrize("committed", [False, True])
def test_a_commit_whose_connection_is_cut_is_there_once(server: postgres.Server, committed: bool) -> None:
    """The store cannot know whether the database has committed: it asks."""
    from raybroker.model.blocks.record import BLOCK, NOTE, LogEntry

    properties, clock = on_server(server, f"once{committed:d}"), SystemClock()
    database = Database(address_of(Config.from_values(properties), Path()))

    def store() -> SqlStore:
        return opening.open_store(
            Config.from_values(properties),
            Path(),
            cluster="loopback",
            broker="loopback",
            host="h1",
            hosting="",
            holder="",
            monotonic_ns=clock.monotonic_ns,
            sleep=clock.sleep,
            report=print,
        )

    first = store()
    list(first.recover())
    first.commit([LogEntry(BLOCK, 1, 0, b"meta", (b"payload 0",))])

    cuts: list[int] = []

    def at_commit(connection: Any) -> None:
        if not cuts:
            if committed:
                connection.connection.dbapi_connection.commit()
            cuts.append(cut_connections(database, f"once{committed:d}"))

    first._database.sql.event.listen(first._database._engine, "commit", at_commit)
    first.commit([LogEntry(BLOCK, 1, 1, b"meta", (b"payload 1",)), LogEntry(NOTE, 1, 0, b"note")])
    assert cuts == [2]
    first.commit([LogEntry(BLOCK, 1, 2, b"meta", (b"payload 2",))])
    assert [first.read(1, ordinal) for ordinal in range(3)] == [b"payload 0", b"payload 1", b"payload 2"]
    first.close()
    again = store()
    assert [(entry.kind, entry.ordinal) for entry in again.recover()] == [(BLOCK, 0), (BLOCK, 1), (NOTE, 0), (BLOCK, 2)]
    again.close()


@pytest.mark.xdist_group("postgres")
def test_a_store_whose_lock_was_reset_does_not_come_back(server: postgres.Server) -> None:
    properties = on_server(server, "fenced")
    database = Database(address_of(Config.from_values(properties), Path()))
    with rb.loopback(properties=properties) as connection:
        admin = connection.admin()
        assert StoreTables(database, "fenced_loopback", "loopback", "loopback").reset_lock() == ["loopback"]
        until(lambda: "lock was reset" in str(admin.check_broker()))


@pytest.mark.xdist_group("postgres")
def test_a_database_that_goes_away_is_missed_by_whoever_writes_nothing(server: postgres.Server) -> None:
    properties = on_server(server, "missed")
    with rb.loopback(properties=properties) as connection:
        connection.session().producer("orders").send("one")
        admin = connection.admin()
        assert {row["grade"] for row in admin.check_broker()} <= {"OK", "ok"}
        server.stop()
        try:
            until(lambda: "failed and was stopped" in str(admin.check_broker()))
        finally:
            server.start()
    with rb.loopback(properties=properties) as connection:
        assert bodies(take(connection.session().consumer("orders"), 1)) == ["one"]
