"""Bounded staleness: versions of messages against the one that is published, and trainers that starve (N9)."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import raybroker as rb
from raybroker import aio
from raybroker.errors import ConfigError, IllegalStateError, MessageFormatError
from raybroker.examples import stale_rollouts
from tests.contracts.cluster_rig import ClusterRig
from tests.contracts.conftest import OneStore
from tests.contracts.handles import DMQ, create, until

NUMBERS = itertools.count()


@pytest.fixture
def connection() -> Iterator[Any]:
    with rb.loopback(broker="staleness") as found:
        yield found


def versioned(connection: Any, **attributes: Any) -> str:
    return create(connection, f"q{next(NUMBERS)}", versionKey="version", **attributes)


def send(connection: Any, name: str, *versions: int | None) -> None:
    """Messages whose bodies are their versions."""
    producer = connection.session().producer(name)
    for version in versions:
        producer.send(version, {} if version is None else {"version": version})


def bodies(connection: Any, name: str, count: int) -> list[Any]:
    consumer = connection.session(ack="client").consumer(name, prefetch=1)
    found = []
    for _ in range(count):
        message = consumer.receive(timeout=10)
        assert message is not None
        found.append(message.body)
        message.acknowledge_this()
    assert consumer.receive(timeout=0.1) is None
    consumer.close()
    return found


def row(connection: Any, name: str) -> Any:
    return connection.admin().query_destination("queue", name)


def test_stale_messages_are_dead_with_a_reason(connection: Any) -> None:
    """Also those that come stale; one without a version never is"""
    name = versioned(connection, maxStaleness=1)
    send(connection, name, 3, 4, 5, None)
    assert (row(connection, name)["version"], row(connection, name)["messages"]) == (None, 4)
    connection.admin().publish_version("queue", name, 5)
    send(connection, name, 3, 7)
    assert bodies(connection, name, 4) == [4, 5, None, 7]
    until(lambda: row(connection, name)["messages"] == 0)
    assert (row(connection, name)["version"], row(connection, name)["stale"]) == (5, 2)
    dead = connection.session().consumer(DMQ)
    for _ in range(2):
        message = dead.receive(timeout=10)
        assert message.body == 3
        assert message.properties["JMS_SUN_DMQ_UNDELIVERED_REASON"] == "STALE"
        assert "maxStaleness=1" in message.properties["JMS_SUN_DMQ_UNDELIVERED_COMMENT"]
    totals = connection.admin().metrics()[0]["types"]["queue"]
    assert totals["stale_messages_total"] == 2


def test_they_are_discarded_or_go_last_as_the_policy_says(connection: Any) -> None:
    name = versioned(connection, stalenessPolicy="Discard")
    connection.admin().publish_version("queue", name, 2)
    send(connection, name, 1, 2)
    assert bodies(connection, name, 1) == [2]
    assert connection.session().consumer(DMQ).receive(timeout=0.1) is None
    name = versioned(connection, stalenessPolicy="Last")
    send(connection, name, 1, 2, 1, 2)
    connection.admin().publish_version("queue", name, 2)
    assert [one["code"] for one in connection.admin().why("destination", name)[0]["reasons"]] == ["no_consumer"]
    assert bodies(connection, name, 4) == [2, 2, 1, 1]


def test_an_older_version_is_published_only_when_that_is_said(connection: Any) -> None:
    name, plain = versioned(connection), create(connection, "q")
    admin = connection.admin()
    admin.publish_version("queue", name, 7)
    admin.publish_version("queue", name, 7)
    with pytest.raises(IllegalStateError, match=r"older than 7.*back=True"):
        admin.publish_version("queue", name, 6)
    admin.publish_version("queue", name, 6, back=True)
    assert row(connection, name)["version"] == 6
    with pytest.raises(IllegalStateError, match="versionKey"):
        admin.publish_version("queue", plain, 1)
    with pytest.raises(ConfigError, match="whole number from 0"):
        admin.publish_version("queue", name, -1)
    assert "version" not in row(connection, plain)


def test_what_does_not_go_together_is_refused_by_name(connection: Any) -> None:
    for other in ({"affinityKey": "model"}, {"destinationKeys": "JMSType"}, {"unitOfOrder": True}):
        with pytest.raises(ConfigError, match=f"versionKey and {next(iter(other))}"):
            versioned(connection, **other)
    with pytest.raises(ConfigError, match="property"):
        create(connection, "q", versionKey="JMSType")
    name = versioned(connection)
    with pytest.raises(MessageFormatError, match="unit of order"):
        connection.session().producer(name, unit_of_order="U").send("x")


def test_a_group_is_whole_and_as_old_as_its_oldest_rollout(connection: Any) -> None:
    name = versioned(connection, maxStaleness=0, unitOfWorkHandlingPolicy="SingleMessageDelivery")
    connection.admin().publish_version("queue", name, 3)
    producer = connection.session().producer(name)
    for unit, versions in (("old", (3, 2)), ("fresh", (3, 4))):
        for number, version in enumerate(versions, 1):
            keys = {"JMS_BEA_UnitOfWork": unit, "JMS_BEA_UnitOfWorkSequenceNumber": number}
            producer.send(number, {**keys, "JMS_BEA_IsUnitOfWorkEnd": number == 2, "version": version})
    message = connection.session(ack="client").consumer(name).receive(timeout=10)
    assert (message.properties["JMS_BEA_UnitOfWork"], message.properties["version"]) == ("fresh", 3)
    assert message.body == [1, 2]
    assert row(connection, name)["stale"] == 1


def test_batches_by_key_are_of_fresh_messages(connection: Any) -> None:
    name = versioned(connection, maxStaleness=0, stalenessPolicy="Last")
    producer = connection.session().producer(name)
    for number, version in enumerate((1, 2, 1, 2)):
        producer.send(number, {"version": version, "prompt": number % 2})
    connection.admin().publish_version("queue", name, 2)
    batch = rb.Batch(max_messages=2, key="prompt", deadline_s=0.05)
    consumer = connection.session(ack="client").consumer(name, batch=batch)
    assert [[one.body for one in consumer.receive_batch(timeout=10)] for _ in range(2)] == [[1, 3], [0, 2]]


def test_a_trainer_that_starves_is_told_of(connection: Any, caplog: pytest.LogCaptureFixture) -> None:
    """In the log, a check, why, and metrics, until it has something"""
    caplog.set_level(logging.INFO)
    name = versioned(connection, starvationTime=200)
    consumer = connection.session(ack="client").consumer(name, prefetch=1)
    admin = connection.admin()

    def check() -> Any:
        (found,) = [one for one in admin.check_destination("queue", name) if one["check"] == "starvation"]
        return found

    assert check()["grade"] == "ok"
    until(lambda: row(connection, name)["starved_ms"] >= 200)
    assert (check()["grade"], check()["value"] >= 0.2) == ("warning", True)
    codes = [one["code"] for one in admin.why("destination", name)[0]["reasons"]]
    assert "starving" in codes
    until(lambda: any(f"queue {name} starves:" in one for one in caplog.messages))
    totals = admin.metrics()[0]["types"]["queue"]
    assert (totals["starving"], totals["starvation_seconds_total"] >= 0.2) == (1, True)
    send(connection, name, 1)
    assert consumer.receive(timeout=10) is not None
    assert (row(connection, name)["starved_ms"], check()["grade"]) == (0, "ok")
    until(lambda: any(f"queue {name} starves no more" in one for one in caplog.messages))


def test_the_version_is_there_after_a_restart(tmp_path: Path) -> None:
    """And so is what it makes of messages that wait"""
    with rb.loopback(broker="kept", store=tmp_path) as connection:
        name = versioned(connection, maxStaleness=1)
        send(connection, name, 1, 2)
        connection.admin().publish_version("queue", name, 2)
        consumer = connection.session(ack="client").consumer(name, prefetch=10)
        assert consumer.receive(timeout=10).body == 1
        connection.admin().publish_version("queue", name, 3)
    with rb.loopback(broker="kept", store=tmp_path) as connection:
        assert row(connection, name)["version"] == 3
        assert bodies(connection, name, 1) == [2]
        until(lambda: row(connection, name)["messages"] == 0)


@pytest.mark.parametrize("store", ["copies"], indirect=True)
def test_the_next_leader_of_a_queue_with_copies_has_the_version(store: OneStore) -> None:
    connection = store.open().connect()
    name = versioned(connection, stalenessPolicy="Last")
    send(connection, name, 1, 2)
    connection.admin().publish_version("queue", name, 2)
    connection = store.crash().connect()
    assert row(connection, name)["version"] == 2
    assert bodies(connection, name, 2) == [2, 1]


def test_in_a_cluster_all_members_have_the_version(tmp_path: Path) -> None:
    """And a consumer starves that has nothing from any of them"""
    with ClusterRig(tmp_path, 2) as rig:
        first, second = (rig.connect(name) for name in ("b1", "b2"))
        name = versioned(first, stalenessPolicy="Discard", starvationTime=100)
        for one in (first, second):
            send(one, name, 1, 2)
        second.admin().publish_version("queue", name, 2)
        assert bodies(first, name, 2) == [2, 2]
        assert (row(first, name)["version"], row(first, name)["stale"]) == (2, 2)
        consumer = first.session(ack="client").consumer(name, prefetch=10)
        until(lambda: row(first, name)["starved_ms"] >= 100)
        send(second, name, 3)
        assert consumer.receive(timeout=10).body == 3
        assert row(second, name)["starved_ms"] == 0


def test_the_asynchronous_face_publishes_as_well() -> None:
    async def go() -> tuple[int, Any]:
        async with await aio.loopback(broker="aiostale") as connection:
            admin = connection.admin()
            await admin.create_destination("queue", "q", versionKey="version")
            await admin.publish_version("queue", "q", 2)
            session = await connection.session()
            producer = await session.producer("q")
            for version in (1, 2):
                await producer.send(version, {"version": version})
            message = await (await session.consumer("q")).receive(timeout=10)
            return message.body, (await admin.query_destination("queue", "q"))["version"]

    assert asyncio.run(go()) == (2, 2)


def test_the_example_of_stale_rollouts_trains_on_nothing_that_is_too_old(connection: Any) -> None:
    found = stale_rollouts.run(connection, 8, 4)
    assert (found["trained"], found["too_old"], found["broken"]) == (8, 0, 0)
    assert found["stale"] > 0
