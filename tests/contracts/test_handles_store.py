"""A broker over a directory: what is there after it was closed and opened again, and what a failing disk does."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import raybroker as rb
from raybroker import aio
from raybroker.errors import BrokerError, QuotaExceededError, StoreError, StoreFullError
from raybroker.model.blocks.record import Buffer
from raybroker.store import journal as journal_package
from raybroker.store.fileio import FileIO
from raybroker.store.journal import Journal
from tests.contracts.handles import WAIT_S, bodies, state_of, take, until


def opened(folder: Path, **properties: object) -> Any:
    """A broker over the test's store, with segments that take little of the disk."""
    return rb.loopback(folder / "store", properties={"raybroker.store.segment_bytes": "1m", **properties})


# ---- closing and opening again (B-20, P-02, P-04, D-22) --------------------------------------------------------------


def test_persistent_messages_are_there_again_in_order_and_others_are_not(tmp_path: Path) -> None:
    for round_ in range(3):
        with opened(tmp_path) as connection:
            session = connection.session()
            producer = session.producer("orders")
            producer.send_many([{"round": round_, "n": n} for n in range(100)])
            producer.send("volatile", persistent=False)
            producer.send({"round": round_, "n": 100}, properties={"k": round_}, correlation_id="c", priority=8)
    with opened(tmp_path) as connection:
        assert state_of(connection, "orders")["messages"] == 303
        found = take(connection.session().consumer("orders"), 303)
        first, last = found[2], found[-1]
        assert bodies(found[:3]) == [{"round": r, "n": 100} for r in range(3)], "these have the higher priority"
        assert bodies(found[3:]) == [{"round": r, "n": n} for r in range(3) for n in range(100)]
        assert not any(m.redelivered for m in found)
        assert (first.properties, first.correlation_id, first.priority, first.persistent) == ({"k": 2}, "c", 8, True)
        assert (last.properties, last.correlation_id, last.priority, last.persistent) == ({}, None, 4, True)
    with opened(tmp_path) as connection:
        assert connection.session().consumer("orders").receive(timeout=0.05) is None


def test_what_was_handed_out_and_not_acknowledged_is_flagged_and_what_was_not_is_not(tmp_path: Path) -> None:
    with opened(tmp_path) as connection:
        session = connection.session(ack="client")
        session.producer("orders").send_many(range(10))
        consumer = session.consumer("orders", prefetch=4)
        take(consumer, 3)[1].acknowledge_this()
        assert state_of(connection, "orders")["waiting"] == 6, "four were handed out, one of them is acknowledged"
    for attempt in (2, 3):
        with opened(tmp_path) as connection:
            session = connection.session(ack="client")
            found = take(session.consumer("orders", prefetch=4), 4)
            assert bodies(found) == [0, 2, 3, 4]
            assert [m.redelivered for m in found] == [True, True, attempt > 2, attempt > 2]
            assert [m.delivery_count for m in found] == [attempt, attempt, attempt - 1, attempt - 1]


def test_acknowledged_messages_stay_gone_and_a_retried_id_is_never_used_again(tmp_path: Path) -> None:
    ids: set[str] = set()
    for _ in range(3):
        with opened(tmp_path) as connection:
            session = connection.session(ack="client")
            producer, consumer = session.producer("orders"), session.consumer("orders")
            sent = {producer.send(n) for n in range(20)}
            assert not sent & ids
            ids |= sent
            found = take(consumer, 20)
            assert {m.id for m in found} == sent
            found[-1].acknowledge()


