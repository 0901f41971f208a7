"""Failures by their cause (N8): counted apart, each with its limit and where the dead go."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray.exceptions

import raybroker as rb
from raybroker.client.consumer.failure_causes import cause_of
from raybroker.errors import ConfigError, MessageFormatError, UnreadableError
from tests.contracts.handles import create, until

DMQ = "mq.sys.dmq"


@pytest.fixture
def connection() -> Iterator[Any]:
    with rb.loopback(broker="causes") as found:
        yield found


def received(consumer: Any) -> Any:
    message = consumer.receive(timeout=10)
    assert message is not None
    return message


def test_each_cause_has_its_count_and_its_limit(connection: Any) -> None:
    """A storm of preemptions kills nothing; the third time without memory sends it where there is more"""
    admin = connection.admin()
    create(connection, "large")
    name = create(
        connection,
        "q",
        redeliveryLimit=1,
        redeliveryLimitByCause="oom=2, preempted=-1",
        errorDestinationByCause="oom=large",
    )
    connection.session().producer(name).send("work")
    consumer = connection.session(ack="client").consumer(name)
    for _ in range(30):
        received(consumer).fail(0, cause="preempted")
    received(consumer).fail(0, "no such customer")
    for _ in range(2):
        received(consumer).fail(0, MemoryError("no room"))
    message = received(consumer)
    (row,) = admin.why("message", message.id, name)
    (past,) = row["history"]
    assert past["causes"] == {"oom": 2, "preempted": 30}
    assert past["causes_max"] == {"oom": 2, "preempted": -1}
    assert past["failures"] == 1
    assert "by the cause oom (2 are allowed)" in past["text"]
    message.fail(0, cause="oom")
    dead = received(connection.session().consumer("large"))
    assert dead.properties["RAYBROKER_CAUSE"] == "oom"
    assert dead.properties["JMS_SUN_DMQ_UNDELIVERED_REASON"] == "UNDELIVERABLE"
    comment = dead.properties["JMS_SUN_DMQ_UNDELIVERED_COMMENT"]
    assert comment == "failed 3 times by the cause oom, 2 are allowed; others: error 1, preempted 30"
    counted = admin.metrics()[0]["types"]["queue"]["failed_deliveries_total"]
    assert (counted["oom"], counted["preempted"], counted["error"], counted["lost"]) == (3, 30, 1, 0)


def test_counts_are_there_after_a_restart(tmp_path: Path) -> None:
    with rb.loopback(tmp_path) as connection:
        name = create(connection, "q", redeliveryLimitByCause="oom=1")
        connection.session().producer(name).send("work")
        received(connection.session(ack="client").consumer(name)).fail(0, cause="oom")
    with rb.loopback(tmp_path) as connection:
        consumer = connection.session(ack="client").consumer("q")
        received(consumer).fail(0, cause="timeout")
        received(consumer).fail(0, cause="oom")
        dead = received(connection.session().consumer(DMQ))
        assert dead.properties["RAYBROKER_CAUSE"] == "oom"


def test_a_deadline_that_passes_counts_where_the_destination_says_so(connection: Any) -> None:
    name = create(connection, "q", redeliveryLimitByCause="timeout=0")
    connection.session().producer(name).send("work")
    slow = connection.session(ack="client").consumer(name, ack_timeout_ms=20)
    received(slow)
    dead = received(connection.session().consumer(DMQ))
    assert dead.properties["RAYBROKER_CAUSE"] == "timeout"


def test_what_a_listener_raises_tells_the_cause(connection: Any) -> None:
    """An exception of Ray, and one within the error of a task"""
    name = create(connection, "q", redeliveryLimit=0, redeliveryLimitByCause="oom=1, timeout=3")
    seen = []

    def handle(message: Any) -> None:
        seen.append(message.delivery_count)
        raise MemoryError if len(seen) < 3 else RuntimeError

    consumer = connection.session().consumer(name)
    connection.session().producer(name).send("work")
    consumer.on_message(handle, backoff=0)
    dead = received(connection.session().consumer(DMQ))
    assert dead.properties["RAYBROKER_CAUSE"] == "oom"
    assert seen == [1, 2]


class TaskError(Exception):
    def __init__(self, cause: BaseException) -> None:
        self.cause = cause


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (ValueError("no"), "error"),
        (MemoryError(), "oom"),
        (TimeoutError(), "timeout"),
        (ray.exceptions.GetTimeoutError(), "timeout"),
        (ray.exceptions.OutOfMemoryError("no room"), "oom"),
        (ray.exceptions.WorkerCrashedError(), "lost"),
        (ray.exceptions.NodeDiedError("gone"), "lost"),
        (ray.exceptions.ActorDiedError(), "lost"),
        (ray.exceptions.ActorUnavailableError("away", None), "lost"),
        (TaskError(ray.exceptions.OutOfMemoryError("no room")), "oom"),
        (TaskError(TaskError(ValueError("no"))), "error"),
    ],
)
def test_the_cause_of_an_exception(error: BaseException, cause: str) -> None:
    assert cause_of(error) == cause


def test_an_actor_on_a_node_that_was_taken_away_was_preempted() -> None:
    class TakenAwayError(ray.exceptions.ActorDiedError):  # type: ignore[misc]  # Ray makes the word of its own notes
        preempted = True

    assert cause_of(TakenAwayError()) == "preempted"


def test_wrong_causes_and_attributes_are_refused_by_name(connection: Any) -> None:
    name = create(connection, "q")
    connection.session().producer(name).send("work")
    message = received(connection.session(ack="client").consumer(name))
    with pytest.raises(MessageFormatError, match="cause='bad luck'"):
        message.fail(cause="bad luck")
    admin = connection.admin()
    for attribute, value, match in (
        ("redeliveryLimitByCause", "error=3", "no cause"),
        ("redeliveryLimitByCause", "oom", "CAUSE=VALUE"),
        ("redeliveryLimitByCause", "oom=255", "-1 .no limit. to 254"),
        ("redeliveryLimitByCause", "oom=1,oom=2", "twice"),
        ("errorDestinationByCause", "oom=a b", "errorDestinationByCause"),
    ):
        with pytest.raises(ConfigError, match=match):
            admin.update_destination("queue", name, **{attribute: value})


def test_what_cannot_be_decoded_anywhere_is_dead_on_first_sight(connection: Any) -> None:
    """And what is only not allowed here is not"""
    damaged = UnreadableError("cut off")
    damaged.damaged = True
    assert cause_of(damaged) == "poison"
    name = create(connection, "q")
    connection.session().producer(name).send("broken")
    consumer = connection.session(ack="client").consumer(name)
    received(consumer).fail(0, damaged)
    assert received(connection.session().consumer(DMQ)).properties["RAYBROKER_CAUSE"] == "poison"
    consumer.close()
    connection.session().producer(name, serializer="pickle").send({1, 2})
    seen: list[int] = []

    def handle(message: Any) -> None:
        seen.append(message.delivery_count)
        message.body  # noqa: B018 - raises

    connection.session().consumer(name).on_message(handle, backoff=0.01)
    until(lambda: len(seen) >= 3)
