"""Bodies that are not stored and exceed the message buffer go to paging files, and come back as they were."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import raybroker as rb
from raybroker.engine.memory import pager
from raybroker.errors import StoreDamagedError
from raybroker.services.native.native import NativeService
from tests.contracts.handles import WAIT_S, until

COUNT = 6_000
BODY = b"x" * 2_000
UNLIMITED = {"maxNumMsgs": -1, "maxTotalMsgBytes": -1}


@pytest.fixture(params=["memory", "store"])
def connection(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """A loopback that keeps next to nothing in memory."""
    properties: dict[str, Any] = {
        "raybroker.paging.message_buffer_bytes": "64k",
        "raybroker.paging.file_bytes": "4m",
        "raybroker.store.segment_bytes": "1m",
    }
    if request.param == "memory":
        properties["raybroker.paging.directory"] = str(tmp_path / "paging")
    with rb.loopback(tmp_path / "store" if request.param == "store" else None, properties=properties) as connection:
        yield connection
    assert not list(tmp_path.rglob("*.page")), "nothing is left behind"


def body(n: int) -> bytes:
    return n.to_bytes(4, "little") + BODY


def fill(connection: Any, destination: Any, count: int = COUNT) -> None:
    producer = connection.session().producer(destination, persistent=False)
    producer.send_many([body(n) for n in range(count)])
    producer.send_many([body(count + n) for n in range(5)], properties=[{"n": "rare"}] * 5)


def paged(connection: Any, kind: str, name: str) -> Callable[[], bool]:
    return lambda: connection.admin().query_destination(kind, name)["paged_bytes"] > COUNT * len(BODY) // 2


def numbers(consumer: Any, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        messages = consumer.receive_many(1_000, timeout=WAIT_S)
        assert messages, f"{len(found)} of {count} came"
        assert all(message.body[4:] == BODY for message in messages)
        found += [int.from_bytes(message.body[:4], "little") for message in messages]
    return found


def page_files(tmp_path: Path) -> list[Path]:
    return list(tmp_path.rglob("*.page"))


def test_a_queue_gives_back_what_was_paged_in_order_and_the_disk_is_freed(connection: Any, tmp_path: Path) -> None:
    admin = connection.admin()
    admin.create_destination("queue", "q", **UNLIMITED)
    fill(connection, "q")
    until(paged(connection, "queue", "q"))
    assert page_files(tmp_path)
    assert admin.query_broker()["hosts"][0]["paged_bytes"] > 0
    rare = connection.session().consumer("q", selector="n = 'rare'")
    assert numbers(rare, 5) == list(range(COUNT, COUNT + 5))
    rare.close()
    taker = connection.session().consumer("q")
    assert numbers(taker, COUNT) == list(range(COUNT))
    taker.close()  # Which confirms the last of them.
    until(lambda: not page_files(tmp_path))
    assert admin.query_destination("queue", "q")["paged_bytes"] == 0


def test_producers_wait_while_bodies_come_faster_than_they_can_be_written(
    connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, nbytes in {"LEAVING_HIGH": 1 << 20, "LEAVING_LOW": 1 << 19, "BATCH_BYTES": 1 << 18}.items():
        monkeypatch.setattr(pager, name, nbytes)
    held: list[int] = []
    hold = NativeService.hold
    monkeypatch.setattr(NativeService, "hold", lambda service, one: (held.append(1), hold(service, one))[1])
    name = "fast"
    connection.admin().create_destination("queue", name, **UNLIMITED)
    producer = connection.session().producer(name, persistent=False)
    for n in range(COUNT):
        producer.send(body(n))
    until(lambda: connection.admin().query_destination("queue", name)["messages"] == COUNT)
    assert held
    assert numbers(connection.session(ack="none").consumer(name), COUNT) == list(range(COUNT))


def test_one_lazy_subscriber_reads_from_the_disk_and_no_other_one_does(connection: Any, tmp_path: Path) -> None:
    topic = connection.session().topic("t")
    connection.admin().create_destination("topic", "t", **UNLIMITED)
    lazy, quick = (connection.session().consumer(topic, prefetch=500) for _ in range(2))
    producer = connection.session().producer(topic)  # Persistent, but no durable subscription wants it.
    for first in range(0, COUNT, 500):
        producer.send_many([body(n) for n in range(first, first + 500)])
        assert numbers(quick, 500) == list(range(first, first + 500))
    until(paged(connection, "topic", "t"))
    assert numbers(lazy, COUNT) == list(range(COUNT))
    assert [consumer.receive(timeout=0.01) for consumer in (lazy, quick)] == [None, None]  # Acknowledges the last ones.
    until(lambda: not page_files(tmp_path))


def test_a_purge_frees_the_disk_and_damage_halts_one_destination(connection: Any, tmp_path: Path) -> None:
    admin = connection.admin()
    for name in ("q", "other"):
        admin.create_destination("queue", name, **UNLIMITED)
    fill(connection, "q")
    until(paged(connection, "queue", "q"))
    for path in page_files(tmp_path):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    consumer = connection.session().consumer("q")
    with pytest.raises(StoreDamagedError):
        numbers(consumer, COUNT)
    assert admin.query_destination("queue", "q")["state"] == "HALTED"
    producer = connection.session().producer("other", persistent=False)
    producer.send("well")
    assert connection.session().receive("other", timeout=WAIT_S).body == "well"
    admin.purge_destination("queue", "q")
    until(lambda: not page_files(tmp_path))
