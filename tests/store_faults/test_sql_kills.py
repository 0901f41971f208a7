"""kill -9 of a process that writes an SQL store, and of the database itself: nothing acknowledged is lost, no batch is
there by half.  The workload is that of the journal's tests."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from raybroker.model.errors import StoreError
from raybroker.store.sql.address import Address
from raybroker.store.sql.administration import StoreTables
from raybroker.store.sql.database import Database
from raybroker.store.sql.registration import StoreOwner
from raybroker.store.sql.store import SqlStore
from raybroker.system.clock import SystemClock
from tests.contracts import postgres
from tests.store_faults.kill9 import _ACK, acks_until_death
from tests.store_faults.script import SEGMENT_BYTES, Host, Model
from tests.sweep import Deadline, until

SEED = 11
Opened = Callable[[], SqlStore]


def opened(address: Address) -> SqlStore:
    return SqlStore(
        Database(address),
        "rig",
        "h1",
        owner=StoreOwner("c", "b", "", "1"),
        monotonic_ns=SystemClock().monotonic_ns,
        segment_bytes=SEGMENT_BYTES,
    )


def host_of(store: SqlStore, seed: int) -> Host:
    return Host(cast(Any, store), seed)


def start(address: Address, seed: int) -> tuple[int, int]:
    """A child that goes on with the script until it is killed: (pid, read end of its pipe)."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reader)
            host = host_of(opened(address), seed)
            while True:
                os.write(writer, _ACK.pack(host.step()))
                host.settle()
        except BaseException as error:  # noqa: BLE001  # a forked child must not run on as its parent
            print(f"child: {error!r}", flush=True)
        finally:
            os._exit(3)
    os.close(writer)
    return pid, reader


def kill_writers(address: Address, seed: int, kills: int, seconds: float | None = None) -> int:
    draw, model, counted = random.Random(seed), Model(seed), 0
    for number in until(Deadline(seconds), range(kills)):
        acked, status = acks_until_death(*start(address, seed), draw.randrange(1, 40))
        assert os.WIFSIGNALED(status), f"kill {number}: the child ended by itself: {status}"
        assert os.WTERMSIG(status) == signal.SIGKILL
        counted += 1
        store = reopened(address)
        host = host_of(store, seed)
        acked = max(acked, model.number)
        assert host.model.number in (acked, acked + 1), f"kill {number}: {acked} acknowledged"
        model.advance_to(host.model.number)
        host.check(model)
        store.close()
    return counted


def reopened(address: Address) -> SqlStore:
    """PostgreSQL needs a moment to see that the process before has ended."""
    clock = SystemClock()
    for _ in range(200):
        try:
            return opened(address)
        except StoreError as error:
            if "is open in process" not in str(error):
                raise
            clock.sleep(0.05)
    raise AssertionError("the lock of a dead process stays")


def test_a_killed_writer_of_sqlite_loses_nothing(tmp_path: Path) -> None:
    address = Address("sqlite", f"sqlite:///{tmp_path}/store.db", embedded=True)
    assert kill_writers(address, SEED, kills=3) == 3


@pytest.mark.sweep
def test_many_killed_writers_of_sqlite_lose_nothing(tmp_path: Path, sweep_seconds: float) -> None:
    address = Address("sqlite", f"sqlite:///{tmp_path}/store.db", embedded=True)
    assert kill_writers(address, SEED + 1, kills=10_000, seconds=sweep_seconds)


@pytest.fixture
def server() -> Iterator[postgres.Server]:
    with postgres.server() as found:
        yield found


def tables(server: postgres.Server) -> Address:
    address = Address("postgresql", server.url)
    StoreTables(Database(address), "rig", "c", "b").create()
    return address


@pytest.mark.sweep
@pytest.mark.xdist_group("postgres")
def test_many_killed_writers_of_postgresql_lose_nothing(server: postgres.Server, sweep_seconds: float) -> None:
    assert kill_writers(tables(server), SEED + 2, kills=10_000, seconds=sweep_seconds)


class Writer(threading.Thread):
    """Goes on with the script until its store fails; ``enough`` is set after so many operations."""

    def __init__(self, host: Host, wanted: int) -> None:
        super().__init__()
        self.acked = host.model.number
        self.enough = threading.Event()
        self.failed: StoreError | None = None
        self._host = host
        self._wanted = wanted

    def run(self) -> None:
        try:
            while True:
                self.acked = self._host.step()
                self._host.settle()
                self._wanted -= 1
                if self._wanted <= 0:
                    self.enough.set()
        except StoreError as error:
            self.failed = error
            self.enough.set()


@pytest.mark.sweep
@pytest.mark.xdist_group("postgres")
def test_a_killed_postgresql_loses_nothing_that_was_acknowledged(server: postgres.Server, sweep_seconds: float) -> None:
    address, draw, model, kills = tables(server), random.Random(SEED), Model(SEED), 0
    for _ in until(Deadline(sweep_seconds * 2), range(1000)):
        store = reopened(address)
        host = host_of(store, SEED)
        writer = Writer(host, draw.randrange(1, 60))
        writer.start()
        assert writer.enough.wait(60)
        server.kill()
        writer.join(60)
        assert not writer.is_alive(), "a commit waits for a database that is gone"
        assert "failed and was stopped" in str(writer.failed)
        with pytest.raises(StoreError):
            host.step()
        store.close()
        kills += 1
        server.start()
        store = reopened(address)
        host = host_of(store, SEED)
        assert host.model.number in (writer.acked, writer.acked + 1)
        model.advance_to(host.model.number)
        host.check(model)
        store.close()
    assert kills