def test_of_the_queues_those_an_administrator_made_or_with_messages_stay(tmp_path: Path) -> None:
    with opened(tmp_path, **{"imq.autocreate.queue.consumerFlowLimit": 7}) as connection:
        admin, session = connection.admin(), connection.session()
        admin.create_destination("queue", "made", maxNumMsgs=5)
        admin.update_destination("queue", "made", consumerFlowLimit=9)
        admin.create_destination("queue", "destroyed")
        session.producer("destroyed").send("x")
        admin.destroy_destination("queue", "destroyed")
        session.producer("empty")
        session.producer("volatile").send("x", persistent=False)
        session.producer("full").send("x")
    with opened(tmp_path) as connection:
        rows = {row["name"]: row for row in connection.admin().list_destinations()}
        assert set(rows) == {"made", "full", "mq.sys.dmq"}
        assert [rows["made"]["attributes"][k] for k in ("maxNumMsgs", "consumerFlowLimit")] == [5, 9]
        assert (rows["made"]["auto_created"], rows["full"]["auto_created"]) == (False, True)
        assert rows["full"]["attributes"]["consumerFlowLimit"] == 7
        assert connection.session().consumer("destroyed").receive(timeout=0.02) is None


def test_a_store_belongs_to_one_broker_at_a_time(tmp_path: Path) -> None:
    with opened(tmp_path), pytest.raises(StoreError, match="is open in process"):
        opened(tmp_path)
    opened(tmp_path).close()


def test_large_and_many_messages_survive_with_small_segments(tmp_path: Path) -> None:
    properties = {"raybroker.memory.block_cache_bytes": "64k"}
    sizes = [0, 1, 100_000, 3_000_000, 10, 700_000]
    with opened(tmp_path, **properties) as connection:
        connection.admin().create_destination("queue", "orders")
        producer = connection.session().producer("orders")
        for n, size in enumerate(sizes):
            producer.send(bytes([n]) * size)
        producer.send_many(b"x" * 1000 for _ in range(5000))
    with opened(tmp_path, **properties) as connection:
        consumer = connection.session().consumer("orders")
        assert bodies(take(consumer, len(sizes))) == [bytes([n]) * size for n, size in enumerate(sizes)]
        found: list[Any] = []
        until(lambda: found.extend(bodies(consumer.receive_many(1000, timeout=1))) or len(found) == 5000)
        assert found == [b"x" * 1000] * 5000
        consumer.close()
        assert state_of(connection, "orders")["messages"] == 0


# ---- a disk that fails (P-05) ----------------------------------------------------------------------------------------


class FailingIO(FileIO):
    """Plain files until ``fail`` is set to the name of a call; ``free`` is what the disk says it has left."""

    def __init__(self) -> None:
        self.fail: str | None = None
        self.number = errno.EIO
        self.free: int | None = None
        self.failed = threading.Event()

    def _check(self, call: str) -> None:
        if self.fail == call:
            self.failed.set()
            raise OSError(self.number, os.strerror(self.number))

    def fdatasync(self, fd: int) -> None:
        self._check("fdatasync")
        super().fdatasync(fd)

    def pwritev(self, fd: int, buffers: Sequence[Buffer], offset: int) -> int:
        self._check("pwritev")
        return super().pwritev(fd, buffers, offset)

    def fallocate(self, fd: int, nbytes: int) -> None:
        self._check("fallocate")
        super().fallocate(fd, nbytes)

    def free_bytes(self, path: Path) -> int:
        return super().free_bytes(path) if self.free is None else self.free


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> FailingIO:
    """Every journal that is opened from now on is on this disk."""
    found = FailingIO()
    monkeypatch.setattr(journal_package, "Journal", partial(Journal, io=found))
    return found


@pytest.fixture
def connection(tmp_path: Path, disk: FailingIO) -> Iterator[Any]:
    with opened(tmp_path, **{"raybroker.reconnect.timeout_ms": 2000}) as connected:
        yield connected


