"""Stores in the hands of administrators: query store, compact dst."""

from __future__ import annotations

import pytest

from raybroker.errors import IllegalStateError, InvalidDestinationError
from tests.contracts.conftest import FILES, OneStore
from tests.contracts.handles import DMQ, create, take


def test_compaction_gives_back_what_nobody_needs_and_keeps_every_message(store: OneStore) -> None:
    """A-38, P-12: the destination is paused first; none named is all."""
    connection = store.open().connect()
    admin, session = connection.admin(), connection.session(ack="client")
    many, few = create(connection, "many"), create(connection, "few")
    for number in range(60):  # Two queues in turn, so that no segment is free of what is kept.
        session.producer(many).send(bytes(100_000))
        session.producer(few).send(bytes([number]) * 2_000)
    take(session.consumer(many), 60)[-1].acknowledge()
    (before,) = admin.query_store()
    sizes = {row["name"]: (row["blocks"], row["bytes"] // 1000) for row in before["destinations"]}
    assert sizes["few"][0] == 60
    assert 120 <= sizes["few"][1] < 130
    assert sizes["many"] == (0, 0)
    assert before["used_bytes"] == before["live_bytes"] + before["garbage_bytes"]
    for refused in ((), ("queue", few)):
        with pytest.raises(IllegalStateError, match="not paused"):
            admin.compact_destination(*refused)
    admin.pause_destination("queue", few)
    with pytest.raises(IllegalStateError, match="many is not paused"):
        admin.compact_destination()
    (row,) = admin.compact_destination("queue", few)
    (after,) = admin.query_store()
    assert row["done"]
    assert row["freed_bytes"] == before["reserved_bytes"] - after["reserved_bytes"]
    assert after["garbage_bytes"] < 100_000 < row["garbage_before"]
    assert after["segments"] <= 2 < before["segments"]
    assert after["live_bytes"] == before["live_bytes"]
    with pytest.raises(InvalidDestinationError):
        admin.compact_destination("queue", "nowhere")
    connection = store.crash().connect()
    connection.admin().resume_destination("queue", few)
    assert [message.body[0] for message in take(connection.session().consumer(few), 60)] == list(range(60))


@FILES
def test_a_large_message_has_a_file_of_its_own_until_it_is_consumed(store: OneStore) -> None:
    """P-07, P-09: through transactions, dead-lettering and a crash."""
    properties = {"imq__persist__file__message__max_record_size": "100k", "imq__persist__file__message__cleanup": True}
    connection = store.open(**properties).connect()
    name = create(connection, "large")
    session = connection.session(transacted=True)
    for number in range(3):
        session.producer(name).send(bytes([number]) * 300_000)
        session.producer(name).send(bytes([number]) * 100)
    session.commit()
    (row,) = connection.admin().query_store()
    assert row["large_files"] == 3
    assert 900_000 <= row["large_bytes"] <= row["destinations"][0]["bytes"] < 910_000
    connection = store.crash(**properties).connect()
    session = connection.session(ack="client")
    first, *rest = take(session.consumer(name), 6)
    assert [(len(message.body), message.body[0]) for message in (first, *rest)] == [
        (size, number) for number in range(3) for size in (300_000, 100)
    ]
    first.reject("too large")
    rest[-1].acknowledge()
    (dead,) = take(connection.session().consumer(DMQ), 1)
    assert dead.body == bytes(300_000)
    connection.admin().pause_destination("queue", name)
    connection.admin().compact_destination("queue", name)
    (row,) = connection.admin().query_store()
    assert (row["large_files"], row["free_files"]) == (1, 0), "the dead one, whose consumer has it in hand"
