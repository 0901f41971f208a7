"""What comes again after its broker was killed is flagged, wherever it was on its way; clients outlive the broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.cluster_rig import ClusterRig
from tests.contracts.handles import buffered, take, until

SOON = {"imqReconnectInterval": 50, "imqReconnectAttempts": -1}


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[ClusterRig]:
    with ClusterRig(tmp_path, 1) as made:
        yield made


def killed_and_started(rig: ClusterRig) -> None:
    rig.kill("b1")
    rig.start("b1")
    rig.wait_until_open()


def flags(messages: list[Any]) -> list[tuple[int, bool]]:
    return sorted((message.body, message.redelivered) for message in messages)


def test_what_was_received_or_prefetched_is_flagged_and_what_never_left_is_not(rig: ClusterRig) -> None:
    connection, name = rig.connect(**SOON), rig.name()
    with connection.session(ack="client") as session:
        session.producer(name).send_many([1, 2, 3, 4, 5])
        consumer = session.consumer(name, prefetch=3)
        take(consumer, 1)[0].acknowledge_this()
        received = take(consumer, 1)
        assert flags(received) == [(2, False)]
        until(lambda: buffered(consumer))
        killed_and_started(rig)
        again = take(consumer, 3)
        for message in again:
            message.acknowledge_this()
        again += take(consumer, 1)
    assert [number for number, _ in flags(again)] == [2, 3, 4, 5]
    assert flags(again)[:2] == [(2, True), (3, True)]
    assert flags(again)[3] == (5, False)


@pytest.mark.parametrize("received", [False, True])
def test_an_id_is_known_after_a_kill_as_long_as_what_took_it_lives(rig: ClusterRig, received: bool) -> None:
    """One that was not persistent has gone with its id: whoever sends it again sends another message, not flagged."""
    connection, name = rig.connect(**SOON), rig.name()
    connection.admin().create_destination("queue", name, duplicateWindowMs=600_000)
    with connection.session(ack="client") as session:
        producer = session.producer(name)
        producer.send(1, dedup_id="kept")
        producer.send(2, dedup_id="gone", persistent=False)
        until(lambda: connection.admin().query_destination("queue", name)["messages"] == 2)
        consumer = session.consumer(name) if received else None
        if consumer is not None:
            assert flags(take(consumer, 2)) == [(1, False), (2, False)]
        killed_and_started(rig)
        producer.send(1, dedup_id="kept")
        producer.send(2, dedup_id="gone", persistent=False)
        consumer = consumer or session.consumer(name)
        assert flags(take(consumer, 2)) == [(1, received), (2, False)]
        assert consumer.receive(timeout=0.1) is None