def test_after_a_failed_sync_nothing_is_acknowledged_and_everybody_is_told(
    tmp_path: Path, disk: FailingIO, connection: Any
) -> None:
    connection.admin().create_destination("queue", "orders")
    session = connection.session(ack="client")
    producer, consumer = session.producer("orders"), session.consumer("orders")
    producer.send_many(range(10))
    message = take(consumer, 5)[-1]
    disk.fail = "fdatasync"
    futures = [producer.send_async(n) for n in range(10, 20)]
    for future in futures:
        assert isinstance(future.exception(WAIT_S), StoreError)
    with pytest.raises(StoreError):
        producer.send("later")
    with pytest.raises(BrokerError):
        until(lambda: consumer.receive_many(100, timeout=0.01) and None)
    with pytest.raises(StoreError):
        connection.session().producer("another")
    with pytest.raises(StoreError):
        connection.admin().create_destination("queue", "another")
    try:
        message.acknowledge()
    except BrokerError:
        pass
    connection.close()
    disk.fail = None
    with opened(tmp_path) as again:
        found = take(again.session().consumer("orders"), 10)
        assert bodies(found) == list(range(10)), "what was acknowledged is there, and nothing that was not"


@pytest.mark.parametrize("call", ["fdatasync", "pwritev"])
@pytest.mark.parametrize(
    "work",
    [
        lambda c: c.admin().create_destination("queue", "orders"),
        lambda c: c.session().producer("orders"),
        lambda c: c.session().consumer("orders"),
    ],
    ids=["create", "producer", "consumer"],
)
def test_creating_a_queue_on_a_failing_disk_fails_and_does_not_hang(
    disk: FailingIO, connection: Any, work: Callable[[Any], Any], call: str
) -> None:
    disk.fail = call
    with pytest.raises(StoreError):
        work(connection)
    with pytest.raises(StoreError):
        work(connection)


CHANGES: dict[str, Callable[[Any], Any]] = {
    "update": lambda admin: admin.update_destination("queue", "orders", maxNumMsgs=5),
    "purge": lambda admin: admin.purge_destination("queue", "orders"),
    "destroy": lambda admin: admin.destroy_destination("queue", "orders"),
}


@pytest.mark.parametrize("verb", CHANGES)
def test_an_administrator_is_told_of_a_failing_disk(disk: FailingIO, connection: Any, verb: str) -> None:
    admin = connection.admin()
    admin.create_destination("queue", "orders")
    connection.session().producer("orders").send_many(range(3))
    disk.fail = "fdatasync"
    with pytest.raises(StoreError):
        CHANGES[verb](admin)


def test_a_full_disk_refuses_messages_and_lets_consumers_settle_until_there_is_room(
    tmp_path: Path, disk: FailingIO, connection: Any
) -> None:
    connection.admin().create_destination("queue", "orders")
    session = connection.session(ack="client")
    producer, consumer = session.producer("orders"), session.consumer("orders")
    disk.free, disk.fail, disk.number = 0, "fallocate", errno.ENOSPC
    stored, refusal = 0, None
    while refusal is None:
        try:
            stored += producer.send_many([b"x" * 100] * 10)
        except (StoreFullError, QuotaExceededError) as error:
            refusal = error
        assert stored < 1000
    assert refusal.definite
    assert refusal.retryable
    assert stored > 50, "the room that there was ahead is used first"
    held = state_of(connection, "orders")["messages"]
    assert stored <= held < stored + 10
    found = take(consumer, held)
    found[-1].acknowledge()
    assert state_of(connection, "orders")["messages"] == 0
    assert producer.send("small but not persistent", persistent=False)
    disk.free = disk.fail = None
    until(lambda: _accepted(producer))
    connection.close()
    with opened(tmp_path) as again:
        assert take(again.session().consumer("orders"), 1)[0].body == b"again"


def _accepted(producer: Any) -> bool:
    try:
        producer.send(b"again")
    except (StoreFullError, QuotaExceededError):
        return False
    return True


async def _told(path: Path, disk: FailingIO) -> None:
    async with await aio.loopback(path, properties={"raybroker.store.segment_bytes": "1m"}) as connection:
        session = await connection.session()
        producer = await session.producer("orders")
        await producer.send("x")
        disk.fail = "fdatasync"
        with pytest.raises(StoreError):
            await producer.send("y")


def test_a_coroutine_that_sends_is_told_too(tmp_path: Path, disk: FailingIO) -> None:
    import asyncio

    asyncio.run(asyncio.wait_for(_told(tmp_path / "store", disk), WAIT_S))
