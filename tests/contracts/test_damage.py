"""A damaged message: its destination halts, an administrator sees which it is, skips it, and the rest is delivered."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import raybroker as rb
from raybroker import aio
from raybroker.errors import IllegalStateError, ResourceAllocationError, StoreDamagedError
from tests.contracts.handles import WAIT_S, bodies, state_of, take

DMQ = "mq.sys.dmq"
DAMAGED = 20


def opened(store: Path) -> Any:
    """Nothing is kept in memory, so that what is delivered was read."""
    properties = {"raybroker.store.segment_bytes": "1m", "raybroker.memory.block_cache_bytes": 0}
    connection = rb.loopback(store, properties=properties)
    connection.start()
    return connection


def body(n: int) -> str:
    return f"message number {n:04d} " * 5


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A queue of 40 messages, of which one has rotted."""
    store = tmp_path / "store"
    connection = opened(store)
    producer = connection.session().producer("q")
    for n in range(40):
        producer.send(body(n))
    connection.close()
    rot(store, body(DAMAGED))
    return store


def test_damage_that_halts_a_destination_is_an_error_in_the_log(store: Path, caplog: pytest.LogCaptureFixture) -> None:
    connection = opened(store)
    received(connection.session().consumer("q"))
    connection.close()
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert line.startswith("[B3182] queue q is halted: ")
    assert "segment-000001" in line
    assert "skip msg" in line


def rot(store: Path, text: str) -> None:
    for segment in store.glob("segment-*"):
        data = bytearray(segment.read_bytes())
        at = data.find(text.encode())
        if at >= 0:
            data[at + 3] ^= 1
            segment.write_bytes(data)
            return
    raise AssertionError(f"{text!r} is not stored")


def received(consumer: Any) -> list[str]:
    """What comes before the destination is halted."""
    found: list[str] = []
    while True:
        try:
            message = consumer.receive(timeout=WAIT_S)
        except StoreDamagedError:
            return found
        assert message is not None
        found.append(message.body)


def test_what_is_behind_a_damaged_message_is_delivered_once_that_is_skipped(store: Path) -> None:
    connection = opened(store)
    before = received(connection.session(ack="client").consumer("q"))
    assert before == [body(n) for n in range(len(before))]
    admin = connection.admin()
    row = admin.query_destination("queue", "q")
    assert row["state"] == "HALTED"
    (damaged,) = row["damaged"]
    assert damaged["messages"] == 1
    assert len(damaged["ids"]) == 1
    assert "damaged" in damaged["error"]
    assert admin.skip_messages("queue", "q") == 1
    assert admin.query_destination("queue", "q")["state"] == "RUNNING"
    found = bodies(take(connection.session().consumer("q"), 39))
    assert sorted(found) == [body(n) for n in range(40) if n != DAMAGED]
    connection.close()
    connection = opened(store)
    assert connection.session().consumer("q").receive(timeout=0.1) is None
    (record,) = connection.admin().browse_messages("queue", DMQ, body_bytes_max=4096)["messages"]
    assert record["properties"]["RAYBROKER_QUARANTINE"] == "queue:q"
    assert record["properties"]["RAYBROKER_QUARANTINED_IDS"] == damaged["ids"][0]
    assert body(DAMAGED)[10:].encode() in record["body"], "what can be read of it is kept"
    assert connection.admin().retry_messages() == 0, "a record is no message to be sent back"
    connection.close()


def test_what_can_be_read_is_browsed_and_exported_before_anything_is_skipped(store: Path) -> None:
    connection = opened(store)
    admin = connection.admin()
    readable = [body(n) for n in range(40) if n != DAMAGED]
    for _ in range(2):  # The first one finds the damage.
        rows = admin.browse_messages("queue", "q", body_bytes_max=4096)["messages"]
        assert [row["body"] for row in rows] == readable
    assert [message.body for message in connection.session().browser("q")] == readable
    blocks = admin.export_messages("queue", "q")["blocks"]
    admin.create_destination("queue", "copy")
    assert admin.import_messages("queue", "copy", blocks) == 39
    assert state_of(connection, "q")["messages"] == 40, "nothing was taken"
    connection.close()


def test_acknowledging_what_a_halted_destination_has_taken_back_raises(store: Path) -> None:
    connection = opened(store)
    session = connection.session(ack="client")
    consumer = session.consumer("q", prefetch=DAMAGED + 5)
    first = consumer.receive(timeout=WAIT_S)
    received(consumer)
    with pytest.raises(IllegalStateError, match=r"its consumer has ended: .* are damaged"):
        first.acknowledge()
    connection.close()


def test_skipping_where_nothing_is_damaged_does_nothing(tmp_path: Path) -> None:
    connection = opened(tmp_path / "store")
    connection.session().producer("q").send("x")
    assert connection.admin().skip_messages("queue", "q") == 0
    assert "damaged" not in connection.admin().query_destination("queue", "q")
    assert bodies(take(connection.session().consumer("q"), 1)) == ["x"]
    connection.close()


def test_nothing_is_skipped_while_there_is_no_place_for_the_record(store: Path) -> None:
    connection = opened(store)
    admin = connection.admin()
    admin.browse_messages("queue", "q")
    admin.update_destination("queue", DMQ, maxNumMsgs=1, limitBehavior="REJECT_NEWEST")
    producer = connection.session().producer(DMQ)
    producer.send("full")
    with pytest.raises(ResourceAllocationError, match=DMQ):
        admin.skip_messages("queue", "q")
    assert state_of(connection, "q")["messages"] == 40
    assert len(admin.query_destination("queue", "q")["damaged"]) == 1
    connection.close()


async def _skipped(store: Path) -> tuple[int, str]:
    properties = {"raybroker.store.segment_bytes": "1m", "raybroker.memory.block_cache_bytes": 0}
    async with await aio.loopback(store, properties=properties) as connection:
        admin = connection.admin()
        await admin.browse_messages("queue", "q")
        count = await admin.skip_messages("queue", "q")
        return count, (await admin.query_destination("queue", "q"))["state"]


def test_coroutines_skip_too(store: Path) -> None:
    assert asyncio.run(asyncio.wait_for(_skipped(store), 60)) == (1, "RUNNING")
