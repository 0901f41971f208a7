"""Compression by the broker of what it stores and pages: it is smaller on disk, and nobody sees another message."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import raybroker as rb
from tests.contracts.conftest import OneStore
from tests.contracts.handles import bodies, create, state_of, take, until

ON: dict[str, Any] = {"raybroker__store__message_compression_enabled": True, "raybroker__memory__block_cache_bytes": 0}
OFF: dict[str, Any] = {"raybroker__memory__block_cache_bytes": 0}
TEXT = "departure of a flight, delayed " * 100
COUNT = 40


def stored(connection: Any) -> Any:
    (row,) = connection.admin().query_store()
    return row


def test_stored_bodies_are_compressed_count_as_they_came_and_come_back(store: OneStore) -> None:  # W-52
    connection = store.open(**ON).connect()
    name = create(connection, "q")
    session = connection.session(ack="client")
    producer = session.producer(name)
    producer.send_many([f"{n}{TEXT}" for n in range(COUNT)], properties=[{"n": n} for n in range(COUNT)])
    noise = random.Random(3).randbytes(len(TEXT))
    producer.send(noise)
    came = sum(len(f"{n}{TEXT}") for n in range(COUNT)) + len(noise)
    assert state_of(connection, name)["bytes"] == came, "limits count what came"
    row = stored(connection)
    assert row["compressed_blocks"] > 0
    assert row["compression_saved_bytes"] > came // 2
    assert row["live_bytes"] < came // 4
    (host,) = connection.admin().query_broker()["hosts"]
    assert host["compression_saved_bytes"] == row["compression_saved_bytes"]
    chosen = session.consumer(name, selector="n = 7")
    assert bodies(take(chosen, 1)) == [f"7{TEXT}"]
    chosen.close()
    # Whatever the property says by then: what was compressed is opened, and both lie side by side.
    connection = store.crash(**OFF).connect()
    connection.session().producer(name).send(TEXT)
    assert stored(connection)["compressed_blocks"] == 0
    connection = store.crash(**ON).connect()
    found = take(connection.session().consumer(name), COUNT + 2)
    assert bodies(found) == [*(f"{n}{TEXT}" for n in range(COUNT)), noise, TEXT]


def test_it_is_switched_while_the_broker_runs_and_transactions_have_it_too(store: OneStore) -> None:
    connection = store.open(**OFF).connect()
    name = create(connection, "q")
    admin, session = connection.admin(), connection.session(transacted=True)
    session.producer(name).send(TEXT)
    session.commit()
    assert stored(connection)["compressed_blocks"] == 0
    admin.update_broker({"raybroker.store.message_compression_enabled": True})
    session.producer(name).send(TEXT)
    session.commit()
    assert stored(connection)["compressed_blocks"] == 1
    admin.update_broker({"raybroker.store.message_compression_enabled": False})
    session.producer(name).send(TEXT)
    session.commit()
    assert stored(connection)["compressed_blocks"] == 1
    connection = store.crash(**OFF).connect()
    assert bodies(take(connection.session().consumer(name), 3)) == [TEXT] * 3


def test_a_large_message_and_one_with_a_file_of_its_own_come_back(store: OneStore) -> None:
    properties = {**ON, "imq__persist__file__message__max_record_size": "10k"}
    connection = store.open(**properties).connect()
    name = create(connection, "q", maxBytesPerMsg=-1, maxTotalMsgBytes=-1)
    sent = [b"a" * (3 << 20), random.Random(4).randbytes(50_000), b"b" * 500_000]
    for body in sent:
        connection.session().producer(name).send(body)
    connection = store.crash(**properties).connect()
    assert bodies(take(connection.session().consumer(name), 3)) == sent


@pytest.mark.parametrize("on", [True, False])
def test_paged_bodies_are_compressed_where_that_is_wanted(tmp_path: Path, *, on: bool) -> None:
    properties = {
        "raybroker.paging.message_buffer_bytes": "64k",
        "raybroker.paging.directory": str(tmp_path),
        "raybroker.paging.message_compression_enabled": on,
    }
    count = 4_000
    with rb.loopback(properties=properties) as connection:
        admin = connection.admin()
        admin.create_destination("queue", "q", maxNumMsgs=-1, maxTotalMsgBytes=-1)
        producer = connection.session().producer("q", persistent=False)
        producer.send_many([f"{n}{TEXT}" for n in range(count)])
        out = count * len(TEXT) // 2

        def host() -> Any:
            return admin.query_broker()["hosts"][0]

        if on:
            until(lambda: host()["paging_compression_saved_bytes"] > out)
            assert 0 < host()["paged_bytes"] < out // 5
        else:
            until(lambda: host()["paged_bytes"] > out)
            assert host()["paging_compression_saved_bytes"] == 0
        consumer = connection.session().consumer("q")
        found: list[str] = []
        while len(found) < count:
            found += bodies(consumer.receive_many(1_000, timeout=60))
        assert found == [f"{n}{TEXT}" for n in range(count)]
