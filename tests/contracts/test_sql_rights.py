"""Tables in a PostgreSQL whose user for brokers may use tables and not make any: compression never costs a message."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import raybroker as rb
from raybroker.content.packed_block import PACKED
from raybroker.model.blocks.record import BLOCK, CHECKPOINT, LogEntry, PackedPayload
from raybroker.model.errors import StoreError
from raybroker.store.sql.address import Address
from raybroker.store.sql.administration import StoreTables
from raybroker.store.sql.compressed import LOOK_NS
from raybroker.store.sql.database import Database
from raybroker.store.sql.registration import StoreOwner
from raybroker.store.sql.store import SqlStore
from tests.contracts import postgres
from tests.contracts.handles import bodies, take
from tests.unit.cli.conftest import Program

pytestmark = [pytest.mark.sweep, pytest.mark.xdist_group("postgres")]
TEXT = "departure of a flight, delayed " * 100
PLAIN, WITH_COMPRESSED = {1}, {1, 2}
WHY = "user app of the database may not make tables in schema public"
COMPRESSES = "raybroker.store.message_compression_enabled"


class Rig:
    """The tables of a broker, made by the administrator ``broker`` for the user ``app``."""

    numbers = itertools.count(1)

    def __init__(self, server: postgres.Server) -> None:
        self.id = f"rights{next(self.numbers)}"
        self.address = Address("postgresql", server.url.replace("broker@", "app@"))
        self.database = Database(self.address)
        self.of_admin = Database(Address("postgresql", server.url))
        self.tables = StoreTables(self.of_admin, self.id, "c", "b")
        self.tables.create()
        self.clock_ns = 0
        self.sql("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO app")

    def sql(self, *statements: str) -> None:
        with self.of_admin.connected() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)

    def open(self) -> SqlStore:
        owner = StoreOwner("c", "b", "", "1")
        store = SqlStore(self.database, self.id, "h1", owner=owner, monotonic_ns=lambda: self.clock_ns)
        list(store.recover())
        return store


@pytest.fixture(scope="module")
def server() -> Iterator[postgres.Server]:
    with postgres.server() as found:
        database = Database(Address("postgresql", found.url))
        with database.connected() as connection:
            connection.exec_driver_sql("CREATE ROLE app LOGIN")
            connection.exec_driver_sql("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
        yield found


@pytest.fixture
def rig(server: postgres.Server) -> Rig:
    return Rig(server)


def compressed(ordinal: int) -> LogEntry:
    return LogEntry(BLOCK, 1, ordinal, b"", PackedPayload((bytes((PACKED,)) + b"c" * 9,), (bytes(100),)))


def test_such_a_user_is_known_at_the_opening_and_by_the_block_itself(rig: Rig) -> None:
    store = rig.open()
    for part in (store.shown, WHY, "raybroker dbmgr upgrade tbl", COMPRESSES):
        assert part in store.plain_because()
    store.commit([compressed(1), LogEntry(BLOCK, 1, 2, b"", (b"other",)), compressed(3)])
    assert rig.tables.versions() == PLAIN
    assert [store.read(1, n) for n in (1, 2, 3)] == [bytes(100), b"other", bytes(100)]
    store.close()
    store = rig.open()
    assert [store.read(1, n) for n in (1, 2, 3)] == [bytes(100), b"other", bytes(100)]
    store.close()


def test_a_right_that_is_taken_away_while_the_store_is_open_costs_no_message(rig: Rig) -> None:
    rig.sql("GRANT CREATE ON SCHEMA public TO app")
    store = rig.open()
    assert store.plain_because() == ""
    rig.sql("REVOKE CREATE ON SCHEMA public FROM app")
    store.commit([compressed(1), LogEntry(CHECKPOINT, 0, 0, b"state", ())])
    assert "permission denied for schema public" in store.plain_because()
    store.commit([compressed(2)])
    assert rig.tables.versions() == PLAIN
    assert [store.read(1, n) for n in (1, 2)] == [bytes(100)] * 2
    store.close()


def test_an_open_store_compresses_a_minute_after_the_table_was_made_for_it(rig: Rig) -> None:
    store = rig.open()
    assert rig.tables.upgrade()
    store.commit([compressed(1)])
    assert store.read(1, 1)[0] != PACKED, "it has not looked again yet"
    rig.clock_ns += LOOK_NS
    store.commit([compressed(2)])
    assert store.plain_because() == "", "it looks after a commit"
    store.commit([compressed(3)])
    assert [store.read(1, n)[0] for n in (1, 2, 3)] == [0, 0, PACKED]
    store.close()


def test_a_right_that_is_given_while_the_store_is_open_is_used(rig: Rig) -> None:
    store = rig.open()
    rig.sql("GRANT CREATE ON SCHEMA public TO app")
    rig.clock_ns += LOOK_NS
    store.commit([LogEntry(BLOCK, 1, 1, b"", (b"other",))])
    store.commit([compressed(2)])
    assert rig.tables.versions() == WITH_COMPRESSED
    store.close()
    rig.sql("REVOKE CREATE ON SCHEMA public FROM app")


def test_upgrading_as_that_user_says_what_could_not_be_made_and_who_can(rig: Rig) -> None:
    tables = StoreTables(rig.database, rig.id, "c", "b")
    with pytest.raises(StoreError) as caught:
        tables.upgrade()
    for part in (
        f"raybroker1_*_S{rig.id}",
        "stay of version 1",
        f"raybroker2_block_S{rig.id}",
        "permission denied",
        "imq.persist.jdbc.postgresql.user",
    ):
        assert part in str(caught.value)
    assert rig.tables.versions() == PLAIN


def test_a_lost_database_is_no_lack_of_a_right(rig: Rig) -> None:
    rig.sql("GRANT CREATE ON SCHEMA public TO app")
    store = rig.open()
    rig.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'")
    store.commit([compressed(1)])  # Over a connection that is made anew.
    assert store.plain_because() == ""
    store.close()
    rig.sql("REVOKE CREATE ON SCHEMA public FROM app")


def properties(server: postgres.Server, number: int) -> dict[str, Any]:
    return {
        "imq.persist.store": "sql",
        "imq.persist.jdbc.dbVendor": "postgresql",
        "imq.persist.jdbc.postgresql.opendburl": server.url.replace("broker@", ""),
        "imq.persist.jdbc.postgresql.user": "app",
        "imq.brokerid": f"loopback{number}",
        COMPRESSES: True,
    }


def test_a_broker_of_that_user_takes_and_keeps_all_messages_and_says_why_they_are_not_compressed(
    server: postgres.Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given = properties(server, 1)
    config = tmp_path / "c.toml"
    config.write_text(
        "".join(f'"{name}" = {str(value).lower() if value is True else repr(value)}\n' for name, value in given.items())
    )
    program = Program()
    where = ("tbl", "--config", str(config), "--cluster", "loopback", "--broker", "loopback")
    refused = program("dbmgr", "create", *where)
    assert refused.exit_code != 0
    assert "permission denied for schema public" in " ".join(refused.stderr.split())
    of_admin = config.with_name("admin.toml")
    of_admin.write_text(config.read_text().replace("'app'", "'broker'"))
    assert program("dbmgr", "create", *where[:2], str(of_admin), *where[3:]).exit_code == 0
    with Database(Address("postgresql", server.url)).connected() as connection:
        connection.exec_driver_sql("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO app")
    with caplog.at_level(logging.WARNING), rb.loopback(properties=given) as connection:
        producer = connection.session().producer("q")
        for n in range(5):
            producer.send(f"{n}{TEXT}")
        (row,) = connection.admin().query_store()
        assert row["compressed_blocks"] == 0
        assert WHY in row["not_compressed_because"]
        said = [record.getMessage() for record in caplog.records if WHY in record.getMessage()]
        assert len(said) == 1, "once"
        connection.admin().update_broker({COMPRESSES: False})
        assert connection.admin().query_store()[0]["not_compressed_because"] == "", "nobody wants it"
    refused = program("dbmgr", "upgrade", *where)
    assert refused.exit_code != 0
    assert "stay of version 1" in " ".join(refused.stderr.split())
    done = program("dbmgr", "upgrade", *where[:2], str(of_admin), *where[3:])
    assert done.exit_code == 0, done.stderr
    with rb.loopback(properties=given) as connection:
        connection.session().producer("q").send(f"5{TEXT}")
        (row,) = connection.admin().query_store()
        assert (row["compressed_blocks"], row["not_compressed_because"]) == (1, "")
        assert bodies(take(connection.session().consumer("q"), 6)) == [f"{n}{TEXT}" for n in range(6)]
